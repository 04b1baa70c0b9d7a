"""Mistakes inside an evaluation: what is counted, from which judgements, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heldout import evaluate
from heldout.core.workspace import Workspace
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import make_testset
from tests.measure.mistakes.made import set_of_kind
from tests.measure.score.worlds import Image, World, single_label, world_testset


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
    by = {s.metric: s.value for s in results.scores}
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


def test_nothing_is_counted_unless_asked(world: World, tmp_path: Path) -> None:
    results = evaluate(world.predictions(), world_testset(world), workspace=tmp_path)
    assert not results.tallies and not results.studies
    assert not any(s.metric.endswith(("_minor", "_explained")) for s in results.scores)
