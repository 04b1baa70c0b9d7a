"""Confusions of two models side by side, against subtracting counts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.measure.mistakes.confusions import confusion_changes, confusions
from heldout.measure.mistakes.verdicts import verdicts
from tests.measure.mistakes.made import set_of_kind
from tests.measure.score.worlds import World, worlds


@settings(max_examples=60)
@given(worlds(), st.sampled_from(["single", "multilabel"]))
def test_against_both_lists(world: World, kind: str) -> None:
    made = verdicts(set_of_kind(world, kind), world.predictions())
    found = confusion_changes(made, "m0", "m1")
    old, new = (
        Counter({(p.first_id, p.second_id): p.n for p in confusions(made, m).top()})
        for m in ("m0", "m1")
    )  # fmt: skip
    assert {(c.first_id, c.second_id): (c.old, c.new) for c in found} == {
        pair: (old[pair], new[pair]) for pair in {*old, *new} if old[pair] != new[pair]
    }
    keys = [(-abs(c.difference), c.first_id, c.second_id) for c in found]
    assert keys == sorted(keys)
    back = confusion_changes(made, "m1", "m0")
    assert [(c.old, c.new) for c in back] == [(c.new, c.old) for c in found]
