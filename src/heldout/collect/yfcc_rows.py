"""Blocks of YFCC100M's metadata as rows: checked, decoded, with the key of every photo.

| here | there |
|---|---|
| ``image_id`` | the photo's key, from its download address |
| ``uri``, ``page_url`` | ``downloadurl``, ``pageurl`` |
| ``licence``, ``licence_url``, ``attribution`` | ``licensename``, ``licenseurl``; nickname and page |
| ``row_id`` | the line number from 0: stated (25 columns) or counted (23) |
| ``photo_id``, ``uid``, ``nickname`` | ``photoid``, ``uid``, ``unickname`` |
| ``date_taken``, ``date_uploaded`` | ``datetaken`` as text, as it may say 4501; Unix seconds |
| ``device``, ``title``, ``description`` | decoded |
| ``tags``, ``machine_tags`` | lists, split first and decoded then |
| ``longitude``, ``latitude``, ``accuracy`` | numbers, null where not stated |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.collect.documents import Progress, no_progress
from heldout.collect.report import Problems
from heldout.collect.yfcc_keys import photo_keys
from heldout.collect.yfcc_lines import BLOCK, Block, blocks
from heldout.collect.yfcc_lists import lists_of
from heldout.collect.yfcc_quarantine import Quarantine
from heldout.collect.yfcc_table import layout, lines_of, split
from heldout.collect.yfcc_text import decoded

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE = "YFCC100M"
"""What the column ``source`` says."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_UNUSED = frozenset(("serverid", "farmid", "secret", "secretoriginal", "ext"))
_TEXTS = {
    "uid": "uid",
    "nickname": "unickname",
    "device": "capturedevice",
    "title": "title",
    "description": "description",
}


@dataclass(frozen=True, eq=False)
class Raw:
    """The rows of a block that have the right shape, still as bytes.

    ``lines``    which line of the block each row was, from 0
    ``row_ids``  its number in the archive
    """

    block: Block
    table: pa.Table
    lines: NDArray[np.int64]
    row_ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, keep: NDArray[np.bool_]) -> Raw:
        """Only some of the rows."""
        import pyarrow as pa

        if keep.all():
            return self
        table = self.table.filter(pa.array(keep)).combine_chunks()
        return Raw(self.block, table, self.lines[keep], self.row_ids[keep])

    def column(self, name: str) -> Any:
        """One column as one Arrow array of bytes."""
        column = self.table[name]
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def raw_rows(
    paths: Sequence[Path],
    quarantine: Quarantine,
    *,
    progress: Progress = no_progress,
    size: int = BLOCK,
    broken: Callable[[str], None] | None = None,
) -> Iterator[Raw]:
    """The rows of files of metadata, block by block; malformed ones are in quarantine.

    ``broken`` is told of a file that breaks off, which is an error without it.
    """
    counted = 0
    for path in paths:
        columns = layout(path)
        wanted = [name for name in columns if name not in _UNUSED]
        for block in blocks(path, size=size, progress=progress, broken=broken):

            def bad(number: int, reason: str, text: bytes, block: Block = block) -> None:
                quarantine.add(block.path, block.first + number, reason, text)

            found = split(block.data, columns, wanted, bad)
            ids = found.lines + counted
            yield _checked(Raw(block, found.table, found.lines, ids), quarantine)
            quarantine.settle()
            counted += len(block)


