"""``heldout verify``: is a test set still what its card says?"""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit_json, out
from heldout.cli.options import JsonOption, WorkspaceOption


def verify(
    testsets: Annotated[
        list[str] | None, typer.Argument(help="Test sets: names or paths; all by default.")
    ] = None,
    images: Annotated[
        bool, typer.Option(help="Also compare every image file with its hash.")
    ] = True,
    decode: Annotated[bool, typer.Option(help="Also decode every image file.")] = True,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Check tables, hashes and image files against the card; nothing is changed."""
    from heldout.errors import EXIT_FAULT, NotFound
    from heldout.testset import list_testsets
    from heldout.testset.catalogue import find_folder
    from heldout.testset.verify import verify as check
    from heldout.workspace import Workspace

    place = Workspace.find(workspace)
    folders = [find_folder(place, name) for name in testsets or []] or [
        e.folder for e in list_testsets(place)
    ]
    if not folders:
        raise NotFound(f"no test sets in {place.testsets}", fix="import one first")
    found = [check(folder, images=images, decode=decode) for folder in folders]
    if as_json:
        emit_json([item.to_dict() for item in found])
    else:
        for item in found:
            state = "as its card says" if item.ok else "NOT as its card says"
            out(f"{item.folder}: {state} ({item.tables} tables, {item.images} image files checked)")
            for finding in item.findings:
                out(f"  {finding.severity}: {finding.file}: {finding.message}: {finding.fix}")
    if not all(item.ok for item in found):
        raise typer.Exit(EXIT_FAULT)
