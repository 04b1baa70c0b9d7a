"""Files of metadata as streams of bytes: plain, gzip, or the JSON members of a zip file."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from heldout.core.errors import BadFile, NotFound

Progress = Callable[[str, int, int | None], None]
"""Told of a name, the bytes read so far and the bytes in all (None where that is not known)."""


UNPACKING_ERRORS = (zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, RuntimeError)
"""What a damaged (or encrypted) archive raises while it is read."""


def no_progress(name: str, done: int, total: int | None) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class Document:
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

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Its bytes, unpacked as they are read."""
        with ExitStack() as stack:
            try:
                handle = self._opened(stack)
            except UNPACKING_ERRORS as error:  # the body of the caller's block is not in here
                raise BadFile(
                    self.name, f"cannot be unpacked ({error})", fix="fetch the file again"
                ) from None
            yield handle

    def _opened(self, stack: ExitStack) -> IO[bytes]:
        if self.member is not None:
            archive = stack.enter_context(zipfile.ZipFile(self.path))
            return stack.enter_context(archive.open(self.member))
        plain = stack.enter_context(self.path.open("rb"))
        if not _is_gzip(self.path):
            return plain
        return cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=plain)))


def documents(path: Path) -> list[Document]:
    """The JSON documents of a file: itself, or every JSON member of a zip file, by name."""
    if not path.exists():
        raise NotFound(f"no file {path}", fix="check the path")
    if path.is_dir():
        raise BadFile(path, "is a folder", fix="name the files in it")
    if not zipfile.is_zipfile(path):
        if path.stat().st_size == 0:
            raise BadFile(path, "is empty", fix="fetch or write the file again")
        return [Document(path, size=None if _is_gzip(path) else path.stat().st_size)]
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if _is_json(info)]
    if not members:
        raise BadFile(path, "holds no .json file", fix="give the archive of the annotations")
    return [
        Document(path, info.filename, info.file_size)
        for info in sorted(members, key=lambda info: info.filename)
    ]


def _is_json(info: zipfile.ZipInfo) -> bool:
    name = PurePosixPath(info.filename)
    # Archives packed on a Mac carry a shadow of every file, which is no JSON.
    return (
        name.suffix.lower() == ".json"
        and not name.name.startswith("._")
        and "__MACOSX" not in name.parts
    )


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as handle:
        return handle.read(2) == b"\x1f\x8b"
