"""The verbs that read and review mistakes; mistakes.py has those that propose categories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, emit_json, note, out, print_table, say
from heldout.cli.options import (
    ClassesOption,
    ClusterOption,
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    ReplicatesOption,
    SaveOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.data.judgements.consensus import Rule
    from heldout.data.judgements.judgement import Judgement
    from heldout.data.labels import LabelSpace
    from heldout.data.labels.label_map import LabelMap
    from heldout.data.testset import TestSet
    from heldout.measure.mistakes.between_models import (
        ChangedImage,
        Changes,
        ModelConsensus,
        Overlap,
        Suspect,
    )
    from heldout.measure.mistakes.categories import Proposal
    from heldout.measure.mistakes.confusions import ConfusionChange, Confusions
    from heldout.measure.mistakes.panel import MistakeFile, PanelAgreement, Ruling
    from heldout.measure.mistakes.reviewed_accuracy import ReviewedAccuracy
    from heldout.measure.mistakes.verdicts import Key, Mistakes, Verdicts
    from heldout.measure.score.records import Comparison, Record, Score, Summary
    from heldout.measure.score.slice_search import Discovery
    from heldout.models.predictions import Predictions
    from heldout.stats.intervals import Interval


SetOption = Annotated[
    str | None,
    typer.Option("--testset", "-t", help="Test set: name, alias, path, or compose:FILE.toml."),
]
TruthsOption = Annotated[
    list[str] | None,
    typer.Option("--truth", help="Truth of the set, or a file of one; repeatable."),
]
CollapseOption = Annotated[
    str | None,
    typer.Option(
        help="Classes that also count as right where another does: imagenet-1k, or a JSON or TOML file."
    ),
]
MistakesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--mistakes",
        help="File of a model's mistakes (published JSON or judgements): a model that is right wherever "
        "the file is silent; repeatable.",
    ),
]
_TRUTH_FILES = (".csv", ".json", ".npz", ".parquet", ".jsonl", ".tsv")


@dataclass(frozen=True)
class Inputs:
    """Where to look: a test set, the names of its truths, and what models said.

    ``argument``  what named the test set; None where files of mistakes make it
    """

    testset: TestSet
    truths: tuple[str, ...]
    models: tuple[str, ...]
    exclude: tuple[str, ...]
    files: tuple[MistakeFile, ...]
    workspace: Workspace
    argument: str | None = None

    def label_map(self, text: str | None) -> LabelMap | None:
        """The label map that ``--label-map`` names, for these models and this set."""
        from heldout.measure.evaluation.flow import label_map_argument

        where = self.argument or self.testset.name
        return label_map_argument(text, [where], self.models, workspace=self.workspace)

    def predictions(self, truth: str) -> Iterator[Predictions]:
        """The stored predictions that are meant, then the files of mistakes as predictions."""
        from heldout.measure.evaluation.flow import stored_predictions
        from heldout.measure.mistakes.panel import listed_predictions

        if self.models or not self.files:
            yield from stored_predictions(
                self.testset, self.models, workspace=self.workspace, exclude=self.exclude
            )
        for file in self.files:
            listed, missing = listed_predictions(self.testset, file, truth=truth)
            if missing:
                note(
                    f"{file.path.name}: {missing:,} of {len(file):,} images are not in "
                    f"{self.testset.name}"
                )
            yield listed

    def verdicts(
        self, *, collapse: str | None = None, label_map: str | None = None
    ) -> tuple[Verdicts, ...]:
        """What each truth says of the models; each stored model is read once."""
        from heldout.measure.mistakes.verdicts import load_collapse, verdicts_by_truth

        table = None
        if collapse is not None:
            table = load_collapse(collapse, label_space=self.testset.label_space)
        judged_by = self.label_map(label_map)
        if not self.files:
            return verdicts_by_truth(
                self.testset,
                self.predictions(self.truths[0]),
                truths=self.truths,
                collapse=table,
                label_map=judged_by,
            )
        # What a silent file says depends on the truth: each truth reads the models anew.
        made = tuple(
            found
            for truth in self.truths
            for found in verdicts_by_truth(
                self.testset,
                self.predictions(truth),
                truths=[truth],
                collapse=table,
                label_map=judged_by,
            )
        )
        for found in made:
            for file in self.files:
                wrong = int(found.wrong[:, found.position(file.name)].sum())
                if wrong != len(file):
                    note(
                        f"{file.path.name}: {wrong:,} of its {len(file):,} mistakes are wrong by truth "
                        f"{found.truth.name}; the others are right by it, or do not count"
                    )
        return made


def read_inputs(
    testset: str | None,
    *,
    truths: Sequence[str] | None = None,
    every_truth: bool = False,
    models: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    mistakes: Sequence[Path] | None = None,
    classes: str | None = None,
    workspace: Path | None = None,
) -> Inputs:
    """The test set and what to lay beside it.

    ``truths``       names, or files that are read into memory; without any the set's default, or with
                     ``every_truth`` all that it has
    ``mistakes``     files; without ``testset`` their images are the test set
    """
    from heldout.core.errors import MismatchError, UserError
    from heldout.core.workspace import Workspace
    from heldout.data.importing import read_classes
    from heldout.data.labels import LabelSpace
    from heldout.data.testset import find_testset
    from heldout.measure.mistakes.panel import read_mistake_file, set_of_files, with_truth_file

    place = Workspace.find(workspace)
    found: TestSet | None = None
    if testset is not None:
        found = find_testset(place, testset)
        space = found.label_space
    else:
        space = read_classes(classes) if classes else LabelSpace.load("imagenet-1k")
    files = tuple(read_mistake_file(path, label_space=space) for path in mistakes or [])
    if found is None and not files:
        raise UserError("nothing to look at", fix="name a --testset, or a file with --mistakes")
    chosen: list[str] = []
    for text in truths or []:
        path = Path(text)
        if path.suffix.lower() not in _TRUTH_FILES or (found is not None and text in found.truths):
            chosen.append(text)
            continue
        if found is None:
            try:
                found, notes = set_of_files(files, path, label_space=space)
            except MismatchError as error:
                raise MismatchError(error.message, fix="name the --testset of its images") from None
        else:
            found, notes = with_truth_file(found, path)
        chosen.append(found.card.default_truth)
        for said in notes:
            note(f"{path.name}: {said}")
    if found is None:
        raise UserError(
            "files of mistakes do not say what would have been right",
            fix="name a --testset, or a file with --truth such as multilabel.csv",
        )
    for name in chosen:
        found.truth(name)
    if not chosen:
        chosen = list(found.truths) if every_truth else [found.card.default_truth]
    return Inputs(
        found,
        tuple(dict.fromkeys(chosen)),
        tuple(models or ()),
        tuple(exclude or ()),
        files,
        place,
        testset,
    )


SHOWN = 20
"""Rows of a list that a table shows unless told otherwise."""

TopOption = Annotated[
    int | None,
    typer.Option(min=1, help=f"At most this many rows; {SHOWN} in tables, all with --json."),
]
SaveOutputOption = Annotated[
    Path | None, typer.Option("--save", help="Also write what --json prints to this file.")
]


def hand_over(
    records: Sequence[Record],
    rows: Sequence[dict[str, Any]],
    *,
    as_json: bool,
    save: Path | None = None,
    show: Callable[[], None],
) -> None:
    """Records and further rows of a sub-command: gathered in a run, printed as JSON, or shown."""
    import json

    from heldout.core.files import write_text
    from heldout.core.records import to_dict

    value = [*map(to_dict, records), *rows]
    if save is not None:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in value)
        write_text(save, f"[\n{lines}\n]\n")
    if as_json:
        emit_json(value)
    else:
        emit(records, as_json=False, show=lambda _: show())


def confusions(
    testset: SetOption = None,
    model: ModelOption = None,
    truth: TruthsOption = None,
    mistakes: MistakesOption = None,
    directed: Annotated[
        bool,
        typer.Option("--directed/--unordered", help="Tell what is right from what was said."),
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="The confusions of each model, not of all together.")
    ] = False,
    names: Annotated[
        bool, typer.Option("--names", help="With --to FILE.json: names in place of ids.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="A published file [first, second, n]: name the pairs that differ."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Also write the pairs: .json as published, or .csv; of one list."),
    ] = None,
    top: TopOption = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    exclude: ExcludeOption = None,
    level: LevelOption = 0.95,
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Which classes are taken for which: pairs with counts, under any truth."""
    from heldout.core.errors import UserError
    from heldout.core.records import Count
    from heldout.measure.mistakes.confusions import (
        compare_with_file,
        read_confusion_file,
        write_confusion_file,
    )
    from heldout.measure.mistakes.confusions import confusions as confusions_of

    inputs = read_inputs(
        testset,
        truths=truth,
        models=model,
        exclude=exclude,
        mistakes=mistakes,
        classes=classes,
        workspace=workspace,
    )
    found: list[Confusions] = []
    for verdicts in inputs.verdicts(collapse=collapse, label_map=label_map):
        chosen = verdicts.models if each else (None,)
        found += [confusions_of(verdicts, name, directed=directed) for name in chosen]
    if (to or against) and len(found) > 1:
        raise UserError(
            f"--to and --against take one list of pairs, there are {len(found)}",
            fix="name one --truth, and leave --each away or name one --model",
        )
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    for item in found:
        where = _where(item)
        counts = {"n_errors": item.errors, "n_pairs": len(item), "n_confusions": item.total}
        records += [
            Count(
                name=f"{name}_{item.verdicts.truth.name}",
                value=value,
                model=where["model"],
                testset=where["testset"],
            )
            for name, value in counts.items()
        ]
        rows.append(
            {
                "record": "confusions",
                **where,
                "directed": directed,
                "errors": item.errors,
                "pairs": len(item),
                "sum": item.total,
            }
        )
        rows += [
            {"record": "confusion", **where, **asdict(pair)} for pair in item.top(top, level=level)
        ]
    differences = []
    if against is not None:
        file = read_confusion_file(against, label_space=found[0].space)
        differences = compare_with_file(found[0], file)
        rows.append(
            {
                "record": "against",
                "file": against.name,
                "form": file.form,
                "pairs": len(file.pairs),
                "sum": file.total,
                "differences": len(differences),
            }
        )
        rows += [{"record": "difference", **asdict(item)} for item in differences]
    if to is not None:
        write_confusion_file(found[0], to, form="names" if names else "ids")
        say(f"{to}: {len(found[0]):,} pairs")

    def show() -> None:
        for item in found:
            _show_pairs(item, top or SHOWN)
        if against is not None:
            print_table(
                f"{against.name}: pairs with another count: {len(differences)}",
                ["first", "second", "ours", "theirs", "images"],
                [
                    [d.first, d.second, str(d.ours), str(d.theirs), ", ".join(d.images[:3])]
                    for d in differences
                ],
                left=2,
            )

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _where(item: Confusions) -> dict[str, Any]:
    verdicts = item.verdicts
    return {
        "model": verdicts.models[0] if len(verdicts.models) == 1 else None,
        "models": len(verdicts.models),
        "testset": verdicts.testset.name,
        "truth": verdicts.truth.name,
    }


