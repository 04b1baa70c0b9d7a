"""``heldout fetch``: published test sets, resumable and checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit_json, note, out, print_table, say
from heldout.cli.options import JsonOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.data.testset.fetch import Fetched


def fetch(
    name: Annotated[
        str | None, typer.Argument(help="A published test set; without it, the list of them.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A file (or folder of files) already on disk, checked and adopted."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the files; fetched/<name> by default.")
    ] = None,
    mirror: Annotated[
        list[str] | None, typer.Option(help="Another address to try first; repeatable.")
    ] = None,
    registry: Annotated[Path | None, typer.Option(help="Your own registry file (TOML).")] = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Fetch a published test set: resumes, tries mirrors, checks length and checksum."""
    from heldout.core.progress import byte_progress
    from heldout.core.workspace import Workspace
    from heldout.data.testset import fetch as registries
    from heldout.data.testset.fetch import fetch as get

    entries = registries.load(registry)
    if name is None:
        if as_json:
            emit_json(
                [
                    {"name": e.name, "title": e.title, "licence": e.licence, "bytes": e.bytes}
                    for e in entries
                ]
            )
        else:
            print_table(
                "published test sets",
                ["name", "title", "licence", "size"],
                [[e.name, e.title, e.licence, _size(e.bytes)] for e in entries],
                left=3,
            )
        return
    entry = registries.find(entries, name)
    folder = to or Workspace.find(workspace).root / "fetched" / entry.name
    with byte_progress() as progress:
        fetched = get(entry, folder, mirrors=mirror or (), source=source, progress=progress)
    for file in fetched.files:
        if file.note:
            note(file.note)
        say(f"{file.path}: {_size(file.bytes)}, sha256 {file.sha256[:12]}…, {file.trust}")
    say(f"cite: {entry.citation}")
    if as_json:
        emit_json(
            [
                {"path": f.path.as_posix(), "bytes": f.bytes, "sha256": f.sha256, "trust": f.trust}
                for f in fetched.files
            ]
        )
    else:
        out(next_step(fetched))


def next_step(fetched: Fetched) -> str:
    """What makes a test set of the files, by their layout."""
    from heldout.data.labels import BUILT_IN

    entry, paths = fetched.entry, [file.path for file in fetched.files]
    metadata = next((path for path in paths if path.name.endswith("metadata.csv")), None)
    own = "table" if entry.layout == "flat" else "folders"
    classes = entry.label_space if entry.label_space in BUILT_IN else own
    more = f"--classes {classes} --name {entry.name}"
    if entry.layout == "arrays":
        return f"then: heldout import testset {paths[0]} {more}"
    if entry.layout == "flat":
        return (
            f"unpack, and list image_id, path and class_id: heldout import testset LIST.csv {more}"
        )
    if metadata is not None:
        more += f" --metadata {metadata}"
    return f"unpack, then: heldout import testset {entry.inside or 'FOLDER'} {more}"


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1e6:,.1f} MB"
