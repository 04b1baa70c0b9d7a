"""``heldout run``: a declared run, every step a verb and every key a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.options import JsonOption, WorkspaceOption


def run(
    file: Annotated[Path, typer.Argument(help="The run file (TOML).")],
    values: Annotated[
        list[str] | None,
        typer.Option("--set", help="Value of an input of the run: name=value; repeatable."),
    ] = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Run a file of steps; the same file again does only what is missing."""
    from heldout.cli.runfile import execute, parse_values, read_runfile
    from heldout.core.workspace import Workspace

    code = execute(
        read_runfile(file),
        parse_values(values or []),
        workspace=Workspace.find(workspace),
        as_json=as_json,
    )
    if code:
        raise typer.Exit(code)