def _show_pairs(item: Confusions, top: int) -> None:
    who = item.models[0] if len(item.models) == 1 else f"{len(item.models)} models"
    arrow = " taken for" if item.directed else " and"
    columns = [f"class{arrow}", "class", "ids", "n", *(["share"] if item.directed else [])]
    cells = []
    for pair in item.top(top):
        share = ""
        if pair.share is not None:
            share = f"{100 * pair.share:.1f}"
        if pair.low is not None and pair.high is not None:
            share += f" [{100 * pair.low:.1f}, {100 * pair.high:.1f}]"
        cells.append(
            [
                pair.first_name,
                pair.second_name,
                f"{pair.first_id} {pair.second_id}",
                f"{pair.n:,}",
                *([share] if item.directed else []),
            ]
        )
    print_table(
        f"{who} on {item.verdicts.testset.name}, truth {item.verdicts.truth.name}: "
        f"{item.errors:,} errors, {len(item):,} pairs, sum {item.total:,}",
        columns,
        cells,
        left=3,
    )


def consensus(
    testset: SetOption = None,
    model: ModelOption = None,
    truth: TruthsOption = None,
    mistakes: MistakesOption = None,
    at_least: Annotated[
        int | None,
        typer.Option(
            min=1, help="List images that at least this many models miss; all by default."
        ),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="List the images, those with one common answer first.")
    ] = False,
    queue: Annotated[
        Path | None,
        typer.Option(
            help="Write these images as a queue about their labels, .csv or .jsonl, to fill in and "
            "import; of one --truth."
        ),
    ] = None,
    top: TopOption = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    level: LevelOption = 0.95,
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """How many models miss each image, under every truth of the set; labels to doubt."""
    from heldout.core.errors import UserError
    from heldout.core.records import Count
    from heldout.measure.mistakes.between_models import model_consensus, suspects

    inputs = read_inputs(
        testset,
        truths=truth,
        every_truth=queue is None,
        models=model,
        exclude=exclude,
        mistakes=mistakes,
        workspace=workspace,
    )
    if queue is not None and len(inputs.truths) > 1:
        raise UserError("--queue asks about one truth", fix="name one --truth")
    found = [model_consensus(v) for v in inputs.verdicts(collapse=collapse, label_map=label_map)]
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    lists: list[list[Suspect]] = []
    for item in found:
        name, where = item.verdicts.truth.name, item.verdicts.testset.name
        for text, value in (
            ("missed_by_all", item.missed_by_all),
            ("right_by_all", item.right_by_all),
        ):
            records.append(Count(name=f"{text}_{name}", value=value, testset=where))
        rows.append(_row(item, level))
        if images or queue is not None or at_least is not None:
            lists.append(suspects(item, at_least=at_least))
            rows += [
                {"record": "suspect", "testset": where, "truth": name, **_named(suspect, item)}
                for suspect in lists[-1][:top]
            ]
    if queue is not None:
        from heldout.data.judgements.for_testset import judgements_about
        from heldout.measure.mistakes.panel import panel_answers
        from heldout.measure.mistakes.review_queue import label_queue, queue_rows, write_queue

        panel = panel_answers(judgements_about(inputs.testset, inputs.workspace.judgements))
        made, evidence = label_queue(found[0], panel, at_least=at_least)
        write_queue(queue, queue_rows(made, evidence))
        say(
            f"{queue}: {len(made.entries):,} labels of {len(lists[0]):,} images to look at, "
            f"{made.judged:,} are judged already"
        )
        note("answer: correct, unclear or wrong; who: your name; then heldout import judgements")

    def show() -> None:
        _show(found, level)
        for item, suspected in zip(found, lists, strict=False):
            _show_suspects(item, suspected, top or SHOWN)

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _row(item: ModelConsensus, level: float) -> dict[str, Any]:
    share, low, high = item.share_missed_by_all(level=level)
    return {
        "record": "consensus",
        "testset": item.verdicts.testset.name,
        "truth": item.verdicts.truth.name,
        "models": item.models,
        "n": len(item.misses),
        "left_out": item.verdicts.left_out,
        "missed_by_all": item.missed_by_all,
        "share": share,
        "low": low,
        "high": high,
        "interval": "wilson",
        "level": level,
        "right_by_all": item.right_by_all,
        "missed_by": item.histogram.tolist(),
    }


