"""YFCC100M's expansion packs: places and machine-made tags, line by line beside the metadata.

``yfcc100m_places``    ``photoid <tab> woeid:Name:Type,woeid:Name:Type,…``
``yfcc100m_autotags``  ``photoid <tab> concept:score,concept:score,…``

Texts are form-encoded. An entry is parted at its first and last colon, as names may have some.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_plus

import numpy as np

from heldout.collect.documents import Progress, no_progress
from heldout.collect.yfcc_lines import Lines, blocks, head
from heldout.collect.yfcc_lists import lists_of, parents_of
from heldout.collect.yfcc_quarantine import Quarantine
from heldout.collect.yfcc_table import lines_of, split
from heldout.errors import BadFile

PackKind = Literal["places", "autotags"]
_PLACE = re.compile(rb"(?:^|,)\d+:[^,]*:[A-Za-z+]+(?:,|$)")
_AUTOTAG = re.compile(rb"^[^,:\t]+:[01]?\.?\d+(?:e-?\d+)?(?:,|$)")
_COUNTRY = r"(?:^|,)[^:,]*:(?P<country>[^,]*):Country(?:,|$)"
_FIELDS = ("photoid", "text")


def pack_kind(path: Path) -> PackKind | None:
    """What a file of two fields a line is, by its first line with a second field; None for others."""
    first = [line for line in head(path, 200) if line]
    if 2 * sum(line.count(b"\t") == 1 for line in first) <= len(first):
        return None
    for block in blocks(path):
        for line in lines_of(block):
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
        self._lines = Lines(paths, progress=progress)
        self._done = 0

    def beside(
        self,
        photo_ids: Any,
        lines: Any,
        count: int,
        where: Path,
        first: int,
        quarantine: Quarantine,
    ) -> Any:
        """The texts of rows that stand on ``lines`` of the next ``count`` lines.

        ``photo_ids``  their ids in the metadata (binary); each must be that of its line here
        ``where``      file and number of the first line, for messages

        A line without two fields has no text and is noted; another id is an error.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        data = self._lines.take(count)
        path = self._lines.path
        held = data.count(b"\n")
        if held < count:
            raise BadFile(
                path,
                f"ends after {self._done + held:,} lines, before line {first + held:,} of {where}",
                fix="give the packs of the same files, whole",
            )

        def bad(number: int, reason: str, text: bytes) -> None:
            quarantine.note(path, self._done + number + 1, f"line of {self.kind} with {reason}")

        found = split(data, _FIELDS, _FIELDS, bad)
        self._done += count
        place = np.full(count, -1, dtype=np.int64)
        place[found.lines] = np.arange(len(found.lines))
        at = pa.array(place[lines], mask=place[lines] < 0)
        ids, texts = (found.table[name].combine_chunks().take(at) for name in _FIELDS)
        same = pc.equal(ids, photo_ids).fill_null(True)
        if not pc.all(same).as_py():
            row = int(np.flatnonzero(~same.to_numpy(zero_copy_only=False))[0])
            ours, theirs = photo_ids[row].as_py(), ids[row].as_py()
            raise BadFile(
                path,
                f"does not stand beside {where.name}: line {first + int(lines[row]):,} is photo "
                f"{ours.decode('utf-8', 'replace')} there and {theirs.decode('utf-8', 'replace')} here",
                fix="give the packs of the same files, in the same order",
            )
        return texts

    def finish(self, where: Path) -> None:
        """Refuse a pack that goes on where the metadata ended."""
        if not self._lines.at_end():
            raise BadFile(
                self._lines.path,
                f"goes on after line {self._done:,}, where {where.name} ends",
                fix="give the packs of the same files, whole",
            )


def countries_in(texts: Any) -> tuple[Any, Any]:
    """The country of each places text (null where there is none), and where two differ.

    Returns an Arrow array of decoded names, dictionary-encoded, and one of truth values.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = texts.cast(pa.string()).fill_null("")
    names = pc.struct_field(pc.extract_regex(column, _COUNTRY), "country")
    coded = names.dictionary_encode()
    plain = [unquote_plus(name).strip() or None for name in coded.dictionary.to_pylist()]
    several = pc.greater(pc.count_substring(column, ":Country"), 1)
    differ = np.zeros(len(column), dtype=bool)
    for row in np.flatnonzero(several.to_numpy(zero_copy_only=False)).tolist():
        differ[row] = len(set(country_entries(column[row].as_py()))) > 1
    distinct = pa.array(plain, pa.string())
    return pc.take(distinct, coded.indices).dictionary_encode(), pa.array(differ)


def country_entries(text: str) -> list[str]:
    """All countries of a places text, in order; the plain way.

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


def autotags_in(texts: Any, *, min_score: float) -> Any:
    """The concepts of each autotags text with at least this score, as lists of texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    entries = lists_of(texts.fill_null(b""))
    parents = parents_of(entries)
    parts = pc.extract_regex(
        entries.flatten().cast(pa.string()), r"^(?P<concept>.*):(?P<score>[0-9.eE+-]+)$"
    )
    scores = pc.struct_field(parts, "score").to_pylist()
    keep = np.array([_score(text) >= min_score for text in scores], dtype=bool)
    concepts = pc.struct_field(parts, "concept").fill_null("").cast(pa.binary())
    return lists_of(concepts, parents=parents, keep=keep, count=len(texts), decode=True)


def _score(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")
