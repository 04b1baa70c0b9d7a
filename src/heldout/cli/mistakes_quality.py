"""``heldout mistakes quality``: how well proposals agree with what people judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import note, out, print_table
from heldout.cli.mistakes_inputs import SetOption, read_inputs
from heldout.cli.mistakes_knowledge import (
    AffinityOption,
    CollapseOption,
    EncoderOption,
    ImageVectorsOption,
    JudgedOption,
    PeerOption,
    PrototypesOption,
    Sources,
    SuperclassesOption,
    TextVectorsOption,
    TogetherOption,
    gathered,
    judged_verdicts,
    located,
    merged,
)
from heldout.cli.mistakes_records import SaveOption, hand_over
from heldout.cli.options import (
    ClassesOption,
    ImagesOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.mistakes.quality import Agreement
    from heldout.mistakes.validation import Validation


_SUSPICIOUS = 0.9


def quality(
    testset: SetOption = None,
    truth: TruthOption = None,
    judged: JudgedOption = None,
    test: Annotated[
        Path | None,
        typer.Option(
            help="A second list of judged mistakes: learn from all the others, test on those of its "
            "images that they do not have."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 10,
    partitions: Annotated[
        int, typer.Option(min=0, help="Further ways to cut the folds, to see what hangs on it.")
    ] = 5,
    peer: PeerOption = None,
    superclasses: SuperclassesOption = None,
    affinity: AffinityOption = None,
    seen_together: TogetherOption = "auto",
    prototypes: PrototypesOption = None,
    image_vectors: ImageVectorsOption = None,
    text_vectors: TextVectorsOption = None,
    encoder: EncoderOption = None,
    images: ImagesOption = None,
    collapse: CollapseOption = "auto",
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    level: LevelOption = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 2000,
    seed: SeedOption = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Cross-validate proposals on judged mistakes: recall, precision, kappa, beside baselines."""
    from heldout.errors import NotFound
    from heldout.evaluation.arguments import label_map_argument
    from heldout.mistakes.evidence import evidence_table
    from heldout.mistakes.validation import cross_validate, validate_on

    files = [*(judged or []), *([test] if test is not None else [])]
    inputs = read_inputs(
        testset,
        truths=None if truth is None else [truth],
        mistakes=files if testset is None else None,
        classes=classes,
        workspace=workspace,
    )
    parts = judged_verdicts(inputs, judged)
    if not parts:
        raise NotFound(
            f"no judged mistakes of {inputs.testset.name}",
            fix="name a file with --judged, or import judgements",
        )
    sources = Sources(
        peers=peer,
        superclasses=superclasses,
        collapse=collapse,
        affinity=affinity,
        together=seen_together,
        prototypes=prototypes,
        image_vectors=image_vectors,
        text_vectors=text_vectors,
        encoder=encoder,
        images=images,
    )
    verdicts = merged(parts)
    mistakes = located(inputs, verdicts, where=", ".join(parts))
    second = judged_verdicts(inputs, [test]) if test is not None else {}
    others = {where: located(inputs, mine, where=where) for where, mine in second.items()}
    mapped = label_map_argument(label_map, [inputs.testset.name], (), workspace=inputs.workspace)
    every = [*mistakes, *(mistake for group in others.values() for mistake in group)]
    knowledge = gathered(inputs, sources, every, mapped)
    table = evidence_table(mistakes, knowledge)
    if affinity is not None and affinity.suffix == ".json":
        share = float((table.column("affinity") > 0).mean())
        if share > _SUSPICIOUS:
            note(
                f"{affinity.name} knows {share:.0%} of the judged mistakes as confusions: if they were "
                "counted on these mistakes, this quality is flattered"
            )
    found = [
        cross_validate(
            table,
            verdicts,
            folds=folds,
            partitions=partitions,
            seed=seed,
            replicates=replicates,
            level=level,
        )
    ]
    found += [
        validate_on(
            table,
            verdicts,
            evidence_table(group, knowledge),
            second[where],
            name=where,
            seed=seed,
            replicates=replicates,
            level=level,
        )
        for where, group in others.items()
    ]
    about = {"testset": inputs.testset.name, "truth": inputs.truths[0], "judged": list(parts)}
    rows = [row for validation in found for row in _rows(validation, about)]

    def show() -> None:
        for validation in found:
            _show(validation)

    hand_over([], rows, as_json=as_json, save=save, show=show)


def _rows(validation: Validation, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    where = {**about, "test": validation.test, "folds": validation.folds}
    rows: list[dict[str, Any]] = []
    for method, item in validation.methods.items():
        numbers = asdict(item)
        categories, table = numbers.pop("categories"), numbers.pop("table")
        extra = {"kappa_partitions": list(validation.kappas)} if method == "learned" else {}
        rows.append(
            {
                "record": "quality",
                **where,
                "method": method,
                "trained_on": validation.trained,
                "left_out": validation.left_out,
                **numbers,
                **extra,
                "table": table,
            }
        )
        rows += [
            {"record": "category_quality", **where, "method": method, **category}
            for category in categories
        ]
    if validation.severity is not None:
        rows.append({"record": "severity_quality", **where, **asdict(validation.severity)})
    return rows


def _show(validation: Validation) -> None:
    learned = validation.methods["learned"]
    how = (
        f"cross-validation in {validation.folds} folds"
        if validation.folds > 1
        else f"{validation.test}, learned from {validation.trained:,}, {validation.left_out:,} left out"
    )
    print_table(
        f"{how}: {learned.n:,} judged mistakes on {learned.images:,} images",
        ["method", "agree", "kappa", "interval"],
        [
            [
                method,
                f"{item.accuracy:.1%}",
                "" if item.kappa is None else f"{item.kappa:.3f}",
                _between(item.kappa_low, item.kappa_high),
            ]
            for method, item in validation.methods.items()
        ],
    )
    if validation.kappas:
        low, high = min(validation.kappas), max(validation.kappas)
        out(f"learned, {len(validation.kappas)} other partitions: kappa {low:.3f} to {high:.3f}\n")
    print_table(
        "learned, by category",
        ["category", "judged", "proposed", "recall", "interval", "precision", "interval"],
        [
            [
                item.category,
                f"{item.judged:,}",
                f"{item.proposed:,}",
                _share(item.recall),
                _between(item.recall_low, item.recall_high),
                _share(item.precision),
                _between(item.precision_low, item.precision_high),
            ]
            for item in learned.categories
        ],
    )
    _show_table(learned)
    severity = validation.severity
    if severity is not None:
        out(
            f"severity: {severity.major:,} of {severity.n:,} are Major; AUC {severity.auc:.3f} "
            f"{_between(severity.auc_low, severity.auc_high)}; Brier {severity.brier:.3f} "
            f"({severity.brier_base:.3f} for the share alone); suggested for {severity.suggested:,}, "
            f"right for {severity.suggested_right:,} (always the more frequent one: "
            f"{severity.suggested_base:,})\n"
        )


def _show_table(item: Agreement) -> None:
    columns = [category.category for category in item.categories if category.proposed]
    print_table(
        "judged (rows) and proposed (columns)",
        ["judged", *columns],
        [
            [name, *(f"{cells.get(column, 0):,}" for column in columns)]
            for name, cells in item.table.items()
        ],
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