def _named(suspect: Suspect, item: ModelConsensus) -> dict[str, Any]:
    space = item.verdicts.truth.space

    def name(class_id: str | None) -> str | None:
        return None if class_id is None else space.get(class_id).name

    return {
        "image_id": suspect.image_id,
        "original": suspect.original,
        "original_name": name(suspect.original),
        "acceptable": list(suspect.acceptable),
        "majority": suspect.majority,
        "majority_name": name(suspect.majority),
        "votes": suspect.votes,
        "missed_by": suspect.missed_by,
        "models": suspect.models,
        "classes": suspect.classes,
    }


def _show(found: Sequence[ModelConsensus], level: float) -> None:
    rows = []
    for item in found:
        share, low, high = item.share_missed_by_all(level=level)
        rows.append(
            [
                item.verdicts.truth.name,
                str(item.models),
                f"{len(item.misses):,}",
                f"{item.verdicts.left_out:,}",
                f"{item.missed_by_all:,}",
                f"{100 * share:.2f} [{100 * low:.2f}, {100 * high:.2f}]",
                f"{item.right_by_all:,}",
            ]
        )
    print_table(
        f"{found[0].verdicts.testset.name}: what models miss together",
        ["truth", "models", "images", "left out", "missed by all", "percent", "right by all"],
        rows,
    )


def _show_suspects(item: ModelConsensus, found: Sequence[Suspect], top: int) -> None:
    rows = [_named(suspect, item) for suspect in found[:top]]
    print_table(
        f"{item.verdicts.testset.name}, truth {item.verdicts.truth.name}: {len(found):,} images to doubt",
        ["image", "label", "most models say", "say so", "wrong", "answers"],
        [
            [
                row["image_id"],
                row["original_name"] or "",
                row["majority_name"] or "",
                f"{row['votes']} of {row['models']}",
                str(row["missed_by"]),
                str(row["classes"]),
            ]
            for row in rows
        ],
        left=3,
    )


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
    save: SaveOutputOption = None,
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
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """What a new model fixes, what it breaks, and what both miss; image by image."""
    from heldout.core.records import Count
    from heldout.measure.mistakes.between_models import CHANGES, changed_images, changes
    from heldout.measure.mistakes.confusions import confusion_changes
    from heldout.measure.score.compare import compare
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
        counts: dict[str, int] = {change: len(made.rows[change]) for change in CHANGES}
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
    from heldout.measure.evaluation.flow import study_mistakes
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
                f"{len(found.rows['fixed']):,}",
                f"{len(found.rows['new']):,}",
                "" if compared.p is None else f"{compared.p:.2g}",
                f"{len(found.rows['shared']):,}",
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


