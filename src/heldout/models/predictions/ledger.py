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
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from time import time_ns
from typing import Any

import numpy as np

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
_STATE = ("size", "mtime_ns", "ctime_ns", "inode")
_READERS = 4  # reading and hashing leave the interpreter


class Ledger:
    """The states of a test set's image files at this moment, and what the workspace knows of them.

    A folder's files count each by itself; a tar or zip file counts as a whole for all images in
    it. Images of stores, servers, renderers and memory have no state, and are not checked.
    """

    def __init__(self, files: ImageFiles, workspace: Workspace) -> None:
        self._files = files
        self._taken = time_ns()
        place, self._states = _states(files)
        self._path = workspace.ledger / f"{sha256_text(place)[:16]}.parquet"

    def digests(self) -> list[str | None]:
        """SHA-256 of every image's bytes now; None where there is no file, or nothing to check."""
        found, fresh = self._known()
        missing = np.flatnonzero(self._states.any(axis=1) & ~fresh).tolist()
        with ThreadPoolExecutor(_READERS) as pool:
            read = dict(zip(missing, pool.map(self._read, missing), strict=True))
        seen = {row: digest for row, digest in read.items() if digest is not None}
        self.note(seen)
        return [seen.get(row, found[row] if fresh[row] else None) for row in range(len(found))]

    def note(self, seen: Mapping[int, str]) -> None:
        """Enter what was read since the states were taken: row -> SHA-256."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        rows = np.array([row for row, digest in seen.items() if digest != CHANGED], np.int64)
        last = self._states[rows, 1:3].max(axis=1, initial=0)
        rows = rows[(last > 0) & (last < self._taken - RACY_NS)]
        if not len(rows):
            return
        new = pa.table(
            {
                "name": pa.array([self._files.names[row] for row in rows], pa.string()),
                **{name: self._states[rows, place] for place, name in enumerate(_STATE)},
                "sha256": pa.array([seen[row] for row in rows], pa.string()),
            }
        )
        old = self._table()
        if old is not None:
            other = pc.invert(pc.is_in(old["name"], value_set=new["name"].combine_chunks()))
            new = pa.concat_tables([old.filter(other), new])
        with suppress(OSError), atomic_path(self._path) as temporary:
            pq.write_table(new, temporary, write_page_checksum=True, use_dictionary=False)

    def _known(self) -> tuple[list[str | None], np.ndarray]:
        """What the ledger has for every image, and whether its file's state is still that one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._table()
        if table is None:
            return [None] * len(self._states), np.zeros(len(self._states), bool)
        names = pa.array(self._files.names, pa.string())
        rows = pc.index_in(names, value_set=table["name"].combine_chunks())
        known = table.take(pc.fill_null(rows, 0))
        fresh = rows.is_valid().to_numpy(zero_copy_only=False)
        for place, name in enumerate(_STATE):
            fresh &= known[name].to_numpy() == self._states[:, place]
        return known["sha256"].to_pylist(), fresh

    def _table(self) -> Any:
        """The ledger, or None where there is none that can be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(
                self._path, partitioning=None, page_checksum_verification=True
            ).combine_chunks()
        except (pa.ArrowException, OSError):
            return None
        whole = table.column_names == ["name", *_STATE, "sha256"] and len(table)
        return table if whole and not any(c.null_count for c in table.columns) else None

    def _read(self, row: int) -> str | None:
        data = bytes_of(self._files.source, self._files.names[row])
        return None if isinstance(data, BadImage) else sha256_bytes(data)


def _states(files: ImageFiles) -> tuple[str, np.ndarray]:
    """Where the images are, and size, times and inode of each one's file, int64 (n, 4).

    Zeros where there is no such file: regular ones alone, as others may have no end.
    """
    source, n = files.source, len(files.names)
    if isinstance(source, FolderSource):
        root = str(source.root.resolve())
        found = [_state(f"{root}/{name}") for name in files.names]
        return root, np.array(found, np.int64).reshape(n, len(_STATE))
    whole = np.zeros(len(_STATE), np.int64)
    place = ""
    if isinstance(source, TarSource | ZipSource):
        paths = source.paths if isinstance(source, TarSource) else (source.path,)
        place = "\0".join(str(path.resolve()) for path in paths)
        shards = np.array([_state(path) for path in paths])
        if shards.any(axis=1).all():
            sums, last = shards.sum(axis=0), shards.max(axis=0)
            whole[:] = sums[0], last[1], last[2], sums[3]
    return place, np.tile(whole, (n, 1))


def _state(path: str | Path) -> tuple[int, int, int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116  a third of the time of Path
    except (OSError, ValueError):
        return (0, 0, 0, 0)
    if not S_ISREG(found.st_mode):
        return (0, 0, 0, 0)
    # Inodes of some file systems have 64 bits without a sign.
    inode = found.st_ino & (2**63 - 1)
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, inode)


class CurrentImages:
    """A test set's images as they are now, beside what stored runs have read.

    ``images``  where they are, if not where the set says
    """

    def __init__(
        self,
        testset: TestSet,
        *,
        workspace: Workspace,
        images: ImageSource | Path | str | None = None,
    ) -> None:
        self.testset, self.workspace, self.images = testset, workspace, images

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
