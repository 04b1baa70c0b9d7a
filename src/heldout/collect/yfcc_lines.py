"""Lines of large text files as blocks of bytes: plain, gzip or bzip2, several files as one stream."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from heldout.collect.documents import Progress, no_progress
from heldout.errors import BadFile, NotFound

BLOCK = 1 << 23
"""Bytes of one block; what is parsed at a time."""
_MOST = 1 << 28
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole lines of one file.

    ``first``  the number of its first line in the file, from 1
    ``data``   the lines, each with its line feed but perhaps the last of the file
    """

    path: Path
    first: int
    data: bytes

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))


def blocks(
    path: Path,
    *,
    size: int = BLOCK,
    progress: Progress = no_progress,
    broken: Callable[[str], None] | None = None,
) -> Iterator[Block]:
    """The lines of a file in blocks of about ``size`` bytes, unpacked as they are read.

    A file that breaks off is an error; with ``broken``, that is told where, and the whole lines
    before the place are all.
    """
    with _opened(path) as raw:
        total = path.stat().st_size
        stream = _unpacked(raw)
        first, kept = 1, b""
        error: Exception | None = None
        while error is None:
            read, error = _filled(stream, size)
            progress(path.name, raw.tell(), total)
            if first == 1 and not kept:
                read = read.removeprefix(_MARK)
            if not read:
                break
            cut = read.rfind(b"\n") + 1
            if not cut:
                kept += read
                if len(kept) > _MOST:
                    raise BadFile(
                        path,
                        f"line {first:,} is longer than {_MOST >> 20} MB",
                        fix="it is no table of lines",
                    )
                continue
            block = Block(path, first, kept + read[:cut])
            kept = read[cut:]
            first += len(block)
            yield block
        if error is not None:
            if broken is None:
                raise BadFile(
                    path,
                    f"cannot be unpacked after line {first - 1:,} ({error})",
                    fix="fetch the file again, or use --partial",
                )
            broken(f"{path.name} after line {first - 1}")
        elif kept:
            yield Block(path, first, kept)


def _filled(stream: IO[bytes], size: int) -> tuple[bytes, Exception | None]:
    """The next ``size`` bytes, fewer at the end; and what stopped it before that."""
    parts: list[bytes] = []
    missing = size
    while missing > 0:
        try:
            part = cast(BufferedReader, stream).read1(missing)
        except (OSError, EOFError, zlib.error) as error:
            return b"".join(parts), error
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts), None


class Lines:
    """The lines of several files, one after another, taken by number: for files that stand beside
    another one line by line."""

    def __init__(
        self, paths: Sequence[Path], *, size: int = BLOCK, progress: Progress = no_progress
    ) -> None:
        self._blocks = (
            block for path in paths for block in blocks(path, size=size, progress=progress)
        )
        self._rest = b""
        self.path = paths[0]

    def take(self, count: int) -> bytes:
        """The next ``count`` lines, each with its line feed; fewer where the files end."""
        parts: list[bytes] = []
        while count:
            if not self._rest:
                block = next(self._blocks, None)
                if block is None:
                    break
                self.path = block.path
                self._rest = block.data if block.data.endswith(b"\n") else block.data + b"\n"
            place = _nth_line_feed(self._rest, count)
            taken, self._rest = self._rest[:place], self._rest[place:]
            count -= taken.count(b"\n")
            parts.append(taken)
        return b"".join(parts)

    def at_end(self) -> bool:
        """Whether no line is left."""
        if self._rest:
            return False
        block = next(self._blocks, None)
        if block is None:
            return True
        self._rest = block.data if block.data.endswith(b"\n") else block.data + b"\n"
        return False


def _nth_line_feed(data: bytes, count: int) -> int:
    """Where the line after the ``count``-th begins; the end of ``data`` where it has fewer."""
    import numpy as np

    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
    return int(ends[count - 1]) + 1 if len(ends) > count else len(data)


def head(path: Path, count: int) -> list[bytes]:
    """The first lines of a file, without their line feeds."""
    block = next(blocks(path, size=1 << 20), None)
    return [] if block is None else block.data.split(b"\n")[:count]


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
    if magic[:2] == b"\x1f\x8b":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if magic == b"BZh":
        return cast(IO[bytes], bz2.BZ2File(raw))
    return raw
