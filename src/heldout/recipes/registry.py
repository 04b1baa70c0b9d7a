"""Recipes by name: built in, registered by this process, or installed as plug-ins.

A plug-in is an entry point of the group ``heldout.recipes`` whose object is a recipe::

    [project.entry-points."heldout.recipes"]
    night = "my_package.night:recipe"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from heldout.errors import ExistsError, NotFound, UserError
from heldout.plugins import load_object, plugins
from heldout.recipes.recipe import Recipe
from heldout.workspace import check_slug

GROUP = "heldout.recipes"
BUILT_IN: dict[str, str] = {
    "compose": "heldout.recipes.compose.recipe:recipe",
    "contexts": "heldout.recipes.contexts.recipe:recipe",
    "domains": "heldout.recipes.domains.recipe:recipe",
    "hard": "heldout.recipes.hard.recipe:recipe",
}
"""Name -> ``module:object``, so that naming recipes imports none of them."""

_registered: dict[str, Recipe] = {}


def register(recipe: Recipe) -> Recipe:
    """Make a recipe known by its name in this process; another one of that name is refused."""
    name = check_slug(recipe.name, "a recipe")
    if name in BUILT_IN or _registered.get(name, recipe) is not recipe:
        raise ExistsError(f"there is a recipe {name!r} already", fix="give yours another name")
    _registered[name] = recipe
    return recipe


def recipe_names() -> tuple[str, ...]:
    """All names, sorted; nothing is imported."""
    return tuple(sorted({*BUILT_IN, *_registered, *_plugins()}))


def get_recipe(name: str) -> Recipe:
    """The recipe of this name. Built-in ones win over registered ones, these over plug-ins."""
    if name in BUILT_IN:
        return load_recipe(BUILT_IN[name])
    if name in _registered:
        return _registered[name]
    installed = _plugins()
    if name in installed:
        return _checked(installed[name].load(), installed[name].value)
    raise NotFound(
        f"no recipe {name!r}", fix=f"there is {', '.join(recipe_names()) or 'none installed'}"
    )


def load_recipe(path: str) -> Recipe:
    """The recipe at ``package.module:object``."""
    return _checked(load_object(path), path)


def _checked(recipe: Any, path: str) -> Recipe:
    lacking = [
        part
        for part in ("name", "version", "parameters", "roles", "promises", "build")
        if not hasattr(recipe, part)
    ]
    if lacking:
        raise UserError(f"{path} is no recipe: it lacks {', '.join(lacking)}", fix="add them")
    made: Recipe = recipe
    return made


def _plugins() -> dict[str, EntryPoint]:
    return plugins(GROUP, "recipe")
