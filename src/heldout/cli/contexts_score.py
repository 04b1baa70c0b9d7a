"""``heldout contexts score``: how stored predictions fare over subsets, communities and distance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, say
from heldout.cli.options import (
    JsonOption,
    LabelMapOption,
    LevelOption,
    SaveOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.score.measure import Measured
    from heldout.measure.score.memberships import SliceNumber
    from heldout.measure.score.records import Record


def score(
    testset: Annotated[
        str, typer.Argument(metavar="SET", help="Test set of build contexts: name or path.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Stored predictions; repeatable; all by default."),
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--class", help="Only this class; all classes by default.")
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            help="What the models trained on, 'cat(sofa)+cat(bed)': accuracy against distance from "
            "it, on images that are not in it."
        ),
    ] = None,
    truth: TruthOption = None,
    metric: Annotated[str, typer.Option(help="A plain accuracy: top1, top5, …")] = "top1",
    label_map: LabelMapOption = None,
    minimum_n: Annotated[
        int, typer.Option(help="Smallest slice that may be called the worst.")
    ] = 20,
    level: LevelOption = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates of each distance.")] = 200,
    seed: SeedOption = 0,
    report: Annotated[Path | None, typer.Option(help="Also write a report (HTML) here.")] = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Per subset, community and class; average and worst, corrected; accuracy against distance."""
    from heldout.cli.contexts_drawing import measured_class
    from heldout.curate.contexts.recipe import COMMUNITY
    from heldout.curate.contexts.subsets import COLUMN
    from heldout.measure.score.estimate import counts, scores
    from heldout.measure.score.memberships import membership_records, property_records
    from heldout.measure.score.records import Count

    measured = measured_class(
        testset, subject, model or [], label_map, workspace, truth=truth, metric=metric
    )
    found = measured.testset
    columns = [name for name in (COLUMN, COMMUNITY) if name in found.card.columns]
    records: list[Record] = []
    numbers: dict[str, SliceNumber] = {}
    if train is not None:
        measured, numbers, left_out = _apart(measured, train, subject, replicates, level, seed)
        records.append(Count(name="n_left_out_train", value=left_out, testset=found.name))
    by = [*columns, *(["class"] if subject is None else [])]
    records += scores(measured, by=by, minimum_n=minimum_n, level=level, seed=seed)
    for column in columns:
        records += membership_records(measured, column, worst_n=minimum_n, level=level)
    if numbers:
        records += property_records(measured, COLUMN, numbers, level=level)
    records += counts([measured])
    if report is not None:
        from heldout.core.workspace import Workspace
        from heldout.show.page import write_report
        from heldout.show.report import report_data

        data = report_data(
            records,
            workspace=Workspace.find(workspace),
            title=f"{found.name}{'' if subject is None else f': {subject}'}",
            sets={found.name: found},
        )
        write_report(data, report)
        say(f"wrote {report}")
    emit(records, as_json=as_json, save=save)


def _apart(
    measured: Measured, train: str, subject: str | None, replicates: int, level: float, seed: int
) -> tuple[Measured, dict[str, SliceNumber], int]:
    """The rows of images outside the training collection, and how far each subset is from it."""
    import numpy as np

    from heldout.cli.contexts_naming import named_parts
    from heldout.core.errors import NotApplicable
    from heldout.curate.contexts.distance import chosen_classes, make_profiles, profile_distance
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.measure.score.memberships import SliceNumber

    subsets = read_subsets(measured.testset)
    names = named_parts(train, set(subsets.names))
    mine = chosen_classes(subsets, names, 1)
    if subject is not None and subject in subsets.subjects and subject not in mine.subjects:
        raise NotApplicable(f"{train} trains no {subject}", fix=f"name subsets of {subject}")
    profiles = make_profiles(mine)
    trained = profiles.collection(names)
    numbers = {}
    for name in mine.names:
        far = profile_distance(
            profiles.collection(name), trained, replicates=replicates, level=level, seed=seed
        )
        numbers[name] = SliceNumber(value=far.value, low=far.low, high=far.high)
    inside = set(mine.image_ids[trained.images].tolist())
    ids = measured.testset.image_ids.to_pylist()
    kept = np.array([ids[row] not in inside for row in measured.rows], dtype=bool)
    if not kept.any():
        raise NotApplicable(
            "every image is in the training collection", fix="train on fewer subsets"
        )
    return measured.select(np.flatnonzero(kept)), numbers, int((~kept).sum())
