"""``heldout predict``: what it stores, says and refuses."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heldout.core.workspace import Workspace
from heldout.models.predictions import PredictionStore
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.cli.test_eval import _START, _environment
from tests.measure.evaluation.eval_case import (
    SETS,
    calls,
    logits_file,
    model_file,
    snapshot,
    three_sets,
)
from tests.models.predictions.running_case import make_set, stored


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    three_sets(tmp_path)
    model_file(tmp_path)
    return Workspace(tmp_path)


def test_predicts_once_and_scores_as_eval_does(run: Run, place: Workspace) -> None:
    arguments = ["-m", "models.py:a", "-m", "models.py:b", "-t", SETS[0], "-t", SETS[1]]
    first = run("predict", *arguments, "--json")
    assert first.code == 0
    assert [(r["model"], r["n"], r["keeps"]) for r in first.json] == [
        (m, n, "logits") for n in (40, 50) for m in "ab"
    ]
    assert f"{SETS[0]}: 2 of 2 models are complete, 0 images failed" in first.err
    assert f"{SETS[0]} × 2: 40 images in " in first.err
    before, made = snapshot(place), len(calls(place.root))
    again = run("predict", *arguments, "--json")
    assert again.out == first.out and again.err.count("everything is stored (2 models)") == 2
    evaluated = run("eval", *arguments, "--json").json
    assert snapshot(place) == before and len(calls(place.root)) == made
    scored = run("score", "-t", SETS[0], "-t", SETS[1], "--mistakes", "--json").json
    values, expected = (
        {
            (r["model"], r["testset"], r["metric"]): r["value"]
            for r in rows
            if r["record"] == "score"
        }
        for rows in (scored, evaluated)
    )
    assert values == expected


def test_the_plan_knows_the_top_k(run: Run, place: Workspace) -> None:
    base = ["predict", "-m", "models.py:a", "-t", SETS[0]]
    (plan,) = run(*base, "--keep", "topk", "--plan", "--json").json
    assert plan["to_run"] == ["a"] and plan["bytes"] == 0
    assert run(*base, "--keep", "topk").code == 0
    assert "1 to run (a)" in run(*base, "--plan").err, "the top k are less than all logits"
    assert run(*base).code == 0
    store = PredictionStore(place.predictions)
    (group,) = place.predictions.iterdir()
    (stored,) = store.runs(group.name)
    assert stored.run["keeps"] == "logits", "they replace it"
    for asked in ([], ["--keep", "topk"]):  # the most holds the rest
        assert "everything is stored" in run(*base, *asked, "--plan").err
    refused(run(*base, "--keep", "everything"), "--keep is 'everything'")


def test_shards_and_samples(run: Run, tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        make_set(tmp_path / name, images=300)
    model = f"{model_file(tmp_path)}:a"
    base = ["predict", "-m", model, "-t", "colours-1", "-w"]
    assert run(*base, tmp_path / "whole").code == 3, "an image is broken"
    first = run(*base, tmp_path / "parts", "--shard", "1/2")
    assert first.code == 0 and "0 of 1 models are complete" in first.err
    second = run(*base, tmp_path / "parts", "--shard", "2/2")
    assert second.code == 3 and "1 of 1 models are complete" in second.err
    assert stored(tmp_path / "whole") == stored(tmp_path / "parts")
    refused(run(*base, tmp_path / "parts", "--shard", "3/2"), "3/2")
    sample = run(*base, tmp_path / "parts", "--limit", 9, "--json")
    assert sample.json[0]["n"] == 9


def test_pruning_keeps_what_was_predicted_on_samples_and_on_sets_named_by_path(
    run: Run, tmp_path: Path
) -> None:
    for name in ("here", "elsewhere"):
        make_set(tmp_path / name, images=20 + len(name), broken=())
    base = ["predict", "-w", tmp_path / "here", "-m", f"{model_file(tmp_path)}:a", "-t"]
    by_path = tmp_path / "elsewhere/testsets/colours-1"
    for arguments in (["colours-1"], ["colours-1", "--limit", 5], [by_path]):
        assert run(*base, *arguments).code == 0
    assert run("prune", "-w", tmp_path / "here", "--delete", "--json").json == []
    assert len(list((tmp_path / "here/predictions").glob("*/a@*/run.json"))) == 3
    assert "everything is stored" in run(*base, by_path).err
    shutil.rmtree(tmp_path / "here/testsets/colours-1")
    (waste,) = run("prune", "-w", tmp_path / "here", "--delete", "--json").json
    assert "no test set here has" in waste["reason"]
    assert len(run("prune", "-w", tmp_path / "here", "-m", "a", "--json").json) == 2


def test_failed_images_are_listed(run: Run, tmp_path: Path) -> None:
    make_set(tmp_path, images=30, broken=(2, 4))
    ran = run("predict", "-m", f"{model_file(tmp_path)}:a", "-t", "colours-1")
    assert ran.code == 3 and ran.out == ""
    assert "failed: colours-1 0002.img: " in ran.err and "2 images failed" in ran.err
    assert Path("runs/predict-failed.csv").read_text().count("\n") == 3
    again = run("predict", "-m", f"{model_file(tmp_path)}:a", "-t", "colours-1")
    assert again.code == 3 and again.err.count("failed: ") == 2
    assert "prune -t SET -m MODEL --delete" in again.err
    make_set(tmp_path / "whole", images=30, broken=())
    sound = (tmp_path / "whole" / "files" / "0002.img").read_bytes()
    (tmp_path / "files" / "0002.img").write_bytes(sound)
    run("prune", "-t", "colours-1", "-m", "a", "--delete")
    fixed = run("predict", "-m", f"{tmp_path / 'models.py'}:a", "-t", "colours-1")
    assert fixed.code == 3 and fixed.err.count("failed: ") == 1


def test_a_file_of_outputs_is_not_run(run: Run, place: Workspace) -> None:
    from heldout.data.testset import find_testset

    logits_file(place.root / "x.npy", find_testset(place, SETS[0]))
    refused(run("predict", "-m", "predictions:x.npy", "-t", SETS[0]), "import predictions")
    refused(run("predict", "-m", "models.py:a", "-t", "zzz"), "zzz")


def test_a_terminal_sees_a_rate_and_the_time_left(tmp_path: Path) -> None:
    make_set(tmp_path, images=500, broken=())
    model_file(tmp_path, pause=0.02)
    here, there = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", _START, "predict", "-m", "models.py:slow", "-t", "colours-1",
         "--workers", "1"],
        env={**_environment(), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.DEVNULL,
        stderr=there,
    )  # fmt: skip
    os.close(there)
    seen = b""
    while True:
        try:
            part = os.read(here, 4096)
        except OSError:  # Linux says so when the other side has closed
            break
        if not part:
            break
        seen += part
    os.close(here)
    assert child.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "500/500" in text
    assert re.search(r"[\d.]+/s\s+\d+:\d\d left", text), text[-500:]


def test_images_behind_an_address(run: Run, place: Workspace) -> None:
    base = ["predict", "-m", "models.py:a", "-t", SETS[0]]
    refused(run(*base, "--images", "file:///nowhere"), "no folder of images at /nowhere")
    refused(run(*base, "--images", "ftp://host/folder"), "no images can be read from there")
    (place.root / "files").rename(place.root / "moved")
    assert run(*base, "--images", (place.root / "moved").as_uri()).code == 0
