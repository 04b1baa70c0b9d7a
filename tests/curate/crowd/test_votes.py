"""What votes say: against counts made by hand from the same judgements, and against known kappas."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heldout
from heldout.core.errors import ExistsError, NotApplicable
from heldout.curate.crowd.votes import crowd_votes
from heldout.data.judgements.judgement import WITHDRAWN, Judgement
from heldout.data.judgements.workers import selection_frequency
from heldout.data.testset import load
from heldout.stats.agreement import fleiss_kappa
from heldout.stats.intervals import wilson
from tests.curate.crowd.crowd_examples import SIZES, of_kind, stored_votes, workspace_of


def votes_of(seed: int, *, grids: int = 3, people: int = 4, status: bool = True) -> list[Judgement]:
    """Votes of people on grids of four candidates and two controls of each kind; some were rejected."""
    draw = random.Random(seed)
    made = []
    for grid in range(grids):
        for person in range(people):
            good = draw.random()
            state = draw.choice(["Submitted", "Submitted", "Rejected", "Ignored"])
            start = draw.randrange(10, 50)
            for place in range(8):
                role = "candidate" if place < 4 else "positive" if place < 6 else "negative"
                evidence = {
                    "grid": f"g{grid}",
                    "assignment": f"a{grid}-{person}",
                    "role": role,
                    "published": "2026-01-01T00:00:00Z",
                    "accepted": f"2026-01-01T00:00:{start}Z",
                }
                made.append(
                    Judgement(
                        question="vote",
                        subject={"image_id": f"{role}-{(grid + place) % 7}", "class_id": "cat"},
                        answer="selected" if draw.random() < good else "not-selected",
                        who=f"p{person}",
                        when=f"2026-01-01T00:{person + 1:02}:00Z",
                        evidence=evidence | ({"status": state} if status else {}),
                    )
                )
    draw.shuffle(made)
    return made


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), least=st.sampled_from([None, 0.0, 0.5, 0.8]))
def test_against_counts_by_hand(seed: int, least: float | None) -> None:
    given_votes = votes_of(seed)
    found = crowd_votes(given_votes, min_accuracy=least)
    counted = [v for v in given_votes if v.evidence["status"] == "Submitted"]
    hits: dict[str, list[bool]] = defaultdict(list)
    for v in counted:
        if v.evidence["role"] != "candidate":
            hits[v.who].append((v.answer == "selected") == (v.evidence["role"] == "positive"))
    poor = {
        who for who, each in hits.items() if least is not None and sum(each) / len(each) < least
    }
    assert {w.who for w in found.workers} == set(hits)
    for worker in found.workers:
        each = hits[worker.who]
        limits = wilson(sum(each), len(each))
        assert (worker.controls, worker.counts) == (len(each), worker.who not in poor)
        assert worker.accuracy == pytest.approx(sum(each) / len(each))
        assert (worker.low, worker.high) == (float(limits.low), float(limits.high))
    kept = [v for v in counted if v.who not in poor]
    assert found.summary.votes == len(kept)
    assert found.summary.answers == len(kept) / 8
    assert found.summary.left_out == 12 - len(kept) / 8
    expected = {
        (f.image_id, f.class_id): (f.selected, f.n, f.frequency, f.low, f.high)
        for f in (selection_frequency(kept) if kept else ())
    }
    assert {
        (f.image_id, f.class_id): (f.selected, f.n, f.frequency, f.low, f.high)
        for f in found.images
    } == expected
    for one in found.in_grids:
        mine = [
            v.answer == "selected"
            for v in kept
            if (v.evidence["grid"], v.subject["image_id"]) == (one.grid, one.image_id)
        ]
        assert (one.selected, one.n) == (sum(mine), len(mine))
    for grid in found.grids:
        rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for v in kept:
            if v.evidence["grid"] == grid.grid:
                rows[v.subject["image_id"]][v.answer != "selected"] += 1
        if grid.answers > 1 and grid.kappa is not None:
            assert grid.kappa == pytest.approx(fleiss_kappa(list(rows.values())))


def test_times_are_of_assignments_not_of_votes() -> None:
    given_votes = votes_of(3, grids=1, status=False)
    found = crowd_votes(given_votes)
    seconds, delays = [], []
    for one in found.assignments:
        person = int(one.who[1:])
        start = int(next(v for v in given_votes if v.who == one.who).evidence["accepted"][-3:-1])
        assert (one.seconds, one.delay) == (60 * (person + 1) - start, start)
        seconds.append(one.seconds)
        delays.append(one.delay)
    (grid,) = found.grids
    assert (grid.least_seconds, grid.most_seconds) == (min(seconds), max(seconds))
    assert (grid.median_seconds, grid.median_delay) == (median(seconds), median(delays))


def test_a_vote_that_was_taken_back_does_not_count() -> None:
    votes = votes_of(1, grids=1, people=3, status=False)
    first = min(votes, key=lambda one: (one.who, one.subject_key))
    back = replace(first, answer=WITHDRAWN, when="2026-01-02T00:00:00Z", judgement_id="")
    found = crowd_votes([*votes, back])
    (image,) = [one for one in found.images if one.image_id == first.subject["image_id"]]
    said = [v for v in votes if v.subject_key == first.subject_key and v.who != first.who]
    assert image.n == len(said) == 2
    assert image.selected == sum(v.answer == "selected" for v in said)
    assert found.summary.votes == len(votes) - 1


def test_everybody_of_one_mind_has_no_kappa_and_no_votes_are_an_error() -> None:
    alike = [v for v in votes_of(1, grids=1, status=False) if v.answer == "selected"]
    found = crowd_votes(alike)
    assert found.summary.kappa is None and found.grids[0].kappa is None
    with pytest.raises(NotApplicable, match="no votes"):
        crowd_votes([])


def test_the_command(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)
    options = {"controls": "val", "crowd_size": 8, "assignments": 4, "workspace": workspace}
    heldout.verbs.crowd_publish("simulated", tmp_path / "grids.json", "pool", **options)
    heldout.verbs.crowd_answers("simulated", workspace=workspace)
    result = heldout.verbs.crowd_votes(["pool", "val"], workspace=workspace)
    (summary,) = of_kind(result, "crowd_summary")
    assert (summary.grids, summary.answers, summary.votes) == (9, 36, 36 * 6)
    pooled = [f for f in of_kind(result, "selection_frequency") if f.grid is None]
    assert len(pooled) == len({(v.subject_key) for v in stored_votes(workspace)})
    assert len(of_kind(result, "crowd_assignment")) == 36
    assert all(len(a.selected) <= sum(SIZES.values()) for a in of_kind(result, "crowd_assignment"))
    strict = heldout.verbs.crowd_votes(["pool", "val"], min_accuracy=0.99, workspace=workspace)
    (left,) = of_kind(strict, "crowd_summary")
    assert left.answers + left.left_out == 36 and left.left_out > 0
    # Without the set of the controls only candidates are looked at.
    alone = heldout.verbs.crowd_votes(["pool"], workspace=workspace)
    (summary,) = of_kind(alone, "crowd_summary")
    assert summary.votes == 36 * 4 and summary.accuracy is None


def test_frequencies_as_columns_of_the_pool(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path)
    options = {"controls": "val", "crowd_size": 8, "assignments": 4, "workspace": workspace}
    heldout.verbs.crowd_publish("simulated", tmp_path / "grids.json", "pool", **options)
    heldout.verbs.crowd_answers("simulated", workspace=workspace)
    place = workspace.pools / "asked"
    for _ in range(2):  # the same again is the same
        result = heldout.verbs.crowd_votes(["pool", "val"], out=place, workspace=workspace)
    made = load(place)
    pooled = {f.image_id: f for f in of_kind(result, "selection_frequency") if f.grid is None}
    rows = made.images.to_pylist()
    assert [row["image_id"] for row in rows] == [f"pool-{n:03}" for n in range(30)]
    for row in rows:
        one = pooled[row["image_id"]]
        assert (row["frequency"], row["votes"]) == (one.frequency, one.n)
        assert (row["frequency_low"], row["frequency_high"]) == (one.low, one.high)
    assert made.truth().equals(load(workspace.pools / "pool").truth())
    heldout.verbs.crowd_answers(
        "simulated", ignore={pooled_worker(result): "too few"}, workspace=workspace
    )
    with pytest.raises(ExistsError):
        heldout.verbs.crowd_votes(["pool"], out=place, workspace=workspace)
    heldout.verbs.crowd_votes(["pool"], out=place, replace=True, workspace=workspace)
    assert sum(load(place).images["votes"].to_pylist()) < sum(row["votes"] for row in rows)


def pooled_worker(result: object) -> str:
    return str(of_kind(result, "crowd_worker")[0].who)
