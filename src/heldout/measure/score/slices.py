"""Slices: images that share column values, and the one way to write such a condition down."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from heldout.core.errors import UserError

ALL = "all"


def format_value(value: object) -> str:
    """One value as a slice writes it: floats to six significant digits, text percent-escaped.

    >>> format_value(0.30000000000000004), format_value("New York & co")
    ('0.3', 'New%20York%20%26%20co')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(value + 0.0, ".6g")
    return quote(str(value), safe="-._~ ,()/+:").replace(" ", "%20")


def format_slice(values: Mapping[str, object]) -> str:
    """The name of a slice: ``all``, or ``a=x&b=y`` with columns sorted.

    >>> format_slice({"y": 0.0, "x": 0.5})
    'x=0.5&y=0'
    >>> format_slice({})
    'all'
    """
    return format_columns({column: format_value(value) for column, value in values.items()})


def format_columns(texts: Mapping[str, str]) -> str:
    """The name of a slice from values that :func:`format_value` has written.

    >>> format_columns({"x": "0.5"})
    'x=0.5'
    """
    if not texts:
        return ALL
    return "&".join(f"{quote(column)}={texts[column]}" for column in sorted(texts))


def parse_slice(text: str) -> dict[str, str]:
    """The columns and (textual) values of a slice's name.

    >>> parse_slice("x=0.5&y=0")
    {'x': '0.5', 'y': '0'}
    """
    if text == ALL:
        return {}
    parts: dict[str, str] = {}
    for part in text.split("&"):
        column, equals, value = part.partition("=")
        if not equals or not column:
            raise UserError(
                f"{text!r} is not a slice", fix="write all, or column=value&column=value"
            )
        parts[unquote(column)] = unquote(value)
    return parts
