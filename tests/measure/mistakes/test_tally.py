"""Tests of :mod:`heldout.measure.mistakes.tally`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heldout.data.importing import read_truth
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels import LabelSpace
from heldout.data.published.answers import read_mistakes
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.testset import ColumnType, TestSet, make_testset
from heldout.measure.mistakes.categories import PROPOSABLE, Evidence, Proposal
from heldout.measure.mistakes.panel import (
    NO_CLASS,
    NO_OUTPUT,
    UNJUDGED,
    Kind,
    kinds_of,
    listed_predictions,
    read_mistake_file,
)
from heldout.measure.mistakes.tally import (
    EXPLAINED_CATEGORIES,
    MINOR_CATEGORIES,
    Study,
    forgiven,
    joined,
    tally,
    without_images,
)
from heldout.measure.mistakes.verdicts import NOTHING, RIGHT, mistakes_of, verdicts
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.stats.intervals import wilson
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.score.worlds import World, single_label, world_testset, worlds

# Tallies of the published mistakes: the tables of ImageNet Mistakes come out again.


VIT3B = {
    ("Fine-grained error", "Borderline"): 53,
    ("Fine-grained error", "Major"): 87,
    ("Fine-grained error", "Minor"): 101,
    ("Fine-grained error with OOV", "Borderline"): 10,
    ("Fine-grained error with OOV", "Major"): 22,
    ("Fine-grained error with OOV", "Minor"): 22,
    ("Fine-grained with Multilabel Options", "Major"): 1,
    ("Non-prototypical", "Borderline"): 9,
    ("Non-prototypical", "Major"): 7,
    ("Non-prototypical", "Minor"): 14,
    ("Spurious Correlation", "Borderline"): 2,
    ("Spurious Correlation", "Major"): 37,
    ("Spurious Correlation", "Minor"): 13,
}


@pytest.mark.shared
def test_the_published_table_comes_out_again(shared_data: Path) -> None:
    folder = shared_data / "mistakes"
    path = folder / "vit3b_mistakes.json"
    space = LabelSpace.load("imagenet-1k")
    file = read_mistake_file(path, label_space=space)
    order = shared_data / "imagenetv2/datasets/imagenet-validation-original.json"
    plain = read_imagenetv2(order, name="val")
    read, truth = read_truth(folder / "multilabel.csv", plain), "multilabel"
    testset = make_testset(
        plain.card.updated(truths={truth: read.provenance}),
        images=plain.images,
        truths={truth: read.table},
        label_space=plain.label_space,
    )
    listed = [listed_predictions(testset, file, truth=truth)[0]]
    found = verdicts(testset, listed, truth=truth)
    mistakes = mistakes_of(found)
    kinds = kinds_of(mistakes, judgements=read_mistakes(path))
    study = Study(verdicts=found, mistakes=mistakes, kinds=kinds)
    records = tally(study)
    table = Counter(
        {
            (r.category, r.severity): r.n
            for r in records
            if r.slice == "all" and r.basis == "judged" and "all" not in (r.category, r.severity)
        }
    )
    assert table == VIT3B
    margins = {(r.category, r.severity): r for r in records if (r.slice, r.basis) == ("all", "all")}
    assert (margins["all", "all"].n, margins["all", "all"].of) == (378, 18_692)
    assert margins["all", "Major"].n == 154
    groups = {r.slice: r.of for r in records if "class_group" in r.slice}
    assert groups == {
        "class_group=organism": 7_624,
        "class_group=artifact": 10_184,
        "class_group=other": 1_596,
    }
    measured = measure(testset, listed, metrics=["mla_micro"], truth=truth)
    value = {
        m.metric.name: float(m.estimates()[0]) for m in (*measured, *forgiven(study, measured))
    }
    right = 18_692 - 378
    assert value == {
        "mla_micro": pytest.approx(right / 18_692),
        "mla_micro_minor": pytest.approx((right + 241 + 54 + 1) / 18_692),
        "mla_micro_explained": pytest.approx(1.0),
        "mla_micro_judged_minor": pytest.approx((right + 74 + 150) / 18_692),
    }


# Kinds, tallies and forgiven accuracy against loops over images.


CATEGORIES = PROPOSABLE
SEVERITIES = ("Major", "Minor", "Borderline", UNJUDGED)


def some_kind(image_id: str, prediction: str) -> Kind:
    """A kind that depends on the pair alone."""
    place = sum(map(ord, image_id + prediction))
    severity = SEVERITIES[place % 4]
    return Kind(
        category=CATEGORIES[place % len(CATEGORIES)],
        severity=severity,
        basis="judged" if severity != UNJUDGED else ("proposed", "unreviewed")[place % 2],
    )


def study_of(testset: TestSet, world: World) -> Study:
    found = verdicts(testset, world.predictions())
    mistakes = mistakes_of(found)
    kinds = {(m.image_id, m.prediction): some_kind(m.image_id, m.prediction) for m in mistakes}
    return Study(verdicts=found, mistakes=mistakes, kinds=kinds)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from(["single", "multilabel"]))
def test_tallies_are_counts_of_images(world: World, kind: str) -> None:
    testset = set_of_kind(world, kind)
    study = study_of(testset, world)
    rows = list(counted(world, kind))
    expected: Counter[tuple[str, ...]] = Counter()
    for model in world.logits:
        for row, image in rows:
            guess, state = plain_state(world, kind, model, row)
            if state == RIGHT:
                continue
            if state == NOTHING:
                mine = Kind(category=NO_OUTPUT)
            else:
                mine = some_kind(image.id, f"c{guess}")
            for category in ("all", mine.category):
                for severity in ("all", mine.severity):
                    for basis in ("all", mine.basis):
                        expected[model, category, severity, basis] += 1
    records = tally(study)
    whole = [r for r in records if r.slice == "all"]
    got = {(r.model, r.category, r.severity, r.basis): r for r in whole}
    assert len(got) == len(whole)
    for (model, *rest), record in got.items():
        n = expected[str(model), *rest]
        assert (record.n, record.of) == (n, len(rows))
        assert record.value == pytest.approx(n / len(rows))
        limits = wilson(n, len(rows))
        assert (record.low, record.high) == (pytest.approx(limits.low), pytest.approx(limits.high))
    full = {key for key in expected if "all" not in key[1:]}
    assert full <= set(got)
    for model in world.logits:
        assert got[model, "all", "all", "all"].n == expected[model, "all", "all", "all"]


def sliced_world() -> tuple[World, dict[str, Any]]:
    rng = np.random.default_rng(4)
    n = 90
    labels = [int(v) for v in rng.integers(0, 4, n)]
    logits = {m: rng.normal(size=(n, 4)).tolist() for m in ("a", "b")}
    world = single_label(labels, 4, logits)
    columns = {
        "size": [float(v) for v in rng.integers(0, 3, n)],
        "object": [f"o{v}" for v in rng.integers(0, 12, n)],
        "types": {"size": ColumnType(kind="ordered"), "words": ColumnType(kind="categorical", multi=True)},
        "members": [(f"i{i:03d}", "words", w) for i in range(n) for w in ("x", "y") if rng.random() < 0.5],
    }  # fmt: skip
    return world, columns


def test_slices_add_up_and_clusters_widen() -> None:
    world, columns = sliced_world()
    testset = world_testset(world, **columns)
    study = study_of(testset, world)
    records = tally(study, by=["size", "words", "size&words"])
    whole = {
        (r.model, r.category): r for r in records if (r.slice, r.severity, r.basis) == ("all",) * 3
    }
    for (model, category), record in whole.items():
        parts = [
            r for r in records
            if r.slice.startswith("size=") and "&" not in r.slice
            and (r.model, r.category, r.severity) == (model, category, "all")
        ]  # fmt: skip
        assert sum(r.n for r in parts) == record.n
        assert sum(r.of for r in parts) == len(world.images)
    members = columns["members"]
    inside = {image for image, _, word in members if word == "x"}
    x = {
        r.model: r
        for r in records
        if (r.slice, r.category, r.severity) == ("words=x", "all", "all")
    }
    for m, model in enumerate(("a", "b")):
        wrong = study.verdicts.wrong[:, m]
        assert x[model].n == sum(
            bool(w)
            for w, image in zip(wrong, study.verdicts.image_ids, strict=True)
            if image in inside
        )
        assert x[model].of == len(inside)
    clustered = tally(study, by=["size"], cluster="object")
    first = next(r for r in clustered if (r.slice, r.category) == ("all", "all"))
    assert first.interval == "cluster-wilson"
    assert first.low is not None and first.high is not None
    assert first.low < (first.value or 0) < first.high
    few = tally(study, cluster="size")
    assert all(r.low is None and "(size) are too few" in str(r.reason) for r in few)


@settings(max_examples=40, deadline=None)
@given(worlds(every_class=True), st.sampled_from([("single", "top1"), ("multilabel", "mla")]))
def test_forgiven_mistakes_are_hits_and_no_others(world: World, which: tuple[str, str]) -> None:
    kind, metric = which
    testset = set_of_kind(world, kind)
    rows = list(counted(world, kind))
    assume(len(rows) > 1)  # one image has no spread to resample
    measured = measure(
        testset, world.predictions(), metrics=[metric, "accepted"], absent_classes="skip"
    )
    study = study_of(testset, world)
    found = {m.metric.name: m for m in forgiven(study, measured)}
    assert set(found) <= {f"{metric}{e}" for e in ("_minor", "_explained", "_judged_minor")}
    open_to_doubt = any(kind.basis != "judged" for kind in study.kinds.values())
    assert open_to_doubt == (f"{metric}_minor" not in found)
    found = {m.metric.name: m for m in forgiven(replace(study, named=True), measured)}
    assert {f"{metric}_minor", f"{metric}_explained"} <= set(found)
    for ending, forgives in (
        ("_minor", lambda k: k.category in MINOR_CATEGORIES),
        ("_explained", lambda k: k.category in EXPLAINED_CATEGORIES),
        ("_judged_minor", lambda k: k.basis == "judged" and k.severity in ("Minor", "Borderline")),
    ):
        name = f"{metric}{ending}"
        if name not in found:
            continue
        for m, model in enumerate(world.logits):
            for place, (row, image) in enumerate(rows):
                guess, state = plain_state(world, kind, model, row)
                hit = bool(measured[0].values[place, m])
                wrong = state not in (RIGHT, NOTHING)
                expected = hit or (wrong and forgives(some_kind(image.id, f"c{guess}")))
                assert bool(found[name].values[place, m]) == expected
    minor, explained = found[f"{metric}_minor"], found[f"{metric}_explained"]
    assert (minor.values <= explained.values).all()
    record = scores(explained, replicates=50)[0]
    assert record.name == f"{metric}_explained"


def test_several_reviewers_become_one_kind() -> None:
    def judged(who: str, category: str, severity: str, image: str = "i0") -> Judgement:
        return Judgement(
            question="mistake",
            subject={"image_id": image, "prediction": "c1"},
            answer={"category": category, "severity": severity},
            who=who,
        )

    world = single_label([0, 0, 0], 2, {"m": [[0, 1], [0, 1], [0, 1]]})
    found = verdicts(world_testset(world), world.predictions())
    mistakes = mistakes_of(found)
    answers = [
        judged("ann", "Spurious Correlation", "Major", "i000"),
        judged("bob", "Spurious Correlation", "Minor", "i000"),
        judged("eve", "Other", "Major", "i000"),
        judged("ann", "Other", "Major", "i001"),
        judged("bob", "Non-prototypical", "Major", "i001"),
        judged("ann", "Other", "Major", "elsewhere"),
    ]
    evidence = (Evidence("affinity", "alike", 0.4),)
    proposals = [
        Proposal("i001", "c1", "Fine-grained error", evidence=evidence),
        Proposal(
            "i002", "c1", "Fine-grained error", None, 0.3, 0.1, 0.6, evidence=evidence
        ),
    ]  # fmt: skip
    kinds = kinds_of(mistakes, judgements=answers, proposals=proposals)
    assert kinds["i000", "c1"] == Kind(
        category="Spurious Correlation", severity="Major", basis="judged"
    )
    assert kinds["i001", "c1"].category == "unclear" and kinds["i001", "c1"].severity == "Major"
    assert kinds["i001", "c1"].evidence == evidence
    assert kinds["i002", "c1"] == Kind(
        category="Fine-grained error", evidence=evidence, major=(0.3, 0.1, 0.6)
    )
    study = Study(verdicts=found, mistakes=mistakes, kinds=kinds)
    (suggested,) = [r for r in tally(study) if r.interval == "suggested"]
    assert (suggested.severity, suggested.basis, suggested.n) == ("Major", "proposed", 0)
    assert suggested.value == pytest.approx(0.1)
    assert (suggested.low, suggested.high) == (pytest.approx(0.1 / 3), pytest.approx(0.2))


def test_verdicts_of_one_model_at_a_time_are_those_of_all() -> None:
    world, columns = sliced_world()
    testset = world_testset(world, **columns)
    together = verdicts(testset, world.predictions())
    parts = joined([verdicts(testset, [p]) for p in world.predictions()])
    assert parts.models == together.models and parts.hashes == together.hashes
    assert (parts.guesses == together.guesses).all() and (parts.states == together.states).all()
    fewer = without_images(together, [0, 5])
    assert len(fewer) == len(together) - 2 and fewer.left_out == together.left_out + 2
    assert not {0, 5} & set(fewer.truth.rows.tolist())


def test_outputs_outside_the_set_have_a_category_of_their_own() -> None:
    world = single_label([0, 1], 2, {"m": [[0.0, 1.0], None]})
    study = study_of(world_testset(world), world)
    records = {(r.category, r.severity): r.n for r in tally(study) if r.basis == "all"}
    assert records[NO_OUTPUT, "all"] == 1
    assert (NO_CLASS, "all") not in records
    assert records["all", "all"] == 2
