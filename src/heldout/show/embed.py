"""Pages that need nothing but themselves: templates, and the styles, scripts and data inside them."""

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
from heldout.show import wording

# Inside a script element only "</script" and "<!--" end or change it; these escapes keep any
# character that could begin either, or that older parsers take for a line end, out of the text.
_ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def render(template: str, style: str, scripts: Sequence[str] = (), **context: Any) -> str:
    """A page: everything inside, and a policy that forbids every load and every other script."""
    texts = [static(name) for name in scripts]
    allowed = f"script-src {' '.join(map(script_hash, texts))}; " if texts else ""
    page: str = (
        _environment()
        .get_template(template)
        .render(
            policy=f"default-src 'none'; {allowed}style-src 'unsafe-inline'; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'",
            # Our own packaged files go into the page as they are; text from the data never does.
            style=Markup(static(style)),
            scripts=[Markup(text) for text in texts],
            **context,
        )
    )
    return page


@cache
def _environment() -> Any:
    """The templates: text is escaped, and a name that is not there is a fault."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.globals.update(vars(wording))  # every template writes numbers in the same words
    return found


def static(name: str) -> str:
    """The text of one packaged script or style sheet."""
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def script_hash(text: str) -> str:
    """A script's entry in a Content-Security-Policy: only scripts named there run."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


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
        if chosen:
            names = [field.name for field in dataclasses.fields(kind)]
            columns = [_column([getattr(record, name) for record in chosen]) for name in names]
            packed[kind.record] = {"fields": names, "rows": len(chosen), "columns": columns}
    return packed


def _column(values: list[Any]) -> Any:
    distinct = {value: number for number, value in enumerate(dict.fromkeys(values))}
    if len(distinct) == 1:
        return {"values": list(distinct), "codes": 0}
    if not any(isinstance(value, str) for value in values):
        return values
    return {"values": list(distinct), "codes": [distinct[value] for value in values]}