def cooccurrence(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set with a truth of several labels.")
    ],
    truth: Annotated[
        str | None,
        typer.Option(
            help="Truth whose labels are counted, or a file of one; real or multilabel by default."
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            help="Leave out the images of this truth: those on which mistakes are judged."
        ),
    ] = None,
    original: Annotated[
        bool, typer.Option(help="An image's own class joins the labels of the truth.")
    ] = True,
    minimum: Annotated[
        int, typer.Option(min=1, help="Images that a pair must have to be listed.")
    ] = 2,
    superclasses: Annotated[
        Path | None,
        typer.Option(help="File of superclasses: pairs inside one are not listed."),
    ] = None,
    top: TopOption = None,
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Pairs of classes that are labels of one image, with how many images have both."""
    from heldout.core.records import Count
    from heldout.measure.mistakes.class_similarity import cooccurrence as count_pairs

    inputs = read_inputs(testset, truths=[truth] if truth else None, workspace=workspace)
    chosen = inputs.truths[0] if truth else _several(inputs.testset)
    found = count_pairs(inputs.testset, truth=chosen, without=without, original=original)
    apart: list[frozenset[str]] = []
    if superclasses is not None:
        from heldout.data.labels.superclasses import read_superclasses

        groups = read_superclasses(superclasses, label_space=found.space)
        apart = [frozenset(ids) for ids in groups.groups.values()]
    if not len(found):
        note(f"no image has two labels in truth {found.truth}: name a truth of several labels")
    pairs = found.pairs(minimum, apart=apart)
    counts = {
        "images": found.images,
        "images_without_label": found.empty,
        "images_with_one_label": found.single,
        "images_with_several_labels": found.several,
        "cooccurrences": found.total,
        "cooccurring_pairs": len(found),
        f"cooccurring_pairs_of_{minimum}_images": len(pairs),
    }
    records: list[Record] = [
        Count(name=name, value=value, testset=found.testset) for name, value in counts.items()
    ]
    rows: list[dict[str, Any]] = [
        {
            "record": "cooccurrence",
            "testset": found.testset,
            "truth": found.truth,
            "first_id": a,
            "first_name": found.space.get(a).name,
            "second_id": b,
            "second_name": found.space.get(b).name,
            "n": n,
        }
        for (a, b), n in list(pairs.items())[:top]
    ]

    def show() -> None:
        print_table(
            f"{found.testset}, truth {found.truth}"
            + (f", without the images of {without}" if without else ""),
            ["", "n"],
            [[name.replace("_", " "), f"{value:,}"] for name, value in counts.items()],
        )
        if not rows:
            return
        print_table(
            f"classes seen together most often: {min(top or SHOWN, len(rows)):,} of {len(rows):,} pairs",
            ["class", "and class", "ids", "images"],
            [
                [
                    row["first_name"],
                    row["second_name"],
                    f"{row['first_id']} {row['second_id']}",
                    f"{row['n']:,}",
                ]
                for row in rows[: top or SHOWN]
            ],
            left=3,
        )

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _several(testset: Any) -> str:
    """The truth with the most labels: ReaL's, else a multi-label one, else the default."""
    kinds = {name: where.get("kind") for name, where in testset.card.truths.items()}
    for kind in ("real", "multilabel"):
        for name, known in kinds.items():
            if known == kind:
                return str(name)
    return str(testset.card.default_truth)


