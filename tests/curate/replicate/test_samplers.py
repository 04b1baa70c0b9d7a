"""Samplers beside one that is slow and obvious, and against what ImageNetV2 published."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.replicate.samplers import (
    BINS,
    REASONS,
    SAMPLERS,
    Rule,
    Sample,
    VotedCandidate,
    bin_of,
    sample,
    scaled,
)
from heldout.data.published.imagenetv2 import read_order
from heldout.data.testset.hashing import row_hash

# ---- the obvious way -----------------------------------------------------------------------------


def oracle(
    pools: dict[str, list[VotedCandidate]],
    rule: Rule,
    seed: int,
    previous: dict[str, list[str]],
    originals: dict[str, list[float]],
) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Class -> the images drawn, in order, and the reasons against others; one image at a time."""

    def rank(image: str) -> tuple[int, str]:
        return int(row_hash([image], seed=seed)[0]), image

    found = {}
    for label, pool in pools.items():
        excluded, fine = {}, {}
        least = rule.thresholds.get(label, rule.threshold)
        for one in pool:
            tests = {
                "blacklisted": one.blacklisted,
                "few_votes": rule.sampler != "random"
                and one.votes < rule.votes
                and not one.settled,
                "below_threshold": rule.sampler == "threshold" and one.frequency < least,
                "near_duplicate": one.near_duplicate,
                "unreviewed": one.unreviewed,
            }
            against = [name for name, holds in tests.items() if holds]
            if against:
                excluded[one.image_id] = against[0]
            else:
                fine[one.image_id] = one
        before = set(previous.get(label, ()))
        if rule.sampler == "top":

            def merit(image: str) -> Any:
                return fine[image].frequency, fine[image].votes, image in before, image  # noqa: B023

            images = sorted(fine, key=merit)[::-1][: rule.per_class]
        elif rule.sampler == "matched":
            images = _oracle_matched(fine, before, originals.get(label, []), rule, rank)
        else:
            images = sorted(fine, key=lambda i: (i not in before, rank(i)))[: rule.per_class]
        found[label] = images, excluded
    return found


def _oracle_bin(frequency: float) -> int:
    return sum(frequency >= edge for edge in BINS)


def _oracle_target(originals: Sequence[float], total: int) -> list[int]:
    counts = [sum(_oracle_bin(f) == place for f in originals) for place in range(5)]
    if not originals:
        return [0] * 5
    exact = [Fraction(total * n, len(originals)) for n in counts]
    made = [int(share) for share in exact]
    while sum(made) < total:
        place = max(range(5), key=lambda i: (exact[i] - made[i] < 1, exact[i] - made[i], i))
        made[place] += 1
    return made


def _oracle_matched(fine: Any, before: Any, originals: Any, rule: Rule, rank: Any) -> list[str]:
    target = _oracle_target(originals, rule.per_class)
    order = sorted(fine, key=lambda i: (i not in before, rank(i)))
    bins: list[list[str]] = [[] for _ in range(5)]
    for image in order:
        place = _oracle_bin(fine[image].frequency)
        if len(bins[place]) < target[place]:
            bins[place].append(image)
    if rule.upward:
        for place in range(5):
            while len(bins[place]) < target[place]:
                taken = {image for part in bins for image in part}
                above = [
                    (_oracle_bin(fine[i].frequency), i not in before, rank(i), i)
                    for i in fine
                    if i not in taken and _oracle_bin(fine[i].frequency) > place
                ]
                if not above:
                    break
                bins[place].append(min(above)[-1])
    return [image for part in bins for image in part]


