"""YFCC100M's expansion packs: places and machine-made tags, line by line beside the metadata.

``yfcc100m_places``    ``photoid <tab> woeid:Name:Type,woeid:Name:Type,…``
``yfcc100m_autotags``  ``photoid <tab> concept:score,concept:score,…``

Texts are form-encoded. An entry is parted at its first and last colon, as names may have some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal
from urllib.parse import unquote_plus

from heldout.core.errors import BadFile
from heldout.data.published.documents import Progress, no_progress
from heldout.data.published.yfcc_lines import fields_of, lines_of
from heldout.data.published.yfcc_quarantine import Quarantine

PackKind = Literal["places", "autotags"]
_PLACE = re.compile(rb"(?:^|,)\d+:[^,]*:[A-Za-z+]+(?:,|$)")
_AUTOTAG = re.compile(rb"^[^,:\t]+:[01]?\.?\d+(?:e-?\d+)?(?:,|$)")
_SCORED = re.compile(r"(?P<concept>.+):(?P<score>[0-9.eE+-]+)")


def pack_kind(path: Path) -> PackKind | None:
    """What a file of two fields a line is, by its first line with a second field; None for others."""
    first = [line for line in islice(lines_of(path), 200) if line]
    if 2 * sum(line.count(b"\t") == 1 for line in first) <= len(first):
        return None
    for line in lines_of(path):
        text = line.partition(b"\t")[2]
        if _PLACE.search(text):
            return "places"
        if _AUTOTAG.search(text):
            return "autotags"
        if text:
            raise BadFile(
                path,
                f"has {text[:40].decode('utf-8', 'replace')!r}, neither places nor autotags",
                fix="give yfcc100m_places or yfcc100m_autotags",
            )
    # Nothing in it: then the name tells, and it does not matter much.
    return "autotags" if "autotag" in path.name else "places"


class Pack:
    """An expansion pack, read beside the metadata: line i of one is line i of the other."""

    def __init__(
        self, kind: PackKind, paths: Sequence[Path], *, progress: Progress = no_progress
    ) -> None:
        self.kind = kind
        self._path = paths[0]
        self._lines = self._all_lines(paths, progress)
        self._done = 0

    def _all_lines(self, paths: Sequence[Path], progress: Progress) -> Iterator[bytes]:
        for self._path in paths:
            yield from lines_of(self._path, progress=progress)

    def beside(
        self, photo_id: str | None, where: Path, number: int, quarantine: Quarantine
    ) -> str | None:
        """The text of the next line, which stands beside line ``number`` of the metadata ``where``.

        ``photo_id``  the id there, which must be that of the line here; None for a malformed row

        A line without two fields has no text and is noted; another id is an error.
        """
        line = next(self._lines, None)
        if line is None:
            raise BadFile(
                self._path,
                f"ends after {self._done:,} lines, before line {number:,} of {where}",
                fix="give the packs of the same files, whole",
            )
        self._done += 1
        fields = fields_of(line, 2)
        if isinstance(fields, str):
            quarantine.note(self._path, self._done, f"line of {self.kind} with {fields}")
            return None
        if photo_id not in (None, fields[0]):
            raise BadFile(
                self._path,
                f"does not stand beside {where.name}: line {number:,} is photo {photo_id} there "
                f"and {fields[0]} here",
                fix="give the packs of the same files, in the same order",
            )
        return fields[1]

    def finish(self, where: Path) -> None:
        """Refuse a pack that goes on where the metadata ended."""
        if next(self._lines, None) is not None:
            raise BadFile(
                self._path,
                f"goes on after line {self._done:,}, where {where.name} ends",
                fix="give the packs of the same files, whole",
            )


def country_entries(text: str) -> list[str]:
    """All countries of a places text, in order.

    >>> country_entries("23424977:United+States:Country,55959673:Los+Angeles:Time+Zone")
    ['United States']
    """
    found = []
    for entry in text.split(","):
        _, _, rest = entry.partition(":")
        name, colon, kind = rest.rpartition(":")
        if colon and kind == "Country":
            found.append(unquote_plus(name).strip())
    return found


def autotags_in(text: str | None, min_score: float) -> list[str]:
    """The concepts of an autotags text with at least this score."""
    found = []
    for entry in (text or "").split(","):
        parts = _SCORED.fullmatch(entry)
        if parts and _score(parts["score"]) >= min_score:
            found.append(unquote_plus(parts["concept"]))
    return found


def _score(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
