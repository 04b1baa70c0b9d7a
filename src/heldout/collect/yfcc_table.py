"""A block of tab-separated lines as columns of bytes, rows of the wrong shape put aside.

The layout is known to be free of quotes and of tabs and line feeds inside fields, so the table
library splits it; what it would read otherwise than line by line (carriage returns, bytes that are
no UTF-8, rows with another number of fields) is looked at a line at a time first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.collect.yfcc_lines import Block, head
from heldout.errors import BadFile

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_23 = (
    "photoid",
    "uid",
    "unickname",
    "datetaken",
    "dateuploaded",
    "capturedevice",
    "title",
    "description",
    "usertags",
    "machinetags",
    "longitude",
    "latitude",
    "accuracy",
    "pageurl",
    "downloadurl",
    "licensename",
    "licenseurl",
    "serverid",
    "farmid",
    "secret",
    "secretoriginal",
    "ext",
    "marker",
)
"""The columns of the first release and of its database."""
COLUMNS_25 = ("line", "photoid", "hash", *COLUMNS_23[1:])
"""The columns of the later single file: a line number from 0 first, the photo's key third."""
_SHOWN = 200

_Odd = tuple[int, int, str]
Bad = Callable[[int, str, bytes], None]
"""Told of a line's number (from 0 in the block), what is wrong with it, and its bytes."""


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of a block: columns of bytes, and which lines (from 0 in the block) they were."""

    table: pa.Table
    lines: NDArray[np.int64]


def layout(path: Path) -> tuple[str, ...]:
    """The columns of a file of metadata, by the number of fields of its first lines."""
    counts = [line.count(b"\t") + 1 for line in head(path, _SHOWN) if line]
    known = {23: COLUMNS_23, 25: COLUMNS_25}
    fits = {number: counts.count(number) for number in known}
    number = max(fits, key=lambda number: fits[number])
    if not fits[number]:
        found = counted_fields(counts[0]) if counts else "no lines"
        raise BadFile(
            path,
            f"has {found} where YFCC100M has 23 or 25",
            fix="give yfcc100m_dataset, tab-separated, without a header",
        )
    return known[number]


def split(data: bytes, columns: Sequence[str], wanted: Sequence[str], bad: Bad) -> Split:
    """The wanted columns of the lines in ``data``; lines that are no rows go to ``bad``."""
    numbers = None
    odd = []
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
        odd = _lines_with_returns(data)
    odd += _lines_of_no_text(data)
    if odd:
        data, numbers = _without(data, odd, bad)
    table, wrong = _columns(data, columns, wanted)
    if numbers is None:
        numbers = np.arange(len(table) + len(wrong), dtype=np.int64)
    if wrong:
        numbers = _without_wrong(data, wrong, len(columns), numbers, bad)
    return Split(table, numbers)


def counted_fields(count: int) -> str:
    """So many fields, in words."""
    return "1 field" if count == 1 else f"{count} fields"


def lines_of(block: Block | bytes) -> list[bytes]:
    """The lines of a block without their line feeds."""
    data = block if isinstance(block, bytes) else block.data
    return data.removesuffix(b"\n").split(b"\n") if data else []


def _columns(
    data: bytes, columns: Sequence[str], wanted: Sequence[str]
) -> tuple[pa.Table, list[tuple[bytes, int]]]:
    """The columns of all rows that have the right number of fields; the others, with theirs."""
    import pyarrow as pa
    import pyarrow.csv as csv

    wrong: list[tuple[bytes, int]] = []
    if not data:
        return pa.table({name: pa.array([], pa.binary()) for name in wanted}), wrong

    def note(row: Any) -> str:
        wrong.append((row.text.encode("utf-8"), row.actual_columns))
        return "skip"

    table = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(column_names=list(columns), block_size=len(data) + 1),
        parse_options=csv.ParseOptions(
            delimiter="\t",
            quote_char=False,
            double_quote=False,
            escape_char=False,
            newlines_in_values=False,
            ignore_empty_lines=False,
            invalid_row_handler=note,
        ),
        convert_options=csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pa.binary() for name in columns},
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return table.combine_chunks(), wrong


def _lines_with_returns(data: bytes) -> list[_Odd]:
    found = []
    place = data.find(b"\r")
    while place >= 0:
        start, end = _line_around(data, place)
        found.append((start, end, "a carriage return inside"))
        place = data.find(b"\r", end)
    return found


def _lines_of_no_text(data: bytes) -> list[_Odd]:
    if data.isascii():
        return []
    found: list[_Odd] = []
    view, begin = memoryview(data), 0
    while begin < len(data):
        try:
            str(view[begin:], "utf-8")
        except UnicodeDecodeError as error:
            start, end = _line_around(data, begin + error.start)
            found.append((start, end, "bytes that are no UTF-8"))
            begin = end + 1
        else:
            break
    return found


def _line_around(data: bytes, place: int) -> tuple[int, int]:
    """Where the line at a place begins, and where it ends before its line feed."""
    end = data.find(b"\n", place)
    return data.rfind(b"\n", 0, place) + 1, len(data) if end < 0 else end


def _without(data: bytes, odd: Sequence[_Odd], bad: Bad) -> tuple[bytes, NDArray[np.int64]]:
    """Cut lines out; the rest, and the numbers of its lines."""
    reasons = {start: (end, reason) for start, end, reason in reversed(odd)}
    parts: list[bytes] = []
    removed: list[int] = []
    begin = number = 0
    for start in sorted(reasons):
        end, reason = reasons[start]
        parts.append(data[begin:start])
        number += parts[-1].count(b"\n")
        bad(number, reason, data[start:end])
        removed.append(number)
        number += 1
        begin = end + 1
    parts.append(data[begin:])
    rest = b"".join(parts)
    count = len(removed) + rest.count(b"\n") + (bool(rest) and not rest.endswith(b"\n"))
    return rest, np.delete(np.arange(count, dtype=np.int64), removed)


def _without_wrong(
    data: bytes,
    wrong: Sequence[tuple[bytes, int]],
    count: int,
    numbers: NDArray[np.int64],
    bad: Bad,
) -> NDArray[np.int64]:
    """Find the rows that were passed over, which come in their order; the numbers of the others."""
    whole = b"\n" + data + b"\n"
    number, begin = 0, 0
    removed = []
    for line, fields in wrong:
        place = whole.index(b"\n" + line + b"\n", begin)
        number += whole.count(b"\n", begin, place)
        bad(int(numbers[number]), f"{counted_fields(fields)} instead of {count}", line)
        removed.append(number)
        begin = place
    return np.delete(numbers, removed)
