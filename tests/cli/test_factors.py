"""Factors at the command line: slices, curves, comparisons and a report without being asked twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heldout.core.workspace import Workspace
from heldout.data.testset import save
from heldout.models.predictions import PredictionStore
from tests.measure.score.factor_worlds import size_world

from .conftest import Run

NAME = "made-factors"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = Workspace(tmp_path / "ws")
    world = size_world()
    saved = save(world.testset, place.testsets / NAME)
    store = PredictionStore(place.predictions)
    for predictions in world.predictions:
        store.write(predictions, images_hash=saved.card.images_hash)
    return place.root


def test_scores_of_a_factor_set_are_read_as_curves(run: Run, workspace: Path) -> None:
    ran = run("score", "-t", NAME, "--metric", "top1", "--replicates", 50, "-w", workspace)
    assert ran.code == 0
    assert (
        ran.out.startswith("made-factors, truth original, percent")
        and len(ran.out.splitlines()) < 20
    )
    full = run("score", "-t", NAME, "--replicates", 50, "--no-mistakes", "--full", "-w", workspace)
    assert "top1 along size" in full.out and "critical value" in full.out
    assert "top1 balanced" in full.out
    assert "note: made-factors: the mix of classes changes over size" in ran.err
    as_json = run(
        "score", "-t", NAME, "--metric", "top1", "--replicates", 50, "-w", workspace, "--json"
    ).json
    assert {"score", "summary"} <= {record["record"] for record in as_json}
    critical = [r for r in as_json if r.get("name") == "critical_value"]
    assert len(critical) == 4  # two models, all images and the balanced ones
    assert "NaN" not in json.dumps(as_json)


def test_options_turn_curves_off_and_choose_clusters(run: Run, workspace: Path) -> None:
    common = (
        "score",
        "-t",
        NAME,
        "--metric",
        "top1",
        "--replicates",
        50,
        "-w",
        workspace,
        "--no-mistakes",
        "--json",
    )
    off = run(*common, "--no-curve").json
    assert {record["record"] for record in off} == {"score", "comparison", "claim"}
    plain = run(*common, "--cluster", "none", "--no-curve").json
    assert {r["interval"] for r in plain if r.get("statistic") == "value"} == {"wilson"}
    by = run(*common, "--by", "background", "--curve").json
    assert {r["columns"] for r in by if r["record"] == "summary"} == {"background"}
    other = run(*common, "--balance", "object").json
    flips = [r for r in other if r.get("name") == "flip_rate"]
    assert flips and all(r["value"] is None and "several images" in r["reason"] for r in flips)
    wrong = run(*common, "--balance", "object&")
    assert wrong.code == 2 and "--balance" in wrong.err


def test_models_are_compared_at_every_value(run: Run, workspace: Path) -> None:
    ran = run(
        "compare", "oak", "yew", "-t", NAME, "--by", "size", "--replicates", 50, "-w", workspace,
        "--json",
    )  # fmt: skip
    assert ran.code == 0
    assert {r["slice"] for r in ran.json} == {"all", *(f"size={i / 10:g}" for i in range(1, 9))}
    tests = {r["test"] for r in ran.json if r["test"]}
    assert tests and all(test.startswith("paired cluster score") for test in tests)
    few = [r for r in ran.json if r["test"] is None]
    assert {r["slice"] for r in few} == {"size=0.7", "size=0.8"}  # six objects are left there
    assert all("6 clusters (object) are too few" in r["reason"] for r in few)


def test_saved_records_become_a_report(run: Run, workspace: Path, tmp_path: Path) -> None:
    saved = tmp_path / "records.json"
    run(
        "score", "-t", NAME, "--metric", "top1", "--replicates", 50, "-w", workspace,
        "--save", saved,
    )  # fmt: skip
    page = tmp_path / "r.html"
    ran = run("report", saved, "-o", page, "-w", workspace)
    assert ran.code == 0
    html = page.read_text()
    assert "mean over values" in html and "The mix of classes changes over size" in html
