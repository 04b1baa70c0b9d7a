"""Data and scripts inside a page: escaped, small, and named in the page's security policy."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from heldout.measure.score.records import KINDS, Record

# Inside a script element only "</script" and "<!--" end or change it; these escapes keep any
# character that could begin either, or that older parsers take for a line end, out of the text.
_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def script_json(value: object) -> Markup:
    """JSON that is inert inside a ``<script type="application/json">`` element.

    >>> script_json({"model": "</script><script>"})
    Markup('{"model":"\\\\u003c/script\\\\u003e\\\\u003cscript\\\\u003e"}')
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Markup(text.translate(_ESCAPES))  # escaped on the line above


def compact(records: Sequence[Record]) -> dict[str, Any]:
    """Records as columns, a text column as its distinct values and their numbers.

    ``{kind: {"fields": [...], "rows": n, "columns": [[...], {"values": [...], "codes": [...]}]}}``;
    the page turns them back into the very records. About a sixth of their size as objects.
    """
    packed: dict[str, Any] = {}
    for kind in KINDS:
        chosen = [record for record in records if isinstance(record, kind)]
        if not chosen:
            continue
        names = [field.name for field in dataclasses.fields(kind)]
        columns = [_column([getattr(record, name) for record in chosen]) for name in names]
        packed[kind.record] = {"fields": names, "rows": len(chosen), "columns": columns}
    return packed


def _column(values: list[Any]) -> Any:
    if not any(isinstance(value, str) for value in values):
        return values if len(set(values)) > 1 else {"values": values[:1], "codes": 0}
    distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if len(distinct) == 1:
        return {"values": list(distinct), "codes": 0}
    return {"values": list(distinct), "codes": [distinct[value] for value in values]}


@cache
def environment() -> Any:
    """The templates of all pages: text is escaped, and a name that is not there is a fault."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("heldout.show"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def static(name: str) -> str:
    """The text of one packaged script or style sheet."""
    return files("heldout.show").joinpath("static", name).read_text(encoding="utf-8")


def script_hash(text: str) -> str:
    """A script's entry in a Content-Security-Policy: only scripts named there run."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
