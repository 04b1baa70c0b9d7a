"""The whole evaluation: nothing runs twice, nothing is reused that is not the same, errors come first."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heldout
from heldout.core.errors import HeldoutError, LabelError, MissingExtra, NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.data.labels import LabelSpace
from heldout.data.testset import (
    ColumnType,
    TestSet,
    add_truth,
    find_testset,
    image_table,
    make_testset,
    save,
    truth_table,
)
from heldout.measure.evaluation.flow import Results
from heldout.measure.evaluation.prediction import WORTH_TIMING, can_be_run, forecast, limited
from heldout.measure.evaluation.resolve import Gate, misses, parse_gate
from heldout.measure.score.records import Claim
from heldout.models.adapters import Model, ModelOutput, PredictionFile, load_model
from heldout.models.predictions import Predictions, PredictionStore
from heldout.testing.model import FakeModel
from tests.measure.evaluation.eval_case import (
    SETS,
    calls,
    logits_file,
    model_file,
    snapshot,
    three_models,
)
from tests.measure.evaluation.eval_case import three_sets as make_three
from tests.models.predictions.running_case import SPACE, ColourModel, make_set

FAST: dict[str, Any] = {"metrics": ("top1",), "replicates": 50}


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    make_three(tmp_path)
    return Workspace(tmp_path)


def run(
    models: list[Any], place: Workspace, options: dict[str, Any] = FAST, **more: Any
) -> Results:
    found = heldout.evaluate(models, more.pop("sets", list(SETS)), workspace=place, **options)
    assert isinstance(found, Results)
    return found


def test_the_second_run_predicts_nothing(place: Workspace) -> None:
    first = three_models()
    results = run(first, place)
    assert all(model.calls > 0 for model in first)
    assert {(s.model, s.testset) for s in results.scores if s.metric == "top1"} == {
        (m, t) for m in "abc" for t in SETS
    }
    before = snapshot(place)
    second = three_models()
    again = run(second, place)
    assert [model.calls for model in second] == [0, 0, 0]
    assert snapshot(place) == before
    assert again.records == results.records
    planned = heldout.evaluate(second, SETS, plan=True, workspace=place)
    assert not any(item.plan.pending for item in planned.records)


def test_a_new_truth_or_column_runs_nothing_again(place: Workspace) -> None:
    testset = find_testset(place, SETS[0])
    run(three_models(), place)
    before = snapshot(place)
    ids = testset.image_ids.to_pylist()
    panel = truth_table(ids, ["red"] * len(ids))
    grown = add_truth(testset, "panel", panel, provenance={"kind": "single"})
    assert grown.card.content_hash != testset.card.content_hash
    wide = make_testset(
        grown.card.updated(
            columns={"half": ColumnType(kind="categorical")}, images_hash="", tables={}
        ),
        images=image_table(
            {
                **{key: grown.images[key].to_pylist() for key in ("image_id", "path", "sha256")},
                "half": ["first" if row < 20 else "second" for row in range(len(ids))],
            }
        ),
        truths=grown.truths,
        label_space=grown.label_space,
    )
    assert wide.card.images_hash == testset.card.images_hash
    save(wide, place.testsets / SETS[0], replace=True)
    models = three_models()
    options = dict(FAST, truth="panel", by=("half",))
    results = run(models, place, options, sets=[SETS[0]])
    assert [model.calls for model in models] == [0, 0, 0]
    assert snapshot(place) == before
    assert {s.slice for s in results.scores if s.metric == "top1"} == {
        "all",
        "half=first",
        "half=second",
    }
    assert {s.truth for s in results.scores} == {"panel"}


def test_another_checkpoint_of_one_name_never_reuses_a_result(place: Workspace) -> None:
    old = run([ColourModel("a")], place)
    kept = snapshot(place)
    model = ColourModel("a", version=2)
    new = run([model], place)
    assert model.calls > 0
    assert snapshot(place).items() > kept.items()
    for ours, theirs in zip(old.scores, new.scores, strict=True):
        assert (ours.model, ours.testset) == (theirs.model, theirs.testset)
        assert ours.predictions_hash != theirs.predictions_hash
    assert run([ColourModel("a")], place).records == old.records


def test_evaluate_takes_models_and_runs_them_once(place: Workspace) -> None:
    model = ColourModel("a")
    results = heldout.evaluate(model, list(SETS), metrics=["top1"], workspace=place)
    assert model.calls > 0 and len(results.scores) == 3
    frame = results.to_pandas().query("statistic == 'value'")
    assert frame[["model", "testset"]].values.tolist() == [["a", t] for t in SETS]
    again = ColourModel("a")
    assert heldout.evaluate([again], SETS[0], metrics=["top1"], workspace=place).scores == (
        results.scores[0],
    )
    assert again.calls == 0
    by_name = heldout.evaluate("a", SETS[0], metrics=["top1"], workspace=place)
    assert by_name.scores == (results.scores[0],), "a name that nothing can load is a stored one"
    both = heldout.evaluate(["all", ColourModel("b")], SETS[0], metrics=["top1"], workspace=place)
    assert [s.model for s in both.scores] == ["a", "b"]
    assert both.scores[0] == results.scores[0]
    heldout.evaluate(ColourModel("a", version=2), SETS[0], metrics=["top1"], workspace=place)
    with pytest.raises(UserError, match="several stored runs") as refused:
        heldout.evaluate("a", SETS[0], workspace=place)
    folder = next(w for w in refused.value.line.replace(",", " ").split() if w.startswith("a@"))
    assert len(heldout.evaluate(folder, SETS[0], metrics=["top1"], workspace=place).scores) == 1


def test_evaluate_takes_names_that_can_be_loaded(place: Workspace, tmp_path: Path) -> None:
    file = model_file(tmp_path)
    one = heldout.evaluate(f"{file}:a", SETS[:2], metrics=["top1"], workspace=place)
    assert set(calls(tmp_path)) == {"a"} and [s.model for s in one.scores] == ["a", "a"]
    seen = len(calls(tmp_path))
    names = [f"{file}:a", f"{file}:b"]
    both = heldout.evaluate(names, SETS[0], metrics=["top1"], workspace=place)
    assert [s.model for s in both.scores] == ["a", "b"]
    assert set(calls(tmp_path)[seen:]) == {"b"}
    testset = find_testset(place, SETS[0])
    logits = logits_file(tmp_path / "theirs.npy", testset)
    read = heldout.evaluate(
        [f"predictions:{logits}", "a"], SETS[0], metrics=["top1"], workspace=place
    )
    assert {s.model for s in read.scores} == {"a", "theirs"}


def imagenet_set(place: Workspace) -> TestSet:
    """Eight images under classes of ImageNet: enough for a model to run on, not to be judged by."""
    colours = make_set(place.root / "eight", images=8, broken=())
    space = LabelSpace.load("imagenet-1k")
    ids = colours.image_ids.to_pylist()
    made = make_testset(
        colours.card.updated(
            name="eight",
            label_space=space.name,
            images_hash="",
            tables={},
            images_root=str(place.root / "eight/files"),
        ),
        images=image_table(
            {key: colours.images[key].to_pylist() for key in ("image_id", "path", "sha256")}
        ),
        truths={"original": truth_table(ids, space.ids[: len(ids)])},
        label_space=space,
    )
    return save(made, place.testsets / "eight")


def test_a_built_in_name_means_the_model_and_not_what_is_stored_under_its_name(
    place: Workspace,
) -> None:
    testset = imagenet_set(place)
    foreign = Predictions(
        model="lite0",
        image_ids=testset.image_ids,
        topk=np.zeros((8, 5), np.int32) + np.arange(5, dtype=np.int32),
        label_space=testset.label_space,
        identity={"imported": "lite0.npy"},
    )
    stored = PredictionStore(place.predictions).write(foreign, images_hash=testset.card.images_hash)
    (ours,) = heldout.evaluate("lite0", "eight", metrics=["top1"], workspace=place).scores
    assert ours.predictions_hash != foreign.hash
    before = snapshot(place)
    again = heldout.evaluate("lite0", "eight", metrics=["top1"], workspace=place)
    assert again.scores == (ours,) and snapshot(place) == before
    (theirs,) = heldout.evaluate(
        stored.folder.name, "eight", metrics=["top1"], workspace=place
    ).scores
    assert theirs.predictions_hash == foreign.hash


def test_a_model_that_cannot_be_loaded_here_is_scored_as_stored(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    testset = find_testset(place, SETS[0])
    with pytest.raises(MissingExtra, match="torch"):
        heldout.evaluate("timm:resnet50", testset, workspace=place)
    made = logits_file(place.root / "x.npy", testset)
    kept = heldout.evaluate(f"predictions:{made}", testset, metrics=["top1"]).scores[0]
    from heldout.models.predictions.import_predictions import import_predictions

    imported = import_predictions(made, testset, model="timm:resnet50")
    PredictionStore(place.predictions).write(imported, images_hash=testset.card.images_hash)
    results = heldout.evaluate("timm:resnet50", testset, metrics=["top1"], workspace=place)
    assert results.scores[0].value == kept.value
    assert "was not loaded" in results.notes[0] and "torch" in results.notes[0]
    with pytest.raises(MissingExtra):
        heldout.evaluate("timm:resnet50", SETS[1], workspace=place)


def test_what_is_no_model_says_how_to_make_one(place: Workspace) -> None:
    with pytest.raises(UserError, match=r"a function is not a model.*FunctionModel"):
        heldout.evaluate(lambda images: images, SETS[0], workspace=place)
    with pytest.raises(UserError, match="two models are named 'a'"):
        heldout.evaluate([ColourModel("a"), ColourModel("a", version=2)], SETS[0], workspace=place)
    assert isinstance(FakeModel(), Model) and not isinstance(Predictions, Model)


def test_which_texts_are_run() -> None:
    for text in ("lite2", "onnx:m.onnx", "a/b.py:model", "predictions:x.npy", "timm:x"):
        assert can_be_run(text), text
    for text in ("resnet50", "all", "*", "lite*", "lite0@0123456789ab", "b.py", "nothing:x"):
        assert not can_be_run(text), text


def test_failed_images_are_listed_and_counted(tmp_path: Path) -> None:
    make_three(tmp_path, broken=(3, 7))
    place = Workspace(tmp_path)
    results = run(three_models(), place)
    assert [(f.testset, f.image_id) for f in results.failures] == [
        (t, i) for t in SETS for i in ("0003.img", "0007.img")
    ]
    assert all(f.models == ("a", "b", "c") for f in results.failures)
    assert results.failures[0].reason in results.failures[0].line
    counts = {(c.model, c.testset): c.value for c in results.counts if c.name == "n_failed"}
    assert counts == {(m, t): 2 for m in "abc" for t in SETS}
    assert next(s.n for s in results.scores if s.metric == "top1") == 40
    dropped = run(three_models(), place, dict(FAST, on_error="drop"))
    assert dropped.failures == results.failures
    assert next(s.n for s in dropped.scores if s.metric == "top1") == 38


def test_limits_are_nested_and_reported(place: Workspace) -> None:
    testset = find_testset(place, SETS[2])
    samples = [set(limited(testset, n).image_ids.to_pylist()) for n in (5, 20, 59, 60, 1000)]
    assert [len(sample) for sample in samples] == [5, 20, 59, 60, 60]
    assert all(a <= b for a, b in itertools.pairwise(samples))
    assert limited(testset, 60) is testset
    with pytest.raises(UserError, match="--limit 0"):
        limited(testset, 0)
    model = ColourModel("a")
    results = run([model], place, dict(FAST, limit=20, baseline=SETS[0]))
    assert [s.testset for s in results.scores] == [f"{name}-limit-20" for name in SETS]
    seen = model.calls
    without = run([model], place, dict(FAST, limit=20)).records
    assert seen > 0 and without == tuple(r for r in results.records if not isinstance(r, Claim))
    assert model.calls == seen

    run([model], place, dict(FAST, limit=20, out=place.runs / "r.html"))
    page = (place.runs / "r.html").read_text(encoding="utf-8")
    assert "not in this workspace" not in page
    assert results.scores[0].predictions_hash[:12] in page
    assert results.scores[0].testset_hash[:12] in page


def test_a_file_of_outputs_serves_a_sample_of_its_set(place: Workspace, tmp_path: Path) -> None:
    testset = find_testset(place, SETS[0])
    file = PredictionFile("theirs", logits_file(tmp_path / "theirs.npy", testset))
    whole = run([file, ColourModel("a")], place, sets=[testset]).measured[0]
    part = run([file, ColourModel("a")], place, dict(FAST, limit=12), sets=[testset]).measured[0]
    ids = testset.image_ids.to_pylist()
    by_id = dict(zip([ids[row] for row in whole.rows], whole.column("theirs"), strict=True))
    chosen = part.testset.image_ids.to_pylist()
    for row, hit in zip(part.rows, part.column("theirs"), strict=True):
        assert by_id[chosen[row]] == hit


def test_interrupted_work_is_counted_and_not_done_again(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=300, broken=())
    place = Workspace(tmp_path)

    class Tired(ColourModel):
        def __call__(self, pixels: np.ndarray) -> ModelOutput:
            if self.calls == 10:
                raise RuntimeError("tired")
            return super().__call__(pixels)

    tired = Tired("a")
    with pytest.raises(HeldoutError, match="tired"):
        heldout.evaluate(tired, testset, workers=1, workspace=place)
    done = forecast(testset, [ColourModel("a")], workspace=place)
    assert 0 < done.done < 300
    assert done.to_dict()["images_done"] == done.done
    other = forecast(testset, [ColourModel("a", version=2)], workspace=place)
    assert other.done == 0, "another checkpoint does not go on from there"
    model, fresh = ColourModel("a"), ColourModel("a")
    ours = heldout.evaluate(model, testset, workers=1, workspace=place)
    theirs = heldout.evaluate(fresh, testset, workers=1, workspace=tmp_path / "fresh")
    assert ours.records == theirs.records
    assert 0 < model.calls < fresh.calls
    assert forecast(testset, [model], workspace=place).plan.pending == ()


def test_long_jobs_are_timed_and_short_ones_are_not(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=WORTH_TIMING, broken=(0,))
    place = Workspace(tmp_path)
    model = ColourModel("a")
    plan = forecast(testset, [model], workspace=place)
    assert plan.seconds is not None and plan.seconds > 0 and model.calls == 2
    assert forecast(limited(testset, 100), [model], workspace=place).seconds is None

    class Broken(ColourModel):
        def __call__(self, pixels: np.ndarray) -> ModelOutput:
            raise TypeError("no")

    assert forecast(testset, [Broken("b")], workspace=place).seconds is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"metrics": ("zzz",)}, "zzz"),
        ({"truth": "zzz"}, "no truth 'zzz'"),
        ({"by": ("zzz",)}, "no test set has the column 'zzz'"),
        ({"cluster": "zzz"}, "no column 'zzz' for --cluster"),
        ({"balance": "zzz&yyy"}, "no column 'zzz&yyy' for --balance"),
        ({"baseline": "zzz"}, "baseline 'zzz' is not among"),
        ({"keep": "zzz"}, "keep is 'zzz': give one of logits, topk"),
        ({"on_error": "zzz"}, "on_error is 'zzz'"),
        ({"level": 95.0}, "level is 95.0: give a number <"),
        ({"limit": 0}, "limit is 0: give a whole number >="),
        ({"label_map": "zzz"}, "zzz"),
        ({"metrics": ("nll",), "keep": "topk"}, "nll needs more than the top 5"),
        ({"metrics": ("top7",), "keep": "topk"}, "top7 needs more"),
        ({"fail_under": ["top5=0.5"]}, "top5: that metric is not scored"),
        ({"metrics": ("nll",), "fail_under": ["nll=0.5"]}, "lower is better"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    place: Workspace, options: dict[str, Any], error: str
) -> None:
    model = ColourModel("a")
    for plan in (True, False):
        with pytest.raises(UserError, match=error):
            heldout.evaluate(model, SETS, workspace=place, plan=plan, **{**FAST, **options})
    assert model.calls == 0 and snapshot(place) == {}


def test_one_set_named_twice_is_one_set(place: Workspace, tmp_path: Path) -> None:
    path = str(place.testsets / SETS[0])
    assert len(run([ColourModel("a")], place, sets=[SETS[0], path]).scores) == 1
    other = make_set(tmp_path / "other", images=12, name=SETS[0])
    with pytest.raises(UserError, match="two test sets are named colours-1"):
        run([ColourModel("a")], place, sets=[SETS[0], other])
    with pytest.raises(UserError, match="two test sets are named colours-1"):
        heldout.evaluate(ColourModel("a"), [SETS[0], other], workspace=place)


def test_label_maps_join_a_model_to_a_set_of_some_of_its_classes(place: Workspace) -> None:
    testset = imagenet_set(place)
    small = LabelSpace.from_ids("eight-classes", LabelSpace.load("imagenet-1k").ids[:8])
    ids = testset.image_ids.to_pylist()
    made = make_testset(
        testset.card.updated(name="subset", label_space=small.name, images_hash="", tables={}),
        images=image_table(
            {key: testset.images[key].to_pylist() for key in ("image_id", "path", "sha256")}
        ),
        truths={"original": truth_table(ids, small.ids)},
        label_space=small,
    )
    save(replace(made, folder=testset.folder), place.testsets / "subset")
    lite0 = load_model("lite0")
    with pytest.raises(LabelError, match="subset:restricted"):
        run([lite0], place, sets=["subset"])
    assert snapshot(place) == {}
    full = run([lite0], place, dict(FAST, label_map="subset:full"), sets=["subset"])
    cut = run([lite0], place, dict(FAST, label_map="subset:restricted"), sets=["subset"])
    assert full.scores[0].label_map != cut.scores[0].label_map
    read = PredictionStore(place.predictions).read(
        PredictionStore(place.predictions).runs(made.card.images_hash)[0]
    )
    assert read.logits is not None
    assert cut.scores[0].value == np.mean(read.logits[:, :8].argmax(axis=1) == np.arange(8))
    assert full.scores[0].value == np.mean(read.topk[:, 0] == np.arange(8))
    other = FakeModel("other", label_space=LabelSpace.from_ids("ten", small.ids))
    with pytest.raises(LabelError, match="one label space at a time"):
        run([lite0, other], place, dict(FAST, label_map="subset:full"), sets=["subset"])


def test_top_k_alone_is_kept_when_asked(place: Workspace) -> None:
    results = run([ColourModel("a")], place, dict(FAST, keep="topk"))
    files = {name for name in snapshot(place) if name.endswith("run.json")}
    assert len(files) == 3
    testset = find_testset(place, SETS[0])
    read = PredictionStore(place.predictions)
    (stored,) = read.runs(testset.card.images_hash)
    assert stored.run["keeps"] == "topk" and read.read(stored).logits is None
    full = run([ColourModel("a")], place)
    assert [s.value for s in full.scores] == [s.value for s in results.scores]


def test_gates() -> None:
    assert parse_gate("top1=0.75") == Gate("top1", 0.75)
    assert parse_gate("mean_per_class=1") == Gate("mean_per_class", 1.0)
    for text in ("top1", "top1=", "=0.5", "top1=75", "top1=0.7.5", "top1=-1", "top1=.", "top1=x"):
        with pytest.raises(UserError, match="--fail-under"):
            parse_gate(text)
    score = heldout.evaluate(
        _perfect("a", right=False), _one_set(), metrics=["top1"], replicates=10
    )
    (miss,) = misses(score.records, [Gate("top1", 0.5)])
    assert "a on tiny: top1 0.0000 is under 0.5" in miss
    assert misses(score.records, [Gate("top1", 0.0)]) == []


def _one_set() -> TestSet:
    from heldout.data.testset import Card

    ids = [f"{i}.png" for i in range(8)]
    return make_testset(
        Card(name="tiny", label_space=SPACE.name, truths={"original": {"kind": "single"}}),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, [SPACE.ids[i % 4] for i in range(8)])},
        label_space=SPACE,
    )


def _perfect(name: str, *, right: bool) -> Predictions:
    import pyarrow as pa

    first = np.arange(8) % 4 if right else (np.arange(8) + 1) % 4
    return Predictions(
        model=name,
        image_ids=pa.array([f"{i}.png" for i in range(8)]),
        topk=first[:, None].astype(np.int32),
        label_space=SPACE,
    )


def test_notes_are_given_once(place: Workspace) -> None:
    blind = [FakeModel(name, label_space=SPACE) for name in ("x", "y")]
    for model in blind:
        model.preprocessing = ColourModel().preprocessing
    results = run([*three_models(), *blind], place)
    assert len(results.notes) == len(set(results.notes))
    advice = [note.partition("]: ")[2] for note in results.notes]
    given = [text for text in advice if text]
    assert len(given) == len(set(given))


def test_unknown_names(place: Workspace) -> None:
    with pytest.raises(NotFound, match="no test set 'zzz'"):
        run([ColourModel("a")], place, sets=["zzz"])
    with pytest.raises(NotFound, match="no model 'zzz'"):
        heldout.evaluate("zzz", SETS[0], workspace=place)
