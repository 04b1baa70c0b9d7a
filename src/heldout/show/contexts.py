"""What is drawn of images in context: the graph of a class, and the report of scores over subsets."""

from __future__ import annotations

from heldout.core.context import Context, Result
from heldout.core.files import write_json
from heldout.curate.contexts.requests import GraphRequest, ScoreContextsRequest
from heldout.curate.contexts.subsets import COLUMN
from heldout.curate.contexts.verbs import DrawnGraph
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Score
from heldout.measure.score.slices import parse_slice
from heldout.show.graph import GraphData, Node, write_graph
from heldout.show.page import write_report
from heldout.show.report import report_data
from heldout.show.thumbnails import spread_over, thumbnails

_EACH, _MOST = 12, 480
"""Thumbnails of a subset, and of all, at most."""


def write_graphs(request: GraphRequest, result: Result, context: Context) -> None:
    """Write the graph of a class to the files that are asked for, by their endings."""
    drawn: DrawnGraph = result.drawn
    pictures = [path for path in request.outs if path.suffix.lower() != ".json"]
    data = graph_data(drawn) if pictures else None
    for path in request.outs:
        if data is None or path not in pictures:
            write_json(path, drawn.graph.to_dict())
        else:
            write_graph(data, path)
        context.say(f"wrote {path}")


def graph_data(drawn: DrawnGraph) -> GraphData:
    """Everything that the picture of a class's graph shows."""
    testset, graph, subsets, described, measured = drawn
    images = subsets.image_ids.tolist()
    members = [subsets.members(name).tolist() for name in subsets.names]
    places = {name: place for place, name in enumerate(subsets.names)}
    by_subset, overall = ({}, {}) if measured is None else _scores(measured)
    shown = spread_over(members, each=_EACH, most=_MOST)
    small = thumbnails(testset, (images[image] for image in shown))
    number = {image: place for place, image in enumerate(images)}
    return GraphData(
        title=f"{graph.subject}: {len(graph)} subsets and what they share",
        nodes=[
            Node(
                name=one.name,
                label=one.context,
                size=one.images,
                community=one.community,
                scores=by_subset.get(one.name, {}),
                traits=one.lifts,
                nearest=[(places[s.name], s.distance) for s in one.nearest],
                farthest=[(places[s.name], s.distance) for s in one.farthest],
                members=mine,
            )
            for one, mine in zip(described, members, strict=True)
        ],
        edges=graph.edges,
        threshold=graph.threshold,
        weight="overlap" if graph.measure == "overlap" else "Jaccard index",
        images=images,
        thumbnails={number[image_id]: uri for image_id, uri in small.items()},
        overall=overall,
        metric="top1" if measured is None else measured.metric.name,
    )


def _scores(measured: Measured) -> tuple[dict[str, dict[str, Score]], dict[str, Score]]:
    """By subset and model, and by model on all images of the class."""
    found: dict[str, dict[str, Score]] = {}
    overall: dict[str, Score] = {}
    for score in scores(measured, by=[COLUMN]):
        if score.metric == measured.metric.name:
            name = parse_slice(score.slice).get(COLUMN)
            (overall if name is None else found.setdefault(name, {}))[score.model] = score
    return found, overall


def write_scores(request: ScoreContextsRequest, result: Result, context: Context) -> None:
    """Write the report of scores over subsets, where that is asked for."""
    if request.out is None:
        return
    testset = result.drawn
    data = report_data(
        result.records,
        workspace=context.workspace,
        title=": ".join([testset.name, *filter(None, [", ".join(request.classes)])]),
        sets={testset.name: testset},
    )
    write_report(data, request.out)
    context.say(f"wrote {request.out}")