def decoded_rows(
    raw: Raw, quarantine: Quarantine, problems: Problems
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """The rows decoded, with their keys, and which of ``raw`` they are.

    A row that states another key than its address has goes to quarantine.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = photo_keys(raw.column("downloadurl"))
    fits = np.ones(len(raw), dtype=bool)
    if "hash" in raw.table.column_names:
        same = pc.equal(keys.cast(pa.binary()), raw.column("hash"))
        fits = same.to_numpy(zero_copy_only=False)
        if not fits.all():
            put_aside(raw, ~fits, "a photo hash that is not that of its address", quarantine)
            raw, keys = raw.where(fits), keys.filter(same)
    where = f"{raw.block.path.name} from line {raw.block.first}"
    texts: dict[str, Any] = {}
    for name, theirs in _TEXTS.items():
        texts[name], broken = decoded(raw.column(theirs))
        if broken:
            problems.add(f"{name} that is no UTF-8 once decoded", where, times=broken)
    page = raw.column("pageurl").cast(pa.string())
    table = pa.table(
        {
            "image_id": keys,
            "uri": raw.column("downloadurl").cast(pa.string()),
            "source": pa.repeat(pa.scalar(SOURCE), len(raw)),
            "licence": _or_null(raw.column("licensename").cast(pa.string())),
            "attribution": _or_null(_joined(texts["nickname"], page)),
            "row_id": pa.array(raw.row_ids),
            "photo_id": raw.column("photoid").cast(pa.string()),
            **{name: _or_null(text) for name, text in texts.items()},
            "date_taken": _or_null(raw.column("datetaken").cast(pa.string()), also="null"),
            "date_uploaded": number(raw, "dateuploaded", pa.int64(), problems),
            "longitude": number(raw, "longitude", pa.float64(), problems, most=180),
            "latitude": number(raw, "latitude", pa.float64(), problems, most=90),
            "accuracy": number(raw, "accuracy", pa.int64(), problems, most=16),
            "page_url": _or_null(page),
            "licence_url": _or_null(raw.column("licenseurl").cast(pa.string())),
            "tags": lists_of(raw.column("usertags"), decode=True),
            "machine_tags": lists_of(raw.column("machinetags"), decode=True),
        }
    )
    return table, fits


def put_aside(raw: Raw, rows: NDArray[np.bool_], reason: str, quarantine: Quarantine) -> None:
    """Put rows in quarantine, with the lines that they were."""
    lines = lines_of(raw.block)
    for number_ in raw.lines[rows].tolist():
        quarantine.add(raw.block.path, raw.block.first + number_, reason, lines[number_])


def number(raw: Raw, name: str, kind: Any, problems: Problems, most: float | None = None) -> Any:
    """A column of numbers; what is none, or beyond ±``most``, is left empty and counted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _or_null(raw.column(name).cast(pa.string()))
    try:
        values = texts.cast(kind)
    except pa.ArrowInvalid:
        values = pa.array([_parsed(text, kind) for text in texts.to_pylist()], kind)
    if most is not None:
        # Null stays null; NaN is within no bounds.
        fits = pc.less_equal(pc.abs(values), most)
        values = pc.if_else(fits, values, pa.scalar(None, kind))
    lost = values.null_count - texts.null_count
    if lost:
        rows = np.flatnonzero((values.is_null().to_numpy(False)) & texts.is_valid().to_numpy(False))
        line = raw.block.first + int(raw.lines[rows[0]])
        problems.add(
            f"{name} that is no proper number, left empty",
            f"{raw.block.path.name} line {line}",
            times=lost,
        )
    return values


def _checked(raw: Raw, quarantine: Quarantine) -> Raw:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = raw.column("photoid").cast(pa.string())
    checks = {
        "a photo id that is no number": pc.match_substring_regex(ids, "^[0-9]{1,20}$"),
        "no download address": pc.greater(pc.binary_length(raw.column("downloadurl")), 0),
        "a marker that is not 0 or 1": pc.is_in(
            raw.column("marker"), value_set=pa.array([b"0", b"1"])
        ),
    }
    if "line" in raw.table.column_names:
        checks["a line number that is none"] = pc.match_substring_regex(
            raw.column("line").cast(pa.string()), "^[0-9]{1,18}$"
        )
    good = np.ones(len(raw), dtype=bool)
    for reason, passed in checks.items():
        fits = passed.to_numpy(zero_copy_only=False)
        if fits.all():
            continue
        empty = pc.equal(pc.binary_length(ids), 0).to_numpy(zero_copy_only=False)
        blank = good & ~fits & empty & np.array([not line for line in _lines_at(raw)])
        put_aside(raw, blank, "an empty line", quarantine)
        put_aside(raw, good & ~fits & ~blank, reason, quarantine)
        good &= fits
    raw = raw.where(good)
    if "line" in raw.table.column_names:
        stated = raw.column("line").cast(pa.string()).cast(pa.int64())
        return Raw(raw.block, raw.table, raw.lines, stated.to_numpy(zero_copy_only=False))
    return raw


def _lines_at(raw: Raw) -> list[bytes]:
    lines = lines_of(raw.block)
    return [lines[number_].removesuffix(b"\r") for number_ in raw.lines.tolist()]


def _parsed(text: str | None, kind: Any) -> float | int | None:
    import pyarrow as pa

    if text is None:
        return None
    if pa.types.is_integer(kind):
        return int(text) if _WHOLE.fullmatch(text) else None
    return float(text) if _NUMBER.fullmatch(text) else None


def _or_null(texts: Any, also: str = "") -> Any:
    """Texts with null for those that are empty, or say ``also``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pc.equal(texts, "")
    if also:
        missing = pc.or_(missing, pc.equal(texts, also))
    return pc.if_else(missing, pa.scalar(None, pa.string()), texts)


def _joined(names: Any, pages: Any) -> Any:
    """Who to name for a photo: the photographer and the page, as far as they are stated."""
    import pyarrow.compute as pc

    both = pc.binary_join_element_wise(names, pages, ", ")
    lone = pc.or_(pc.equal(names, ""), pc.equal(pages, ""))
    return pc.if_else(lone, pc.binary_join_element_wise(names, pages, ""), both)
