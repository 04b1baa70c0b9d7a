"""``heldout contexts``: the graph over the subsets of a class, and distances between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli import contexts_conflicts, contexts_folders, contexts_score, contexts_split
from heldout.cli.console import emit, emit_json, note, print_table, say
from heldout.cli.contexts_drawing import HtmlOption, PngOption, ScoresOption, SvgOption
from heldout.cli.contexts_naming import named_parts
from heldout.cli.options import JsonOption, LabelMapOption, LevelOption, SeedOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.curate.contexts.describe import SubsetDescription
    from heldout.curate.contexts.distance import Distance
    from heldout.curate.contexts.graph import MetaGraph
    from heldout.data.testset import TestSet

app = typer.Typer(
    help="Images in context: the graph over subsets, distances, splits.", no_args_is_help=True
)
app.add_typer(contexts_split.app, name="split")
app.command("folders")(contexts_folders.folders)
app.command("conflicts")(contexts_conflicts.conflicts)
app.command("score")(contexts_score.score)

SetArgument = Annotated[
    str, typer.Argument(metavar="SET", help="Test set of build contexts: name or path.")
]
ThresholdOption = Annotated[
    float | None, typer.Option(help="Overlaps below it are no edges; the set's own by default.")
]
MeasureOption = Annotated[
    str | None, typer.Option(help="overlap (shared / smaller) or jaccard; the set's by default.")
]
MinimumOption = Annotated[
    int | None, typer.Option(help="Smaller subsets are left out; the set's own by default.")
]


@app.callback()
def _contexts() -> None:
    pass


@app.command("graph")
def graph(
    testset: SetArgument,
    subject: Annotated[str, typer.Option("--class", help="The class, such as cat.")],
    threshold: ThresholdOption = None,
    measure: MeasureOption = None,
    minimum: MinimumOption = None,
    communities: Annotated[
        str | None, typer.Option(help="greedy (as published) or louvain; the set's by default.")
    ] = None,
    seed: SeedOption = 0,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write the graph to this JSON file.")
    ] = None,
    html: HtmlOption = None,
    svg: SvgOption = None,
    png: PngOption = None,
    model: ScoresOption = None,
    label_map: LabelMapOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """The subsets of a class, what they share, and their communities."""
    from heldout.core.files import write_json
    from heldout.curate.contexts.describe import unique_subsets
    from heldout.curate.contexts.graph import meta_graph
    from heldout.curate.contexts.subsets import read_subsets

    found = _find(testset, workspace)
    options = _options(found, threshold=threshold, measure=measure, minimum=minimum)
    subsets = read_subsets(found)
    method: Any = communities or _parameter(found, "communities", "greedy")
    made = meta_graph(
        subsets,
        subject,
        **options,
        communities=method,
        seed=seed,
    )
    if save is not None:
        write_json(save, made.to_dict())
    unique = unique_subsets(
        subsets.of(subject).at_least(options["minimum"]),
        made.communities,
        threshold=options["threshold"],
        measure=options["measure"],
    )
    if html or svg or png:
        from heldout.cli.contexts_drawing import draw

        pictures = {"html": html, "svg": svg, "png": png}
        draw(found, made, pictures, model or [], label_map, workspace)
    if as_json:
        emit_json([*_graph_counts(made), _graph_record(made, unique)])
        return
    from heldout.measure.score.records import Count

    counts = [
        Count(name=f"{subject}_{count['name']}", value=count["value"], testset=found.name)
        for count in _graph_counts(made)
    ]
    emit(counts, as_json=False, show=lambda _: _show_graph(made, unique))


@app.command("distance")
def distance(
    testset: SetArgument,
    a: Annotated[
        str, typer.Argument(metavar="A", help="A subset, or several merged: 'cat(sofa)+cat(bed)'.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The other side.")],
    mode: Annotated[
        str, typer.Option(help="default, or published: MetaShift's spectral distance.")
    ] = "default",
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="published: a node of the graph, 'dog(bed)=dog(bed)+dog(couch)'; repeatable; the "
            "subsets of the class by default."
        ),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="published: eig as the original, or eigh for symmetric matrices.")
    ] = "eig",
    dimensions: Annotated[
        int, typer.Option(help="published: dimensions of the spectral layout.")
    ] = 5,
    threshold: ThresholdOption = None,
    measure: MeasureOption = None,
    minimum: MinimumOption = None,
    replicates: Annotated[
        int, typer.Option(min=0, help="Bootstrap replicates; 0 for no interval.")
    ] = 400,
    level: LevelOption = 0.95,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """How far two subsets, or merged collections of subsets, lie apart."""
    from heldout.curate.contexts.distance import distance as measure_distance
    from heldout.curate.contexts.subsets import read_subsets

    found = _find(testset, workspace)
    subsets = read_subsets(found)
    nodes = _nodes(node or [], subsets.names)
    known = {*subsets.names, *nodes}
    made = measure_distance(
        subsets,
        named_parts(a, known),
        named_parts(b, known),
        mode=mode,  # type: ignore[arg-type]  # an unknown one is refused there
        **_options(found, threshold=threshold, measure=measure, minimum=minimum),
        replicates=replicates,
        level=level,
        seed=seed,
        nodes=nodes or None,
        dimensions=dimensions,
        solver=solver,  # type: ignore[arg-type]
    )
    for text in made.notes:
        say(f"warning: {text}") if mode == "published" else note(text)
    if as_json:
        emit_json([_distance_record(made, found)])
        return
    _show_distance(made)


def _find(testset: str, workspace: Path | None) -> TestSet:
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset

    return find_testset(Workspace.find(workspace), testset)


def _parameter(testset: TestSet, name: str, default: Any) -> Any:
    """What the set was built with, where it says so."""
    return dict(testset.card.recipe.get("parameters") or {}).get(name, default)


def _options(
    testset: TestSet, *, threshold: float | None, measure: str | None, minimum: int | None
) -> dict[str, Any]:
    from heldout.curate.contexts.graph import MINIMUM, THRESHOLD

    given = {"threshold": threshold, "measure": measure, "minimum": minimum}
    defaults = {"threshold": THRESHOLD, "measure": "overlap", "minimum": MINIMUM}
    return {
        name: _parameter(testset, name, defaults[name]) if value is None else value
        for name, value in given.items()
    }


def _nodes(texts: list[str], names: tuple[str, ...]) -> dict[str, list[str]]:
    from heldout.core.errors import UserError

    nodes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, members = text.partition("=")
        if not equals or not name.strip() or not members.strip():
            raise UserError(f"{text!r} is no node", fix="write NAME=SUBSET+SUBSET")
        if name.strip() in nodes:
            raise UserError(f"node {name.strip()!r} is given twice", fix="give it once")
        nodes[name.strip()] = named_parts(members, set(names))
    return nodes


def _graph_counts(graph: MetaGraph) -> list[dict[str, Any]]:
    counts = {
        "nodes": len(graph),
        "edges": len(graph.edges),
        "components": len(graph.components),
        "communities": len(graph.communities),
    }
    counts |= {f"community_{k}": len(c) for k, c in enumerate(graph.communities, 1)}
    return [
        {"record": "count", "name": name, "value": value, "class": graph.subject}
        for name, value in counts.items()
    ]


def _graph_record(graph: MetaGraph, unique: tuple[SubsetDescription, ...]) -> dict[str, Any]:
    return {
        "record": "graph",
        **graph.to_dict(),
        "edges": [
            {"a": graph.subsets[i], "b": graph.subsets[j], "weight": weight}
            for i, j, weight in graph.edges
        ],
        "components": [list(part) for part in graph.components],
        "nodes": [each.to_dict() for each in unique],
    }


def _show_graph(graph: MetaGraph, unique: tuple[SubsetDescription, ...]) -> None:
    parts = len(graph.components)
    print_table(
        f"{graph.subject}: {len(graph)} subsets, {len(graph.edges)} edges at {graph.threshold:g}, "
        f"{parts} component{'s' * (parts > 1)}, {len(graph.communities)} communities "
        f"({graph.method}: {', '.join(str(len(c)) for c in graph.communities)})",
        ("subset", "community", "more often with", "nearest", "farthest", "images"),
        [
            (
                unique[place].name,
                str(unique[place].community),
                ", ".join(f"{x.context} {x.lift:.1f}×" for x in unique[place].lifts[:3]),
                *(
                    f"{x[0].name} {x[0].distance:.2f}" if x else ""
                    for x in (unique[place].nearest, unique[place].farthest)
                ),
                f"{unique[place].images:,}",
            )
            for community in graph.communities
            for place in sorted(community, key=lambda node: (-unique[node].images, node))
        ],
        left=5,
    )


def _distance_record(found: Distance, testset: TestSet) -> dict[str, Any]:
    from dataclasses import asdict

    record: dict[str, Any] = {"record": "distance", "testset": testset.name, **asdict(found)}
    record |= {key: list(record[key]) for key in ("a", "b", "notes")}
    return {**record, "testset_hash": testset.card.content_hash}


def _show_distance(found: Distance) -> None:
    interval = "" if found.low is None else f"[{found.low:.3f}, {found.high:.3f}]"
    print_table(
        "",
        ("a", "b", "mode", "distance", "interval", "images a", "images b", "in both"),
        [
            (
                "+".join(found.a),
                "+".join(found.b),
                found.mode,
                f"{found.value:.3f}",
                interval,
                f"{found.images_a:,}",
                f"{found.images_b:,}",
                f"{found.shared:,}",
            )
        ],
        left=3,
    )
