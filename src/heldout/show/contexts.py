"""What is drawn of images in context: statistics, the graph of a class, scores over subsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heldout import __version__
from heldout.core.context import Context, Result
from heldout.core.files import write_json, write_text
from heldout.curate.contexts.describe import ContextStatistics
from heldout.curate.contexts.requests import GraphRequest, ScoreContextsRequest
from heldout.curate.contexts.subsets import COLUMN
from heldout.curate.contexts.verbs import DrawnGraph
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Score
from heldout.measure.score.slices import parse_slice
from heldout.show.embed import render
from heldout.show.graph import GraphData, Node, write_graph
from heldout.show.page import write_report
from heldout.show.report import report_data
from heldout.show.thumbnails import spread_over, thumbnails
from heldout.show.wording import count

_EACH, _MOST = 12, 480
"""Thumbnails of a subset, and of all, at most."""


def write_graphs(request: GraphRequest, result: Result, context: Context) -> None:
    """Write the graph of a class, or statistics, to the files that are asked for, by their endings."""
    if isinstance(result.drawn, ContextStatistics):
        for path in request.outs:
            write_text(path, render_statistics(result.drawn))
            context.say(f"wrote {path}")
        return
    drawn: DrawnGraph = result.drawn
    pictures = [path for path in request.outs if path.suffix.lower() != ".json"]
    data = graph_data(drawn) if pictures else None
    for path in request.outs:
        if data is None or path not in pictures:
            write_json(path, drawn.graph.to_dict())
        else:
            write_graph(data, path)
        context.say(f"wrote {path}")


_STEPS = (
    ("candidate subsets", "subsets", "subjects", "images"),
    ("of enough images", "subsets_at_minimum", "subjects_at_minimum", "images_at_minimum"),
    ("of classes with enough subsets", "subsets_kept", "classes_above_minimum", "images_kept"),
)
"""From candidates to the set: the counts of subsets, classes and images after each rule."""


class _Section(NamedTuple):
    """A table; with ``bars`` the last number of each row is drawn too."""

    id: str
    title: str
    lede: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    bars: bool = True


def render_statistics(found: ContextStatistics) -> str:
    """The page of a set's statistics: one file that needs nothing but itself, and no script at all."""
    totals, per_class = found.totals, np.array([row.subsets for row in found.classes])
    kinds = ("", "subsets", "classes", "images")
    steps: list[list[str | float]] = [
        [name, *(found.counts[key] for key in keys)] for name, *keys in _STEPS
    ]
    sizes = "How sizes are spread; each row is twice as wide as the one before it."
    share = "In subsets: the percentage of a class's images with any context that are in a subset."
    classes = [
        (row.subject, row.largest, row.largest_images, row.subsets, 100 * row.coverage, row.images)
        for row in found.classes
    ]
    heads = ("class", "largest subset", "its images", "subsets", "in subsets", "images")
    return render(
        "context_statistics.html.j2",
        "report.css",
        title=f"{totals.testset}: images in context",
        tiles=[
            ("images", count(totals.images)),
            ("classes", count(totals.classes)),
            ("subsets", count(totals.subsets)),
            ("subsets of a class, mean", f"{totals.subsets_per_class:.1f}"),
            ("images of a subset, mean", f"{totals.images_per_subset:.1f}"),
        ],
        sections=[
            _Section("candidates", "From candidates to the set", "", kinds, steps, bars=False),
            _Section(
                "sizes",
                "Images of a subset",
                sizes,
                ("images", "subsets"),
                doubling_bins(found.sizes),
            ),
            _Section(
                "spread",
                "Subsets of a class",
                sizes,
                ("subsets", "classes"),
                doubling_bins(per_class),
            ),
            _Section("classes", "Classes", share, heads, classes),
        ],
        version=__version__,
    )


def doubling_bins(values: np.ndarray) -> list[tuple[str, int]]:
    """How many values lie in each bin, the first from the least value on, each twice as wide.

    >>> doubling_bins(np.array([25, 30, 49, 50, 210]))
    [('25–49', 3), ('50–99', 1), ('100–199', 0), ('200–399', 1)]
    """
    found, low = [], max(int(values.min()), 1)
    while low <= values.max():
        inside = int(((values >= low) & (values < 2 * low)).sum())
        found.append((f"{low}–{2 * low - 1}" if low > 1 else "1", inside))
        low *= 2
    return found


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
