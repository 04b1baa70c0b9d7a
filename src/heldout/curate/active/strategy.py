"""A strategy: a selector with an allocator, written ``margin`` or ``margin+error``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heldout.core.errors import UserError
from heldout.curate.active.allocators import ALLOCATORS, Allocator, parse_allocator
from heldout.curate.active.selectors import SELECTORS, Selector, parse_selector


@dataclass(frozen=True)
class Strategy:
    """Which images (selector) and how many of each domain (allocator)."""

    selector: Selector
    allocator: Allocator

    @property
    def name(self) -> str:
        """The text that :func:`parse_strategy` reads; the allocator ``none`` is left out."""
        if self.allocator.kind == "none":
            return self.selector.name
        return f"{self.selector.name}+{self.allocator.name}"

    @property
    def needs_model(self) -> bool:
        """Whether it needs a classifier's outputs on candidates or validation images."""
        return self.selector.needs_model or (
            self.allocator.needs_validation or self.allocator.kind == "lowest-confidence"
        )

    @property
    def needs_validation(self) -> bool:
        """Whether it needs labelled images that were not trained on."""
        return self.selector.needs_validation or self.allocator.needs_validation


def parse_strategy(text: str) -> Strategy:
    """The strategy that a text names.

    >>> parse_strategy("margin+none").name, parse_strategy("atc+interpolate:0.25").name
    ('margin', 'atc+interpolate:0.25')
    """
    selector, _, allocator = text.partition("+")
    return Strategy(parse_selector(selector), parse_allocator(allocator or "none"))


def parse_strategies(texts: Sequence[str]) -> tuple[Strategy, ...]:
    """Strategies from texts, each once; a text may hold several, separated by commas.

    ``all`` in the place of a selector or an allocator stands for every one of them.

    >>> [strategy.name for strategy in parse_strategies(["random, margin+uniform"])]
    ['random', 'margin+uniform']
    """
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = dict.fromkeys(strategy for part in parts for strategy in _every(part))
    if not found:
        raise UserError("no strategy is named", fix="name some, such as random,margin+error")
    return tuple(found)


def _every(text: str) -> list[Strategy]:
    selector, plus, allocator = text.partition("+")
    if plus and not allocator:
        raise UserError(f"{text!r} ends in +", fix="write SELECTOR+ALLOCATOR, or SELECTOR alone")
    selectors = SELECTORS if selector == "all" else (selector,)
    allocators = ALLOCATORS if allocator == "all" else (allocator or "none",)
    return [parse_strategy(f"{s}+{a}") for a in allocators for s in selectors]
