"""Executors: where units run. The protocol, and the ones without processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Protocol

from heldout.core.engine.results import Outcome
from heldout.core.engine.unit import Unit
from heldout.core.errors import UserError
from heldout.core.plugins import plugins

Work = Callable[[Unit], Outcome]


class Executor(Protocol):
    """Runs units somewhere.

    ``run`` yields one outcome for every unit, in any order. It pulls units only as workers
    become free, so that a bounded number is in flight however long ``units`` is. ``task`` is sent
    to a worker once. An exception that ``task`` raises is a fault and passes to the caller.
    Closing the iterator ends the work; results that are stored by then stay.
    """

    def run(self, task: Work, units: Iterable[Unit]) -> Generator[Outcome]:
        """Run every unit; yield outcomes as they come."""
        ...


class Serial:
    """One unit after the other, in this thread."""

    def run(self, task: Work, units: Iterable[Unit]) -> Generator[Outcome]:
        """Run every unit; outcomes come in the order of units."""
        for unit in units:
            yield task(unit)


class Threads:
    """A pool of threads: for work that waits, or that leaves the interpreter lock alone.

    When the run is ended early, units in flight are finished, as a thread cannot be stopped.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = worker_count(workers)
        self.in_flight = 2 * self.workers

    def run(self, task: Work, units: Iterable[Unit]) -> Generator[Outcome]:
        """Run every unit; yield outcomes as they come."""
        from concurrent.futures import Future, ThreadPoolExecutor
        from queue import SimpleQueue

        finished: SimpleQueue[Future[Outcome]] = SimpleQueue()
        source = iter(units)
        waiting = 0
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="heldout")
        try:
            while True:
                for unit in islice(source, self.in_flight - waiting):
                    pool.submit(task, unit).add_done_callback(finished.put)
                    waiting += 1
                if not waiting:
                    return
                outcome = finished.get().result()
                waiting -= 1
                yield outcome
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def make_executor(name: str, *, workers: int | None = None) -> Executor:
    """The executor of this name: ``serial``, ``threads``, ``processes``, or an installed plug-in.

    A plug-in is an entry point of the group ``heldout.executors``: a callable that takes
    ``workers`` and returns an :class:`Executor`.
    """
    if name == "serial":
        return Serial()
    if name == "threads":
        return Threads(workers)
    if name == "processes":
        from heldout.core.engine.processes import Processes

        return Processes(workers)
    found = plugins("heldout.executors", "executor")
    if name not in found:
        names = ", ".join(["serial", "threads", "processes", *sorted(found)])
        raise UserError(f"there is no executor {name!r}", fix=f"use one of {names}")
    plugin: Executor = found[name].load()(workers=workers)
    return plugin


def worker_count(workers: int | None) -> int:
    """``workers``, or the number of processors that this process may use."""
    if workers is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if workers < 1:
        raise UserError(f"{workers} workers cannot work", fix="give 1 or more")
    return workers
