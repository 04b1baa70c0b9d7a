"""``heldout labels``: classes, their meaning, and classes that are like them."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit_json, out, print_table
from heldout.cli.options import JsonOption

app = typer.Typer(help="Classes: search them, and find similar ones.", no_args_is_help=True)

SpaceOption = Annotated[
    str, typer.Option("--classes", help="Label space: a built-in name or a file.")
]


@app.command("find")
def find(
    text: Annotated[str, typer.Argument(help="Part of an id, a name or a meaning.")],
    classes: SpaceOption = "imagenet-1k",
    limit: Annotated[int, typer.Option(help="At most so many classes.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Search a label space by id, name or meaning, without case; best matches first."""
    from heldout.testset.importers import read_classes

    space = read_classes(classes)
    found = space.find(text)
    if as_json:
        emit_json([{"index": space.index(c.id), **c.to_dict()} for c in found[:limit]])
        return
    _print([(space.index(c.id), c, "") for c in found[:limit]], "")
    if len(found) > limit:
        out(f"and {len(found) - limit} more")


@app.command("similar")
def similar(
    class_id: Annotated[
        str, typer.Argument(help="A class: its id, or a name if only one class has it.")
    ],
    classes: SpaceOption = "imagenet-1k",
    k: Annotated[int, typer.Option("-k", help="How many classes.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """List the classes nearest to one by WordNet path similarity."""
    from heldout.labels import Hierarchy, most_similar
    from heldout.testset.importers import read_classes

    space = read_classes(classes)
    chosen = space.get(class_id) if class_id in space else space.by_name(class_id)
    tree = Hierarchy.wordnet()
    rows = [
        (space.get(other), tree.path_similarity(chosen.node, space.get(other).node))
        for other in most_similar(space, chosen.id, k + 1)
    ]
    if as_json:
        emit_json([{"index": space.index(c.id), "similarity": s, **c.to_dict()} for c, s in rows])
        return
    _print([(space.index(c.id), c, f"{s:.3f}") for c, s in rows], "similarity")


def _print(rows: list[tuple[int, object, str]], extra: str) -> None:
    from heldout.labels import Class

    cells = [
        [c.id, ", ".join(c.names), c.gloss[:70], str(index), *([value] if extra else [])]
        for index, c, value in rows
        if isinstance(c, Class)
    ]
    print_table("", ["id", "names", "meaning", "index", *([extra] if extra else [])], cells, left=3)
