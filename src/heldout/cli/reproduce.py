"""``heldout reproduce``: a published result from published files, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.options import ExcludeOption, JsonOption, WorkspaceOption


def reproduce(
    name: Annotated[
        str, typer.Argument(help="clip-geoyfcc, imagenetv2, metashift, mistakes or siscore.")
    ],
    data: Annotated[Path, typer.Option(help="Folder of the published data.")],
    predictions: Annotated[
        Path | None, typer.Option(help="mistakes: folder of <model>.npy on the validation set.")
    ] = None,
    order: Annotated[
        Path | None,
        typer.Option(help="mistakes: dataset file that names the rows of the predictions."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="siscore: models to evaluate; lite0 by default."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="siscore: coarser grids, done in a minute or two.")
    ] = False,
    exclude: ExcludeOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Reproduce a published result with the public verbs, and write its report under runs/."""
    from heldout.cli.reproductions import published_run
    from heldout.cli.runfile import execute, read_runfile
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace

    runfile = read_runfile(published_run(name))
    if quick and not runfile.quick:
        raise UserError(f"{name} has no quick form", fix="leave out --quick")
    values = {
        "data": data,
        "predictions": predictions,
        "order": order,
        "model": model,
        "exclude": exclude or [],
    }
    given = {k: v for k, v in values.items() if v is not None and k in runfile.inputs}
    execute(
        runfile,
        {**(runfile.quick if quick else {}), **given},
        workspace=Workspace.find(workspace),
        as_json=as_json,
    )
