"""Jobs: what a worker does with one unit, and running all units that have no result yet."""

from __future__ import annotations

import errno
import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.engine.executors import Executor, Serial
from heldout.core.engine.results import JobResults, Outcome, Output, UnitFailure, working
from heldout.core.engine.unit import Shard, Unit
from heldout.core.errors import HeldoutError, NotApplicable, UserError
from heldout.core.progress import Progress, Tick, no_progress
from heldout.core.workspace import check_slug

# Not the unit's fault, and the same for every unit: these end the run.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True, kw_only=True)
class Job:
    """A named kind of work.

    ``name``   a slug; results are in ``<runs>/<name>``
    ``work``   output "bytes": ``work(payload) -> bytes``.
               output "folder": ``work(payload, folder)`` writes files below ``folder``.
               It must depend on nothing but the payload, as the unit's key promises. It is
               sent to each worker once and may be an object that loads a model on its first
               call; under threads, all workers share the one object.
    ``fatal``  exceptions that are not one unit's fault: they end the run and reach the caller
    """

    name: str
    work: Callable[..., bytes | None]
    output: Output = "bytes"
    fatal: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        check_slug(self.name, "a job")


@dataclass(frozen=True)
class Task:
    """What a worker is given once: does a unit, stores its result, says how it went."""

    job: Job
    results: JobResults

    def __call__(self, unit: Unit) -> Outcome:
        """Do one unit unless its result is already there."""
        # Asked again here: another process may have stored it while this unit waited.
        if not self.results.has(unit.key):
            try:
                data = self._work(unit)
            except self.job.fatal:
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno in _NO_ROOM:
                    raise
                return failure_of(unit.key, error)
            if self.job.output == "bytes":
                if not isinstance(data, bytes):
                    kind = type(data).__name__
                    raise HeldoutError(f"work of job {self.job.name} gave {kind}, not bytes")
                self.results.write(unit.key, data)
        return self.results.done(unit.key)

    def _work(self, unit: Unit) -> bytes | None:
        if self.job.output == "bytes":
            return self.job.work(unit.payload)
        with self.results.writing(unit.key) as folder:
            self.job.work(unit.payload, folder)
        return None


def failure_of(key: str, error: BaseException) -> UnitFailure:
    """The record of a unit that ended with ``error``."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return UnitFailure(
        key=key,
        reason=f"{name}: {text}" if text else name,
        traceback="".join(traceback.format_exception(error)),
        attempts=1,
    )


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """How a run went: counts of units, of this shard only where one was asked for.

    ``made`` got their result during this run, ``found`` were there before, ``failed`` have none.
    For outcomes in the order of units see ``results.in_order(units)``.
    """

    made: int
    found: int
    failed: int
    results: JobResults


def run(
    job: Job,
    units: Iterable[Unit],
    *,
    runs: Path,
    results: JobResults | None = None,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress = no_progress,
) -> JobSummary:
    """Do every unit of ``job`` that has no result yet in ``<runs>/<job.name>``.

    The same call again resumes: after Ctrl-C, a crash or ``kill -9`` only missing units are done,
    and the results are the same bytes as those of one undisturbed run. The number of workers and
    the kind of executor change nothing but the time. Several processes may run one job at once;
    a unit that two of them do is stored twice with equal content.

    ``units``    any iterable; a generator is pulled as workers become free
    ``results``  where results are kept, if not in ``<runs>/<job.name>``
    ``shard``    do only this share of the units
    """
    if results is None:
        results = JobResults(runs / job.name, output=job.output)
    total = None
    if isinstance(units, Sequence):
        total = sum(1 for unit in units if shard is None or shard.takes(unit.key))
    count = _Count(total, progress)
    with working(results):
        results.prepare(job.name)
        failed = results.failed_keys()
        pending = _pending(units, job=job, shard=shard, results=results, count=count)
        outcomes = (executor or Serial()).run(Task(job, results), pending)
        with closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome, UnitFailure):
                    results.record(outcome)
                    count.add(failed=1)
                else:
                    if outcome.key in failed:
                        results.clear_failure(outcome.key)
                    count.add(made=1)
    return JobSummary(made=count.made, found=count.found, failed=count.failed, results=results)


class ShardsMissing(NotApplicable):
    """Only some shards of a job are there yet: ``done`` of ``total`` units."""

    def __init__(self, what: str, done: int, total: int) -> None:
        super().__init__(
            f"{what}: {done:,} of {total:,} parts are done",
            fix="run the other shards, then the same command without --shard",
        )
        self.done, self.total = done, total


def map_units(
    work: Callable[[Any], bytes],
    units: Sequence[Unit],
    *,
    name: str,
    what: str,
    runs: Path,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress = no_progress,
) -> JobResults:
    """Do all units of a job and give its results, complete: the one way for rooms to use a job.

    A unit whose work failed with a user error is that error again; any other failure is a fault
    with the first traceback. :class:`ShardsMissing` where other shards are not there yet; ``what``
    is what is being made, for that message.
    """
    summary = run(
        Job(name=name, work=work),
        units,
        runs=runs,
        executor=executor,
        shard=shard,
        progress=progress,
    )
    if summary.failed:
        first = next(summary.results.failures())
        kind, _, text = first.reason.partition(": ")
        if kind in _USER_ERRORS:
            raise UserError(text)
        raise HeldoutError(
            f"{what}: {summary.failed} parts failed; the first: {first.reason}\n{first.traceback}"
        )
    done = sum(summary.results.has(unit.key) for unit in units)
    if done < len(units):
        raise ShardsMissing(what, done, len(units))
    return summary.results


_USER_ERRORS = {"UserError", *(kind.__name__ for kind in UserError.__subclasses__())}


def _pending(
    units: Iterable[Unit],
    *,
    job: Job,
    shard: Shard | None,
    results: JobResults,
    count: _Count,
) -> Iterator[Unit]:
    """The units that must be done now; those already settled are counted on the way."""
    seen: set[bytes] = set()  # 16 bytes of each key's hash: a set of millions of texts is large
    for unit in units:
        digest = hashlib.blake2b(unit.key.encode(), digest_size=16).digest()
        if digest in seen:
            raise UserError(
                f"job {job.name}: two units have the key {unit.key}",
                fix="put all that tells the units apart into the key, or leave one out",
            )
        seen.add(digest)
        if shard is not None and not shard.takes(unit.key):
            continue
        if results.has(unit.key):
            count.add(found=1)
        else:
            yield unit


class _Count:
    """Running totals, reported to the progress callback at each change."""

    def __init__(self, total: int | None, progress: Progress) -> None:
        self.made = self.found = self.failed = 0
        self._total = total
        self._progress = progress
        self._began = time.monotonic()

    def add(self, *, made: int = 0, found: int = 0, failed: int = 0) -> None:
        self.made += made
        self.found += found
        self.failed += failed
        seconds = time.monotonic() - self._began
        done = self.made + self.found
        self._progress(Tick(done, self.found, self.failed, self._total, seconds))
