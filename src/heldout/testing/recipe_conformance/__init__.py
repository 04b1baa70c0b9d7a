"""The conformance suite: what every recipe must keep, checked on small sources.

::

    def make_sources():                     # in my_package/night.py, beside the recipe
        return {"pool": make_pool(...)}

    def test_recipe(tmp_path):
        check_recipe("my_package.night:recipe", "my_package.night:make_sources", scratch=tmp_path)

Recipe and sources are named by import path, because some builds run in other processes: under
another hash seed and clock, or to be killed with SIGKILL at a chosen write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import UserError
from heldout.testing.recipe_conformance import record, repeatability
from heldout.testing.recipe_conformance.subject import Subject
from heldout.testing.recipe_conformance.violation import NotConforming, Violation

__all__ = ["CHECKS", "NotConforming", "Violation", "check_recipe", "examine_recipe"]

CHECKS: dict[str, Callable[[Subject], Iterator[Violation]]] = {
    "declaration": record.check_declaration,
    "order": repeatability.check_order,
    "same-seed": repeatability.check_same_seed,
    "workers": repeatability.check_workers,
    "seeds": repeatability.check_seeds,
    "nested": repeatability.check_nested,
    "licences": record.check_licences,
    "card": record.check_card,
    "round-trip": record.check_round_trip,
    "resume": repeatability.check_resume,
}
"""Every check by name, in the order in which they are made."""


def examine_recipe(
    recipe: str,
    sources: str,
    *,
    scratch: Path,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    checks: Sequence[str] | None = None,
) -> tuple[Violation, ...]:
    """Everything that a recipe breaks; empty when it conforms.

    ``recipe``      ``package.module:object``
    ``sources``     ``package.module:function``; the function gives the sources by role
    ``scratch``     an empty folder for the builds
    ``parameters``  what to examine it with; choose some that make all of it work
    ``checks``      names from :data:`CHECKS`; all by default
    """
    unknown = [name for name in checks or () if name not in CHECKS]
    if unknown:
        raise UserError(f"no check {unknown[0]!r}", fix=f"there is {', '.join(CHECKS)}")
    if scratch.exists() and any(scratch.iterdir()):
        raise UserError(f"{scratch} is not empty", fix="give an empty folder")
    subject = Subject(
        recipe_path=recipe,
        sources_path=sources,
        scratch=scratch,
        seed=seed,
        values=dict(parameters or {}),
    )
    found: list[Violation] = []
    for name in checks or CHECKS:
        try:
            found.extend(CHECKS[name](subject))
        except Exception as error:  # a recipe may fail in any way, and the other checks still count
            found.append(Violation(name, f"{type(error).__name__}: {error}"))
    return tuple(found)


def check_recipe(
    recipe: str,
    sources: str,
    *,
    scratch: Path,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    checks: Sequence[str] | None = None,
) -> None:
    """Raise :class:`NotConforming`, which lists every violation, unless the recipe conforms."""
    found = examine_recipe(
        recipe, sources, scratch=scratch, parameters=parameters, seed=seed, checks=checks
    )
    if found:
        raise NotConforming(recipe, found)
