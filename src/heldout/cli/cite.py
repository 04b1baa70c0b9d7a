"""``heldout cite``: what to cite for a test set and all it was made from."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit_json, note, out
from heldout.cli.options import JsonOption, WorkspaceOption


def cite(
    testset: Annotated[str, typer.Argument(help="The test set.")],
    bibtex: Annotated[bool, typer.Option("--bibtex", help="As BibTeX.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Print the citations of a test set and of its parents."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset.catalogue import cite as citations

    found = citations(Workspace.find(workspace), testset)
    if as_json:
        emit_json(found.to_dict())
        return
    out(found.bibtex if bibtex else found.text)
    for name in found.absent:
        note(f"{name} is a parent that is not in this workspace")