def published_oracle(
    pools: dict[str, list[VotedCandidate]],
    rule: Rule,
    seed: int,
    previous: dict[str, list[str]],
    originals: dict[str, list[float]],
) -> list[tuple[str, str]]:
    """The list as ImageNetV2 drew it: one generator, previous images in the order of their file."""
    chance = random.Random(seed)

    def drawn(pool: Sequence[str], n: int) -> list[str]:
        return chance.sample(sorted(pool), n) if n < len(pool) else sorted(pool)

    def kept(ids: list[str], n: int) -> list[str]:
        return ids if len(ids) <= n else chance.sample(ids, n)

    excluded = {c: why for c, (_, why) in oracle(pools, rule, seed, previous, originals).items()}
    rows: list[tuple[str, str]] = []
    for label in sorted(pools):
        fine = {c.image_id: c.frequency for c in pools[label] if c.image_id not in excluded[label]}
        before = [image for image in previous[label] if image in fine]
        if rule.sampler != "matched":
            images = kept(before, rule.per_class)
            images += drawn([i for i in fine if i not in images], rule.per_class - len(images))
            if rule.sampler in ("random", "annotated"):
                images = sorted(images)
        else:
            target = _oracle_target(originals[label], rule.per_class)
            members = [[i for i in fine if _oracle_bin(fine[i]) == b] for b in range(5)]
            bins = [
                kept([i for i in before if i in m], n) for m, n in zip(members, target, strict=True)
            ]
            for place in range(5):
                left = [i for i in members[place] if i not in bins[place]]
                bins[place] = bins[place] + drawn(left, target[place] - len(bins[place]))
            for place in range(5 if rule.upward else 0):
                for higher in range(place + 1, 5):
                    while len(bins[place]) < target[place]:
                        left = [i for i in members[higher] if not any(i in part for part in bins)]
                        if not left:
                            break
                        first = [i for i in before if i in left]
                        bins[place] = bins[place] + (first[:1] or drawn(left, 1))
            images = [image for part in bins for image in part]
        rows += [(image, label) for image in images]
    if rule.sampler != "random":
        chance.shuffle(rows)
    return rows


# ---- generated pools -----------------------------------------------------------------------------

_BOOLS = st.booleans()


@st.composite
def pools(draw: Any) -> dict[str, list[VotedCandidate]]:
    made: dict[str, list[VotedCandidate]] = {}
    for label in ("a", "b"):
        n = draw(st.integers(0, 14))
        made[label] = []
        for place in range(n):
            votes = draw(st.integers(0, 12))
            selected = draw(st.integers(0, votes))
            made[label].append(
                VotedCandidate(
                    image_id=f"{label}{place:02d}",
                    frequency=selected / votes if votes else 0.0,
                    votes=votes,
                    settled=draw(st.sampled_from([False, False, False, True])),
                    blacklisted=draw(st.sampled_from([False] * 5 + [True])),
                    near_duplicate=draw(st.sampled_from([False] * 5 + [True])),
                    unreviewed=draw(st.sampled_from([False] * 5 + [True])),
                )
            )
    return made


_RULES = st.builds(
    Rule,
    sampler=st.sampled_from(SAMPLERS),
    per_class=st.integers(1, 6),
    votes=st.integers(1, 10),
    threshold=st.sampled_from([0.0, 0.5, 0.7]),
    thresholds=st.sampled_from([{}, {"a": 0.3}]),
    upward=_BOOLS,
)
_PREVIOUS = st.fixed_dictionaries(
    {label: st.lists(st.sampled_from([f"{label}{i:02d}" for i in range(16)]), unique=True, max_size=6)
     for label in ("a", "b")}
)  # fmt: skip
_SHARES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 1.0])
_ORIGINALS = st.fixed_dictionaries({label: st.lists(_SHARES, max_size=25) for label in ("a", "b")})


@given(pools(), _RULES, st.integers(0, 3), _PREVIOUS, _ORIGINALS)
def test_every_sampler_is_that_of_the_oracle(
    made: dict[str, list[VotedCandidate]], rule: Rule, seed: int, previous: Any, originals: Any
) -> None:
    drawn = sample(made, rule, seed=seed, previous=previous, originals=originals)
    expected = oracle(made, rule, seed, previous, originals)
    for one in drawn.classes:
        images, excluded = expected[one.class_id]
        assert list(one.images) == images
        assert one.excluded == excluded
        assert one.eligible + len(excluded) == len(made[one.class_id])
        assert sum(one.reasons.values()) == len(excluded)
        assert list(one.carried) == [i for i in images if i in previous[one.class_id]]
        known = {candidate.image_id for candidate in made[one.class_id]}
        assert set(one.gone) == set(previous[one.class_id]) - known
        assert one.is_short == (len(images) < rule.per_class)
    assert drawn.rows == tuple((i, label) for label in sorted(expected) for i in expected[label][0])


@given(
    pools(),
    _RULES.filter(lambda rule: rule.sampler != "top"),
    st.integers(0, 3),
    _PREVIOUS,
    _ORIGINALS,
)
def test_legacy_draws_are_those_that_were_published(
    made: Any, rule: Rule, seed: int, previous: Any, originals: Any
) -> None:
    drawn = sample(made, rule, seed=seed, previous=previous, originals=originals, legacy=True)
    assert list(drawn.rows) == published_oracle(made, rule, seed, previous, originals)


