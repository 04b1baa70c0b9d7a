"""Recipes by name: built in, registered by this process, or installed as plug-ins.

A plug-in is an entry point of the group ``heldout.recipes`` whose object is a recipe::

    [project.entry-points."heldout.recipes"]
    night = "my_package.night:recipe"
"""

from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from heldout.errors import ExistsError, NotFound, UserError
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
    plugins = _plugins()
    if name in plugins:
        return _checked(plugins[name].load(), plugins[name].value)
    raise NotFound(
        f"no recipe {name!r}", fix=f"there is {', '.join(recipe_names()) or 'none installed'}"
    )


def load_recipe(path: str) -> Recipe:
    """The recipe at ``package.module:object``."""
    return _checked(load_object(path), path)


def load_object(path: str) -> Any:
    """The object at ``package.module:object``."""
    module, colon, attribute = path.partition(":")
    if not colon or not module or not attribute:
        raise UserError(f"{path!r} names no object", fix="write package.module:object")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there and lacks something itself
        raise NotFound(f"no module {module!r}", fix="install the package that has it") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise NotFound(f"module {module!r} has no {attribute!r}", fix="check the name")
        found = getattr(found, part)
    return found


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
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        if point.name in found and found[point.name].value != point.value:
            raise UserError(
                f"two plug-ins offer a recipe {point.name!r}: {found[point.name].value} and "
                f"{point.value}",
                fix="uninstall one of them",
            )
        found[point.name] = point
    return found
