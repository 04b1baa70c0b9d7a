"""``heldout reproduce``: a published result from published files, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.options import ExcludeOption, JsonOption, WorkspaceOption


def reproduce(
    name: Annotated[str, typer.Argument(help="imagenetv2 or mistakes.")],
    data: Annotated[Path, typer.Option(help="Folder of the published data.")],
    predictions: Annotated[
        Path | None, typer.Option(help="mistakes: folder of <model>.npy on the validation set.")
    ] = None,
    order: Annotated[
        Path | None,
        typer.Option(help="mistakes: dataset file that names the rows of the predictions."),
    ] = None,
    exclude: ExcludeOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Reproduce a published result with the public verbs, and write its report under runs/."""
    from heldout.cli.runfile import execute, read_runfile
    from heldout.reproduce import published_run
    from heldout.workspace import Workspace

    runfile = read_runfile(published_run(name))
    values = {"data": data, "predictions": predictions, "order": order, "exclude": exclude or []}
    execute(
        runfile,
        {
            key: value
            for key, value in values.items()
            if value is not None and key in runfile.inputs
        },
        workspace=Workspace.find(workspace),
        as_json=as_json,
    )
