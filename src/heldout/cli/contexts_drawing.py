"""From the graph of a class to a drawn one: what each subset is, has, and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import say

if TYPE_CHECKING:
    from heldout.curate.contexts.describe import SubsetDescription
    from heldout.curate.contexts.graph import MetaGraph
    from heldout.data.testset import TestSet
    from heldout.measure.score.measure import Measured
    from heldout.show.graph import GraphData, Node, NodeScore

HtmlOption = Annotated[
    Path | None, typer.Option("--html", help="Draw it as a page to look around in, into this file.")
]
SvgOption = Annotated[Path | None, typer.Option("--svg", help="Draw it as SVG.")]
PngOption = Annotated[Path | None, typer.Option("--png", help="Draw it as PNG.")]
ScoresOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        help="Stored predictions whose accuracy the picture shows; repeatable; SVG and PNG are coloured "
        "by the first.",
    ),
]
_EACH, _MOST = 12, 480


def draw(
    testset: TestSet,
    graph: MetaGraph,
    pictures: Mapping[str, Path | None],
    models: Sequence[str],
    label_map: str | None,
    workspace: Path | None,
) -> None:
    """Draw the graph of a class into files, by format."""
    from heldout.show.graph import write_graph

    measured = None
    if models:
        measured = measured_class(testset, graph.subject, models, label_map, workspace)
    data = drawn_graph(testset, graph, measured=measured)
    for form, path in pictures.items():
        if path is not None:
            first = data.models[0] if data.models else None
            write_graph(data, path, form, model=first)  # type: ignore[arg-type]
            say(f"wrote {path}")


def drawn_graph(
    testset: TestSet,
    graph: MetaGraph,
    *,
    measured: Measured | None = None,
    level: float = 0.95,
    notes: Sequence[str] = (),
) -> GraphData:
    """Everything that the picture of a class's graph shows; ``measured`` adds the models' scores."""
    from heldout.curate.contexts.describe import unique_subsets
    from heldout.curate.contexts.subsets import read_subsets
    from heldout.show.graph import Edge, GraphData
    from heldout.show.thumbnails import spread_over, thumbnails

    whole = read_subsets(testset)
    subsets = whole.take([whole.position(name) for name in graph.subsets])
    images = subsets.image_ids.tolist()
    members = [subsets.members(name).tolist() for name in subsets.names]
    places = {name: place for place, name in enumerate(subsets.names)}
    scores, overall = _scores(measured, graph, level) if measured is not None else ({}, {})
    unique = unique_subsets(
        subsets, graph.communities, threshold=graph.threshold, measure=graph.measure
    )
    shown = spread_over(members, each=_EACH, most=_MOST)
    small = thumbnails(testset, (images[image] for image in shown))
    number = {image: place for place, image in enumerate(images)}
    return GraphData(
        title=f"{graph.subject}: {len(graph)} subsets and what they share",
        nodes=[
            _node(one, places, members[place], scores.get(one.name, {}))
            for place, one in enumerate(unique)
        ],
        edges=[Edge(a=a, b=b, weight=weight) for a, b, weight in graph.edges],
        threshold=graph.threshold,
        weight="overlap" if graph.measure == "overlap" else "Jaccard index",
        images=images,
        thumbnails={number[image_id]: uri for image_id, uri in small.items()},
        overall=overall,
        metric="top1" if measured is None else measured.metric.name,
        distance="jensen-shannon",
        notes=tuple(notes),
    )


def _node(
    one: SubsetDescription,
    places: Mapping[str, int],
    members: Sequence[int],
    scores: Mapping[str, NodeScore],
) -> Node:
    from heldout.show.graph import Node, Sibling, Trait

    return Node(
        name=one.name,
        label=one.context,
        size=one.images,
        community=one.community,
        scores=scores,
        traits=[
            Trait(label=lift.context, lift=lift.lift, low=lift.low, high=lift.high)
            for lift in one.lifts
        ],
        nearest=[Sibling(node=places[s.name], distance=s.distance) for s in one.nearest],
        farthest=[Sibling(node=places[s.name], distance=s.distance) for s in one.farthest],
        members=members,
    )


def _scores(
    measured: Measured, graph: MetaGraph, level: float
) -> tuple[dict[str, dict[str, NodeScore]], dict[str, NodeScore]]:
    """By subset and model, and by model on all images of the class."""
    from heldout.curate.contexts.subsets import COLUMN
    from heldout.measure.score.estimate import scores
    from heldout.measure.score.slices import parse_slice
    from heldout.show.graph import NodeScore

    wanted = set(graph.subsets)
    found: dict[str, dict[str, NodeScore]] = {}
    overall: dict[str, NodeScore] = {}
    for score in scores(measured, by=[COLUMN], level=level):
        if score.metric != measured.metric.name:
            continue
        value = NodeScore(value=score.value, n=score.n, low=score.low, high=score.high)
        name = parse_slice(score.slice).get(COLUMN)
        if name is None:
            overall[score.model] = value
        elif name in wanted:
            found.setdefault(name, {})[score.model] = value
    return found, overall


def measured_class(
    testset: TestSet | str,
    subject: str | None,
    models: Sequence[str],
    label_map: str | None,
    workspace: Path | None,
    *,
    truth: str | None = None,
    metric: str = "top1",
) -> Measured:
    """Stored predictions on the rows of one class, or of all."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.measure.evaluation.arguments import label_map_argument
    from heldout.measure.evaluation.flow import stored_predictions
    from heldout.measure.score.measure import measure

    place = Workspace.find(workspace)
    found = find_testset(place, testset) if isinstance(testset, str) else testset
    name = testset if isinstance(testset, str) else str(testset.folder or testset.name)
    (measured,) = measure(
        found,
        stored_predictions(found, models, workspace=place),
        metrics=(metric,),
        truth=truth,
        label_map=label_map_argument(label_map, [name], models, workspace=place),
    )
    return measured if subject is None else of_class(measured, subject)


def of_class(measured: Measured, subject: str) -> Measured:
    """The rows of one class, by its id or name; all rows where classes are not the subjects.

    One that is no subject either is refused.
    """
    import numpy as np

    from heldout.curate.contexts.subsets import read_subsets

    classes = measured.space.classes
    there = [
        place for place, one in enumerate(classes) if subject == one.id or subject in one.names
    ]
    exact = [place for place in there if classes[place].id == subject]
    if len(exact or there) != 1:
        read_subsets(measured.testset).of(subject)
        return measured
    return measured.select(np.flatnonzero(measured.groups == (exact or there)[0]))
