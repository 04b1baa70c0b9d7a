"""When asking about an image can stop, and how often it is selected when asking has stopped.

A rule is a set of states: the votes on an image so far, by answer. In one of these asking stops, and
with all votes in any case. Whether an image is settled follows from its votes alone, whatever their
order. How a rule is written says :meth:`StoppingRule.read`; :func:`fitted_rules` learns one from
images that have all their votes.

The share of votes for an answer is biased under such a rule: whoever stops at two "no" has seen too
many of them. :meth:`StoppingRule.estimate` is not. The first vote alone is an unbiased estimate, and
given the state in which asking stopped all orders of votes that lead there are equally likely; so the
estimate is the share of these orders that begin with the answer (Girshick, Mosteller and Savage 1946:
paths are counted).
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from heldout.core import schema
from heldout.core.errors import UserError
from heldout.core.files import canonical_json
from heldout.core.request import Request, RequestError, option

USUAL_VOTES = 10
"""Votes that ImageNetV2 asked for on every candidate."""
BINS = (0.2, 0.4, 0.6, 0.8)
"""Where bins of frequencies end: [0, 0.2), [0.2, 0.4), …, [0.8, 1]."""
State = tuple[int, ...]
"""Votes by answer. The last answer is the one whose frequency is asked for: (not selected, selected)."""

_TAIL = 0.025
OTHERS = "*"
"""In a file of rules by class: the rule of the classes that it does not name."""
_FIX = (
    "write no=2, width=0.4, threshold=0.7, matched or states such as 0/2,5/5 (selected/votes), "
    "and perhaps sure=0.95 or every=3; or name a JSON file of class -> rule"
)


@dataclass(frozen=True)
class StoppingRule:
    """Where asking stops: with ``votes`` votes, or in one of the states ``stops``.

    ``every``    votes between two looks at a state: the people who see a grid before the next one is
                 composed. What was passed between two looks is not stopped at
    ``answers``  how many answers there are
    ``cuts``     the frequencies between which the rule decides, where it is written so
    """

    votes: int
    stops: frozenset[State] = frozenset()
    every: int = 1
    answers: int = 2
    cuts: tuple[float, ...] = ()

    @classmethod
    def read(cls, text: str, votes: int) -> StoppingRule:
        """The rule that a text names, for at most ``votes`` votes on an image.

        Several of these, with commas between them, stop where any of them does:

        ``no=2``           people who did not select the image
        ``width=0.4``      width of Wilson's interval of its frequency
        ``threshold=0.7``  the side of the threshold on which its frequency will end
        ``matched``        the bin (of ``build replicate --sampler matched``) in which it will end
        ``0/2,1/5``        selections of so many votes

        ``sure=0.95`` takes a threshold or a bin for decided when it is that probable, every
        frequency being equally likely before the first vote; by default it must be certain.
        ``every=3`` looks after three votes, after six, and so on.

        >>> sorted(StoppingRule.read("threshold=0.7", 5).stops)  # two "no" or four selections
        [(0, 4), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (4, 0)]
        """
        numbers: dict[str, float] = {}
        listed: set[State] = set()
        for part in filter(None, map(str.strip, text.split(","))):
            name, _, value = part.partition("=")
            if state := re.fullmatch(r"(\d+)/(\d+)", part):
                selected, n = int(state[1]), int(state[2])
                if not 0 <= selected <= n or n == 0:
                    raise _wrong(part)
                listed.add((n - selected, selected))
            elif name in numbers or (name == "matched") == bool(value):
                raise _wrong(part)
            else:
                numbers[name] = _number(name, value, part)
        cuts = (*BINS,) if "matched" in numbers else ()
        if "threshold" in numbers:
            cuts = tuple(sorted({*cuts, numbers["threshold"]}))
        if not listed and not numbers.keys() - {"every", "sure"}:
            raise _wrong(text)
        if "sure" in numbers and not cuts:
            raise RequestError("{stop} sure=… needs a threshold or matched", fix=_FIX)

        def stops(state: State) -> bool:
            not_selected, selected = state
            return (
                state in listed
                or not_selected >= numbers.get("no", math.inf)
                or _wilson_width(selected, sum(state)) <= numbers.get("width", -1.0)
                or (bool(cuts) and _decided(state, votes, cuts) >= numbers.get("sure", 1.0))
            )

        return cls(votes, _where(stops, votes), int(numbers.get("every", 1)), cuts=cuts)

    def settled(self, state: State) -> bool:
        """Whether no more votes are needed."""
        return sum(state) >= self.votes or state in self.stops

    def estimate(self, state: State) -> float:
        """How often the last answer is given, without bias, when asking has stopped here.

        Where the rule cannot have stopped, as when ten people were asked at once, the share of votes.
        """
        exact = self.estimates.get(state)
        return state[-1] / sum(state) if exact is None else float(exact)

    @cached_property
    def estimates(self) -> dict[State, Fraction]:
        """By state in which asking may stop: orders that begin with the answer over all orders."""
        return {end: Fraction(first, every) for end, (every, first) in self._paths.items()}

    @cached_property
    def _paths(self) -> dict[State, tuple[int, int]]:
        """By state in which asking may stop: orders of votes that lead there without stopping
        before, all and those that begin with the last answer."""
        found: dict[State, tuple[int, int]] = {}
        reached: dict[State, tuple[int, int]] = {(0,) * self.answers: (1, 0)}
        for n in range(self.votes + 1):
            after: dict[State, tuple[int, int]] = {}
            for state, (ways, first) in reached.items():
                if n == self.votes or (state in self.stops and n % self.every == 0):
                    found[state] = (ways, first)
                    continue
                for answer in range(self.answers):
                    following = _after(state, answer)
                    known = after.get(following, (0, 0))
                    begins = ways if n == 0 and answer == self.answers - 1 else first
                    after[following] = (known[0] + ways, known[1] + begins)
            reached = after
        return found

    def interval(self, state: State) -> tuple[float, float] | None:
        """The exact 95 % interval of the frequency when asking has stopped here, by order of estimates.

        Its limits are the frequencies at which an estimate as high, or as low, has a probability of
        0.025; with a fixed number of votes it is Clopper and Pearson's. None where the rule cannot
        have stopped, and with more than two answers, when the frequency of one does not say where
        asking stops.
        """
        return _interval(self, state) if self.answers == 2 and state in self.estimates else None

    def chance(self, ends: Iterable[State], p: float) -> float:
        """How probable it is to stop in one of these states, of two answers, at a frequency."""
        return math.fsum(self._paths[no, yes][0] * p**yes * (1.0 - p) ** no for no, yes in ends)

    @property
    def text(self) -> str:
        """The rule as its states, which :meth:`read` reads."""
        if self.answers != 2:
            raise UserError("only rules of two answers have a text", fix="see their states")
        said = [f"{yes}/{no + yes}" for no, yes in sorted(self.stops, key=lambda s: (sum(s), s[1]))]
        return ",".join([*said, *([f"every={self.every}"] if self.every > 1 else [])])


@dataclass(frozen=True)
class StoppingRules:
    """A rule for every class."""

    others: StoppingRule
    by_class: Mapping[str, StoppingRule] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, votes: int) -> StoppingRules:
        """One rule as text, or a JSON object of class -> rule."""
        fixed = StoppingRule(votes)
        if not text.startswith("{"):
            return cls(StoppingRule.read(text, votes))
        try:
            given = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError:
            raise _wrong(text) from None
        rules = {label: StoppingRule.read(rule, votes) for label, rule in given.items()}
        return cls(rules.pop(OTHERS, fixed), rules)

    def of(self, class_id: str) -> StoppingRule:
        """The rule of a class."""
        return self.by_class.get(class_id, self.others)


class StoppingRequest(Request, frozen=True, kw_only=True):
    """What verbs that work with votes are asked about stopping."""

    stop: (
        Annotated[
            str,
            option(
                "Images that need no more votes: no=2, width=0.4, threshold=0.7, matched, states such "
                "as 0/2,5/5; with sure=0.95, every=3; or a JSON file of class -> rule."
            ),
        ]
        | None
    ) = None

    @classmethod
    def filled(cls, given: dict[str, Any]) -> dict[str, Any]:
        """A file is replaced by what is in it, so that a card holds the rules themselves."""
        name = str(given.get("stop") or "")
        if not name.endswith(".json"):
            return given
        rules = schema.read(Path(name), dict[str, str], fix="give a JSON object of class -> rule")
        return {**given, "stop": canonical_json(rules)}

    def stopping(self, votes: int) -> StoppingRules | None:
        """The rules, for at most this many votes; None where all images get all votes."""
        return None if self.stop is None else StoppingRules.read(self.stop, votes)


def states(votes: int, answers: int = 2) -> Iterator[State]:
    """All states of at most this many votes, by their number.

    >>> list(states(1))
    [(0, 0), (0, 1), (1, 0)]
    """
    for n in range(votes + 1):
        for head in itertools.product(range(n + 1), repeat=answers - 1):
            if (rest := n - sum(head)) >= 0:
                yield (*head, rest)


def fate(state: State, cuts: Collection[float]) -> int:
    """Between which cuts the share of the last answer lies; a cut belongs to the higher side."""
    return bisect_right(sorted(cuts), state[-1] / sum(state))


def fitted_rules(
    finished: Mapping[str, Iterable[State]],
    *,
    cuts: Collection[float],
    price: float,
    strength: float = 50.0,
) -> StoppingRules:
    """The rule for each class that costs least on images that have all their votes.

    Asking stops where another vote costs more than it is worth: a vote costs 1, and a decision costs
    ``price`` if the share of votes lies elsewhere between the cuts than with all votes. What becomes
    of a state is known from the finished images of the class, and from ``strength`` more that are as
    those of all classes; votes are taken to come in any order.

    ``finished``  class -> the states of its images, all of the same number of votes; images that a
                  rule has stopped do not belong here
    """
    import numpy as np

    listed = {label: list(images) for label, images in finished.items()}
    every = [state for images in listed.values() for state in images]
    sizes = {(sum(state), len(state)) for state in every}
    if len(sizes) != 1:
        raise UserError(
            "a rule is fitted on images that all have the same number of votes",
            fix="leave out those with fewer",
        )
    [(votes, answers)] = sizes
    known = list(states(votes, answers))
    place = {state: row for row, state in enumerate(known)}
    ends = [state for state in known if sum(state) == votes]
    codes = {state: row for row, state in enumerate(ends)}
    labels = sorted(listed)
    share = np.zeros((len(labels) + 1, len(ends)))  # the last row: classes that are not there
    for row, label in enumerate(labels):
        np.add.at(share[row], [codes[state] for state in listed[label]], 1.0)
    share += strength * share.sum(axis=0) / len(every)
    share /= share.sum(axis=1, keepdims=True)
    # How probable a state is on the way to an end, all orders of its votes being equally likely.
    ways = [
        [math.prod(map(math.comb, end, s)) / math.comb(votes, sum(s)) for s in known]
        for end in ends
    ]
    chance = np.array(ways)
    mass = share @ chance
    agrees = np.array(
        [[sum(s) > 0 and fate(s, cuts) == fate(e, cuts) for s in known] for e in ends]
    )
    cost = price * (mass - share @ (chance * agrees))
    best = cost.copy()
    stops = np.zeros(mass.shape, dtype=bool)
    for state in reversed(known):
        n, row = sum(state), place[state]
        if n == votes:
            continue
        going = mass[:, row].copy()
        for answer in range(answers):
            left = np.array([end[answer] - state[answer] for end in ends]) / (votes - n)
            then = place[_after(state, answer)]
            there = np.divide(
                best[:, then], mass[:, then], out=np.zeros(len(mass)), where=mass[:, then] > 0
            )
            going += (share @ (chance[:, row] * left)) * there
        stops[:, row] = (cost[:, row] <= going) & (n > 0)
        best[:, row] = np.where(stops[:, row], cost[:, row], going)
    rules = [
        StoppingRule(
            votes,
            frozenset(s for s in known if row[place[s]]),
            answers=answers,
            cuts=tuple(sorted(cuts)),
        )
        for row in stops
    ]
    return StoppingRules(rules[-1], dict(zip(labels, rules, strict=False)))


def _where(stops: Callable[[State], bool], votes: int) -> frozenset[State]:
    return frozenset(s for s in states(votes) if 0 < sum(s) < votes and stops(s))


def _after(state: State, answer: int) -> State:
    return tuple(n + (place == answer) for place, n in enumerate(state))


def _wrong(part: str) -> RequestError:
    return RequestError(f"{{stop}} is {part!r}", fix=_FIX)


_LIMITS = {
    "no": lambda value: value >= 1 and value.is_integer(),
    "every": lambda value: value >= 1 and value.is_integer(),
    "width": lambda value: 0 < value < 1,
    "threshold": lambda value: 0 < value <= 1,
    "sure": lambda value: 0.5 < value <= 1,
}


def _number(name: str, value: str, part: str) -> float:
    if name == "matched":
        return 1.0
    try:
        number = float(value)
    except ValueError:
        raise _wrong(part) from None
    if name not in _LIMITS or not _LIMITS[name](number):
        raise _wrong(part)
    return number


def _wilson_width(selected: int, n: int) -> float:
    from heldout.stats.intervals import wilson

    return float(wilson(selected, n).width)


def _decided(state: State, votes: int, cuts: tuple[float, ...]) -> Fraction:
    """How probable it is that the share of votes ends between the cuts where it is now."""
    not_selected, selected = state
    left = votes - sum(state)
    # Pólya's urn: how many of those who are still to vote select it.
    ways = [
        math.comb(selected + more, more) * math.comb(not_selected + left - more, left - more)
        for more in range(left + 1)
    ]
    ends = [(votes - selected - more, selected + more) for more in range(left + 1)]
    here = fate(state, cuts)
    same = (n for n, end in zip(ways, ends, strict=True) if fate(end, cuts) == here)
    return Fraction(sum(same), sum(ways))


@lru_cache(maxsize=4096)
def _interval(rule: StoppingRule, state: State) -> tuple[float, float]:
    mine = rule.estimates[state]
    high = [end for end, value in rule.estimates.items() if value >= mine]
    low = [end for end, value in rule.estimates.items() if value <= mine]
    return (
        0.0 if mine == 0 else _root(lambda p: rule.chance(high, p) - _TAIL),
        1.0 if mine == 1 else _root(lambda p: _TAIL - rule.chance(low, p)),
    )


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises on [0, 1] is 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rising(middle) > 0.0 else (middle, high)
    return (low + high) / 2.0
