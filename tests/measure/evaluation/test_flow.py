"""Tests of :mod:`heldout.measure.evaluation.flow`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout import evaluate, verbs
from heldout.core.context import Context
from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.request import make
from heldout.core.workspace import Workspace
from heldout.data.testset import save
from heldout.data.testset.subset import subset
from heldout.measure.evaluation.flow import (
    MOST_PAIRED,
    Results,
    factor_contrasts,
    label_map_argument,
    reading_notes,
)
from heldout.measure.evaluation.requests import EvaluateRequest
from heldout.measure.evaluation.resolve import Evaluation, default_metrics, resolve
from heldout.measure.score.compare import simultaneous
from heldout.measure.score.fits import ReferenceLine
from heldout.measure.score.records import Score, from_dict
from heldout.show.report import report_data
from heldout.testing.example import MODELS, example_predictions, example_testset, make_example
from tests.measure.score.factor_worlds import (
    FactorWorld,
    factor_world,
    size_world,
)

# The evaluation flow on a generated workspace.


OLD, NEW = "example-original", "example-shifted"
LINE = ReferenceLine(
    testset=NEW,
    baseline=OLD,
    axes="logit",
    slope=0.9,
    intercept=-0.3,
    r2=0.99,
    models=50,
    covariance=(1e-4, 0.0, 1e-4),
    source="made",
)


@pytest.fixture(scope="module")
def workspace_flow(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    place = Workspace(tmp_path_factory.mktemp("workspace"))
    make_example(place, images=300)
    return place


def test_defaults(workspace_flow: Workspace) -> None:
    results = evaluate("all", [OLD, NEW], workspace=workspace_flow)
    keys = {(r.model, r.testset, r.metric) for r in results.scores}
    assert keys == {(m, t, k) for m in MODELS for t in (OLD, NEW) for k in ("top1",)}
    assert len(results.scores) == len(keys)
    assert results.fits == results.counts == ()
    assert len(results.comparisons) == 2 * 10 and results.tallies
    for record in results.scores:
        (measured,) = [
            m
            for m in results.measured
            if (m.testset.name, m.metric.name) == (record.testset, record.metric)
        ]
        assert record.value == measured.column(record.model).mean()
    import json

    assert [from_dict(v) for v in json.loads(results.to_json())] == list(results.records)
    frame = results.to_pandas().query("statistic == 'value'")
    assert len(frame) == len(results.scores) and frame["value"].between(0, 1).all()


def test_globs_exclusions_and_memory(workspace_flow: Workspace) -> None:
    def names(results: Results) -> list[str]:
        return [r.model for r in results.scores]

    assert names(
        evaluate(["e*", "y*"], OLD, metrics=["top1"], exclude=["yew"], workspace=workspace_flow)
    ) == ["elm"]
    testset = example_testset(OLD, images=300)
    loose = example_predictions(testset, "oak").renamed("loose")
    both = evaluate(["fir", loose], testset, metrics=["top1"], workspace=workspace_flow)
    assert names(both) == ["fir", "loose"]
    stored = evaluate("oak", OLD, metrics=["top1"], workspace=workspace_flow).scores[0]
    assert both.scores[1].value == stored.value
    assert both.scores[1].predictions_hash == stored.predictions_hash


def test_what_is_not_there(workspace_flow: Workspace) -> None:
    with pytest.raises(NotFound, match="no model 'nope'"):
        evaluate("nope", OLD, workspace=workspace_flow)
    with pytest.raises(NotFound, match="nope"):
        evaluate("all", "nope", workspace=workspace_flow)
    with pytest.raises(NotFound, match="is excluded"):
        evaluate("all", OLD, exclude=["*"], workspace=workspace_flow)
    with pytest.raises(NotFound, match="no test set has the column 'nope'"):
        evaluate("all", OLD, by=["nope"], workspace=workspace_flow)
    with pytest.raises(UserError, match="no test set is named"):
        evaluate("all", [], workspace=workspace_flow)
    with pytest.raises(NotFound, match="baseline 'nope' is not among"):
        evaluate("all", [OLD, NEW], baseline="nope", workspace=workspace_flow)
    with pytest.raises(NotApplicable, match="no test set beside the baseline"):
        evaluate("all", OLD, baseline=OLD, workspace=workspace_flow)


def test_slices_of_every_kind(workspace_flow: Workspace) -> None:
    by = ["light", "x&y", "context", "size@0.3,0.7", "class", "angle", "context&light"]
    results = evaluate("oak", OLD, metrics=["top1"], by=by, workspace=workspace_flow)
    names = {r.slice for r in results.scores}
    assert {
        "all",
        "light=day",
        "x=0.5&y=0",
        "context=water",
        "size=:0.3",
        "size=0.7:",
        "angle=45",
    } <= names
    assert "class=cat" in names and "context=street&light=night" in names
    worst = [r for r in results.of(Score) if r.statistic == "worst"]
    assert {next(iter(r.slice.partition("="))) for r in worst} >= {"light", "context", "size"}


def test_every_metric_end_to_end(workspace_flow: Workspace) -> None:
    metrics = [
        "top1",
        "nll",
        "brier",
        "ece",
        "precision",
        "recall",
        "hierarchical_distance",
        "mean_per_class",
        "top7",
    ]
    results = evaluate(
        ["oak", "yew", "elm"], OLD, metrics=metrics, replicates=100, workspace=workspace_flow
    )
    assert {r.metric for r in results.scores} == set(metrics)
    assert {r.name for r in results.of(Score) if r.statistic == "rank"} == {
        "top1_rank",
        "top7_rank",
    }
    whole = {(r.metric, r.model): r.value for r in results.scores if r.slice == "all"}
    for metric in ("nll", "brier", "hierarchical_distance"):
        assert whole[metric, "oak"] < whole[metric, "yew"]  # losses: the better model has less
    classes = [r for r in results.scores if r.metric == "recall" and r.model == "oak"]
    assert len(classes) == 10 and all(r.slice.startswith("class=") for r in classes)
    assert np.mean([r.value for r in classes]) == pytest.approx(whole["mean_per_class", "oak"])


def test_fits_and_effective_robustness(workspace_flow: Workspace) -> None:
    results = evaluate(
        "all",
        [OLD, NEW],
        baseline=OLD,
        line=LINE,
        metrics=["top1"],
        replicates=100,
        workspace=workspace_flow,
    )
    assert [f.axes for f in results.fits] == ["linear", "probit", "logit"]
    above = {r.model: r for r in results.scores if r.metric == "effective_robustness"}
    assert set(above) == set(MODELS)
    accuracy = {(r.model, r.testset): r.value for r in results.scores if r.metric == "top1"}
    for model, record in above.items():
        expected = LINE.at(np.array([accuracy[model, OLD]]))[0]
        assert record.value == pytest.approx(accuracy[model, NEW] - expected)
        assert record.testset == NEW
    one = evaluate(
        "oak", [OLD, NEW], baseline=OLD, line=LINE, metrics=["top1"], workspace=workspace_flow
    )
    assert one.fits == ()
    assert [r.value for r in one.scores if r.metric == "effective_robustness"] == [
        above["oak"].value
    ]
    alone = evaluate("oak", [OLD, NEW], baseline=OLD, metrics=["top1"], workspace=workspace_flow)
    assert alone.fits == () and len(alone.scores) == 2
    assert [n for n in alone.notes if "1 models are scored on both" in n]
    same = example_predictions(example_testset("small", images=60), "oak")
    twins = [replace(same, model=name) for name in ("a", "b", "c")]
    small = example_testset("small", images=60)
    equal = evaluate(
        twins, [small, replace(small, card=small.card.updated(name="other"))], baseline="other",
        metrics=["top1"],
    )  # fmt: skip
    assert equal.fits == () and len(equal.scores) == 6
    assert [n for n in equal.notes if "equal accuracies" in n]
    with pytest.raises(UserError, match="line needs baseline"):
        evaluate("oak", [OLD, NEW], line=LINE, workspace=workspace_flow)
    with pytest.raises(NotFound, match=f"no built-in line of {NEW} on {OLD}"):
        evaluate(
            "oak",
            [OLD, NEW],
            baseline=OLD,
            line="published",
            metrics=["top1"],
            workspace=workspace_flow,
        )
    with pytest.raises(NotApplicable, match="needs the metric top1"):
        evaluate(
            "oak",
            [OLD, NEW],
            baseline=OLD,
            line=LINE,
            metrics=["nll"],
            workspace=workspace_flow,
        )


def test_clusters(workspace_flow: Workspace) -> None:
    results = evaluate(
        "oak", OLD, metrics=["top1", "nll"], cluster="photographer", workspace=workspace_flow
    )
    assert all(r.interval and r.interval.startswith("cluster-") for r in results.scores)


def test_results_do_not_depend_on_the_order_of_arguments(workspace_flow: Workspace) -> None:
    names = list(MODELS)
    options: dict[str, Any] = {
        "metrics": ["top1", "nll"],
        "by": ["light"],
        "baseline": OLD,
        "replicates": 50,
    }
    there = evaluate(names, [OLD, NEW], workspace=workspace_flow, **options)
    back = evaluate(names[::-1], [NEW, OLD], workspace=workspace_flow, **options)
    assert set(there.records) == set(back.records)


def test_revisions(workspace_flow: Workspace) -> None:
    testset = example_testset(OLD, images=300)
    ids = testset.image_ids.to_pylist()
    older = subset(testset, ids[:100], name="example-older", recipe={"name": "cut"})
    save(older, workspace_flow.testsets / older.name)
    results = verbs.score(
        models=["oak"], testsets=["example-older", NEW], pooled=[OLD], workspace=workspace_flow
    )
    told = {(c.name, c.testset): c.value for c in results.counts}
    assert told == {
        ("n_images", "example-older"): 100,
        ("n_predicted", "example-older"): 100,
        ("n_images", NEW): 300,
        ("n_predicted", NEW): 0,
    }
    (record,) = results.scores
    whole = evaluate("oak", OLD, metrics=["top1"], workspace=workspace_flow).measured[0]
    assert record.value == whole.column("oak")[:100].mean()
    assert record.slice == "all" and record.n == 100


def test_default_metrics_follow_the_truth(workspace_flow: Workspace) -> None:
    testset = example_testset(OLD, images=40)
    assert default_metrics(testset) == ("top1",), "five of ten classes say nothing"
    with pytest.raises(NotFound, match="no truth 'real'"):
        default_metrics(testset, "real")


def test_comparisons(workspace_flow: Workspace) -> None:
    results = verbs.compare(["oak", "yew", "fir"], [OLD], workspace=workspace_flow)
    assert {(r.model, r.other) for r in results.comparisons} == {("yew", "oak"), ("fir", "oak")}
    assert all(
        r.difference < 0 and r.test == "McNemar score, simultaneous over 2"
        for r in results.comparisons
    )
    every = verbs.compare(
        ["all"], [OLD, NEW], metric="nll", all_pairs=True, replicates=50, workspace=workspace_flow
    )
    assert len(every.comparisons) == 2 * 10
    with pytest.raises(UserError, match="is one model"):
        verbs.compare(["oak"], [OLD], workspace=workspace_flow)
    clustered = verbs.compare(
        ["oak", "yew"], [OLD], cluster="photographer", replicates=50, workspace=workspace_flow
    )
    assert {r.test for r in clustered.comparisons} == {"paired cluster score"}


def test_fitting(workspace_flow: Workspace, tmp_path: Path) -> None:
    results = verbs.fit(testsets=[NEW], baseline=OLD, workspace=workspace_flow)
    assert [f.models for f in results.fits] == [5, 5, 5]
    with pytest.raises(UserError, match="testsets or population is missing"):
        verbs.fit(baseline=OLD, workspace=workspace_flow)
    path = tmp_path / "p.csv"
    path.write_text("model,val,new\na,50,40\nb,60,50\nc,70,60\nd,,1\n")
    results = verbs.fit(population=[path], x="val", y="new")
    assert results.fits[0].slope == pytest.approx(1) and results.fits[0].models == 3
    assert results.notes[0].startswith("1 models are left out")
    with pytest.raises(UserError, match="population needs x"):
        verbs.fit(population=[path], y="new")


def test_arguments(workspace_flow: Workspace) -> None:
    with pytest.raises(UserError, match="absent_classes is 'drop'"):
        evaluate("oak", OLD, absent_classes="drop", workspace=workspace_flow)
    assert label_map_argument(None, [OLD], [], workspace=workspace_flow) is None
    assert label_map_argument("identity", [OLD], [], workspace=workspace_flow) is None
    found = label_map_argument("subset:restricted", [OLD], ["oak"], workspace=workspace_flow)
    assert found is not None and found.reading == "restricted"


# Reading results along factors: what a test set declares is read without being asked.


@pytest.fixture
def workspace_reading(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def job(world: FactorWorld, **options: Any) -> Evaluation:
    context = Context()
    models = [context.bind(item) for item in world.predictions]
    named = {"models": models, "testsets": context.bind(world.testset)}
    return resolve(make(EvaluateRequest, {**named, **options}), context)


def run(world: FactorWorld, workspace_reading: Workspace, **options: Any) -> Any:
    return evaluate(
        list(world.predictions),
        world.testset,
        metrics=["top1"],
        replicates=50,
        workspace=workspace_reading,
        **options,
    )


def test_declared_factors_are_sliced_clustered_and_summed_up(workspace_reading: Workspace) -> None:
    results = run(size_world(), workspace_reading)
    slices = {r.slice for r in results.scores if r.metric == "top1"}
    assert slices == {"all"} | {f"size={i / 10:g}" for i in range(1, 9)}
    assert all("cluster" in r.interval for r in results.scores if r.interval)
    assert {"area", "critical_value", "worst_value", "flip_rate", "mix", "support"} <= {
        r.name for r in results.summaries
    }
    assert {"top1", "top1_balanced"} <= {r.name for r in results.of(Score)}
    assert any("mix of classes changes" in note for note in results.notes)
    assert len(results.notes) == len(set(results.notes))


def test_a_set_that_declares_nothing_is_read_as_before(workspace_reading: Workspace) -> None:
    results = run(size_world(declared=False), workspace_reading)
    assert {r.slice for r in results.scores} == {"all"} and not results.summaries
    assert {r.interval for r in results.scores} == {"wilson"}
    sliced = run(size_world(declared=False), workspace_reading, by=["size"])
    assert not sliced.summaries
    asked = run(
        size_world(declared=False),
        workspace_reading,
        by=["size"],
        curves=True,
        cluster="object",
        balance="object&background",
    )
    assert {r.name for r in asked.summaries} >= {"area", "flip_rate", "support"}


def test_what_is_asked_for_goes_before_what_is_declared(workspace_reading: Workspace) -> None:
    results = run(size_world(), workspace_reading, by=["object"])
    assert {r.slice.partition("=")[0] for r in results.scores} == {"all", "object"}
    assert not results.summaries  # an object is no factor
    assert run(size_world(), workspace_reading, curves=False).summaries == ()
    plain = run(size_world(), workspace_reading, cluster="none")
    assert {r.interval for r in plain.scores if r.metric == "top1"} == {"wilson"}
    nothing = run(size_world(), workspace_reading, by=[])
    assert {r.slice for r in nothing.scores} == {"all"}


def test_axes_and_pairs_of_factors_are_curves_too() -> None:
    world = factor_world(
        {"size": [0.1, 0.2], "angle": [1, 91], "x": [0.0, 1.0], "y": [0.0, 1.0]},
        lambda image, ease: 0.5,
        factor_entries=["size", "angle", "x&y"],
        objects=2,
    )
    asked = ("x", "angle&size", "x&y", "object", "class")
    reading = job(world, by=asked)
    assert reading.curve_entries(world.testset) == ["x", "angle&size", "x&y"]
    assert job(world, by=asked, curves=True).curve_entries(world.testset) == list(asked)


def test_few_objects_are_said_once(workspace_reading: Workspace) -> None:
    results = run(size_world(objects=4), workspace_reading)
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
    found = simultaneous(
        list(factor_contrasts(measured, [("oak", "yew")], job(world, replicates=50)))
    )
    assert {r.slice for r in found} == {"size=0.1", "size=0.2", "size=0.3"}
    assert all(r.test == "paired cluster score, simultaneous over 3" for r in found)
    many = [("oak", "yew")] * (MOST_PAIRED + 1)
    assert list(factor_contrasts(measured, many, job(world))) == []


def test_results_of_a_loss_have_no_curve(workspace_reading: Workspace) -> None:
    assert reading_notes([]) == []
    score = Score(model="m", testset="t", truth="o", metric="nll", n=1, value=1.0)
    assert reading_notes([score]) == []


def test_a_report_of_a_set_in_memory(workspace_reading: Workspace) -> None:
    world = size_world()
    results = run(world, workspace_reading)
    data = report_data(
        results.records,
        workspace=workspace_reading,
        title="t",
        sets={world.testset.name: world.testset},
    )
    assert data.examples == []  # there are no image files