def slices(
    testset: Annotated[
        str,
        typer.Option("--testset", "-t", help="Test set: name, alias, path, or compose:FILE.toml."),
    ],
    model: ModelOption = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="Columns to search, such as x@0.3,0.6; repeatable; the class and every column but "
            "text by default.",
        ),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, max=3, help="Most columns of a conjunction.")] = 3,
    minimum_n: Annotated[int, typer.Option(help="Fewest images of a slice.")] = 20,
    top: Annotated[int, typer.Option(min=1, help="At most this many slices a model.")] = 10,
    method: Annotated[
        str | None,
        typer.Option(
            help="How the search is corrected for: permutation, or held-out (found on one half, "
            "measured on the other); by default held-out where images come in clusters."
        ),
    ] = None,
    permutations: Annotated[int, typer.Option(min=1, help="Shuffles for permutation.")] = 999,
    metric: Annotated[
        str | None, typer.Option(help="A plain accuracy; by default what fits the truth.")
    ] = None,
    truth: TruthOption = None,
    cluster: ClusterOption = None,
    exclude: ExcludeOption = None,
    label_map: LabelMapOption = None,
    level: LevelOption = 0.95,
    seed: SeedOption = 0,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", help="Also write the records to this JSON file, for heldout report."
        ),
    ] = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Search every conjunction of up to three columns for where a model fails most."""
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.measure.evaluation.flow import label_map_argument, stored_predictions
    from heldout.measure.score.measure import measure
    from heldout.measure.score.slice_search import METHODS, discover, discovery_records
    from heldout.measure.score.slices import cluster_column

    place = Workspace.find(workspace)
    found = find_testset(place, testset)
    chosen = next((name for name in METHODS if name == method), None)
    if method is not None and chosen is None:
        raise UserError(f"--method {method!r}", fix=f"use {' or '.join(METHODS)}")
    kind = found.card.truths.get(truth or found.card.default_truth, {}).get("kind", "single")
    plain = {"real": "real", "multilabel": "mla_micro"}.get(kind, "top1")
    (measured,) = measure(
        found,
        stored_predictions(found, model or [], workspace=place, exclude=exclude or ()),
        metrics=[metric or plain],
        truth=truth,
        label_map=label_map_argument(label_map, [found.name], model or [], workspace=workspace),
    )
    searches = [
        discover(
            measured,
            column or None,
            model=name,
            depth=depth,
            minimum_n=minimum_n,
            most=top,
            method=chosen,
            cluster=cluster_column(found, cluster),
            permutations=permutations,
            seed=seed,
            level=level,
        )
        for name in measured.models
    ]
    records: list[Record] = []
    for search in searches:
        records += discovery_records(search)
    emit(records, as_json=as_json, save=save, show=lambda _: _slices_show(searches))
    if save is not None:
        say(f"wrote {save}")


def _slices_named(name: str, space: LabelSpace) -> str:
    """A slice, with the name of its class where it has one."""
    from heldout.measure.score.slices import CLASS, parse_slice

    class_id = parse_slice(name).get(CLASS)
    if class_id is None or class_id not in space or space.get(class_id).name == class_id:
        return name
    return f"{name} ({space.get(class_id).name})"


def _slices_show(searches: list[Discovery]) -> None:
    for search in searches:
        measured = search.measured
        print_table(
            f"{search.model} on {measured.testset.name}, {measured.metric.name}: the worst of "
            f"{search.searched:,} slices, corrected by {search.method}",
            ["slice", "images", "percent", "interval", "elsewhere", "p"],
            [
                [
                    _slices_named(item.slice, measured.space),
                    f"{item.n:,}",
                    f"{100 * item.value:.1f}",
                    ""
                    if item.interval is None
                    else f"[{100 * item.interval.low:.1f}, {100 * item.interval.high:.1f}]",
                    f"{100 * item.rest:.1f}",
                    "" if item.p is None else f"{item.p:.3g}",
                ]
                for item in search.found
            ],
        )


_SHOWN = 10

PeopleOption = Annotated[
    int, typer.Option(min=1, help="People that must have judged a pair for it to be settled.")
]
AverageOption = Annotated[
    str | None,
    typer.Option(
        help="Accuracy over classes or over images; classes under a multi-label truth by default."
    ),
]


def queue(
    to: Annotated[
        Path | None, typer.Argument(help="A .csv or .jsonl file to write; without it, a look.")
    ] = None,
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set whose predictions are to be judged.")
    ] = "",
    model: ModelOption = None,
    truth: TruthsOption = None,
    aim: Annotated[
        str,
        typer.Option(
            help="accuracy: what narrows the estimate of accuracy fastest; hard: mistakes on images "
            "that many models miss, for build hard."
        ),
    ] = "accuracy",
    wrong: Annotated[
        int | None,
        typer.Option(
            "--wrong", help="hard: images that at least this many models miss; all by default."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows.")] = None,
    people: PeopleOption = 1,
    who: Annotated[
        str | None, typer.Option(help="Leave out what this reviewer has judged.")
    ] = None,
    average: AverageOption = None,
    proposals: Annotated[
        Path | None,
        typer.Option(help="JSONL of heldout mistakes propose; by rules, made anew, by default."),
    ] = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the order.")] = 0,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write the (image, prediction) pairs to judge, most informative first.

    Fill in answer, category, severity and who; heldout import judgements reads the file back. What
    is judged is not asked again.
    """
    from heldout.core.errors import UserError
    from heldout.core.records import Count
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.measure.evaluation.flow import label_map_argument
    from heldout.measure.mistakes.panel import panel_answers
    from heldout.measure.mistakes.review_queue import (
        AIMS,
        accuracy_queue,
        hard_queue,
        how_to_answer,
        open_pairs,
        queue_rows,
        write_queue,
    )

    if aim not in AIMS:
        raise UserError(f"--aim {aim!r}", fix=f"use {' or '.join(AIMS)}")
    if aim == "accuracy" and wrong is not None:
        raise UserError("--wrong is for --aim hard", fix="leave it out, or add --aim hard")
    inputs, verdicts = read_one(
        testset, truth, model, exclude, collapse, label_map, workspace=workspace
    )
    panel = panel_answers(judgements_about(inputs.testset, inputs.workspace.judgements))
    mapped = label_map_argument(
        label_map, [inputs.testset.name], inputs.models, workspace=inputs.workspace
    )
    if aim == "accuracy":
        pairs = open_pairs(verdicts, average=average_of(verdicts, average), seed=seed)
        made = accuracy_queue(pairs, panel, people=people, who=who).head(limit)
        proposed = _proposals(proposals, made.entries, inputs, verdicts, mapped)
    else:
        from heldout.measure.mistakes.verdicts import mistakes_of

        proposed = _proposals(proposals, mistakes_of(verdicts), inputs, verdicts, mapped)
        made = hard_queue(
            verdicts, panel, wrong=wrong, people=people, who=who, proposals=proposed
        ).head(limit)
    rows = queue_rows(made, proposed)
    if to is not None:
        write_queue(to, rows)
        say(f"{to}: {len(rows):,} pairs to judge, {made.judged:,} are judged already")
        note(how_to_answer())
    if as_json:
        records = [
            Count(name="n_queue", value=len(rows), testset=inputs.testset.name),
            Count(name="n_judged", value=made.judged, testset=inputs.testset.name),
        ]
        emit(records, as_json=True)
    elif to is None:
        print_table(
            f"{len(rows):,} pairs to judge, {made.judged:,} are judged already",
            ["rank", "image", "prediction", "labels", "models", "proposed"],
            [
                [
                    str(row["rank"]),
                    row["image_id"],
                    row["prediction_name"],
                    "; ".join(row["label_names"]),
                    str(len(row["models"])),
                    row["proposed_category"],
                ]
                for row in rows[:_SHOWN]
            ],
            left=6,
        )
        if len(rows) > _SHOWN:
            out(f"and {len(rows) - _SHOWN:,} more; name a file to write them all")


def read_one(
    testset: str,
    truth: Sequence[str] | None,
    model: Sequence[str] | None,
    exclude: Sequence[str] | None,
    collapse: str | None,
    label_map: str | None,
    *,
    workspace: Path | None,
) -> tuple[Inputs, Verdicts]:
    """The verdicts of one truth of one test set; the multi-label one where it is not named."""
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset

    if not testset:
        raise UserError("no test set is named", fix="name it with -t")
    chosen = list(truth or ())
    if not chosen:
        card = find_testset(Workspace.find(workspace), testset).card
        kinds = [name for name, where in card.truths.items() if where.get("kind") == "multilabel"]
        chosen = kinds[:1]
    if len(chosen) > 1:
        raise UserError("several truths are named", fix="judge by one of them")
    inputs = read_inputs(testset, truths=chosen, models=model, exclude=exclude, workspace=workspace)
    (verdicts,) = inputs.verdicts(collapse=collapse, label_map=label_map)
    return inputs, verdicts


