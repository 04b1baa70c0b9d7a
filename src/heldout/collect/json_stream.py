"""JSON larger than memory: a document is walked, and only one of its values is held at a time.

The caller walks the outer containers (:meth:`JsonStream.members`, :meth:`JsonStream.elements`) and
takes what is inside them as whole values (:meth:`JsonStream.value`). Text is read in chunks, and
each value is decoded by the standard library's C decoder right where it lies in the chunk, so
walking costs little more than decoding. A value that the end of a chunk cuts off is decoded again
once more text has come; the text kept grows by doubling, so that costs at most as much again.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from heldout.collect.documents import UNPACKING_ERRORS, Document, Progress, no_progress
from heldout.errors import BadFile

CHUNK = 1 << 22
LONGEST = 1 << 26
"""The longest single value, in characters: a longer one is no annotation of one image."""

_NEAR_END = 16  # longer than any literal or escape that the end of a chunk can cut
_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_PART = re.compile(r"[.eE+-]*")
_AFTER_VALUE = ",]} \t\r\n"
_SPACE = re.compile(r"[ \t\n\r]*")
_raw_decode = json.JSONDecoder().raw_decode


class BrokenJson(BadFile):
    """A document that ends before its JSON does, or is not JSON from some place on."""


class JsonStream:
    """A walk through one JSON document. Make one with :func:`open_json`."""

    def __init__(
        self,
        handle: IO[bytes],
        document: Document,
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
        self._torn: str | None = None
        self._last = "at its start"
        self._walked = False  # whether a container was entered
        self._fill()

    def members(self) -> Iterator[str]:
        """The keys of the object that comes next; take each one's value before the next key."""
        self._open("{", "an object")
        if self._closed("}"):
            return
        while True:
            if self._peek() != '"':
                raise self._broken("a key in double quotes is missing")
            key = self.value()
            if self._peek() != ":":
                raise self._broken(f"':' is missing after the key {key!r:.60}")
            self._at += 1
            yield key
            self._last = f"after {key!r:.60}"
            if not self._next("}"):
                return

    def elements(self) -> Iterator[int]:
        """The places (0, 1, …) in the array that comes next; take each value before the next."""
        self._open("[", "a list")
        if self._closed("]"):
            return
        place = 0
        while True:
            yield place
            place += 1
            self._last = f"after element {place:,}"
            if not self._next("]"):
                return

    def value(self) -> Any:
        """The value that comes next, decoded whole. Of repeated keys in it the last counts."""
        self._peek()
        while True:
            try:
                value, end = _raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._cut(error):
                    raise self._broken(error.msg, at=error.pos) from None
            except RecursionError:
                raise self._broken("it is nested too deeply") from None
            except ValueError as error:  # a number of thousands of digits
                raise self._broken(str(error).partition(";")[0]) from None
            else:
                if not isinstance(value, int | float) or self._ends_here(end):
                    self._at = end
                    return value
            if self._ended:
                raise self._truncated()
            self._fill()

    def _ends_here(self, end: int) -> bool:
        """Whether a number ends at ``end``, as against going on in text that is not there yet."""
        rest = self._text[end : end + _NEAR_END]
        if rest[:1] in _AFTER_VALUE and rest:
            return True
        if self._ended and not self._walked and not rest:
            return True
        if len(rest) < _NEAR_END and (not self._ended or _PART.fullmatch(rest)):
            return False
        raise self._broken("Expecting ',' delimiter", at=end)

    def starts(self) -> str:
        """The first character of the value that comes next, such as ``{``."""
        return self._peek()

    def finish(self) -> None:
        """Refuse anything but white space after the document's value."""
        while not self._skip_space():
            if self._ended and self._torn:
                raise self._truncated()
            if self._ended:
                return
            self._fill()
        raise self._broken("there is more after the end of the JSON")

    def _open(self, bracket: str, what: str) -> None:
        if self._peek() != bracket:
            raise self._broken(f"{what} is expected")
        self._at += 1
        self._walked = True

    def _closed(self, bracket: str) -> bool:
        if self._peek() != bracket:
            return False
        self._at += 1
        return True

    def _next(self, bracket: str) -> bool:
        """Whether another member follows; steps over the comma or the closing bracket."""
        found = self._peek()
        if found not in (",", bracket):
            raise self._broken(f"',' or {bracket!r} is missing")
        self._at += 1
        return found == ","

    def _peek(self) -> str:
        while not self._skip_space():
            if self._ended:
                raise self._truncated()
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
            raise self._broken(f"one value is longer than {self._longest:,} characters")
        parts = [self._text[self._at :]]
        wanted = max(self._chunk, kept)
        while wanted > 0 and not self._ended:
            try:
                data = self._handle.read(min(wanted, self._chunk))
            except EOFError:  # gzip that ends too early
                self._torn, data = "the archive ends too early", b""
            except UNPACKING_ERRORS as error:
                self._torn, data = f"the archive is damaged: {error}", b""
            self._read += len(data)
            wanted -= len(data)
            self._ended = not data
            try:
                parts.append(self._decoder.decode(data, final=self._ended))
            except UnicodeDecodeError as error:
                if self._ended:
                    self._torn = "the last character is cut off"
                    break
                raise self._broken(f"it is not text in UTF-8 ({error.reason})") from None
        self._before += self._at
        self._at = 0
        self._text = "".join(parts)
        self._progress(self._document.name, self._read, self._document.size)

    def _cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the text held ended too early, as against being wrong."""
        if error.msg.startswith("Unterminated"):
            return True
        if not self._ended:
            return error.pos >= len(self._text) - _NEAR_END
        rest = self._text[error.pos :].strip(" \t\r\n")
        if error.msg.startswith("Invalid \\"):
            return '"' not in rest
        return any(word.startswith(rest) for word in _LITERALS) or bool(_PART.fullmatch(rest))

    def _truncated(self) -> BadFile:
        length = self._before + len(self._text)
        if not self._walked and not self._text[self._at :].strip(" \t\r\n"):
            why = f" ({self._torn})" if self._torn else ""
            return BadFile(
                self._document.name, f"holds no JSON{why}", fix="fetch or write the file again"
            )
        why = f"is damaged ({self._torn})" if self._torn else "is cut off"
        return BrokenJson(
            self._document.name,
            f"{why}: it ends {self._last}, at character {length:,}",
            fix="fetch it again, or keep what comes before that with --partial",
        )

    def _broken(self, what: str, *, at: int | None = None) -> BadFile:
        place = self._before + (self._at if at is None else at)
        if not self._walked:
            return BadFile(
                self._document.name,
                f"is not the JSON expected, at character {place:,} ({what})",
                fix="check that it is the right file",
            )
        return BrokenJson(
            self._document.name,
            f"is no valid JSON {self._last}, at character {place:,} ({what})",
            fix="fetch it again, or keep what comes before that with --partial",
        )


@contextmanager
def open_json(
    document: Document, *, progress: Progress = no_progress, chunk: int = CHUNK
) -> Iterator[JsonStream]:
    """A walk through ``document``, unpacked as it is read; ``chunk`` is in bytes."""
    with document.open() as handle:
        yield JsonStream(handle, document, progress=progress, chunk=chunk)
