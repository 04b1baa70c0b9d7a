"""What models miss together, against counting in loops."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.measure.mistakes.between_models import model_consensus, suspects
from heldout.measure.mistakes.verdicts import RIGHT, verdicts
from heldout.stats.intervals import wilson
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.score.worlds import World, single_label, world_testset, worlds


@settings(max_examples=100)
@given(worlds(models=4), st.sampled_from(["single", "multilabel"]), st.integers(1, 4))
def test_against_loops(world: World, kind: str, at_least: int) -> None:
    made = verdicts(set_of_kind(world, kind), world.predictions())
    expected = []
    misses = []
    for row, image in counted(world, kind):
        states = [plain_state(world, kind, model, row) for model in world.logits]
        wrong = [guess for guess, state in states if state != RIGHT]
        misses.append(len(wrong))
        if len(wrong) < at_least:
            continue
        votes = Counter(guess for guess in wrong if guess >= 0)
        best = min(votes, key=lambda c: (-votes[c], c)) if votes else None
        expected.append(
            (
                image.id,
                f"c{image.label}",
                tuple(f"c{c}" for c in dict.fromkeys([*image.correct, *image.unclear])),
                None if best is None else f"c{best}",
                0 if best is None else votes[best],
                len(wrong),
                4,
                len(votes),
            )
        )
    found = model_consensus(made)
    assert found.missed_by == [misses.count(k) for k in range(5)] and found.n == len(misses)
    assert found.missed_by_all == misses.count(4) and found.right_by_all == misses.count(0)
    listed = suspects(made, at_least=at_least)
    assert [
        (
            s.image_id,
            s.original,
            s.acceptable,
            s.majority,
            s.votes,
            s.missed_by,
            s.models,
            s.classes,
        )
        for s in listed
    ] == sorted(expected, key=lambda e: (-e[4], -e[5], e[0]))
    limits = wilson(misses.count(4), len(misses))
    assert found.share == misses.count(4) / len(misses)
    assert (found.low, found.high) == (limits.low, limits.high)


def test_all_models_by_default_and_bounds() -> None:
    world = single_label([0, 0], 3, {"m": [(0, 1, 0), (0, 1, 0)], "o": [(0, 1, 0), (1, 0, 0)]})
    found = verdicts(world_testset(world), world.predictions())
    (suspect,) = suspects(found)
    assert (suspect.image_id, suspect.majority, suspect.votes) == ("i000", "c1", 2)
    assert len(suspects(found, at_least=1)) == 2
    for wrong in (0, 3):
        with pytest.raises(UserError, match="ask for 1 to 2"):
            suspects(found, at_least=wrong)


def test_nothing_is_missed() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0), (0, 1)]})
    found = verdicts(world_testset(world), world.predictions())
    assert model_consensus(found).missed_by_all == 0 and suspects(found) == []
