"""``heldout mistakes slices``: in which conjunction of columns a model fails most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, print_table, say
from heldout.cli.options import (
    ClusterOption,
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.data.labels import LabelSpace
    from heldout.measure.score.records import Record
    from heldout.measure.score.slice_search import Discovery


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
    top: Annotated[int, typer.Option(min=1, help="At most so many slices a model.")] = 10,
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
    from heldout.measure.evaluation.arguments import label_map_argument
    from heldout.measure.evaluation.flow import stored_predictions
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
    emit(records, as_json=as_json, save=save, show=lambda _: _show(searches))
    if save is not None:
        say(f"wrote {save}")


def _named(name: str, space: LabelSpace) -> str:
    """A slice, with the name of its class where it has one."""
    from heldout.measure.score.slices import CLASS, parse_slice

    class_id = parse_slice(name).get(CLASS)
    if class_id is None or class_id not in space or space.get(class_id).name == class_id:
        return name
    return f"{name} ({space.get(class_id).name})"


def _show(searches: list[Discovery]) -> None:
    for search in searches:
        measured = search.measured
        print_table(
            f"{search.model} on {measured.testset.name}, {measured.metric.name}: the worst of "
            f"{search.searched:,} slices, corrected by {search.method}",
            ["slice", "images", "percent", "interval", "elsewhere", "p"],
            [
                [
                    _named(item.slice, measured.space),
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