def average_of(verdicts: Verdicts, average: str | None) -> str:
    """The average that was asked for, or that fits the truth."""
    if average is not None:
        return average
    kind = verdicts.testset.card.truths[verdicts.truth.name].get("kind", "single")
    return "classes" if kind == "multilabel" else "images"


def _proposals(
    path: Path | None,
    mistakes: Mistakes,
    inputs: Inputs,
    verdicts: Verdicts,
    label_map: LabelMap | None,
) -> tuple[Proposal, ...]:
    if path is not None:
        from heldout.measure.mistakes.categories import read_proposals

        return read_proposals(path)
    from heldout.measure.mistakes.categories import propose
    from heldout.measure.mistakes.evidence import evidence_table, gather_knowledge

    if not len(mistakes):
        return ()
    name = verdicts.truth.name
    knowledge = gather_knowledge(
        inputs.testset,
        truth=name,
        predictions=inputs.predictions(name),
        label_map=label_map,
    )
    return propose(evidence_table(mistakes, knowledge))


RuleOption = Annotated[
    str,
    typer.Option(
        help="How answers become one: majority, plurality, unanimous, threshold, dawid-skene; "
        "unclear where it does not decide."
    ),
]
ShareOption = Annotated[
    float | None, typer.Option(help="Share of votes, for threshold and dawid-skene.")
]
FoldOption = Annotated[bool, typer.Option("--fold/--no-fold", help="Borderline counts as Minor.")]


def check_rule(text: str) -> Rule:
    """The rule of that name; ``score`` is for one answer against the rest, not for a panel."""
    from heldout.core.errors import UserError
    from heldout.data.judgements.consensus import RULES

    for rule in RULES:
        if rule == text and rule != "score":
            return rule
    raise UserError(
        f"--rule {text!r}", fix=f"use one of {', '.join(rule for rule in RULES if rule != 'score')}"
    )


def panel(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set whose predictions were judged.")
    ] = "",
    rule: RuleOption = "majority",
    share: ShareOption = None,
    people: Annotated[int, typer.Option(min=1, help="People that a ruling needs.")] = 1,
    fold: FoldOption = True,
    truth: Annotated[
        str | None,
        typer.Option(help="Truth to revise; the set's multi-label one, or its default."),
    ] = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise", help="Add a revision of the truth to the set, rulings laid over it."
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the revision; multilabel-2, … by default.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--export", help="Write wrong pairs as a published mistakes JSON file."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="--export: only mistakes that this model makes."),
    ] = None,
    level: LevelOption = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap over pairs.")] = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Reviewers' agreement and rulings; with --revise a new truth, with --export a mistakes file."""
    from heldout.core.errors import NotApplicable, UserError
    from heldout.core.workspace import Workspace
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.data.testset import find_testset
    from heldout.measure.mistakes.panel import PARTS, agreement, panel_answers, rulings

    if not testset:
        raise UserError("no test set is named", fix="name it with -t")
    chosen = check_rule(rule)
    place = Workspace.find(workspace)
    found = find_testset(place, testset)
    answers = judgements_about(found, place.judgements)
    given = panel_answers(answers, fold=fold)
    if not given.answers:
        raise NotApplicable(
            f"nobody has judged a prediction on {found.name}",
            fix="write a queue with heldout mistakes queue, and import it filled in",
        )
    made = rulings(given, rule=chosen, share=share, people=people)
    agreements: list[PanelAgreement] = []
    for part in PARTS:
        try:
            agreements.append(agreement(given, part, seed=seed, level=level))
        except NotApplicable:
            continue
    if not agreements:
        note("nobody can be compared: no (image, prediction) was judged by two people")
    if revise:
        _revise(found, truth, made, chosen, people, name, answers)
    if to is not None:
        _export(found, made, to, model, place)
    records: list[Record] = [
        *_counts(found, made),
        *_agreement_records(found, agreements, level),
    ]
    emit(
        records,
        as_json=as_json,
        save=save,
        show=lambda _: _panel_show(found, made, agreements),
    )


def _multilabel(testset: TestSet, truth: str | None) -> str:
    if truth is not None:
        testset.truth(truth)
        return truth
    kinds = [n for n, where in testset.card.truths.items() if where.get("kind") == "multilabel"]
    return kinds[0] if kinds else testset.card.default_truth


def _revise(
    testset: TestSet,
    truth: str | None,
    made: dict[Key, Ruling],
    rule: str,
    people: int,
    name: str | None,
    answers: Sequence[Judgement],
) -> None:
    from heldout.data.testset import add_truth
    from heldout.measure.mistakes.reviewed_accuracy import (
        next_revision,
        problematic_images,
        revise_truth,
    )

    base = _multilabel(testset, truth)
    revision = revise_truth(
        testset.truth(base),
        made,
        base=base,
        label_space=testset.label_space,
        rule=rule,
        people=people,
        problematic=problematic_images(answers),
    )
    chosen = name or next_revision(base, testset.truths)
    grown = add_truth(testset, chosen, revision.table, provenance=revision.provenance)
    for text in revision.notes:
        note(text)
    say(f"{grown.name}: truth {chosen} revises {base}, now {grown.card.content_hash[:12]}")


def _export(
    testset: TestSet, made: dict[Key, Ruling], to: Path, model: str | None, place: Workspace
) -> None:
    from heldout.data.judgements.consensus import UNCLEAR
    from heldout.data.published.answers import write_mistakes
    from heldout.measure.evaluation.flow import stored_predictions

    judged = {key: ruling for key, ruling in made.items() if ruling.answer == "wrong"}
    if model is not None:
        (outputs,) = stored_predictions(testset, [model], workspace=place)
        rows = outputs.rows_for(testset.image_ids, testset=testset.name)
        firsts = outputs.topk[rows, 0].tolist()
        ids = outputs.label_space.ids
        said = {
            (image, ids[guess])
            for image, guess in zip(testset.image_ids.to_pylist(), firsts, strict=True)
            if guess >= 0
        }
        judged = {key: ruling for key, ruling in judged.items() if key in said}
    decided = {
        key: (ruling.category, ruling.severity)
        for key, ruling in judged.items()
        if ruling.category not in (None, UNCLEAR) and ruling.severity not in (None, UNCLEAR)
    }
    wrong = {key: (str(category), str(severity)) for key, (category, severity) in decided.items()}
    count = write_mistakes(to, wrong, classes=testset.label_space.ids)
    say(f"{to}: {count:,} mistakes")
    if len(judged) > count:
        note(
            f"{len(judged) - count:,} wrong predictions without an agreed category and severity are "
            "left out"
        )


