"""Lists in one cell of a table: JSON, NumPy's printed arrays, or values with separators."""

from __future__ import annotations

import re
from typing import Any

_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_BETWEEN = re.compile(r"[\s,;|]+")


def number_cell(cell: Any) -> list[float]:
    """The numbers of a cell: a list, one number, or text such as ``[0.1 0.7]`` or ``0.1;0.7``.

    >>> number_cell("[1.5 -2e3]"), number_cell(0.5), number_cell(None)
    ([1.5, -2000.0], [0.5], [])
    """
    if cell is None:
        return []
    if isinstance(cell, str):
        return [float(part) for part in _parts(cell)]
    return [
        float("nan") if value is None else float(value)
        for value in (cell if isinstance(cell, list) else [cell])
    ]


def class_cell(cell: Any, *, lists: bool, names: bool = False) -> list[Any]:
    """The classes of a cell, best first: a list, or one class; with ``lists``, text may be a list.

    Text in brackets is a list, its items quoted or not. Without brackets, several whole numbers
    are a list, and anything else is split only at ``;`` and ``|``, because class names hold
    commas and spaces. With ``names`` numbers are not split off either.

    >>> class_cell("['tench, Tinca tinca' \\"jack-o'-lantern\\"]", lists=True)
    ['tench, Tinca tinca', "jack-o'-lantern"]
    >>> [class_cell(text, lists=True) for text in ("3, 7", "tench, Tinca tinca", "[3 7]")]
    [['3', '7'], ['tench, Tinca tinca'], ['3', '7']]
    """
    if cell is None or cell == "":
        return []
    if isinstance(cell, list):
        if any(isinstance(value, list | dict) for value in cell):
            raise ValueError("a list holds lists or objects")
        return cell
    if isinstance(cell, dict):
        raise ValueError("it is an object")
    if not isinstance(cell, str) or not lists:
        return [cell]
    text = cell.strip()
    if text.startswith("[") or text.endswith("]"):
        quoted = _QUOTED.findall(text)
        if not quoted:
            return list(_parts(text))
        if _BETWEEN.sub("", _QUOTED.sub("", text)) != "[]":
            raise ValueError(f"{text[:40]!r} is no list of quoted texts")
        return [re.sub(r"\\(.)", r"\1", single or double) for single, double in quoted]
    parts = _BETWEEN.split(text)
    if not names and all(part.isdigit() for part in parts):
        return list(parts)
    return [part.strip() for part in re.split(r"[;|]", text) if part.strip()]


def _parts(cell: str) -> list[str]:
    text = cell.strip()
    if text.startswith("[") != text.endswith("]"):
        raise ValueError(f"{cell[:40]!r} is a list that is cut short")
    inner = text.removeprefix("[").removesuffix("]").strip()
    if "..." in inner or "…" in inner:
        raise ValueError("it was shortened when it was printed")
    return [part for part in _BETWEEN.split(inner) if part]
