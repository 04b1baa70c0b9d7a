"""A job: the work function with its rules, and what a worker does with one unit."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from heldout.core.engine.results import Failure, Outcome, Output, Results
from heldout.core.engine.unit import Unit
from heldout.core.errors import HeldoutError
from heldout.core.workspace import check_slug

# Not the unit's fault, and the same for every unit: these end the run.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True, kw_only=True)
class Job:
    """A named kind of work.

    ``name``       a slug; results live in ``<runs>/<name>``
    ``work``       output "bytes": ``work(payload) -> bytes``.
                   output "folder": ``work(payload, folder)`` writes files below ``folder``.
                   It must depend on nothing but the payload, as the unit's key promises. It is
                   sent to each worker once and may be an object that loads a model on its first
                   call; under threads, all workers share the one object.
    ``transient``  exceptions worth another try, such as ``(TimeoutError, ConnectionError)``
    ``attempts``   how often in all a unit is tried while it fails with a transient exception
    ``pause``      seconds before the second try; doubled for each further one
    """

    name: str
    work: Callable[..., bytes | None]
    output: Output = "bytes"
    transient: tuple[type[Exception], ...] = ()
    attempts: int = 3
    pause: float = 0.5

    def __post_init__(self) -> None:
        check_slug(self.name, "a job")
        if self.attempts < 1 or self.pause < 0:
            raise ValueError("a job needs at least one attempt and a pause of 0 or more")
        if self.output not in ("bytes", "folder"):
            raise ValueError(f"{self.output!r} is no kind of output: use 'bytes' or 'folder'")


@dataclass(frozen=True)
class Task:
    """What a worker is given once: does a unit, stores its result, says how it went."""

    job: Job
    results: Results
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, unit: Unit) -> Outcome:
        """Do one unit unless its result is already there."""
        attempt = 1
        # Asked again here: another process may have stored it while this unit waited.
        while not self.results.has(unit.key):
            try:
                data = self._work(unit)
            except Exception as error:
                if isinstance(error, OSError) and error.errno in _NO_ROOM:
                    raise
                if attempt == self.job.attempts or not isinstance(error, self.job.transient):
                    return failure_of(unit.key, error, attempts=attempt)
                self.sleep(self.job.pause * 2 ** (attempt - 1))
                attempt += 1
                continue
            if self.job.output == "bytes":
                if not isinstance(data, bytes):
                    kind = type(data).__name__
                    raise HeldoutError(f"work of job {self.job.name} gave {kind}, not bytes")
                self.results.write(unit.key, data)
            break
        return self.results.done(unit.key)

    def _work(self, unit: Unit) -> bytes | None:
        if self.job.output == "bytes":
            return self.job.work(unit.payload)
        with self.results.writing(unit.key) as folder:
            self.job.work(unit.payload, folder)
        return None


def failure_of(key: str, error: BaseException, *, attempts: int) -> Failure:
    """The record of a unit that ended with ``error``."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return Failure(
        key=key,
        reason=f"{name}: {text}" if text else name,
        traceback="".join(traceback.format_exception(error)),
        attempts=attempts,
    )
