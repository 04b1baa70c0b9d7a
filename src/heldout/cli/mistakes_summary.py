"""``heldout mistakes summary``: category by severity of judged mistakes, and whether files agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import note, print_table
from heldout.cli.mistakes_inputs import SetOption, read_inputs
from heldout.cli.mistakes_records import SaveOption, hand_over
from heldout.cli.options import ClassesOption, JsonOption, LevelOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.cli.mistakes_inputs import Inputs
    from heldout.measure.mistakes.panel import MistakeFile
    from heldout.measure.score.records import Record, Score


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
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Category by severity of judged mistakes, and whether files agree on what they share."""
    from itertools import combinations

    from heldout.core.errors import UserError
    from heldout.measure.mistakes.panel import file_agreement
    from heldout.measure.score.records import Count

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