def test_draws_by_hash_stay_the_same() -> None:
    pool = {"a": [VotedCandidate(f"image{n}", n / 9, 10) for n in range(10)]}
    drawn = sample(pool, Rule(sampler="random", per_class=4), seed=1)
    assert drawn.classes[0].images == ("image8", "image4", "image0", "image1")


@pytest.mark.parametrize("legacy", [False, True])
@given(pools(), _RULES, _PREVIOUS, _ORIGINALS, st.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_matter(
    legacy: bool, made: Any, rule: Rule, previous: Any, originals: Any, chance: random.Random
) -> None:
    def drawn(pool: Any, before: Any) -> Sample:
        return sample(pool, rule, seed=3, previous=before, originals=originals, legacy=legacy)

    shuffled = {label: chance.sample(made[label], len(made[label])) for label in ("b", "a")}
    other = previous
    if not legacy:  # the published draws do depend on the order of the file
        other = {label: chance.sample(ids, len(ids)) for label, ids in previous.items()}
    assert drawn(made, previous) == drawn(shuffled, other)


@given(pools(), _RULES.filter(lambda rule: rule.sampler != "matched"), _PREVIOUS)
def test_fewer_images_are_part_of_more(made: Any, rule: Rule, previous: Any) -> None:
    few, more = (
        sample(made, Rule(sampler=rule.sampler, per_class=n, votes=rule.votes), seed=1, previous=previous)
        for n in (rule.per_class, rule.per_class + 3)
    )  # fmt: skip
    for small, large in zip(few.classes, more.classes, strict=True):
        assert small.images == large.images[: len(small.images)]


@given(pools(), _RULES, _PREVIOUS, _ORIGINALS)
def test_images_are_drawn_once_and_only_if_eligible(
    made: Any, rule: Rule, previous: Any, originals: Any
) -> None:
    for legacy in (False, True):
        drawn = sample(made, rule, seed=2, previous=previous, originals=originals, legacy=legacy)
        assert Counter(drawn.rows) == Counter(
            (image, one.class_id) for one in drawn.classes for image in one.images
        )
        for one in drawn.classes:
            assert len(set(one.images)) == len(one.images) <= rule.per_class
            assert not set(one.images) & one.excluded.keys()
            assert set(one.excluded.values()) <= set(REASONS)
            stays = set(previous[one.class_id]) - set(one.excluded) - set(one.gone)
            if rule.sampler in ("threshold", "random", "annotated"):
                assert len(one.carried) == min(len(stays), rule.per_class)


@given(st.lists(st.integers(0, 60), min_size=5, max_size=5), st.integers(1, 20))
def test_a_target_has_its_sum_and_is_within_one_of_its_share(
    histogram: list[int], total: int
) -> None:
    made = scaled(histogram, total)
    whole = sum(histogram)
    assert sum(made) == (total if whole else 0)
    shares = [f for place, n in enumerate(histogram) for f in [(0, *BINS)[place]] * n]
    assert made == _oracle_target(shares, total)
    for n, scaled_n in zip(histogram, made, strict=True):
        assert not whole or abs(scaled_n - Fraction(n * total, whole)) < 1


@pytest.mark.parametrize(
    ("histogram", "expected"),
    [
        ([0, 1, 2, 5, 12], [0, 0, 1, 3, 6]),
        ([3, 3, 3, 3, 8], [1, 1, 2, 2, 4]),
        ([7, 7, 7, 0, 0], [3, 3, 4, 0, 0]),
    ],
)
def test_published_examples_of_targets(histogram: list[int], expected: list[int]) -> None:
    assert scaled(histogram, 10) == expected


def test_edges_belong_to_the_higher_bin() -> None:
    assert [bin_of(k / 10) for k in range(11)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]


def test_matched_reaches_its_target_where_there_are_candidates() -> None:
    rng = np.random.default_rng(5)
    truth = rng.beta(3, 1.2, 2000)
    votes = rng.binomial(10, truth) / 10
    pool = {"a": [VotedCandidate(f"i{k:04d}", float(f), 10) for k, f in enumerate(votes)]}
    originals = rng.binomial(10, rng.beta(4, 1, 25)) / 10
    drawn = sample(
        pool, Rule(sampler="matched"), seed=0, originals={"a": originals.tolist()}
    ).classes[0]
    wanted = _oracle_target(originals.tolist(), 10)
    frequency = {candidate.image_id: candidate.frequency for candidate in pool["a"]}
    counted = Counter(_oracle_bin(frequency[image]) for image in drawn.images)
    assert [counted[place] for place in range(5)] == wanted == [b.target for b in drawn.bins]
    assert not drawn.is_short and drawn.originals == 25


def test_a_target_that_rests_on_few_images_makes_a_set_invalid() -> None:
    pool = {"a": [VotedCandidate(f"i{k}", 1.0, 10) for k in range(20)]}
    few = sample(pool, Rule(sampler="matched"), seed=0, originals={"a": [1.0] * 19})
    assert few.few == ("a",) and len(few.rows) == 10 and not few.is_valid
    none = sample(pool, Rule(sampler="matched"), seed=0, originals={})
    assert none.rows == () and none.short[0].class_id == "a"
    with pytest.raises(UserError, match="original set"):
        sample(pool, Rule(sampler="matched"), seed=0)


_CHILD = """
import json, sys
from heldout.curate.replicate.samplers import VotedCandidate, Rule, sample
pool = {c: {VotedCandidate(f"{c}{k}", k % 11 / 10, 10) for k in range(40)} for c in "ba"}
like = {c: [0.1, 0.5, 0.9] * 8 for c in "ab"}
previous = {"a": [f"a{k}" for k in range(0, 40, 3)]}
print(json.dumps([
    sample(pool, Rule(sampler=s, upward=True), seed=7, previous=previous, originals=like, legacy=old).rows
    for s in ("threshold", "matched", "top", "random", "annotated") for old in (False, True)
]))
"""


def test_the_hash_seed_does_not_matter() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", _CHILD],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONHASHSEED": seed,
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(said) == 1 and len(json.loads(said.pop())) == 10


# ---- what was published --------------------------------------------------------------------------

Rows = list[tuple[str, str]]


def by_class(rows: Rows) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for image, label in rows:
        found.setdefault(label, []).append(image)
    return found


def published(shared_data: Path, name: str) -> tuple[Rows, dict[str, Any]]:
    path = shared_data / "imagenetv2" / "datasets" / f"{name}.json"
    return read_order(path), json.loads(path.read_text())


def unshuffled(rows: Rows, seed: int) -> Rows:
    """Rows as they stood before a generator that was asked for nothing else shuffled them."""
    places = list(range(len(rows)))
    random.Random(seed).shuffle(places)
    return [row for _, row in sorted(zip(places, rows, strict=True))]


@pytest.mark.shared
def test_dummy_set_is_drawn_in_its_published_order(shared_data: Path) -> None:
    originals, _ = published(shared_data, "imagenet-validation-original")
    pool = {label: [VotedCandidate(i) for i in ids] for label, ids in by_class(originals).items()}
    rows, file = published(shared_data, "imagenetv2-dummy-0")
    assert file["seed"] == 751480828
    drawn = sample(pool, Rule(sampler="random"), seed=751480828, legacy=True)
    # The first one was neither sorted within classes nor shuffled.
    assert [(i, one.class_id) for one in drawn.classes for i in one.images] == rows
    whole = sample(pool, Rule(sampler="random", per_class=50), seed=833009810, legacy=True)
    assert list(whole.rows) == originals


@pytest.mark.shared
def test_carry_over_and_shuffle_of_a_revision_of_set_a(shared_data: Path) -> None:
    before, _ = published(shared_data, "imagenetv2-a-23")
    after, file = published(shared_data, "imagenetv2-a-24")
    assert file["seed"] == 895619963
    pool = {
        label: [VotedCandidate(i, 1.0, 10) for i in ids] for label, ids in by_class(after).items()
    }
    drawn = sample(pool, Rule(), seed=895619963, previous=by_class(before), legacy=True)
    assert list(drawn.rows) == after and len(after) == 9_999
    assert [one.class_id for one in drawn.short] and not drawn.is_valid
    assert file["is_valid"] is False


@pytest.mark.shared
@pytest.mark.parametrize("revision", [0, 9, 10, 11, 12])
def test_revisions_of_set_c_are_in_class_order_before_their_shuffle(
    shared_data: Path, revision: int
) -> None:
    rows, file = published(shared_data, f"imagenetv2-c-{revision}")
    ordered = unshuffled(rows, file["seed"])
    assert [label for _, label in ordered] == sorted(label for _, label in rows)
    pool = {
        label: [VotedCandidate(image, 1 - place / 100, 10) for place, image in enumerate(ids)]
        for label, ids in by_class(ordered).items()
    }
    drawn = sample(pool, Rule(sampler="top"), seed=file["seed"], legacy=True)
    assert list(drawn.rows) == rows and drawn.is_valid
