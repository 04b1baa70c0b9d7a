"""When asking stops: rules against enumeration, frequencies without bias, fitted rules against all rules."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.core.request import make
from heldout.curate.crowd.stopping import (
    BINS,
    State,
    StoppingRequest,
    StoppingRule,
    StoppingRules,
    fate,
    fitted_rules,
    states,
)
from heldout.curate.replicate.samplers import bin_of
from heldout.data.published.answers import read_real_panel
from heldout.data.testset.hashing import row_hash, uniform
from heldout.stats.intervals import clopper_pearson, wilson

TEXTS = [
    "no=2", "no=4", "width=0.5", "threshold=0.7", "threshold=0.7,sure=0.9", "matched",
    "matched,sure=0.8,every=2", "no=2,every=3", "0/2,1/5,4/4", "no=3,threshold=0.7",
]  # fmt: skip


def state_of(votes: Iterable[int], answers: int) -> State:
    """Votes by answer, as a loop counts them."""
    counted = Counter(votes)
    return tuple(counted[answer] for answer in range(answers))


def asked(rule: StoppingRule, votes: tuple[int, ...]) -> tuple[int, ...]:
    """The votes that are given before asking stops: looks after every few votes, one by one."""
    for n in range(rule.every, rule.votes, rule.every):
        if rule.settled(state_of(votes[:n], rule.answers)):
            return votes[:n]
    return votes[: rule.votes]


@st.composite
def rules(draw: st.DrawFn, most: int = 6) -> StoppingRule:
    votes, answers = draw(st.integers(1, most)), draw(st.integers(2, 3))
    inside = [s for s in states(votes, answers) if 0 < sum(s) < votes]
    stops = draw(st.sets(st.sampled_from(inside))) if inside else set()
    return StoppingRule(votes, frozenset(stops), draw(st.integers(1, 3)), answers)


@given(rules())
@settings(max_examples=60, deadline=None)
def test_an_estimate_is_the_share_of_orders_that_begin_with_the_answer(rule: StoppingRule) -> None:
    """Every sequence of votes is played: the estimates, and that they have no bias whatever the
    frequencies of the answers are, exactly."""
    every = itertools.product(range(rule.answers), repeat=rule.votes)
    ends = {votes: asked(rule, votes) for votes in every}
    orders: dict[State, set[tuple[int, ...]]] = {}
    for given_votes in ends.values():
        orders.setdefault(state_of(given_votes, rule.answers), set()).add(given_votes)
    last = rule.answers - 1
    assert rule.estimates == {
        state: Fraction(sum(votes[0] == last for votes in found), len(found))
        for state, found in orders.items()
    }
    chances = (
        [Fraction(2, 7), Fraction(1, 7), Fraction(4, 7)][-rule.answers :],
        [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)][: rule.answers],
    )
    for parts in chances:
        shares = [part / sum(parts) for part in parts]
        mean = sum(
            (
                math.prod(shares[v] for v in votes)
                * rule.estimates[state_of(given_votes, rule.answers)]
                for votes, given_votes in ends.items()
            ),
            Fraction(0),
        )
        assert mean == shares[last]


@given(rules(), st.integers(0, 10))
@settings(max_examples=40, deadline=None)
def test_no_bias_either_for_the_votes_of_real_people(rule: StoppingRule, seed: int) -> None:
    """Of votes that are there and come in any order, the share of all of them is estimated."""
    votes = np.random.default_rng(seed).integers(0, rule.answers, rule.votes).tolist()
    orders = list(itertools.permutations(votes))
    total = sum(
        (rule.estimates[state_of(asked(rule, order), rule.answers)] for order in orders),
        Fraction(0),
    )
    assert total / len(orders) == Fraction(votes.count(rule.answers - 1), rule.votes)


def test_the_share_of_votes_is_biased_and_the_estimate_is_not() -> None:
    """The same by simulation, with the rule that is told from a text."""
    rule, chance = StoppingRule.read("no=2", 10), 0.8
    rng = np.random.default_rng(0)
    ends = [
        state_of(asked(rule, tuple(votes)), 2)
        for votes in (rng.random((20_000, 10)) < chance).astype(int).tolist()
    ]
    shares = np.array([end[1] / sum(end) for end in ends])
    estimates = np.array([rule.estimate(end) for end in ends])
    error = estimates.std() / math.sqrt(len(ends))
    assert abs(estimates.mean() - chance) < 4 * error
    assert shares.mean() < chance - 20 * error


@pytest.mark.parametrize("votes", [3, 7, 10])
@pytest.mark.parametrize("cuts", [(0.7,), BINS, (0.5, 0.9)])
@pytest.mark.parametrize("sure", [1.0, 0.9, 0.6])
def test_a_fate_is_decided_when_the_votes_to_come_cannot_change_it(
    votes: int, cuts: tuple[float, ...], sure: float
) -> None:
    text = "matched" if cuts == BINS else ",".join(f"threshold={cut}" for cut in cuts[:1])
    rule = StoppingRule.read(f"{text},sure={sure}", votes)
    wanted = BINS if cuts == BINS else cuts[:1]
    for state in states(votes):
        n, selected = sum(state), state[1]
        if not 0 < n < votes:
            continue
        # All frequencies equally likely: before the first vote every number of selections is.
        weights = {
            end: Fraction(math.comb(end, selected) * math.comb(votes - end, n - selected))
            for end in range(votes + 1)
        }
        here = fate(state, wanted)
        same = sum(w for end, w in weights.items() if fate((votes - end, end), wanted) == here)
        assert rule.settled(state) == (same / sum(weights.values()) >= sure)


@given(st.integers(2, 12), st.sampled_from(["threshold=0.7", "matched"]), st.data())
def test_what_is_certain_is_drawn_as_with_all_votes(
    votes: int, text: str, data: st.DataObject
) -> None:
    rule = StoppingRule.read(text, votes)
    said = tuple(data.draw(st.lists(st.integers(0, 1), min_size=votes, max_size=votes)))
    stopped = state_of(asked(rule, said), 2)
    assert fate(stopped, rule.cuts) == fate(state_of(said, 2), rule.cuts)


def test_rules_as_text() -> None:
    two = StoppingRule.read("no=2", 4)
    assert two.stops == {(2, 0), (2, 1), (3, 0)}
    assert two.settled((1, 3)) and not two.settled((1, 2))
    assert StoppingRule.read(two.text, 4).stops == two.stops
    slow = StoppingRule.read("0/2,5/5,every=2", 5)
    assert (slow.stops, slow.every, slow.text) == ({(2, 0)}, 2, "0/2,every=2")
    narrow = StoppingRule.read("width=0.6", 6)
    for state in states(6):
        if 0 < sum(state) < 6:
            assert narrow.settled(state) == (wilson(state[1], sum(state)).width <= 0.6)
    either = StoppingRule.read("no=3,threshold=0.7", 10)
    apart = StoppingRule.read("no=3", 10), StoppingRule.read("threshold=0.7", 10)
    assert either.stops == apart[0].stops | apart[1].stops


@pytest.mark.parametrize(
    "text",
    ["", "no", "no=0", "no=1.5", "no=2,no=3", "width=1", "threshold=0", "threshold=x", "matched=1",
     "sure=0.9", "sure=0.4,matched", "every=0,no=2", "every=2", "3/2", "0/0", "rounds=2"],
)  # fmt: skip
def test_what_is_not_a_rule_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        StoppingRule.read(text, 10)


@pytest.mark.parametrize("text", TEXTS)
def test_intervals_hold_the_frequency_often_enough(text: str) -> None:
    rule = StoppingRule.read(text, 10)
    found = {end: rule.interval(end) for end in rule.estimates}
    for p in np.linspace(0.01, 0.99, 99):
        held = [end for end, limits in found.items() if limits and limits[0] <= p <= limits[1]]
        assert rule.chance(held, float(p)) >= 0.95
        assert rule.chance(found, float(p)) == pytest.approx(1.0)
    for end, limits in found.items():
        assert limits and limits[0] <= rule.estimate(end) <= limits[1]


def test_a_fixed_number_of_votes_is_nothing_new() -> None:
    fixed = StoppingRule(10)
    for selected in range(11):
        state = (10 - selected, selected)
        exact = clopper_pearson(selected, 10)
        assert fixed.estimate(state) == selected / 10
        assert fixed.interval(state) == pytest.approx((exact.low, exact.high), abs=1e-9)
    # Ten people who were asked at once: this rule would have stopped before.
    rule = StoppingRule.read("no=2", 10)
    assert (rule.estimate((5, 5)), rule.interval((5, 5))) == (0.5, None)


CUTS = (0.6,)


def test_a_cut_belongs_to_the_higher_side() -> None:
    assert [fate((10 - k, k), (0.7,)) for k in (6, 7, 8)] == [0, 1, 1]
    for state in states(10):
        if sum(state):
            assert fate(state, BINS) == bin_of(state[1] / sum(state))


def cost(stops: frozenset[State], images: list[State], price: float, answers: int) -> float:
    """Votes and wrong decisions of a rule, over all orders of all votes."""
    votes = sum(images[0])
    rule, total = StoppingRule(votes, stops, answers=answers), 0.0
    for image, times in Counter(images).items():
        all_votes = [answer for answer, n in enumerate(image) for _ in range(n)]
        orders = set(itertools.permutations(all_votes))  # each as often as any other
        for order in orders:
            end = state_of(asked(rule, order), answers)
            wrong = fate(end, CUTS) != fate(image, CUTS)
            total += times * (sum(end) + price * wrong) / len(orders)
    return total


@pytest.mark.parametrize(("votes", "answers"), [(3, 2), (4, 2), (3, 3)])
def test_a_fitted_rule_is_the_cheapest_of_all(votes: int, answers: int) -> None:
    """No change of a single state makes it cheaper, which is enough: votes only go forwards."""
    rng = np.random.default_rng(votes + answers)
    ends = [s for s in states(votes, answers) if sum(s) == votes]
    inside = [s for s in states(votes, answers) if 0 < sum(s) < votes]
    for _ in range(60):
        images = [ends[n] for n in rng.integers(0, len(ends), int(rng.integers(2, 9)))]
        price = float(rng.uniform(0.5, 4 * votes))
        stops = fitted_rules({"a": images}, cuts=CUTS, price=price, strength=1e-9).of("a").stops
        assert stops <= set(inside)
        least = cost(stops, images, price, answers)
        for state in inside:
            assert cost(stops ^ {state}, images, price, answers) >= least - 1e-6


def test_a_fitted_rule_is_that_of_its_class() -> None:
    clear, mixed = [(4, 0)] * 40 + [(0, 4)] * 40, [(2, 2)] * 40 + [(1, 3)] * 40
    made = fitted_rules({"clear": clear, "mixed": mixed}, cuts=CUTS, price=30, strength=5)
    assert made.of("clear").settled((1, 0)) and made.of("clear").settled((0, 1))
    assert not made.of("mixed").settled((1, 0)) and not made.of("mixed").settled((0, 1))
    alike = fitted_rules({"clear": clear, "mixed": mixed}, cuts=CUTS, price=30, strength=1e9)
    assert alike.of("clear") == alike.of("mixed") == alike.of("one that is not there")
    assert made.of("one that is not there") == alike.of("clear")
    with pytest.raises(UserError, match="same number of votes"):
        fitted_rules({"clear": [(2, 0), (1, 0)]}, cuts=CUTS, price=3)


def test_rules_by_class_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"dog": "no=2", "*": "0/3"}))
    request = make(StoppingRequest, {"stop": str(path)})
    path.unlink()  # the request holds the rules themselves
    found = request.stopping(5)
    assert found is not None
    assert found.of("dog").settled((2, 1)) and not found.of("cat").settled((2, 1))
    assert found.of("cat").settled((3, 0))
    only = StoppingRules.read('{"dog": "no=2"}', 5)
    assert only.of("cat") == StoppingRule(5)
    with pytest.raises(UserError):
        StoppingRules.read('{"dog"', 5)
    with pytest.raises(UserError, match="class -> rule"):
        path.write_text("[1]")
        make(StoppingRequest, {"stop": str(path)})


@pytest.mark.shared
def test_votes_saved_on_the_answers_behind_real(shared_data: Path) -> None:
    """Five answers a question, three answers: over all their orders, exactly."""
    panel = read_real_panel(shared_data / "mistakes/real/raters.npz")
    order = [panel.answers.index(answer) for answer in ("wrong", "unclear", "correct")]
    counts = [tuple(row) for row in panel.counts()[:, order].tolist()]
    subjects = [json.loads(text) for text in panel.subjects]
    whole = {(n, m, 5 - n - m) for n in range(6) for m in range(6 - n)}

    def certain(state: State) -> bool:
        return state[2] >= 3 or state[0] + state[1] >= 3

    def played(rule: StoppingRule) -> dict[State, tuple[float, float]]:
        """By state of all votes: votes on average, and the share of orders that end as a yes."""
        found = {}
        for end in whole:
            left = {(0, 0, 0): 1.0}
            votes = yes = 0.0
            for n in range(6):
                after: dict[State, float] = {}
                for state, chance in left.items():
                    if n and rule.settled(state):
                        votes += chance * n
                        yes += chance * fate(state, CUTS)
                        continue
                    for answer in range(3):
                        if more := end[answer] - state[answer]:
                            following = tuple(k + (answer == a) for a, k in enumerate(state))
                            after[following] = after.get(following, 0.0) + chance * more / (5 - n)
                left = after
            found[end] = votes, yes
        return found

    def saved_and_agreed(
        rules: StoppingRules, rows: list[tuple[str, State]]
    ) -> tuple[float, float, float]:
        of_rule = {rule: played(rule) for rule in {rules.of(label) for label, _ in rows}}
        ends = [(state, *of_rule[rules.of(label)][state]) for label, state in rows]
        agreed = [yes for state, _, yes in ends if state[2] >= 3]
        wrong = [yes for state, _, yes in ends if state[2] < 3]
        votes = sum(n for _, n, _ in ends)
        return 1 - votes / (5 * len(ends)), sum(agreed) / len(agreed), sum(wrong) / len(wrong)

    rows = [(s["class_id"], state) for s, state in zip(subjects, counts, strict=True)]
    four = frozenset(s for s in states(5, 3) if s == (2, 0, 0) or certain(s))
    saved, yes, wrong = saved_and_agreed(StoppingRules(StoppingRule(5, four, answers=3)), rows)
    assert (round(100 * saved, 1), round(100 * yes, 1), wrong) == (50.1, 98.7, 0.0)
    half = uniform(row_hash([s["image_id"] for s in subjects], seed=0)) < 0.5
    finished: dict[str, list[State]] = {}
    for (label, state), chosen in zip(rows, half, strict=True):
        if chosen:
            finished.setdefault(label, []).append(state)
    fitted = fitted_rules(finished, cuts=CUTS, price=300)
    others = [row for row, chosen in zip(rows, half, strict=True) if not chosen]
    saved, yes, wrong = saved_and_agreed(fitted, others)
    assert saved >= 0.48 and yes >= 0.99 and wrong == 0.0
