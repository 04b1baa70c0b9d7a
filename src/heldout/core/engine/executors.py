"""Executors: where units run. In this thread, in threads, or in worker processes.

Worker processes are started afresh (spawn), get their task once, and end with the parent. Starting
takes half a second, most of it imports. Whoever has to think before there is a task can start
workers first (:meth:`Processes.started`).

A worker that dies (a crash inside a decoder, the out-of-memory killer) does not end the run. Every
unit that was in flight is run again by itself; the one that kills its worker again is a failure.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from heldout.core.engine.results import Outcome, UnitFailure
from heldout.core.engine.unit import Unit
from heldout.core.errors import HeldoutError, UserError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import SimpleQueue
    from multiprocessing.connection import Connection

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


def worker_count(workers: int | None) -> int:
    """``workers``, or the number of processors that this process may use."""
    if workers is None:
        if hasattr(os, "sched_getaffinity"):  # fewer than cpu_count() in a container
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if workers < 1:
        raise UserError(f"{workers} workers cannot work", fix="give 1 or more")
    return workers


_task: Work | None = None
_tasks: SimpleQueue[Work] | None = None


class Processes:
    """A pool of processes: for work that keeps the processor and the interpreter lock busy.

    The work function must be importable (defined at the top level of a module), and a script that
    uses this executor needs the usual ``if __name__ == "__main__":`` guard. When the run is ended
    early, units in flight are dropped; their results are either stored or not begun.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = worker_count(workers)
        self.in_flight = 2 * self.workers
        self._early: _Pool | None = None

    @contextmanager
    def started(self, prepare: Callable[[], None] | None = None) -> Iterator[Processes]:
        """Start the workers now, so that they load while this process decides what is to be done.

        ``prepare`` is called in each worker first. It must be importable, and is for what takes
        long and every unit needs. The next :meth:`run` has these workers; with the end of the block
        they are gone, used or not.
        """
        self._early = _Pool(self.workers, prepare)
        try:
            yield self
        finally:
            unused, self._early = self._early, None
            if unused is not None:
                unused.end()

    def run(self, task: Work, units: Iterable[Unit]) -> Generator[Outcome]:
        """Run every unit; yield outcomes as they come."""
        _check_sendable(task)
        source = iter(units)
        first = list(islice(source, 1))
        if not first:
            return  # all was there already: no worker needs to be started
        source = chain(first, source)
        while True:
            lost = yield from self._drain(task, source)
            if not lost:
                return
            for unit in lost:  # each was in flight when a worker died
                if (yield from Processes(1)._drain(task, iter([unit]))):
                    yield UnitFailure(
                        key=unit.key,
                        reason="the worker process died while it worked on this unit",
                        traceback="",
                        attempts=2,
                    )

    def _drain(self, task: Work, source: Iterator[Unit]) -> Generator[Outcome, None, list[Unit]]:
        """Run units until none is left, or a worker dies; return the units lost with it."""
        from concurrent.futures import Future
        from concurrent.futures.process import BrokenProcessPool
        from queue import SimpleQueue

        finished: SimpleQueue[Future[Outcome]] = SimpleQueue()
        waiting: dict[Future[Outcome], Unit] = {}
        lost: list[Unit] = []
        made, self._early = self._early or _Pool(self.workers), None
        with made.start(task) as pool:
            while True:
                for unit in islice(source, 0 if lost else self.in_flight - len(waiting)):
                    try:
                        with _without_ctrl_c():
                            future = pool.submit(_do, unit)
                    except BrokenProcessPool:
                        lost.append(unit)
                        break
                    waiting[future] = unit
                    future.add_done_callback(finished.put)
                if not waiting:
                    return lost
                future = finished.get()
                unit = waiting.pop(future)
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    lost.append(unit)
                    continue
                yield outcome


class _Pool:
    """A process pool whose workers end when this process closes a pipe, or dies."""

    def __init__(self, workers: int, prepare: Callable[[], None] | None = None) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        context = get_context("spawn")
        self.workers = workers
        self.reader, self.writer = context.Pipe(duplex=False)
        self.tasks: SimpleQueue[Work] = context.SimpleQueue()
        self.pool = ProcessPoolExecutor(
            workers,
            mp_context=context,
            initializer=_start,
            initargs=(self.reader, self.tasks, prepare),
        )
        with _without_ctrl_c():
            for _ in range(workers):  # each starts a worker, as none is idle yet
                self.pool.submit(_ready)

    @contextmanager
    def start(self, task: Work) -> Iterator[ProcessPoolExecutor]:
        """Send every worker its task; they are gone after the block."""
        from concurrent.futures.process import BrokenProcessPool
        from threading import Thread

        # By a thread, as a large task is only written while somebody reads.
        Thread(target=self._send, args=(task,), daemon=True).start()
        try:
            try:
                self.pool.submit(_task_of_worker).result()
            except BrokenProcessPool:
                raise HeldoutError(
                    "worker processes cannot start: the work function must be importable, and a "
                    "script needs the guard if __name__ == '__main__'"
                ) from None
            yield self.pool
        finally:
            self.end()

    def _send(self, task: Work) -> None:
        with suppress(OSError, ValueError):  # closed: the workers are gone
            for _ in range(self.workers):
                self.tasks.put(task)

    def end(self) -> None:
        """End all workers: at once, as what they have done is stored."""
        self.writer.close()
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.reader.close()
        self.tasks.close()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Hold Ctrl-C back for the block, in which a worker may be started.

    A new process inherits what is held back. Else a Ctrl-C at the terminal, which goes to the
    whole group, would hit a worker before it has come to ignore it, and print a traceback.
    """
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(
    reader: Connection, tasks: SimpleQueue[Work], prepare: Callable[[], None] | None
) -> None:
    """Set a new worker up."""
    import threading

    global _tasks
    _tasks = tasks
    # Ctrl-C goes to the whole group; the parent decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, args=(reader,), daemon=True).start()
    if prepare is not None:
        prepare()


def _leave_with_parent(reader: Connection) -> None:
    """End this worker when the other end of the pipe is closed or its process is gone."""
    with suppress(EOFError, OSError):
        reader.recv_bytes()
    os._exit(1)


def _ready() -> None:
    """Do nothing: a worker has to be started to run it."""


def _do(unit: Unit) -> Outcome:
    return _task_of_worker()(unit)


def _task_of_worker() -> Work:
    """The task of this worker; the first call waits for it."""
    global _task
    if _task is None:
        if _tasks is None:
            raise HeldoutError("a worker process was not set up")
        try:
            _task = _tasks.get()
        except Exception:
            # Not the fault of a unit: without its task a worker is of no use.
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return _task


def _check_sendable(task: Work) -> None:
    try:
        pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise HeldoutError(
            f"this work cannot be sent to worker processes ({error}): define the work function at "
            "the top level of a module, or use threads"
        ) from None
