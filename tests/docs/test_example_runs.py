"""The run files of the examples: every line exists, plans, and runs from end to end with two models."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.curate.compose import compose_examples as examples
from typer.main import get_command

from heldout.cli.app import app, invoke
from heldout.cli.run import execute, read_runfile, step_arguments
from heldout.core.workspace import Workspace
from heldout.data.testset import load

ROOT = Path(__file__).parents[2]
RUNS = sorted(ROOT.glob("examples/*.toml"))
SMALL = {
    "groupnorm-small-objects": ["size=0.02,0.2"],
    "vit-patch-intersections": ["patch_phase=0,0.5", "size=0.1"],
}


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(tmp_path)
    examples.make_foregrounds(tmp_path / "f")
    examples.make_backgrounds(tmp_path / "b")
    return {"foregrounds": "f", "backgrounds": "b"}


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_step_is_a_command_that_exists(path: Path, tmp_path: Path) -> None:
    runfile = read_runfile(path)
    known = {name: spec.get("default", "folder") for name, spec in runfile.inputs.items()}
    known |= {"run": "run", "testsets": "testsets"}
    for step in runfile.steps:
        for words in step_arguments(step, known, Workspace(tmp_path)):
            command = get_command(app)
            while words[0] in getattr(command, "commands", {}):
                command = command.commands[words.pop(0)]  # type: ignore[attr-defined]
            flags = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}
            assert {word for word in words if word.startswith("--")} <= flags


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_sets_plan_as_they_stand(
    path: Path, inputs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runfile = read_runfile(path)
    known = {name: spec.get("default") for name, spec in runfile.inputs.items()} | inputs
    known |= {"run": "run", "testsets": "testsets"}
    (build,) = step_arguments(runfile.steps[0], known, Workspace(tmp_path))
    assert build[:2] == ["build", "compose"]
    assert invoke([*build, "--plan"]) == 0
    assert "images" in capsys.readouterr().out


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_runs_run(path: Path, inputs: dict[str, str], tmp_path: Path) -> None:
    """With two small models instead of timm's, and few values."""
    runfile = read_runfile(path)
    given = {**inputs, "models": ["lite0", "lite1"], "factors": SMALL[runfile.name]}
    if "preprocessing" in runfile.inputs:
        given["preprocessing"] = []
    assert execute(runfile, given, workspace=Workspace(tmp_path / "w"), quiet=True) == 0
    (folder,) = (tmp_path / "w/testsets").iterdir()
    made = load(folder)
    key = "patch_phase" if "patch_phase" in made.images.column_names else "size"
    assert len(set(made.images[key].to_pylist())) == 2 and made.card.clusters == "object"
    page = tmp_path / "w/runs" / runfile.name / "report.html"
    assert made.name in page.read_text(encoding="utf-8")
