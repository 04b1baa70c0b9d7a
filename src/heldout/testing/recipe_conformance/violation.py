"""What a recipe did wrong, and the error that lists all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heldout.core.errors import HeldoutError


@dataclass(frozen=True)
class Violation:
    """One promise that a recipe broke: the check that found it, and the evidence."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


class NotConforming(HeldoutError):
    """A recipe that breaks the protocol; ``violations`` lists every way in which it does."""

    def __init__(self, recipe: str, violations: Sequence[Violation]) -> None:
        self.recipe = recipe
        self.violations = tuple(violations)
        lines = "".join(f"\n- {violation}" for violation in violations)
        super().__init__(f"recipe {recipe} breaks {len(violations)} promises:{lines}")
