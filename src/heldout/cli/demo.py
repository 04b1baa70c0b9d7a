"""``heldout demo``: the main job on a fresh machine, offline, to a report."""

from __future__ import annotations

from pathlib import Path

from heldout.cli.console import out, say
from heldout.cli.options import SeedOption, WorkspaceOption


def demo(seed: SeedOption = 0, workspace: WorkspaceOption = None) -> None:
    """Evaluate three real models on real photographs and on changed copies of them, to a report."""
    from heldout.cli.runfile import execute, read_runfile
    from heldout.evaluation.demonstration import make_demonstration
    from heldout.workspace import Workspace

    place = Workspace.find(workspace or Path("heldout-demo"))
    for testset in make_demonstration(place):
        say(f"{testset.name}: {len(testset):,} images, {testset.card.content_hash[:12]}")
    runfile = read_runfile(Path(__file__).with_suffix(".toml"))
    execute(runfile, {"seed": seed}, workspace=place, quiet=True)
    report = place.runs / "demo" / "report.html"
    out(f"report: {report}")
    out("open it in a browser; then look further, for example with")
    out(f"  heldout ls --columns --workspace {place.root}")
    out(f"  heldout score -t demo-copies-1 --by photo --by size --workspace {place.root}")
    out(f"  heldout compare lite0 lite2 -t demo-copies-1 --by vary --workspace {place.root}")
