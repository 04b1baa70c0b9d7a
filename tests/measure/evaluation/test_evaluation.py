"""Tests of :mod:`heldout.measure.evaluation`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout import evaluate
from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import make_testset
from heldout.measure.mistakes.tally import FORGIVEN
from heldout.measure.score.records import Score
from heldout.testing.example import example_predictions, example_testset
from tests.measure.mistakes.made import set_of_kind
from tests.measure.score.worlds import Image, World, single_label, world_testset

# Images without an output: wrong by default, dropped only when asked, and then said.


def test_failed_images_count_as_wrong_or_are_dropped_and_counted() -> None:
    testset = example_testset("small", images=200)
    models = []
    for name, failing in (("oak", range(20)), ("elm", range(10, 30))):
        made = example_predictions(testset, name)
        topk, logits = made.topk.copy(), made.logits
        topk[list(failing)] = -1
        models.append(
            replace(made, topk=topk, logits=logits, failures=dict.fromkeys(failing, "broken"))
        )
    labels = np.arange(200) % 10
    wrong = evaluate(models, testset, metrics=["top1"])
    assert [s.n for s in wrong.scores] == [200, 200]
    for score, model in zip(wrong.scores, models, strict=True):
        assert score.value == pytest.approx((model.topk[:, 0] == labels).mean())
    assert {c.name: c.value for c in wrong.counts if c.model == "oak"} == {"n_failed": 20}
    dropped = evaluate(models, testset, metrics=["top1"], on_error="drop")
    assert [s.n for s in dropped.scores] == [170, 170]
    for score, model in zip(dropped.scores, models, strict=True):
        assert score.value == pytest.approx((model.topk[30:, 0] == labels[30:]).mean())
    assert [c.value for c in dropped.counts if c.name == "n_dropped"] == [30]
    with pytest.raises(UserError, match="give one of wrong, drop"):
        evaluate(models, testset, on_error="ignore")


def test_a_class_that_loses_all_its_images_is_said() -> None:
    testset = example_testset("small", images=200)
    made = example_predictions(testset, "oak")
    failing = range(3, 200, 10)  # every image of the fourth class
    topk = made.topk.copy()
    topk[list(failing)] = -1
    model = replace(made, topk=topk, failures=dict.fromkeys(failing, "broken"))
    options = {"metrics": ["mean_per_class"], "on_error": "drop"}
    with pytest.raises(NotApplicable, match="1 of the classes of small lost all their images"):
        evaluate(model, testset, **options)
    (score,) = evaluate(model, testset, absent_classes="skip", **options).scores
    labels = np.arange(200) % 10
    hits = [(topk[labels == c, 0] == c).mean() for c in range(10) if c != 3]
    assert score.value == pytest.approx(np.mean(hits))


# Mistakes inside an evaluation: what is counted, from which judgements, and what is refused.


def judged(image: str, who: str = "ann", testset: str | None = None) -> Judgement:
    return Judgement(
        question="mistake",
        subject={"image_id": image, "prediction": "c1"},
        answer={"category": "Spurious Correlation", "severity": "Major"},
        who=who,
        testset=testset,
    )


@pytest.fixture
def world() -> World:
    return single_label([0] * 6, 3, {"m": [[0, 1, 0]] * 4 + [[1, 0, 0]] + [None]})


def totals(results: Any) -> dict[tuple[str, str], int]:
    return {
        (t.category, t.basis): t.n
        for t in results.tallies
        if t.slice == "all" and t.severity == "all"
    }


def test_judgements_of_this_set_of_its_parents_or_of_none_count(
    world: World, tmp_path: Path
) -> None:
    made = world_testset(world)
    testset = make_testset(
        made.card.updated(parents=({"name": "older"},)),
        images=made.images,
        truths=made.truths,
        label_space=made.label_space,
    )
    place = Workspace(tmp_path)
    assert judgements_about(testset, place.judgements, questions=("mistake",)) == []
    assert not list(tmp_path.iterdir()), "reading makes no table"
    with JudgementStore(place.judgements) as store:
        store.add(
            [
                judged("i000"),
                judged("i001", testset="made"),
                judged("i002", testset="older"),
                judged("i003", testset="another"),
            ]
        )
    results = evaluate(world.predictions(), testset, mistakes=True, workspace=place)
    found = totals(results)
    assert found["Spurious Correlation", "all"] == 3
    assert found["all", "judged"] == 3 and found["all", "proposed"] == 2
    assert found["No output", "all"] == 1
    assert not any(s.statistic in ("minor", "explained") for s in results.of(Score))
    groups = tmp_path / "groups.json"
    groups.write_text("[[0], [1]]")
    results = evaluate(
        world.predictions(), testset, mistakes=True, workspace=place, superclasses=groups
    )
    by = {s.name: s.value for s in results.of(Score)}
    assert by["top1_minor"] == by["top1"] == pytest.approx(1 / 6)
    assert by["top1_explained"] == pytest.approx(4 / 6)


def test_dropped_images_are_not_mistakes(world: World, tmp_path: Path) -> None:
    results = evaluate(
        world.predictions(),
        world_testset(world),
        mistakes=True,
        on_error="drop",
        workspace=tmp_path,
    )
    total = next(t for t in results.tallies if (t.category, t.severity, t.basis) == ("all",) * 3)
    assert (total.n, total.of) == (4, 5)
    assert "No output" not in {t.category for t in results.tallies}


def test_a_truth_without_an_image_that_counts_is_noted(tmp_path: Path) -> None:
    images = tuple(Image(f"i{i:03d}", 0, (0,), problematic=True) for i in range(4))
    world = World(2, images, {"m": ((1.0, 0.0),) * 4})
    testset = set_of_kind(world, "multilabel")
    results = evaluate(
        world.predictions(), testset, metrics=["accepted"], mistakes=True, workspace=tmp_path
    )
    assert not results.tallies and not results.studies
    assert any("mistakes are not counted" in note for note in results.notes)
    assert results.scores[0].value == 1.0


def test_nothing_is_counted_where_it_is_not_wanted(world: World, tmp_path: Path) -> None:
    results = evaluate(
        world.predictions(), world_testset(world), mistakes=False, workspace=tmp_path
    )
    assert not results.tallies and not results.studies
    assert not any(s.statistic in FORGIVEN for s in results.of(Score))
