"""``heldout prune``: free the room that predictions no longer wanted take."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit_json, out, print_table
from heldout.cli.options import JsonOption, WorkspaceOption


def prune(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="Also stored predictions of models that match; repeatable."
        ),
    ] = None,
    testset: Annotated[
        str | None,
        typer.Option("--testset", "-t", help="Only the models' predictions on this set."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove; without it, only a list.")
    ] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """List (and with --delete remove) leftovers, orphaned predictions, and models named by glob."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.models.predictions.prune import find_waste, remove

    place = Workspace.find(workspace)
    name = None if testset is None else find_testset(place, testset).name
    waste = find_waste(place, models=model or (), testset=name)
    if delete:
        remove(waste)
    if as_json:
        emit_json([{"folder": str(w.folder), "reason": w.reason, "bytes": w.bytes} for w in waste])
        return
    if waste:
        rows = [[str(w.folder), w.reason, f"{w.bytes / 1e6:,.1f} MB"] for w in waste]
        print_table("", ["folder", "why", "size"], rows, left=2)
    total = sum(w.bytes for w in waste) / 1e6
    verb = "freed" if delete else "could be freed with --delete"
    out(f"{total:,.1f} MB {verb}")
