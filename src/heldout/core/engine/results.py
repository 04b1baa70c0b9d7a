"""What a job leaves on disk: one result or one failure per unit, each written in one step.

::

    <runs>/<job name>/
      job.json                      schema_version, name, output
      results/<key, 2>/<key>        a file (output "bytes") or a folder (output "folder")
      sums/<key, 2>/<key>           the checksum of the result, written before it
      failures/<key>.json           schema_version, key, reason, traceback, attempts
      lock                          held by every process that works on the job; see `working`

A result wins over a failure of the same key: another process, or a later try, has succeeded. A
result that is damaged counts as missing, so the same command makes it again; one of a job that was
begun before there were checksums is taken as it is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heldout.core import schema
from heldout.core.engine.unit import Unit
from heldout.core.errors import ExistsError, NotFound
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    checksum,
    damaged,
    is_temporary,
    lock_file,
    locked,
    mapped,
    remove_folder,
    sweep,
    write_bytes,
)

Output = Literal["bytes", "folder"]


def _checksum(path: Path) -> bytes:
    """The checksum of a result: of a file, or of the names and checksums of a folder's files."""
    if path.is_file():
        return checksum(mapped(path)).encode()
    files = sorted(file for file in path.rglob("*") if file.is_file())
    lines = (f"{file.relative_to(path).as_posix()}\0{checksum(mapped(file))}\n" for file in files)
    return checksum("".join(lines).encode()).encode()


@dataclass(frozen=True)
class Done:
    """A unit whose result is stored at ``path``: a file, or a folder of files."""

    key: str
    path: Path


class UnitFailure(schema.Document, frozen=True, kw_only=True):
    """A unit that could not be done.

    ``reason`` is one line, ``traceback`` the full text, ``attempts`` how often it was tried in
    the run that gave up.
    """

    schema_version: int = 1
    key: str
    reason: str
    traceback: str
    attempts: int


class _JobFile(schema.Document, frozen=True, kw_only=True):
    schema_version: int = 1
    name: str
    output: Output


Outcome = Done | UnitFailure


class JobResults:
    """The results and failures of one job, in ``folder``."""

    def __init__(self, folder: Path, *, output: Output = "bytes") -> None:
        self.folder = folder
        self.output: Output = output

    def prepare(self, name: str) -> None:
        """Make the folder, or check that the job in it writes the same kind of result."""
        path = self.folder / "job.json"
        if not path.exists():
            schema.write(path, _JobFile(name=name, output=self.output))
            return
        known = schema.read(path, _JobFile, fix="remove the folder and run again").output
        if known != self.output:
            raise ExistsError(
                f"{self.folder} holds results of kind {known!r}, this job writes {self.output!r}",
                fix="give the job another name, or remove the folder",
            )

    def path(self, key: str) -> Path:
        """Where the result of this key is, or will be."""
        return self.folder / "results" / key[:2] / key

    def has(self, key: str) -> bool:
        """Whether the result of this key is stored, and its bytes are those that were written."""
        path = self.path(key)
        try:
            return path.exists() and self._sum(key) in (None, _checksum(path))
        except FileNotFoundError:  # removed meanwhile
            return False

    def done(self, key: str) -> Done:
        """The outcome of a stored result."""
        return Done(key, self.path(key))

    def read(self, key: str) -> bytes:
        """The bytes that the work returned for this key."""
        try:
            data = self.path(key).read_bytes()
        except FileNotFoundError:
            raise self._missing(key) from None
        if self._sum(key) not in (None, checksum(data).encode()):
            raise damaged(self.path(key), "run the job again: it is made again")
        return data

    def write(self, key: str, data: bytes) -> None:
        """Store the bytes of one result, in one step."""
        self._note(key, checksum(data).encode())
        write_bytes(self.path(key), data)

    def _sum(self, key: str) -> bytes | None:
        try:
            return self._sum_path(key).read_bytes()
        except FileNotFoundError:
            return None

    def _note(self, key: str, found: bytes) -> None:
        """Store a checksum; a result whose checksum was lost with the power is taken as it is."""
        with atomic_path(self._sum_path(key), durable=False) as temporary:
            temporary.write_bytes(found)

    def _sum_path(self, key: str) -> Path:
        return self.folder / "sums" / key[:2] / key

    @contextmanager
    def writing(self, key: str) -> Iterator[Path]:
        """Yield a temporary folder; it becomes the result of ``key`` when the block succeeds."""
        target = self.path(key)
        try:
            with atomic_folder(target, replace=True) as temporary:  # it may be there, damaged
                yield temporary
                for file in sorted(temporary.rglob("*")):
                    if file.is_file():
                        with file.open("rb") as handle:
                            os.fsync(handle.fileno())
                self._note(key, _checksum(temporary))
        except OSError as error:
            # Another process stored the same unit first: equal keys, equal results.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not target.is_dir():
                raise

    def failures(self) -> Iterator[UnitFailure]:
        """All failures on record without a result, by key."""
        for key in sorted(self.failed_keys()):
            if not self.has(key):
                yield self.failure(key)

    def failure(self, key: str) -> UnitFailure:
        """The failure on record for this key."""
        path = self._failure_path(key)
        if not path.exists():
            raise self._missing(key)
        return schema.read(path, UnitFailure, fix="remove it and run again")

    def record(self, failure: UnitFailure) -> None:
        """Record a failure, in one step."""
        schema.write(self._failure_path(failure.key), failure)

    def clear_failure(self, key: str) -> None:
        """Remove the failure on record for this key, if there is one."""
        self._failure_path(key).unlink(missing_ok=True)

    def failed_keys(self) -> set[str]:
        """Keys with a failure on record, whether or not a result came later."""
        folder = self.folder / "failures"
        return {path.stem for path in folder.glob("*.json") if not is_temporary(path)}

    def in_order(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """The outcome of each unit, in the order of ``units``; one that is missing is an error."""
        for unit in units:
            yield self.done(unit.key) if self.has(unit.key) else self.failure(unit.key)

    def _failure_path(self, key: str) -> Path:
        return self.folder / "failures" / f"{key}.json"

    def _missing(self, key: str) -> NotFound:
        return NotFound(
            f"{self.folder}: unit {key} has no result yet", fix="run the job again to finish it"
        )


@contextmanager
def working(results: JobResults) -> Iterator[None]:
    """Hold the job's shared lock for the block: several processes may work on one job.

    What killed processes left of results is swept first.
    """
    folder = results.folder
    with lock_file(folder / "lock", shared=True):
        for place in (
            folder,
            *folder.glob("*/"),
            *folder.glob("results/*"),
            *folder.glob("sums/*"),
        ):
            sweep(place)
        yield


def is_worked_on(folder: Path) -> bool:
    """Whether some process works on the job in ``folder``, where the system can tell."""
    try:
        with locked(folder / "lock", wait=False):
            return False
    except BlockingIOError:
        return True
    except OSError:  # nobody ever worked here
        return False


def remove_job(folder: Path) -> None:
    """Remove a job and all that it left, unless some process works on it."""
    with suppress(BlockingIOError, FileNotFoundError):
        (folder / "lock").touch()
        with locked(folder / "lock", wait=False):
            remove_folder(folder)
