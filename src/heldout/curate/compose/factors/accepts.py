"""Which values a factor takes, and the one line that says why another is refused."""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import Protocol

from heldout.core.errors import UserError
from heldout.curate.compose.scene import Value


class Accepts(Protocol):
    """A rule for values."""

    def check(self, key: str, value: object) -> Value:
        """The value in its canonical form; another is a user's error that names ``key``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Finite numbers from ``low`` to ``high``; ``whole`` ones only; ``above`` leaves ``low`` out."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    above: bool = False
    below: bool = False

    def check(self, key: str, value: object) -> Value:
        """The number; true, false, texts, NaN and infinity are none."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"factor {key}: {value!r} is no number", fix=f"give {self.words}")
        number = float(value)
        fits = math.isfinite(number) and self.low <= number <= self.high
        if fits and self.above:
            fits = number > self.low
        if fits and self.below:
            fits = number < self.high
        if not fits or (self.whole and number != int(number)):
            raise UserError(f"factor {key}: {value!r} is out of range", fix=f"give {self.words}")
        return int(number) if self.whole else number

    @property
    def words(self) -> str:
        """The rule in a user's words."""
        kind = "a whole number" if self.whole else "a number"
        low = f"{'above' if self.above else 'from'} {self.low:g}"
        high = f"{'below' if self.below else 'to'} {self.high:g}"
        if math.isinf(self.low) and math.isinf(self.high):
            return kind
        if math.isinf(self.high):
            return f"{kind} {low}" if self.above else f"{kind} {low} on"
        if math.isinf(self.low):
            return f"{kind} {'below' if self.below else 'up to'} {self.high:g}"
        return f"{kind} {low} {high}"


@dataclass(frozen=True, kw_only=True)
class Words:
    """One of a few words; ``colours`` also takes a colour as ``#rrggbb``."""

    options: tuple[str, ...]
    colours: bool = False

    def check(self, key: str, value: object) -> Value:
        """The word."""
        listed = ", ".join(self.options) + (", or #rrggbb" if self.colours else "")
        if not isinstance(value, str):
            raise UserError(f"factor {key}: {value!r} is no word", fix=f"give one of {listed}")
        if value in self.options:
            return value
        if self.colours and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            return value.lower()
        near = difflib.get_close_matches(value, self.options, 1)
        fix = f"did you mean {near[0]}" if near else f"give one of {listed}"
        raise UserError(f"factor {key}: no value {value!r}", fix=fix)


def colour_of(word: str) -> tuple[int, int, int]:
    """The colour that ``black``, ``white``, ``grey`` or ``#rrggbb`` names.

    >>> colour_of("#0a141e")
    (10, 20, 30)
    """
    named = {"black": (0, 0, 0), "white": (255, 255, 255), "grey": (128, 128, 128)}
    if word in named:
        return named[word]
    return int(word[1:3], 16), int(word[3:5], 16), int(word[5:7], 16)
