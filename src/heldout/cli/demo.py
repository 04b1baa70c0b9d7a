"""``heldout demo``: the main job on a fresh machine, offline, to a report."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import out, say
from heldout.cli.options import SeedOption, WorkspaceOption


def demo(
    images: Annotated[int, typer.Option(help="Images a generated test set.")] = 2000,
    seed: SeedOption = 0,
    workspace: WorkspaceOption = None,
) -> None:
    """Score simulated models on two generated test sets, sliced by every column type, to a report."""
    from pathlib import Path

    from heldout.cli.runfile import execute, read_runfile
    from heldout.evaluation.example import make_example
    from heldout.reproduce import published_run
    from heldout.workspace import Workspace

    place = Workspace.find(workspace or Path("heldout-demo"))
    for testset in make_example(place, images=images, seed=seed):
        say(f"{testset.name}: {len(testset):,} generated images, {testset.card.content_hash[:12]}")
    execute(read_runfile(published_run("demo")), {"seed": seed}, workspace=place, quiet=True)
    report = place.runs / "demo" / "report.html"
    out(f"report: {report}")
    out("next: open it in a browser, or look at the sets with")
    out(f"  heldout ls --columns --workspace {place.root}")
    out(f"  heldout score -t example-shifted --by light --workspace {place.root}")