def _counts(testset: TestSet, made: dict[Key, Ruling]) -> list[Count]:
    from heldout.core.records import Count

    counts = {"n_rulings": len(made)}
    for answer in ("correct", "unclear", "wrong"):
        counts[f"n_{answer}"] = sum(ruling.answer == answer for ruling in made.values())
    for severity in ("Major", "Minor", "Borderline", "unclear"):
        counts[f"n_severity_{severity.lower()}"] = sum(
            ruling.severity == severity for ruling in made.values()
        )
    return [Count(name=name, value=value, testset=testset.name) for name, value in counts.items()]


def _agreement_records(
    testset: TestSet, agreements: Sequence[PanelAgreement], level: float
) -> list[Summary]:
    from heldout.measure.score.records import Summary

    records = []
    for item in agreements:
        shared: dict[str, Any] = {
            "model": None,
            "testset": testset.name,
            "truth": "panel",
            "metric": "agreement",
            "columns": item.part,
            "n": item.subjects,
            "testset_hash": testset.card.content_hash,
        }
        records.append(Summary(**shared, name="share", value=item.share))
        records.append(
            Summary(
                **shared,
                name="krippendorff_alpha",
                value=item.alpha,
                low=item.low,
                high=item.high,
                interval=None if item.low is None else "bootstrap-percentile",
                level=None if item.low is None else level,
                reason=None if item.alpha is not None else "all answers are the same",
            )
        )
        records += [
            Summary(**{**shared, "n": n}, name="cohen_kappa", at=f"{one} and {other}", value=kappa)
            for one, other, n, kappa in item.kappas
        ]
    return records


def _panel_show(
    testset: TestSet, made: dict[Key, Ruling], agreements: Sequence[PanelAgreement]
) -> None:
    rows = [
        [answer, f"{sum(ruling.answer == answer for ruling in made.values()):,}"]
        for answer in ("correct", "unclear", "wrong")
    ]
    severities: dict[str, int] = {}
    for ruling in made.values():
        if ruling.severity is not None:
            severities[ruling.severity] = severities.get(ruling.severity, 0) + 1
    rows += [[f"wrong, {name}", f"{n:,}"] for name, n in sorted(severities.items())]
    print_table(f"{testset.name}: {len(made):,} pairs ruled on", ["ruling", "pairs"], rows)
    if agreements:
        print_table(
            "agreement of reviewers",
            ["on", "pairs", "people", "equal answers", "Krippendorff's alpha"],
            [
                [
                    item.part,
                    f"{item.subjects:,}",
                    f"{item.people}",
                    f"{100 * item.share:.1f} %",
                    "" if item.alpha is None else _alpha(item),
                ]
                for item in agreements
            ],
        )


def _alpha(item: PanelAgreement) -> str:
    if item.low is None or item.high is None:
        return f"{item.alpha:.2f}"
    return f"{item.alpha:.2f} [{item.low:.2f}, {item.high:.2f}]"


