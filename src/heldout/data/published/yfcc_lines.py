"""Lines of large text files, unpacked as they are read: plain, gzip or bzip2."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from heldout.core.errors import BadFile, NotFound
from heldout.data.published.documents import Progress, no_progress

_LONGEST = 1 << 28
_MARK = b"\xef\xbb\xbf"
_TOLD_EVERY = 1 << 14


def lines_of(path: Path, *, progress: Progress = no_progress) -> Iterator[bytes]:
    """The lines of a file without their line ends; a file that breaks off is an error."""
    with _opened(path) as raw:
        total = path.stat().st_size
        stream = _unpacked(raw)
        number = 0
        while True:
            try:
                line = stream.readline(_LONGEST)
            except (OSError, EOFError, zlib.error) as error:
                raise BadFile(
                    path,
                    f"cannot be unpacked after line {number:,} ({error})",
                    fix="fetch the file again",
                ) from None
            if not line:
                break
            if len(line) == _LONGEST:
                raise BadFile(
                    path,
                    f"line {number + 1:,} is longer than {_LONGEST >> 20} MB",
                    fix="it is no table of lines",
                )
            if not number:
                line = line.removeprefix(_MARK)
            number += 1
            if number % _TOLD_EVERY == 0:
                progress(path.name, raw.tell(), total)
            yield line.removesuffix(b"\n").removesuffix(b"\r")
        progress(path.name, total, total)


def fields_of(line: bytes, count: int) -> list[str] | str:
    """The ``count`` tab-separated fields of a line, or what is wrong with it.

    The layout is free of quotes. An empty line is a row of empty fields.
    """
    if b"\r" in line:
        return "a carriage return inside"
    try:
        fields = line.decode("utf-8").split("\t") if line else [""] * count
    except UnicodeDecodeError:
        return "bytes that are no UTF-8"
    return fields if len(fields) == count else f"{counted_fields(len(fields))} instead of {count}"


def counted_fields(count: int) -> str:
    """So many fields, in words."""
    return "1 field" if count == 1 else f"{count} fields"


def _opened(path: Path) -> IO[bytes]:
    if not path.exists():
        raise NotFound(f"no file {path}", fix="check the path")
    if path.is_dir():
        raise BadFile(path, "is a folder", fix="name the files in it")
    if path.stat().st_size == 0:
        raise BadFile(path, "is empty", fix="fetch or write the file again")
    return path.open("rb")


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    """By the first bytes, not by the name: names change, and so does what a mirror packs."""
    magic = raw.read(3)
    raw.seek(0)
    packed: io.BufferedIOBase
    if magic[:2] == b"\x1f\x8b":
        packed = gzip.GzipFile(fileobj=raw)
    elif magic == b"BZh":
        packed = bz2.BZ2File(raw)
    else:
        return raw
    # Their own readline is Python code; a buffer's is not.
    return io.BufferedReader(cast(io.RawIOBase, packed), 1 << 20)
