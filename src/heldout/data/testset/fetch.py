"""Fetching a published test set: from its mirrors, or from files that are already on disk.

A file is put in place only when its length and checksum are right. Where no checksum is published
the hash that was seen first is written to ``<file>.fetched.json``, and every later copy must agree.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import atomic_path, read_versioned_json, write_json
from heldout.data.testset.download import (
    MirrorFailed,
    Patience,
    Progress,
    discard,
    download,
    holding,
    new_client,
)
from heldout.data.testset.registry import Published, PublishedFile

if TYPE_CHECKING:
    import httpx

SCHEMA_VERSION = 1
Trust = Literal["registry", "record", "first use"]
"""What a file was held against: the registry's checksum, the hash seen at an earlier fetch, or
nothing (its hash is on record from now on)."""


@dataclass(frozen=True, kw_only=True)
class FetchedFile:
    """A file in place, with its size, its hash, and what it was held against.

    ``source`` is the mirror it came from, ``file`` for a local file, ``there`` if it was in place.
    """

    path: Path
    bytes: int
    sha256: str
    trust: Trust
    source: str

    @property
    def note(self) -> str:
        """What a user must know about a file that nothing vouches for; empty for others."""
        if self.trust != "first use":
            return ""
        return (
            f"{self.path.name}: no checksum is published, so it is trusted on first use; "
            f"its sha256 {self.sha256} is on record"
        )


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """All files of a published test set, in place."""

    entry: Published
    files: tuple[FetchedFile, ...]


def fetch(
    entry: Published,
    folder: Path,
    *,
    mirrors: Sequence[str] = (),
    source: Path | None = None,
    patience: Patience | None = None,
    progress: Progress | None = None,
    client: httpx.Client | None = None,
) -> Fetched:
    """Bring every file of ``entry`` into ``folder``; called again, it goes on where it stopped.

    ``mirrors``   base addresses to try first; each file's name is put after them
    ``source``    a local file, or a folder with the files under their names: taken instead of any
                  download, after the same checks
    ``patience``  attempts and pauses a mirror
    ``progress``  told the file's name, the bytes that are there, and the bytes in all if known
    """
    made: httpx.Client | None = None
    fetched = []
    try:
        for file in entry.files:
            target = folder / file.name
            if target.exists():
                fetched.append(_accept(target, file, source="there"))
                continue
            if source is not None:
                fetched.append(_adopt(_local(source, entry, file), target, file))
                continue
            addresses = [f"{base.rstrip('/')}/{file.name}" for base in mirrors]
            addresses += file.mirrors
            if not addresses:
                how = f"{entry.by_hand}, then pass" if entry.by_hand else "pass"
                raise NotFound(
                    f"{entry.name} cannot be fetched by a program", fix=f"{how} it with --from FILE"
                )
            if client is None:
                client = made = new_client()
            fetched.append(
                _from_mirrors(
                    entry,
                    file,
                    target,
                    addresses,
                    client=client,
                    patience=patience or Patience(),
                    progress=progress or _silent,
                )
            )
    finally:
        if made is not None:
            made.close()
    return Fetched(entry=entry, files=tuple(fetched))


def _from_mirrors(
    entry: Published,
    file: PublishedFile,
    target: Path,
    addresses: Sequence[str],
    *,
    client: httpx.Client,
    patience: Patience,
    progress: Progress,
) -> FetchedFile:
    part = target.with_name(target.name + ".part")
    _check_room(part, file)
    reasons = []
    for url in addresses:
        try:
            return _one_mirror(url, file, part, target, client, patience, progress)
        except (MirrorFailed, _Wrong) as error:
            reasons.append(f"{url} {error}")
    raise UserError(
        f"{entry.name}: {file.name} could not be fetched ({'; '.join(reasons)})",
        fix="try again later to go on, name another mirror, or pass --from FILE",
    )


class _Wrong(Exception):
    """A whole file that is not the right one."""


def _one_mirror(
    url: str,
    file: PublishedFile,
    part: Path,
    target: Path,
    client: httpx.Client,
    patience: Patience,
    progress: Progress,
) -> FetchedFile:
    with holding(part) as handle:
        while True:
            joined = download(
                url, part, handle, file=file, client=client, patience=patience, progress=progress
            )
            try:
                size, sha256, trust = _check(part, file, target)
                break
            except _Wrong as error:
                handle.truncate(0)
                if not joined:
                    discard(part)
                    raise _Wrong(f"gave a file that {error}") from None
                # The beginning may have been of another file: once more, from nothing.
        os.fsync(handle.fileno())
        part.replace(target)
        discard(part)
    return _record(target, size, sha256, trust, source=url)


def _accept(target: Path, file: PublishedFile, *, source: str) -> FetchedFile:
    """A file that is already in place, checked like any other."""
    try:
        size, sha256, trust = _check(target, file, target)
    except _Wrong as error:
        raise BadFile(target, str(error), fix="remove it and fetch again") from None
    return _record(target, size, sha256, trust, source=source)


def _adopt(path: Path, target: Path, file: PublishedFile) -> FetchedFile:
    """Copy a local file into place, after the same checks."""
    try:
        _check(path, file, target)
    except _Wrong as error:
        raise BadFile(path, str(error), fix=f"give the published {file.name}") from None
    with atomic_path(target) as temporary:
        shutil.copyfile(path, temporary)
        # Checked again as it was written: the copy is what will be used.
        try:
            size, sha256, trust = _check(temporary, file, target)
        except _Wrong as error:
            raise BadFile(path, f"changed while it was copied: it {error}") from None
    return _record(target, size, sha256, trust, source="file")


def _local(source: Path, entry: Published, file: PublishedFile) -> Path:
    path = source / file.name if source.is_dir() else source
    if not path.is_file():
        raise NotFound(f"no file {path}", fix=f"{entry.name} needs {file.name}")
    if path == source and len(entry.files) > 1 and source.name != file.name:
        names = ", ".join(each.name for each in entry.files)
        raise UserError(f"{entry.name} is several files", fix=f"give a folder with {names}")
    return path


def _check(path: Path, file: PublishedFile, target: Path) -> tuple[int, str, Trust]:
    """Size and hash of a file, held against what is known; raises :class:`_Wrong`."""
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        raise _Wrong(f"has {size} bytes, the registry says {file.bytes}")
    sha256 = _digest(path, "sha256")
    if file.sha256 is not None and sha256 != file.sha256:
        raise _Wrong(f"has sha256 {sha256}, the registry says {file.sha256}")
    if file.md5 is not None and file.sha256 is None:
        md5 = _digest(path, "md5")
        if md5 != file.md5:
            raise _Wrong(f"has md5 {md5}, the registry says {file.md5}")
    if file.has_checksum:
        return size, sha256, "registry"
    record = _record_path(target)
    if record.exists():
        known = read_versioned_json(record, version=SCHEMA_VERSION).get("sha256")
        if sha256 != known:
            raise _Wrong(f"has sha256 {sha256}, and {known} was seen at first ({record.name})")
        return size, sha256, "record"
    return size, sha256, "first use"


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(
            handle, lambda: hashlib.new(kind, usedforsecurity=False)
        ).hexdigest()


def _record(target: Path, size: int, sha256: str, trust: Trust, *, source: str) -> FetchedFile:
    path = _record_path(target)
    if not path.exists():
        write_json(
            path,
            {
                "schema_version": SCHEMA_VERSION,
                "name": target.name,
                "bytes": size,
                "sha256": sha256,
                "trust": trust,
                "source": source,
            },
        )
    return FetchedFile(path=target, bytes=size, sha256=sha256, trust=trust, source=source)


def _record_path(target: Path) -> Path:
    return target.with_name(target.name + ".fetched.json")


def _check_room(part: Path, file: PublishedFile) -> None:
    if file.bytes is None:
        return
    part.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.exists() else 0
    free = shutil.disk_usage(part.parent).free
    if file.bytes - have > free:
        needs = f"{file.name} needs {file.bytes - have:,} bytes"
        raise UserError(
            f"{needs} and {part.parent} has room for {free:,}",
            fix="make room, or fetch into another folder",
        )


def _silent(name: str, done: int, total: int | None) -> None:
    """Say nothing."""