def summary(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files of mistakes: published JSON, or judgements (CSV, JSONL, Parquet)."
        ),
    ],
    fold: Annotated[
        bool, typer.Option("--fold/--keep-borderline", help="Count Borderline as Minor.")
    ] = False,
    testset: SetOption = None,
    truth: Annotated[
        str | None,
        typer.Option(help="With --testset: also the accuracy that these lists leave, if complete."),
    ] = None,
    classes: ClassesOption = None,
    level: LevelOption = 0.95,
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Category by severity of judged mistakes, and whether files agree on what they share."""
    from itertools import combinations

    from heldout.core.errors import UserError
    from heldout.core.records import Count
    from heldout.measure.mistakes.panel import file_agreement

    if testset is None and truth is not None:
        raise UserError("--truth needs the images of a set", fix="name the --testset too")
    read, inputs = _read(files, testset, truth, classes, workspace)
    found = None if inputs is None else inputs.testset
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    scores: list[Score] = []
    for file in read:
        if file.respelled:
            note(
                f"{file.path.name}: {file.respelled} categories in another spelling were taken as one"
            )
        counts = {
            "n_mistakes": len(file),
            "n_major": sum(n for (_, s), n in file.table().items() if s == "Major"),
        }
        records += [
            Count(name=name, value=value, model=file.name, testset=found.name if found else None)
            for name, value in counts.items()
        ]
        rows += _category_rows(file, fold=fold, level=level)
    agreements = [file_agreement(a, b) for a, b in combinations(read, 2)]
    rows += [{"record": "agreement", **asdict(item)} for item in agreements]
    if inputs is not None:
        scores = _scores(inputs, level)

    def show() -> None:
        for file in read:
            _show_categories(file, fold=fold)
        if agreements:
            print_table(
                "judgements that two files share",
                ["first", "second", "images in both", "shared", "same category", "same severity", "same"],
                [
                    [a.first, a.second, *(f"{v:,}" for v in list(asdict(a).values())[2:])]
                    for a in agreements
                ],
                left=2,
            )  # fmt: skip
        if scores:
            from heldout.cli.tables import show_scores

            show_scores(scores)

    hand_over([*records, *scores], rows, as_json=as_json, save=save, show=show)


def _read(
    files: Sequence[Path],
    testset: str | None,
    truth: str | None,
    classes: str | None,
    workspace: Path | None,
) -> tuple[Sequence[MistakeFile], Inputs | None]:
    """The files, and where a test set is named the set and its truth."""
    from heldout.data.importing import read_classes
    from heldout.data.labels import LabelSpace
    from heldout.measure.mistakes.panel import read_mistake_file

    if testset is not None:
        truths = [truth] if truth else None
        inputs = read_inputs(testset, truths=truths, mistakes=files, workspace=workspace)
        return inputs.files, inputs
    space = read_classes(classes) if classes else LabelSpace.load("imagenet-1k")
    return [read_mistake_file(path, label_space=space) for path in files], None


def _scores(inputs: Inputs, level: float) -> list[Score]:
    """The accuracy that lists of mistakes leave, if they are complete."""
    import numpy as np

    from heldout.measure.score.estimate import scores as scores_of
    from heldout.measure.score.measure import measure

    testset, truth = inputs.testset, inputs.truths[0]
    kind = testset.card.truths[truth].get("kind")
    metrics = ("mla", "mla_micro") if kind == "multilabel" else ("top1",)
    found = measure(
        testset, inputs.predictions(truth), metrics=metrics, truth=truth, absent_classes="skip"
    )
    absent = len(found[0].space) - len(np.unique(found[0].groups))
    if absent and kind == "multilabel":
        note(f"{absent} classes have no image that counts: mla is the mean over the others")
    return [score for measured in found for score in scores_of(measured, level=level)]


def _category_rows(file: MistakeFile, *, fold: bool, level: float) -> list[dict[str, Any]]:
    """A row for each category and severity, and for their sums (``all``)."""
    from heldout.stats.intervals import wilson

    counts = dict(file.table(fold=fold))
    for (category, severity), n in list(counts.items()):
        for key in ((category, "all"), ("all", severity), ("all", "all")):
            counts[key] = counts.get(key, 0) + n
    rows = []
    for (category, severity), n in sorted(
        counts.items(), key=lambda item: _category_order(item[0])
    ):
        limits = wilson(n, len(file), level=level)
        rows.append(
            {
                "record": "category",
                "model": file.name,
                "file": file.path.name,
                "category": category,
                "severity": severity,
                "n": n,
                "of": len(file),
                "share": n / len(file),
                "low": float(limits.low),
                "high": float(limits.high),
                "interval": limits.method,
                "level": level,
            }
        )
    return rows


def _category_order(key: tuple[str, str]) -> tuple[int, str, int]:
    from heldout.data.judgements.judgement import SEVERITIES

    category, severity = key
    place = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    return (category == "all", category, place)


def _show_categories(file: MistakeFile, *, fold: bool) -> None:
    from heldout.data.judgements.judgement import SEVERITIES

    counts = file.table(fold=fold)
    severities = [s for s in (*SEVERITIES, "unclear") if any(key[1] == s for key in counts)]
    categories = list(dict.fromkeys(category for category, _ in counts))

    def row(name: str, chosen: Sequence[str]) -> list[str]:
        cells = [sum(counts.get((c, s), 0) for c in chosen) for s in severities]
        return [name, *(f"{n:,}" for n in cells), f"{sum(cells):,}"]

    print_table(
        f"{file.path.name}: {len(file):,} mistakes",
        ["category", *severities, "all"],
        [*(row(category, [category]) for category in categories), row("all", categories)],
    )


def accuracy(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set whose predictions were judged.")
    ] = "",
    model: ModelOption = None,
    truth: TruthsOption = None,
    average: AverageOption = None,
    absent_classes: Annotated[
        str,
        typer.Option(help="Classes without images under an average over classes: error or skip."),
    ] = "error",
    rule: RuleOption = "majority",
    share: ShareOption = None,
    people: PeopleOption = 1,
    fold: FoldOption = True,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the queue's order, as it was written.")] = 0,
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Accuracy if all that is open were wrong, or right, and what answers so far say of it."""
    from heldout.core.errors import NotApplicable
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.measure.evaluation.options import check_absent_classes
    from heldout.measure.mistakes.panel import rulings
    from heldout.measure.mistakes.review_queue import empty_classes, open_pairs
    from heldout.measure.mistakes.reviewed_accuracy import accuracy_records, reviewed_accuracies

    chosen = check_rule(rule)
    inputs, verdicts = read_one(
        testset, truth, model, exclude, collapse, label_map, workspace=workspace
    )
    kind = average_of(verdicts, average)
    if kind == "classes" and check_absent_classes(absent_classes) == "error":
        empty = empty_classes(verdicts)
        if empty:
            name = verdicts.truth.space.get(empty[0]).name
            raise NotApplicable(
                f"{len(empty)} of {len(verdicts.truth.space)} classes have no image in truth "
                f"{verdicts.truth.name} of {inputs.testset.name}, such as {empty[0]} ({name})",
                fix="--absent-classes skip averages over the classes that are there, --average "
                "images over images",
            )
    answers = judgements_about(inputs.testset, inputs.workspace.judgements)
    made = rulings(answers, rule=chosen, share=share, people=people, fold=fold)
    pairs = open_pairs(verdicts, average=kind, seed=seed)
    found = reviewed_accuracies(pairs, made, level=level, seed=seed, replicates=replicates)
    reviewed = verdicts.reviewed
    metric = ("mla" if kind == "classes" else "mla_micro") if reviewed else "reviewed"
    for reason in dict.fromkeys(item.reason for item in found if item.reason):
        note(reason)
    emit(
        accuracy_records(pairs, found, metric=metric, level=level),
        as_json=as_json,
        save=save,
        show=lambda _: _accuracy_show(found, f"{inputs.testset.name}, truth {verdicts.truth.name}"),
    )


def _accuracy_show(found: Sequence[ReviewedAccuracy], where: str) -> None:
    print_table(
        f"{where}: accuracy in percent",
        [
            "model",
            "n",
            "open",
            "answered",
            "at least",
            "at most",
            "estimate",
            "once all is reviewed",
        ],
        [
            [
                item.model,
                f"{item.n:,}",
                f"{item.open:,}",
                f"{item.answered:,}",
                f"{100 * item.lower:.3f}",
                f"{100 * item.upper:.3f}",
                _shown(item.value, item.interval),
                _shown(item.value, item.review),
            ]
            for item in sorted(found, key=lambda item: (-item.lower, item.model))
        ],
    )


def _shown(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return ""
    return f"{100 * value:.3f} [{100 * interval.low:.3f}, {100 * interval.high:.3f}]"
