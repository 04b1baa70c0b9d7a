"""Parameters of a recipe: a frozen dataclass with defaults, read from TOML or JSON.

A field is a ``bool``, ``int``, ``float``, ``str``, a ``Literal`` of texts, any of these ``| None``,
or a ``tuple[X, ...]`` of them. What a field is for stands in ``metadata={"help": "…"}``. Rules that
types cannot say belong in ``__post_init__``, which raises :class:`~heldout.core.errors.UserError`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from heldout.core.errors import UserError

P = TypeVar("P")


def to_dict(parameters: Any) -> dict[str, Any]:
    """All parameters as JSON and TOML values, in the order of fields; tuples become lists."""
    return {
        field.name: _plain(getattr(parameters, field.name))
        for field in dataclasses.fields(parameters)
    }


def from_dict(kind: type[P], values: Mapping[str, Any], *, where: str = "") -> P:
    """Parameters from a mapping; what is left out has its default.

    A key may be spelled with hyphens. An unknown key or a value of the wrong type is a user's
    error; ``where`` says in whose parameters. A missing value is allowed for None (TOML has no
    null).
    """
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    prefix = f"{where}: " if where else ""
    given: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}" if near else f"there is {', '.join(names) or 'none'}"
            raise UserError(f"{prefix}no parameter {key!r}", fix=hint)
        if name in given:
            raise UserError(f"{prefix}parameter {name!r} is given twice", fix="give it once")
        try:
            given[name] = msgspec.convert(value, hints[name])
            numbers = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
                raise msgspec.ValidationError
        except msgspec.ValidationError:
            raise UserError(
                f"{prefix}parameter {name!r} is {value!r}", fix=f"give {_shown(hints[name])}"
            ) from None
    return kind(**given)


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _options(hint: Any) -> tuple[Any, ...]:
    """The members of a union; a type alone is its only member."""
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _shown(hint: Any) -> str:
    """A type in a user's words."""
    if hint is type(None):
        return "nothing"
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {_shown(get_args(hint)[0])}"
    if len(_options(hint)) > 1:
        return " or ".join(_shown(kind) for kind in _options(hint))
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return words.get(hint, getattr(hint, "__name__", str(hint)))
