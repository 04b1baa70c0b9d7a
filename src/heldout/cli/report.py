"""``heldout report``: one self-contained HTML file from records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import say
from heldout.cli.options import WorkspaceOption


def report(
    records: Annotated[
        list[Path], typer.Argument(help="JSON files of records, as --save or --json wrote them.")
    ],
    to: Annotated[Path, typer.Option("--to", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="The report's title.")] = "Evaluation",
    baseline: Annotated[
        str | None, typer.Option(help="The test set that the others are compared with.")
    ] = None,
    note: Annotated[
        list[str] | None, typer.Option(help="Something a reader should know; repeatable.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure as SVG and PNG here.")
    ] = None,
    timm_csv: Annotated[
        Path | None, typer.Option(help="Also write a CSV a test set in timm's column order here.")
    ] = None,
    clip_benchmark: Annotated[
        Path | None, typer.Option(help="Also write CLIP_benchmark's JSON files into this folder.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write a report: accuracy against the baseline, drops, ranks, slices, tables, provenance."""
    from heldout.core.workspace import Workspace
    from heldout.show.report import assemble, write_all

    data = assemble(
        records,
        workspace=Workspace.find(workspace),
        title=title,
        baseline=baseline,
        notes=note or (),
    )
    for path in write_all(
        data, to, figures=figures, timm_csv=timm_csv, clip_benchmark=clip_benchmark
    ):
        say(f"wrote {path}")
    if open_it:
        typer.launch(str(to.resolve().as_uri()))
