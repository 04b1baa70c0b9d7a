"""The run files of the examples: every line exists, plans, and runs from end to end with two models."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs
from tests.curate.compose import compose_examples as examples

from heldout.cli.runfile import execute, find_step, read_runfile, step_values
from heldout.core.context import Context
from heldout.core.request import make
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
def test_every_step_is_a_request(path: Path) -> None:
    runfile = read_runfile(path)
    known = {name: spec.default or "folder" for name, spec in runfile.inputs.items()}
    known |= {"run": "run", "testsets": "testsets"}
    for step in runfile.step:
        verb, kind = find_step(step["verb"])
        for given in step_values(step, known):
            given.pop("save", None)
            make(verb.type, {**given, **({verb.type.tag: kind} if kind else {})})


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_sets_plan_as_they_stand(
    path: Path, inputs: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runfile = read_runfile(path)
    planned = structs.replace(runfile, step=({**runfile.step[0], "plan": True},))
    assert planned.step[0]["verb"] == "build compose"
    made = execute(planned, inputs, Context(Workspace(tmp_path / "w")))
    assert made.code == 0 and not (tmp_path / "w/testsets").exists()


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_the_runs_run(path: Path, inputs: dict[str, str], tmp_path: Path) -> None:
    """With two small models instead of timm's, and few values."""
    runfile = read_runfile(path)
    given = {**inputs, "models": ["lite0", "lite1"], "factors": SMALL[runfile.name]}
    if "preprocessing" in runfile.inputs:
        given["preprocessing"] = []
    assert execute(runfile, given, Context(Workspace(tmp_path / "w"))).code == 0
    (folder,) = (tmp_path / "w/testsets").iterdir()
    made = load(folder)
    key = "patch_phase" if "patch_phase" in made.images.column_names else "size"
    assert len(set(made.images[key].to_pylist())) == 2 and made.card.clusters == "object"
    page = tmp_path / "w/runs" / runfile.name / "report.html"
    assert made.name in page.read_text(encoding="utf-8")
