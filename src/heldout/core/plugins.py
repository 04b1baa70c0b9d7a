"""Plug-ins: objects that other packages register as entry points, and objects named by text."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from heldout.core.errors import NotFound, UserError


def plugins(group: str, what: str, *, reserved: Collection[str] = ()) -> dict[str, EntryPoint]:
    """The installed entry points of a group by name, sorted; nothing is imported.

    Two of one name, or one that takes a reserved name, are refused; ``what`` is what they offer.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda p: (p.name, p.value)):
        known = found.setdefault(point.name, point)
        if known.value != point.value:
            raise UserError(
                f"two plug-ins offer a {what} {point.name!r}: {known.value} and {point.value}",
                fix="uninstall one of them",
            )
        if point.name in reserved:
            raise UserError(
                f"the plug-in {point.value} takes the name {point.name!r}", fix="uninstall it"
            )
    return found


def load_object(path: str) -> Any:
    """The object at ``package.module:object``.

    >>> load_object("json:dumps").__name__
    'dumps'
    """
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
