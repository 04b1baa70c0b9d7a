"""Reading results along factors: what a test set declares is read without being asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heldout.core.workspace import Workspace
from heldout.measure.evaluation import evaluate
from heldout.measure.evaluation.flow import MOST_PAIRED, factor_comparisons, reading_notes
from heldout.measure.evaluation.options import Options
from heldout.measure.score.records import Score
from heldout.show.report import report_data
from tests.measure.score.factor_worlds import (
    FactorWorld,
    factor_world,
    size_world,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def run(world: FactorWorld, workspace: Workspace, **options: Any) -> Any:
    return evaluate(
        list(world.predictions),
        world.testset,
        metrics=["top1"],
        replicates=50,
        workspace=workspace,
        **options,
    )


def test_declared_factors_are_sliced_clustered_and_summed_up(workspace: Workspace) -> None:
    results = run(size_world(), workspace)
    slices = {r.slice for r in results.scores if r.metric == "top1"}
    assert slices == {"all"} | {f"size={i / 10:g}" for i in range(1, 9)}
    assert all("cluster" in r.interval for r in results.scores if r.interval)
    assert {"area", "critical_value", "worst_value", "flip_rate", "mix", "support"} <= {
        r.name for r in results.summaries
    }
    assert {r.metric for r in results.scores} == {"top1", "top1_balanced"}
    assert any("mix of classes changes" in note for note in results.notes)
    assert len(results.notes) == len(set(results.notes))


def test_a_set_that_declares_nothing_is_read_as_before(workspace: Workspace) -> None:
    results = run(size_world(declared=False), workspace)
    assert {r.slice for r in results.scores} == {"all"} and not results.summaries
    assert {r.interval for r in results.scores} == {"wilson"} and results.notes == ()
    sliced = run(size_world(declared=False), workspace, by=["size"])
    assert not sliced.summaries
    asked = run(
        size_world(declared=False),
        workspace,
        by=["size"],
        curves=True,
        cluster="object",
        balance="object&background",
    )
    assert {r.name for r in asked.summaries} >= {"area", "flip_rate", "support"}


def test_what_is_asked_for_goes_before_what_is_declared(workspace: Workspace) -> None:
    results = run(size_world(), workspace, by=["object"])
    assert {r.slice.partition("=")[0] for r in results.scores} == {"all", "object"}
    assert not results.summaries  # an object is no factor
    assert run(size_world(), workspace, curves=False).summaries == ()
    plain = run(size_world(), workspace, cluster="none")
    assert {r.interval for r in plain.scores if r.metric == "top1"} == {"wilson"}
    nothing = run(size_world(), workspace, by=[])
    assert {r.slice for r in nothing.scores} == {"all"}


def test_axes_and_pairs_of_factors_are_curves_too() -> None:
    world = factor_world(
        {"size": [0.1, 0.2], "angle": [1, 91], "x": [0.0, 1.0], "y": [0.0, 1.0]},
        lambda image, ease: 0.5,
        factor_entries=["size", "angle", "x&y"],
        objects=2,
    )
    asked = ("x", "angle&size", "x&y", "object", "class")
    reading = Options(by=asked)
    assert reading.curve_entries(world.testset) == ["x", "angle&size", "x&y"]
    assert Options(by=asked, curves=True).curve_entries(world.testset) == list(asked)


def test_few_objects_are_said_once(workspace: Workspace) -> None:
    results = run(size_world(objects=4), workspace)
    said = [note for note in results.notes if "too few" in note]
    assert said == [
        "made-factors: no interval: 4 clusters (object) are too few for a cluster bootstrap, which needs 8"
    ]
    assert all(r.interval is None and r.reason for r in results.scores)


def test_pairs_are_compared_along_single_factors_only() -> None:
    world = factor_world(
        {"size": [0.1, 0.2, 0.3], "x": [0.0, 1.0], "y": [0.0, 1.0]},
        lambda image, ease: 0.5,
        factor_entries=["size", "x&y"],
    )
    measured = world.measured()
    found = list(factor_comparisons(measured, [("oak", "yew")], Options(replicates=50)))
    assert {r.slice for r in found} == {"size=0.1", "size=0.2", "size=0.3"}
    assert all(r.test == "paired cluster bootstrap, Holm over 3" for r in found)
    many = [("oak", "yew")] * (MOST_PAIRED + 1)
    assert list(factor_comparisons(measured, many, Options())) == []


def test_results_of_a_loss_have_no_curve(workspace: Workspace) -> None:
    assert reading_notes([]) == []
    score = Score(model="m", testset="t", truth="o", metric="nll", n=1, value=1.0)
    assert reading_notes([score]) == []


def test_a_report_of_a_set_in_memory(workspace: Workspace) -> None:
    world = size_world()
    results = run(world, workspace)
    data = report_data(
        results.records, workspace=workspace, title="t", sets={world.testset.name: world.testset}
    )
    assert data.examples == []  # there are no image files
