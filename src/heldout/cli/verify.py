"""``heldout verify``: is a test set still what its card says, or a pool what its pool.json says?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit_json, out
from heldout.cli.options import JsonOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace


def verify(
    testsets: Annotated[
        list[str] | None,
        typer.Argument(help="Test sets and pools: names or paths; all by default."),
    ] = None,
    images: Annotated[
        bool, typer.Option(help="Also compare every image file with its hash.")
    ] = True,
    decode: Annotated[bool, typer.Option(help="Also decode every image file.")] = True,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Check tables, hashes and image files against the card or pool.json; nothing is changed."""
    from heldout.core.errors import EXIT_FAULT, NotFound
    from heldout.core.workspace import Workspace
    from heldout.data.testset import list_testsets
    from heldout.data.testset.pool import pool_folders
    from heldout.data.testset.verify import verify as verify_testset
    from heldout.data.testset.verify import verify_pool_folder

    place = Workspace.find(workspace)
    folders = [_folder(place, name) for name in testsets or []] or [
        *(entry.folder for entry in list_testsets(place)),
        *pool_folders(place),
    ]
    if not folders:
        raise NotFound(
            f"no test sets in {place.testsets} and no pools in {place.pools}",
            fix="import or collect one first",
        )
    found = [
        (verify_pool_folder if _is_pool(place, folder) else verify_testset)(
            folder, images=images, decode=decode
        )
        for folder in folders
    ]
    if as_json:
        emit_json([item.to_dict() for item in found])
    else:
        for folder, item in zip(folders, found, strict=True):
            says = "as its pool.json says" if _is_pool(place, folder) else "as its card says"
            state = says if item.ok else f"NOT {says}"
            out(f"{item.folder}: {state} ({item.tables} tables, {item.images} image files checked)")
            for finding in item.findings:
                out(f"  {finding.severity}: {finding.file}: {finding.message}: {finding.fix}")
    if not all(item.ok for item in found):
        raise typer.Exit(EXIT_FAULT)


def _folder(place: Workspace, name: str) -> Path:
    """The folder that an argument means: a test set's, or a pool's."""
    from heldout.core.errors import NotFound
    from heldout.data.testset.catalogue import find_folder

    try:
        return find_folder(place, name)
    except NotFound:
        for folder in (place.pools / name, Path(name)):
            if _is_pool(place, folder):
                return folder
        raise


def _is_pool(place: Workspace, folder: Path) -> bool:
    """Whether a folder is a pool's; one in the workspace is, even if its ``pool.json`` is gone."""
    return folder.is_dir() and (folder.parent == place.pools or (folder / "pool.json").is_file())
