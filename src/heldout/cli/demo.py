"""``heldout demo``: the main job on a fresh machine, offline, to a report."""

from __future__ import annotations

from pathlib import Path

from heldout.cli.console import out
from heldout.cli.options import SeedOption, WorkspaceOption


def demo(seed: SeedOption = 0, workspace: WorkspaceOption = None) -> None:
    """Cut objects out of real photographs, vary size, place and rotation, evaluate three models."""
    from heldout.cli.runfile import execute, read_runfile
    from heldout.core.workspace import Workspace
    from heldout.measure.evaluation.demonstration import write_inputs

    place = Workspace.find(workspace or Path("heldout-demo"))
    inputs = write_inputs(place.root / "inputs")
    runfile = read_runfile(Path(__file__).with_suffix(".toml"))
    execute(runfile, {"inputs": inputs, "seed": seed}, workspace=place, quiet=True)
    report = place.runs / "demo" / "report.html"
    out(f"report: {report}")
    out("open it in a browser; then look further, for example with")
    out(f"  heldout ls --columns --workspace {place.root}")
    out(f"  heldout score -t demo-size-1 --by object --by size --workspace {place.root}")
    out(f"  heldout compare lite0 lite2 -t demo-size-1 --by size --workspace {place.root}")
