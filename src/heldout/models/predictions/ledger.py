"""Which bytes image files hold now, and whether stored predictions were made from these bytes.

A file that has not changed since it was read is not read again. Like git's index: a file with the
path, size, times and inode that it had when it was read holds the
bytes that it held then. ``ctime`` shows edits that set ``mtime`` back. A file that was written less
than two seconds before it was looked at may change once more without another time, so it is not
entered and is read again next time. A ledger that is lost, damaged or cannot be written costs
reading, nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from time import time_ns
from typing import Any

import msgspec

from heldout.core.errors import MismatchError, NotFound
from heldout.core.files import atomic_path, sha256_text
from heldout.core.workspace import Workspace
from heldout.data.images import (
    BadImage,
    FolderSource,
    ImageSource,
    TarSource,
    ZipSource,
    bytes_of,
    sha256_bytes,
)
from heldout.data.testset import TestSet
from heldout.models.predictions.pixels import CHANGED, ImageFiles, image_files, not_the_sets_own
from heldout.models.predictions.predictions import Predictions
from heldout.models.predictions.store import PredictionStore, StoredRun

RACY_NS = 2_000_000_000
"""A file written less than this before it was looked at is read again."""
_READERS = 4  # reading and hashing leave the interpreter
State = tuple[int, int, int, int]
"""Size, mtime and ctime in nanoseconds, and inode of a file."""


class Ledger:
    """The states of a test set's image files at this moment, and what the workspace knows of them.

    A folder's files count each by itself; a tar or zip file counts as a whole for all images in
    it. Images of stores, servers, renderers and memory have no state, and are not checked.

    The file is one line with the SHA-256 of the rest, then JSON: name -> state and digest.
    """

    def __init__(self, files: ImageFiles, workspace: Workspace) -> None:
        self._files = files
        self._taken = time_ns()
        place, self._states = _states(files)
        self._path = workspace.ledger / f"{sha256_text(place)[:16]}.json"

    def digests(self) -> list[str | None]:
        """SHA-256 of every image's bytes now; None where there is no file, or nothing to check."""
        known = self._entries()
        found: list[str | None] = []
        for name, state in zip(self._files.names, self._states, strict=True):
            entry = known.get(name)
            found.append(entry[1] if entry is not None and entry[0] == state else None)
        missing = [row for row, state in enumerate(self._states) if state and found[row] is None]
        with ThreadPoolExecutor(_READERS) as pool:
            read = dict(zip(missing, pool.map(self._read, missing), strict=True))
        self.note({row: digest for row, digest in read.items() if digest is not None})
        return [read.get(row, digest) for row, digest in enumerate(found)]

    def note(self, seen: Mapping[int, str]) -> None:
        """Enter what was read since the states were taken: row -> SHA-256."""
        new = {
            self._files.names[row]: (state, digest)
            for row, digest in seen.items()
            if digest != CHANGED
            and (state := self._states[row])
            and max(state[1:3]) < self._taken - RACY_NS
        }
        if new:
            data = msgspec.json.encode({**self._entries(), **new})
            with suppress(OSError), atomic_path(self._path) as temporary:
                temporary.write_bytes(sha256_bytes(data).encode() + b"\n" + data)

    def _entries(self) -> dict[str, tuple[State, str]]:
        """The ledger; empty where there is none that can be read."""
        with suppress(OSError, msgspec.MsgspecError):
            digest, _, data = self._path.read_bytes().partition(b"\n")
            if sha256_bytes(data).encode() == digest:
                return msgspec.json.decode(data, type=dict[str, tuple[State, str]])
        return {}

    def _read(self, row: int) -> str | None:
        data = bytes_of(self._files.source, self._files.names[row])
        return None if isinstance(data, BadImage) else sha256_bytes(data)


def _states(files: ImageFiles) -> tuple[str, list[State | None]]:
    """Where the images are, and the state of each one's file."""
    source, n = files.source, len(files.names)
    if isinstance(source, FolderSource):
        root = str(source.root.resolve())
        return root, [_state(f"{root}/{name}") for name in files.names]
    if not isinstance(source, TarSource | ZipSource):
        return "", [None] * n
    paths = source.paths if isinstance(source, TarSource) else (source.path,)
    shards = [state for path in paths if (state := _state(path))]
    place = "\0".join(str(path.resolve()) for path in paths)
    if len(shards) < len(paths):
        return place, [None] * n
    sizes, written, changed, inodes = zip(*shards, strict=True)
    return place, [(sum(sizes), max(written), max(changed), sum(inodes))] * n


def _state(path: str | Path) -> State | None:
    """None where there is no regular file: others may have no end."""
    try:
        found = os.stat(path)  # noqa: PTH116  a third of the time of Path
    except (OSError, ValueError):
        return None
    if not S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino & 0xFFFF_FFFF


@dataclass(frozen=True, eq=False)
class CurrentImages:
    """A test set's images as they are now, beside what stored runs have read.

    ``images``  where they are, if not where the set says
    """

    testset: TestSet
    workspace: Workspace
    images: ImageSource | Path | str | None = None

    @cached_property
    def digests(self) -> Any:
        """SHA-256 of every image's bytes now; null where that is not known, as all of them are
        where the images are not at hand."""
        import pyarrow as pa

        try:
            files = image_files(self.testset, self.images)
        except NotFound:
            if self.images is not None:
                raise
            return pa.nulls(len(self.testset), pa.string())
        return pa.array(Ledger(files, self.workspace).digests(), pa.string())

    def changed(self, run: StoredRun) -> int:
        """How many images are not those that a run has read.

        Images that it has no output for do not count, and imported predictions name none. Files
        that are not those of the set itself are refused: then it is the set that has changed.
        """
        import pyarrow.compute as pc

        known = PredictionStore(self.workspace.predictions).digests(run)
        if known is None:
            return 0
        rows = pc.index_in(self.testset.image_ids, value_set=known["image_id"].combine_chunks())
        read = known["sha256"].combine_chunks().take(rows)
        own = self.testset.images["sha256"].combine_chunks()
        other = pc.fill_null(pc.not_equal(read, self.digests), False)
        foreign = pc.and_(other, pc.fill_null(pc.not_equal(own, self.digests), False))
        count = pc.sum(foreign).as_py()
        if count:
            raise not_the_sets_own(f"{count} images of {self.testset.name}")
        return int(pc.sum(other).as_py() or 0)

    def check(self, run: StoredRun) -> None:
        """Refuse a run that has read other images than there are now."""
        count = self.changed(run)
        if count:
            raise MismatchError(
                f"{count} of {len(self.testset)} images of {self.testset.name} have changed since "
                f"{run.model} ran on them",
                fix="run it again with heldout eval, or restore the files",
            )


def stored_predictions(
    testset: TestSet, models: Sequence[str], *, workspace: Workspace, exclude: Sequence[str] = ()
) -> Iterator[Predictions]:
    """The stored predictions that model arguments mean, read one at a time.

    Those of images that have changed since are refused; where the images are not at hand, what is
    stored counts.
    """
    store = PredictionStore(workspace.predictions)
    runs = store.select(testset.card.images_hash, models, testset=testset.name, exclude=exclude)
    if not runs:
        raise NotFound(f"every model of {testset.name} is excluded", fix="exclude fewer")
    current = CurrentImages(testset, workspace=workspace)
    for run in runs:
        current.check(run)
        yield store.read(run)
