"""Licences that let us copy an image, and the attributions that go with copies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heldout.core.errors import UserError
from heldout.core.files import csv_text, write_text

if TYPE_CHECKING:
    from heldout.data.testset.exporters.images import Row

_FREE = {
    "cc0",
    "public domain",
    "publicdomain",
    "pd",
    "pdm",
    "no known copyright restrictions",
    "united states government",
    "us government",
    "mit",
    "apache",
    "bsd clause",  # of two or three; numbers are left out
    "pddl",
    "cc0 public domain",
    "cc0 cc0 public domain",
}
_WORDS = {
    "attribution": "by",
    "noncommercial": "nc",
    "non commercial": "nc",
    "noderivs": "nd",
    "noderivatives": "nd",
    "no derivatives": "nd",
    "no derivs": "nd",
    "sharealike": "sa",
    "share alike": "sa",
}
_PARTS = {"by", "by nc", "by nd", "by sa", "by nc nd", "by nc sa"}
_NOTES = {
    "by": "name the author",
    "sa": "pass it on under the same licence",
    "nc": "no commercial use",
    "nd": "no changed copies",
}
_PORT = re.compile(r"(?<=\d)[\s_-]+(?!by\b|nc\b|nd\b|sa\b)([a-z]{2}|igo|scotland)\Z")
"""The country of a ported licence, after its version: ``CC-BY-SA-3.0-DE``."""
_AND = re.compile(r"\bAND\b")  # SPDX writes it in capitals; "and" may be part of a name
_VERSION = re.compile(r"\bv?\d+(\.\d+)*\b|\b(generic|international|unported|universal|ported)\b")


@dataclass(frozen=True)
class LicenceRule:
    """Whether an image under a licence may be copied unchanged, and on what conditions."""

    licence: str
    may_copy: bool
    note: str


def licence_rule(licence: str | None) -> LicenceRule:
    """The rule for a licence as it is written: a name, an SPDX id or a Creative Commons address.

    ``A AND B`` is an image made of two: both rules hold, so that the stricter one decides and the
    conditions of both apply.

    >>> licence_rule("CC-BY-NC-SA-2.0").note
    'name the author; no commercial use; pass it on under the same licence'
    >>> licence_rule("All Rights Reserved").may_copy, licence_rule(None).may_copy
    (False, False)
    >>> licence_rule("CC0-1.0 AND CC-BY-4.0").note
    'name the author'
    >>> licence_rule("CC-BY-4.0 AND All Rights Reserved").may_copy
    False
    """
    shown = " ".join((licence or "").split()) or "unknown"
    parts = _AND.split(shown)
    if len(parts) == 1:
        return _single_rule(shown)
    rules = [_single_rule(part.strip(" ()") or "unknown") for part in parts]
    refused = [rule for rule in rules if not rule.may_copy]
    if refused:
        names = dict.fromkeys(f"{rule.licence}: {rule.note}" for rule in refused)
        return LicenceRule(shown, False, "; ".join(names))
    conditions = {part for rule in rules for part in rule.note.split("; ") if part}
    ordered = [note for note in _NOTES.values() if note in conditions]
    return LicenceRule(shown, True, "; ".join(ordered))


def _single_rule(shown: str) -> LicenceRule:
    """The rule of one licence."""
    parts = _creative_commons(shown)
    if parts is not None:
        note = "; ".join(_NOTES[part] for part in parts.split() if part in _NOTES)
        return LicenceRule(shown, True, note)
    if _plain(shown) in _FREE:
        return LicenceRule(shown, True, "")
    if shown == "unknown":
        return LicenceRule(shown, False, "no licence is recorded")
    return LicenceRule(shown, False, "not known to allow copies")


def _plain(text: str) -> str:
    """Lower case, without punctuation, versions and the word licence."""
    text = _VERSION.sub(" ", re.sub(r"[-_/,()]", " ", text.lower()))
    text = re.sub(r"\b(licen[cs]e[sd]?|the|version|dedication|mark|deed|work)\b", " ", text)
    return " ".join(text.split())


def _creative_commons(text: str) -> str | None:
    """``by nc sa`` and so on, ``cc0``, or None for what is not a Creative Commons licence."""
    address = re.search(r"creativecommons\.org/(licenses|publicdomain)/([a-z-]+)", text.lower())
    if address:
        if address.group(1) == "publicdomain":
            return "cc0" if address.group(2) in ("zero", "mark") else None
        parts = address.group(2).replace("-", " ")
        return parts if parts in _PARTS else None
    plain = _plain(_PORT.sub("", text.lower()))
    for word, part in _WORDS.items():
        plain = re.sub(rf"\b{word}\b", part, plain)
    plain = re.sub(r"^(cc|creative commons)\b", "", plain).strip()
    if plain == "odc by":
        return "by"
    if plain in ("zero", "cc0"):
        return "cc0"
    named = re.match(r"(cc|creative|attribution|by\b)", text.lower()) is not None
    return plain if named and plain in _PARTS else None


def check_licences(licences: Iterable[str | None], *, allow: bool, what: str) -> tuple[str, ...]:
    """Refuse to copy images whose licence does not allow it, unless ``allow``; else the notes.

    ``what`` names the test set in the message.
    """
    counts = Counter(licence_rule(licence) for licence in licences)
    refused = {rule: n for rule, n in counts.items() if not rule.may_copy}
    if refused and not allow:
        names = ", ".join(
            f"{rule.licence} ({n})"
            for rule, n in sorted(refused.items(), key=lambda item: (-item[1], item[0].licence))[:5]
        )
        raise UserError(
            f"{sum(refused.values())} of {sum(counts.values())} images of {what} may not be "
            f"copied by their licence: {names}",
            fix="export without images, or --allow-licence if you have the right to copy them",
        )
    return tuple(
        f"{n} images under {rule.licence}: {rule.note}"
        for rule, n in sorted(counts.items(), key=lambda item: item[0].licence)
        if rule.note
    )


FIELDS = ("image_id", "attribution", "source", "uri", "licence", "may_copy", "note")


def write_attributions(rows: Sequence[Row], path: Path) -> None:
    """Write whom to name for each image of ``rows``, and what its licence asks for, as CSV."""
    records = []
    for row in {row.image_id: row for row in rows}.values():
        rule = licence_rule(row.licence)
        may = "yes" if rule.may_copy else "no"
        records.append(
            (row.image_id, row.attribution, row.source, row.uri, rule.licence, may, rule.note)
        )
    write_text(path, csv_text(FIELDS, records))
