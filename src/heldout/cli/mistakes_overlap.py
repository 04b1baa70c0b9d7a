"""``heldout mistakes overlap`` and ``heldout mistakes diff``: two models' mistakes side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import note, print_table, say
from heldout.cli.mistakes_inputs import (
    CollapseOption,
    Inputs,
    MistakesOption,
    SetOption,
    TruthsOption,
    read_inputs,
)
from heldout.cli.mistakes_records import SHOWN, SaveOption, TopOption, hand_over
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.mistakes.between_models import ChangedImage, Changes, Overlap
    from heldout.measure.mistakes.confusions import ConfusionChange
    from heldout.measure.score.records import Comparison, Record


def overlap(
    testset: SetOption = None,
    model: ModelOption = None,
    truth: TruthsOption = None,
    mistakes: MistakesOption = None,
    of: Annotated[
        str | None,
        typer.Option("--of", help="Only pairs with this model, which stands first in them."),
    ] = None,
    top: TopOption = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    level: LevelOption = 0.95,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """How many mistakes two models share, and how often they then say the same class."""
    from heldout.measure.mistakes.between_models import overlaps

    inputs = read_inputs(
        testset,
        truths=truth,
        models=model,
        exclude=exclude,
        mistakes=mistakes,
        workspace=workspace,
    )
    found: list[tuple[str, list[Overlap]]] = []
    rows: list[dict[str, Any]] = []
    for verdicts in inputs.verdicts(collapse=collapse, label_map=label_map):
        pairs = None
        if of is not None:
            verdicts.position(of)
            pairs = [(of, other) for other in verdicts.models if other != of]
        # Models that are more alike than their accuracies explain come first.
        items = sorted(
            overlaps(verdicts, pairs, level=level),
            key=lambda o: (2.0 if o.kappa is None else -o.kappa, o.model, o.other),
        )
        name = verdicts.truth.name
        found.append((f"{verdicts.testset.name}, truth {name}", items))
        rows += [
            {"record": "overlap", "testset": verdicts.testset.name, "truth": name, **asdict(item)}
            for item in items[:top]
        ]

    def show() -> None:
        for title, items in found:
            shown = items[: top or SHOWN]
            some = (
                f", the first {len(shown):,} of {len(items):,}" if len(shown) < len(items) else ""
            )
            _show_overlaps(f"{title}: mistakes that two models share{some}", shown)

    hand_over([], rows, as_json=as_json, save=save, show=show)


def _show_overlaps(title: str, items: Sequence[Overlap]) -> None:
    def share(item: Overlap) -> str:
        if item.share is None or item.low is None or item.high is None:
            return ""
        return f"{100 * item.share:.1f} [{100 * item.low:.1f}, {100 * item.high:.1f}]"

    print_table(
        title,
        [
            "model", "other", "its mistakes", "other's", "shared", "by chance", "kappa", "same class",
            "percent of its own",
        ],
        [
            [
                item.model,
                item.other,
                f"{item.wrong:,}",
                f"{item.other_wrong:,}",
                f"{item.shared:,}",
                f"{item.expected:,.0f}",
                "" if item.kappa is None else f"{item.kappa:.3f}",
                f"{item.same:,}",
                share(item),
            ]
            for item in items
        ],
        left=2,
    )  # fmt: skip


def diff(
    old: Annotated[str, typer.Argument(help="The earlier model, or the first of two.")],
    new: Annotated[str, typer.Argument(help="The later model.")],
    testset: SetOption = None,
    truth: TruthsOption = None,
    mistakes: MistakesOption = None,
    top: TopOption = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", "-o", help="Also write a page with the images, HTML."),
    ] = None,
    level: LevelOption = 0.95,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """What a new model fixes, what it breaks, and what both miss; image by image."""
    from heldout.measure.mistakes.between_models import CHANGES, changed_images, changes
    from heldout.measure.mistakes.confusions import confusion_changes
    from heldout.measure.score.compare import compare
    from heldout.measure.score.records import Count
    from heldout.measure.score.slices import cluster_column

    named = [path.stem.removesuffix("_mistakes") for path in mistakes or []]
    inputs = read_inputs(
        testset,
        truths=truth,
        models=[name for name in (old, new) if name not in named],
        mistakes=mistakes,
        workspace=workspace,
    )
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    found: list[tuple[Changes, list[ChangedImage], list[ConfusionChange], Comparison]] = []
    for verdicts in inputs.verdicts(collapse=collapse, label_map=label_map):
        made = changes(verdicts, old, new)
        images = changed_images(made)
        pairs = confusion_changes(verdicts, old, new)
        (compared,) = compare(
            verdicts.measured(),
            [(new, old)],
            cluster=cluster_column(verdicts.testset, None),
            level=level,
        )
        found.append((made, images, pairs, compared))
        where = {"testset": verdicts.testset.name, "truth": verdicts.truth.name}
        counts: dict[str, int] = {change: len(made.rows(change)) for change in CHANGES}
        records += [
            Count(name=f"{name}_{where['truth']}", value=n, model=new, testset=where["testset"])
            for name, n in counts.items()
        ]
        same = int(made.same.sum())
        rows.append(
            {
                "record": "changes",
                **where,
                "old": old,
                "new_model": new,
                "n": len(verdicts),
                **counts,
                "same": same,
                "difference": compared.difference,
                "low": compared.low,
                "high": compared.high,
                "level": level,
                "p": compared.p,
                "test": compared.test,
                "reason": compared.reason,
            }
        )
        rows += [{"record": "changed", **where, **asdict(image)} for image in images[:top]]
        rows += [{"record": "confusion_change", **where, **asdict(pair)} for pair in pairs[:top]]
    if page is not None:
        _write_page(page, found[0][0], inputs, label_map)

    def show() -> None:
        for made, images, pairs, compared in found:
            _show_changes(made, images, pairs, compared, top or SHOWN)

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _write_page(page: Path, found: Changes, inputs: Inputs, label_map: str | None) -> None:
    """The page of two models under the first truth."""
    from heldout.measure.evaluation.studying import study_mistakes
    from heldout.show.mistake_diff import MistakeDiff, write_mistake_diff

    study = study_mistakes(
        found.verdicts,
        peers=list(inputs.predictions(found.verdicts.truth.name)),
        label_map=inputs.label_map(label_map),
        workspace=inputs.workspace,
    )
    write_mistake_diff(MistakeDiff(study=study, old=found.old, new=found.new_model), page)
    say(f"wrote {page}")


def _show_changes(
    found: Changes,
    images: Sequence[ChangedImage],
    pairs: Sequence[ConfusionChange],
    compared: Comparison,
    top: int,
) -> None:
    from heldout.measure.mistakes.between_models import CHANGES

    verdicts = found.verdicts
    space = verdicts.truth.space
    print_table(
        f"{verdicts.testset.name}, truth {verdicts.truth.name}: from {found.old} to {found.new_model}, "
        f"{len(verdicts):,} images",
        ["fixed", "new", "p", "shared", "of these the same class"],
        [
            [
                f"{len(found.fixed):,}",
                f"{len(found.new):,}",
                "" if compared.p is None else f"{compared.p:.2g}",
                f"{len(found.shared):,}",
                f"{int(found.same.sum()):,}",
            ]
        ],
        left=0,
    )
    if compared.reason:
        note(f"no interval and no test: {compared.reason}")
    print_table(
        "confusions that changed most",
        ["class and", "class", found.old, found.new_model, "difference"],
        [
            [p.first_name, p.second_name, str(p.old), str(p.new), f"{p.difference:+}"]
            for p in pairs[:top]
        ],
        left=2,
    )

    def name(class_id: str | None) -> str:
        return "" if class_id is None else space.get(class_id).name

    for change in CHANGES:
        shown = [image for image in images if image.change == change][:top]
        if shown:
            print_table(
                f"{change}: the first {len(shown)}",
                ["image", "label", found.old, found.new_model],
                [
                    [i.image_id, name(i.original), name(i.old_prediction), name(i.new_prediction)]
                    for i in shown
                ],
                left=4,
            )
