"""What leaks add to scores: against counting right and wrong images by hand; and what eval says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout import evaluate
from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.judgements.neighbours import (
    ComparedImages,
    Neighbours,
    search_folder,
    write_neighbours,
)
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import TestSet, load_testset
from heldout.measure.evaluation.leaks import known_leaks
from heldout.measure.score.records import Leak, from_dict
from heldout.testing.example import MODELS, make_example

OLD, NEW = "example-original", "example-shifted"
LEAKED, DOUBTED, DIFFERENT = 40, 20, 10


def search_of(testset: TestSet, pairs: int, *, images_hash: str | None = None) -> Neighbours:
    """A search in which the first images of a set have one near neighbour each in ``train``."""
    ids = sorted(testset.image_ids.to_pylist())
    digests = dict(
        zip(testset.image_ids.to_pylist(), testset.images["sha256"].to_pylist(), strict=True)
    )
    rows = np.full((len(ids), 2), -1, np.int64)
    distances = np.full((len(ids), 2), np.inf)
    rows[:pairs, 0], distances[:pairs, 0] = np.arange(pairs), 0.5
    return Neighbours(
        {
            "measure": "features",
            "testset": {"name": testset.name, "images_hash": images_hash or testset.card.images_hash},
            "reference": {"name": "train", "images_hash": "0" * 64},
            "encoder": {"key": "e" * 64, "name": "lite0"},
            "keep": 2,
            "farthest": None,
            "near_classes": None,
            "threshold": 1.0,
            "threshold_from": "given",
            "failures": {},
            "reference_failures": {},
        },
        ComparedImages.of(ids, [digests[name] for name in ids]),
        ComparedImages.of([f"t{n:03}" for n in range(pairs)], [f"{n:064x}" for n in range(pairs)]),
        rows,
        distances,
    )  # fmt: skip


def judge(workspace: Workspace, ids: list[str], answer: str, *, start: int) -> None:
    with JudgementStore(workspace.judgements) as store:
        store.add(
            Judgement(
                question="duplicate",
                subject=pair_subject(name, f"train:t{start + place:03}"),
                answer=answer,
                who="ann",
                testset=NEW,
            )
            for place, name in enumerate(ids)
        )


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    place = Workspace(tmp_path)
    make_example(place, images=300)
    testset = load_testset(str(place.testsets / NEW))
    found = search_of(testset, LEAKED + DOUBTED + DIFFERENT)
    write_neighbours(search_folder(place, found.search), found)
    ids = found.candidates.ids
    judge(place, ids[:LEAKED], "duplicate", start=0)
    judge(place, ids[LEAKED : LEAKED + DIFFERENT], "different", start=LEAKED)
    return place


def test_scores_without_leaks_are_those_of_the_other_images(workspace: Workspace) -> None:
    results = evaluate("all", [OLD, NEW], workspace=workspace, replicates=200)
    leaks = [r for r in results.records if isinstance(r, Leak)]
    assert {r.testset for r in leaks} == {NEW} and len(leaks) == 2 * len(MODELS)
    assert [r for r in results.brief or () if isinstance(r, Leak)] == leaks
    (measured,) = (m for m in results.measured if m.testset.name == NEW and m.metric.name == "top1")
    ids = np.array(measured.testset.image_ids.to_pylist(), object)[measured.rows]
    order = sorted(ids.tolist())
    out = {
        "leaked": set(order[:LEAKED]),
        "leaked or unresolved": set(order[:LEAKED]) | set(order[LEAKED + DIFFERENT :][:DOUBTED]),
    }
    for record in leaks:
        right = measured.column(record.model)
        kept = ~np.isin(ids, list(out[record.images]))
        assert record.n == 300 and record.left_out == len(out[record.images])
        assert record.value == pytest.approx(right.mean())
        assert record.value_without == pytest.approx(right[kept].mean())
        assert record.difference == pytest.approx(right.mean() - right[kept].mean())
        assert record.low is not None and record.high is not None
        assert record.low <= record.difference <= record.high
        assert record.references == ("train",)
        assert from_dict({"record": "leak", **vars(record)}) == record
    note = [text for text in results.notes if "train" in text]
    assert note == [
        f"{NEW}: {LEAKED} images are duplicates of images of train, {DOUBTED} more are near "
        "one, and nobody has looked"
    ]


def test_the_interval_covers_what_leaks_add() -> None:
    """Square-and-add of two independent shares: simulated, the true difference is inside 95 %."""
    from heldout.stats.intervals import Bounded, square_and_add, wilson

    generator = np.random.default_rng(5)
    n, leaked, easy, hard = 400, 80, 0.95, 0.7
    inside = 0
    for _ in range(400):
        sides = []
        for size, p in ((leaked, easy), (n - leaked, hard)):
            right = generator.binomial(size, p)
            made = wilson(right, size, level=0.95)
            sides.append(Bounded(right / size, float(made.low), float(made.high)))
        low, high = (leaked / n * end for end in square_and_add(*sides))
        inside += low <= leaked / n * (easy - hard) <= high
    assert 0.92 <= inside / 400 <= 0.985


def test_images_that_changed_since_are_not_counted(workspace: Workspace) -> None:
    testset = load_testset(str(workspace.testsets / NEW))
    found = search_of(testset, LEAKED, images_hash="f" * 64)
    changed = [f"{n:064x}" for n in range(len(found.candidates))]
    changed[0] = None  # type: ignore[call-overload]
    other = Neighbours(
        found.search,
        ComparedImages.of(found.candidates.ids, changed),
        found.references,
        found.rows,
        found.distances,
    )
    write_neighbours(search_folder(workspace, found.search), other)
    leaks = known_leaks(testset, workspace)
    assert leaks.not_compared == len(testset) - 1
    assert leaks.lines[-1].startswith("299 images were added or have changed since")


def test_images_that_were_added_since_are_counted(workspace: Workspace) -> None:
    testset = load_testset(str(workspace.testsets / NEW))
    found = search_of(testset, LEAKED, images_hash="f" * 64)
    fewer = ComparedImages(found.candidates.table.slice(0, 280))
    saved = Neighbours(
        found.search, fewer, found.references, found.rows[:280], found.distances[:280]
    )
    write_neighbours(search_folder(workspace, found.search), saved)
    assert known_leaks(testset, workspace).not_compared == 20


def test_a_damaged_search_is_told_and_stops_nothing(workspace: Workspace) -> None:
    testset = load_testset(str(workspace.testsets / NEW))
    folder = search_folder(workspace, search_of(testset, LEAKED).search)
    write_neighbours(folder, search_of(testset, LEAKED))
    (folder / "rows.npy").write_bytes(b"short")
    results: Any = evaluate("all", NEW, workspace=workspace, replicates=100)
    assert results.scores and not [r for r in results.records if isinstance(r, Leak)]
    assert any("what leaked is not known" in note and "rows.npy" in note for note in results.notes)


def test_without_searches_nothing_is_said(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    make_example(place, images=60)
    results: Any = evaluate("all", NEW, workspace=place, replicates=100)
    assert not [r for r in results.records if isinstance(r, Leak)]
