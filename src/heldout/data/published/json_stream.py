"""JSON larger than memory, plain, gzip or in a zip file: one of its values is held at a time."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from heldout.core.errors import BadFile, NotFound

Progress = Callable[[str, int, int | None], None]
"""Told of a name, the bytes read so far and the bytes in all (None where that is not known)."""


UNPACKING_ERRORS = (zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, RuntimeError)
"""What a damaged (or encrypted) archive raises while it is read."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class JsonFile:
    """One JSON document: a file, or a member of a zip file.

    ``size`` is its length in bytes once unpacked, or None for gzip, which does not say.
    """

    path: Path
    member: str | None = None
    size: int | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    def open(self) -> IO[bytes]:
        """Its bytes, unpacked as they are read."""
        try:
            if self.member is not None:
                return zipfile.ZipFile(self.path).open(self.member)
            return cast(IO[bytes], (gzip.open if _is_gzip(self.path) else open)(self.path, "rb"))
        except UNPACKING_ERRORS as error:
            raise BadFile(
                self.name, f"cannot be unpacked ({error})", fix="fetch the file again"
            ) from None


def check_file(path: Path) -> Path:
    """``path`` if it is a file with something in it."""
    if not path.exists():
        raise NotFound(f"no file {path}", fix="check the path")
    if path.is_dir():
        raise BadFile(path, "is a folder", fix="name the files in it")
    if path.stat().st_size == 0:
        raise BadFile(path, "is empty", fix="fetch or write the file again")
    return path


def documents(path: Path) -> list[JsonFile]:
    """The JSON documents of a file: itself, or every JSON member of a zip file, by name."""
    if not zipfile.is_zipfile(check_file(path)):
        return [JsonFile(path, size=None if _is_gzip(path) else path.stat().st_size)]
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if _is_json(info)]
    if not members:
        raise BadFile(path, "holds no .json file", fix="give the archive of the annotations")
    return [
        JsonFile(path, info.filename, info.file_size)
        for info in sorted(members, key=lambda info: info.filename)
    ]


def _is_json(info: zipfile.ZipInfo) -> bool:
    name = PurePosixPath(info.filename)
    # Archives packed on a Mac carry a shadow of every file, which is no JSON.
    return name.suffix.lower() == ".json" and not name.name.startswith("._")


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as handle:
        return handle.read(2) == b"\x1f\x8b"


CHUNK = 1 << 22
LONGEST = 1 << 26
"""The longest single value, in characters: a longer one is not an annotation of one image."""

_NEAR_END = 16  # longer than any literal or escape that the end of a chunk can cut
_AFTER_NUMBER = frozenset(",]} \t\r\n")
_SPACE = re.compile(r"[ \t\n\r]*")
_raw_decode = json.JSONDecoder().raw_decode


class JsonStream:
    """A walk through one JSON document. Make one with :func:`open_json`."""

    def __init__(
        self,
        handle: IO[bytes],
        document: JsonFile,
        *,
        progress: Progress = no_progress,
        chunk: int = CHUNK,
        longest: int = LONGEST,
    ) -> None:
        self._handle = handle
        self._document = document
        self._progress = progress
        self._chunk = chunk
        self._longest = longest
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0  # the next character, in the text held
        self._before = 0  # characters of the document before the text held
        self._read = 0  # bytes
        self._ended = False
        self._fill()

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; take each one's value before the next key."""
        for _ in self._steps("{", "}", "an object"):
            if self._peek() != '"':
                raise self._invalid(self._at)
            key = self.value()
            if self._peek() != ":":
                raise self._invalid(self._at)
            self._at += 1
            yield key

    def elements(self) -> Iterator[int]:
        """The places (0, 1, …) in the array that comes next; take each value before the next."""
        for place, _ in enumerate(self._steps("[", "]", "a list")):
            yield place

    def _steps(self, opening: str, closing: str, what: str) -> Iterator[None]:
        """Into an object or array, once before each of its members, and out of it."""
        if self._peek() != opening:
            raise BadFile(
                self._document.name,
                f"is not the JSON expected: {what} is expected at character {self._before + self._at:,}",
                fix="check that it is the right file",
            )
        self._at += 1
        more = self._peek() != closing
        while more:
            yield
            if self._peek() not in (",", closing):
                raise self._invalid(self._at)
            more = self._peek() == ","
            self._at += more
        self._at += 1

    def value(self) -> Any:
        """The value that comes next, decoded whole. Of repeated keys in it the last counts."""
        self._peek()
        while True:
            try:
                value, end = _raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated")
                if not cut and error.pos < len(self._text) - _NEAR_END:
                    raise self._invalid(error.pos) from None
                end = error.pos
            except (RecursionError, ValueError):  # nested too deeply; thousands of digits
                raise self._invalid(self._at) from None
            else:
                # A number may go on in text that is not there yet.
                number = isinstance(value, int | float)
                if not number or self._text[end : end + 1] in _AFTER_NUMBER:
                    self._at = end
                    return value
                if len(self._text) - end >= _NEAR_END:
                    raise self._invalid(end)
            if self._ended:
                raise self._invalid(end)
            self._fill()

    def starts(self) -> str:
        """The first character of the value that comes next, such as ``{``."""
        return self._peek()

    def finish(self) -> None:
        """Refuse anything but white space after the document's value."""
        while not self._skip_space():
            if self._ended:
                return
            self._fill()
        raise self._invalid(self._at)

    def _peek(self) -> str:
        while not self._skip_space():
            if self._ended:
                raise self._invalid(self._at)
            self._fill()
        return self._text[self._at]

    def _skip_space(self) -> bool:
        """Step over white space; whether a character follows in the text held."""
        text = self._text
        if self._at < len(text) and text[self._at] > " ":
            return True
        found = _SPACE.match(text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(text)

    def _fill(self) -> None:
        """Hold more text: at least a chunk more, and twice as much of a value that is cut off."""
        kept = len(self._text) - self._at
        if kept > self._longest:
            raise BadFile(
                self._document.name,
                f"has a value of more than {self._longest:,} characters",
                fix="check that it is the right file",
            )
        parts = [self._text[self._at :]]
        wanted = max(self._chunk, kept)
        while wanted > 0 and not self._ended:
            try:
                data = self._handle.read(min(wanted, self._chunk))
            except (EOFError, *UNPACKING_ERRORS) as error:
                raise BadFile(
                    self._document.name,
                    f"cannot be unpacked ({error})",
                    fix="fetch the file again",
                ) from None
            self._read += len(data)
            wanted -= len(data)
            self._ended = not data
            try:
                parts.append(self._decoder.decode(data, final=self._ended))
            except UnicodeDecodeError:
                raise self._invalid(self._at + sum(map(len, parts))) from None
        self._before += self._at
        self._at = 0
        self._text = "".join(parts)
        self._progress(self._document.name, self._read, self._document.size)

    def _invalid(self, at: int) -> BadFile:
        return BadFile(
            self._document.name,
            f"is not valid JSON near character {self._before + at:,}",
            fix="check that it is the right file, or fetch it again",
        )


@contextmanager
def open_json(
    document: JsonFile, *, progress: Progress = no_progress, chunk: int = CHUNK
) -> Iterator[JsonStream]:
    """A walk through ``document``, unpacked as it is read; ``chunk`` is in bytes."""
    with document.open() as handle:
        yield JsonStream(handle, document, progress=progress, chunk=chunk)
