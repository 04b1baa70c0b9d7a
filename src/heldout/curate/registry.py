"""Recipes by name: built in, or installed as plug-ins.

A plug-in is an entry point of the group ``heldout.recipes`` whose object is a recipe::

    [project.entry-points."heldout.recipes"]
    night = "my_package.night:recipe"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from heldout.core.errors import NotFound, UserError
from heldout.core.plugins import load_object, plugins
from heldout.curate.recipe import Recipe

GROUP = "heldout.recipes"
BUILT_IN: dict[str, str] = {
    "compose": "heldout.curate.compose.build:recipe",
    "contexts": "heldout.curate.contexts.recipe:recipe",
    "domains": "heldout.curate.domains.recipe:recipe",
    "hard": "heldout.curate.hard:recipe",
    "replicate": "heldout.curate.replicate.recipe:recipe",
}
"""Name -> ``module:object``, so that naming recipes imports none of them."""


def recipe_names() -> tuple[str, ...]:
    """All names, sorted; nothing is imported."""
    return tuple(sorted({*BUILT_IN, *_plugins()}))


def get_recipe(name: str) -> Recipe:
    """The recipe of this name. Built-in ones win over plug-ins."""
    if name in BUILT_IN:
        return load_recipe(BUILT_IN[name])
    installed = _plugins()
    if name in installed:
        return _checked(installed[name].load(), installed[name].value)
    raise NotFound(f"no recipe {name!r}", fix=f"there is {', '.join(recipe_names())}")


def load_recipe(path: str) -> Recipe:
    """The recipe at ``package.module:object``."""
    return _checked(load_object(path), path)


def _checked(recipe: Any, path: str) -> Recipe:
    needed = ("name", "version", "parameters", "roles", "guarantees", "build")
    lacking = [part for part in needed if not hasattr(recipe, part)]
    if lacking:
        raise UserError(f"{path} is not a recipe: it lacks {', '.join(lacking)}", fix="add them")
    made: Recipe = recipe
    return made


def _plugins() -> dict[str, EntryPoint]:
    return plugins(GROUP, "recipe")
