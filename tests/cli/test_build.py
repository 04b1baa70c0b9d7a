"""``heldout build compose`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heldout.cli.app import invoke
from heldout.data.testset.testset import load
from tests.curate.compose import compose_examples as examples


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HELDOUT_WORKSPACE", raising=False)
    examples.make_foregrounds(tmp_path / "f")
    examples.make_backgrounds(tmp_path / "b")
    return tmp_path


BUILD = ["build", "compose", "--foregrounds", "f", "--backgrounds", "b", "--resolution", "48"]


def counts(text: str) -> dict[str, Any]:
    return {row["name"]: row["value"] for row in json.loads(text) if row["record"] == "count"}


def test_a_set_is_built_and_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke([*BUILD, "--preset", "demo", "--layout", "siscore", "-o", "out", "--json"])
    said = capsys.readouterr()
    assert code == 0
    found = counts(said.out)
    assert found["candidates"] == 64 and found["foregrounds"] == 4
    assert found["images"] == len(load(here / "out"))
    assert "images of 3 classes" in said.err and "unchanged" not in said.err
    assert (here / "out" / "metadata.csv").is_file()
    assert invoke([*BUILD, "--preset", "demo", "--layout", "siscore", "-o", "out"]) == 0
    assert "unchanged" in capsys.readouterr().err


def test_a_file_and_flags_that_win(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "sets").mkdir()
    (here / "sets" / "mine.toml").write_text(
        'foregrounds = "../f"\nbackgrounds = "../b"\nresolution = 32\nseed = 4\n'
        "[factors]\nsize = [0.1, 0.2]\nrotation = [0, 5, 10]\n"
    )
    command = ["build", "compose", "sets/mine.toml", "--factor", "rotation=0:20:10"]
    assert invoke([*command, "--backgrounds-per-object", "1"]) == 0
    made = load(here / "testsets" / "mine")
    asked = made.card.recipe["parameters"]
    assert (asked["rotation"], asked["size"]) == ([0, 10, 20], [0.1, 0.2])
    assert made.card.recipe["seed"] == 4 and asked["backgrounds_per_object"] == 1


def test_a_plan_renders_no_set(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*BUILD, "--preset", "size", "--plan"]) == 0
    said = capsys.readouterr()
    assert "candidates" in said.out and "MB" in said.out
    assert "class lemon has no images at size" in said.err
    assert invoke([*BUILD, "--preset", "size", "--plan", "--json"]) == 0
    found = counts(capsys.readouterr().out)
    assert found["candidates"] == 800 and found["images size=0.5"] == 8
    assert sorted(path.name for path in here.iterdir()) == ["b", "f"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--preset", "sizes"], "no preset 'sizes': did you mean size"),
        (["--backgrounds-per-object", "9"], "9 backgrounds for each object were asked for"),
        (["--factor", "size"], "--factor is 'size': write name=value"),
        (["--factor", "blurr=1"], "did you mean blur"),
        (["--labels", "none.json"], "no label map at none.json"),
        (["--classes", "imagenet-2k"], "no label space named"),
        (["--min-inside", "2"], "--min-inside is '2': give a number <= 1"),
        (["--seed", "-1"], "--seed is '-1': give a whole number >= 0"),
        (["--foregrounds", "nowhere"], "no folder of cut-outs at nowhere"),
    ],
)
def test_errors_are_one_line(
    flags: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([*BUILD, "-o", "out", *flags]) == 2
    said = capsys.readouterr().err
    assert message in said and said.startswith("error: ") and said.count("\n") == 1
    assert not (here / "out").exists()


def test_eval_takes_a_configuration(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.toml").write_text(
        'foregrounds = "f"\nbackgrounds = "b"\nresolution = 32\n[factors]\nsize = [0.1, 0.5]\n'
    )
    assert invoke(["predict", "-m", "lite0", "-t", "compose:mine.toml"]) == 0
    capsys.readouterr()
    command = ["eval", "-m", "lite0", "-t", "compose:mine.toml", "--json"]
    assert invoke([*command, "--by", "size", "--replicates", "50"]) == 0
    slices = {row.get("slice") for row in json.loads(capsys.readouterr().out)}
    assert {"all", "size=0.1", "size=0.5"} <= slices
    assert (here / "runs" / "eval" / "report.html").is_file()
    assert [path.parent.name for path in here.rglob("*.jpg")] == ["b"]


def test_flags_win_however_a_file_spells_its_factors(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = 'foregrounds = "f"\nbackgrounds = "b"\nresolution = 32\nsize = [0.1, 0.2]\n'
    (here / "mine.toml").write_text(
        f"{start}[factors]\nimage.noise = [0, 0.1]\n[factors.background]\nblur = [0, 4]\n"
    )
    given = ["-f", "background.blur=0,2", "-f", "size=0.3", "-f", "noise=0.2"]
    assert invoke(["build", "compose", "mine.toml", *given, "--plan", "--json"]) == 0
    found = counts(capsys.readouterr().out)
    assert found["candidates"] == 16, "two blurs of four objects on two backgrounds each"
    blurs = {name for name in found if name.startswith("images background.blur=")}
    assert blurs == {"images background.blur=0", "images background.blur=2"}, "0 is no word"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("factors = 3", "write [factors] and a line for each"),
        ("[factors]\nsize = { from = 1 }", "a range is {'from': 1}"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(
    text: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.toml").write_text(text)
    assert invoke([*BUILD, "mine.toml", "-f", "rotation=0", "--plan"]) == 2
    said = capsys.readouterr().err
    assert message in said and said.startswith("error: ") and said.count("\n") == 1


def test_another_set_in_the_folder_is_refused_before_any_work(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([*BUILD, "--preset", "demo", "-o", "out"]) == 0
    capsys.readouterr()
    assert invoke([*BUILD, "--preset", "demo", "-o", "out", "--seed", "3"]) == 2
    assert "out holds another test set: name another folder, or use" in capsys.readouterr().err
    assert not (here / "runs").exists(), "nothing was rendered"
    (here / "file").write_text("")
    assert invoke([*BUILD, "-o", "file/out"]) == 2
    assert "file is a file" in capsys.readouterr().err and not (here / "runs").exists()


def test_a_changed_factor_is_never_mistaken_for_the_old_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (
        "from heldout.curate.compose.factors import factor\n\n\n"
        '@factor("dark", neutral=0.0, values=(0.0, 1.0), low=0.0, high=1.0)\n'
        "def dark(region, value):\n    return region.pixels * (1 - value / 2)\n"
    )
    (here / "dark.py").write_text(source)
    (here / "mine.toml").write_text('factor_files = ["dark.py:dark"]\n[factors]\ndark = [0, 1]\n')
    command = [*BUILD, "mine.toml", "-o", "out"]
    assert invoke(command) == 0 and invoke(command) == 0
    assert "unchanged" in capsys.readouterr().err
    before = load(here / "out").images["sha256"].to_pylist()
    (here / "dark.py").write_text(source.replace("/ 2", "/ 3"))
    assert invoke(command) == 2
    assert "another test set" in capsys.readouterr().err
    assert invoke([*command, "--replace"]) == 0
    assert load(here / "out").images["sha256"].to_pylist() != before
