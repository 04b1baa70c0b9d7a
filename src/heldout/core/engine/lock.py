"""Who works on a job: a shared lock, so that leftovers are swept only when nobody writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heldout.core.engine.results import Results


@contextmanager
def working(results: Results) -> Iterator[None]:
    """Hold the job's shared lock for the block; sweep leftovers first if nobody else holds it.

    The operating system drops the lock of a process that dies, even by ``kill -9``, so a stale
    lock cannot exist. Several processes may hold it together. Where the file system or the
    system has no such locks, nothing is swept and work goes on: leftovers are never read.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    results.folder.mkdir(parents=True, exist_ok=True)
    with (results.folder / "lock").open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held by others, or not supported here
            pass
        else:
            results.sweep()
        with suppress(OSError):
            # Not one atomic step down from the exclusive lock, and it need not be: whoever gets
            # in between sweeps before this process has begun to write.
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield


def is_worked_on(folder: Path) -> bool:
    """Whether some process works on the job in ``folder``, where the system can tell."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        with (folder / "lock").open("r+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever worked here, or there are no such locks
        return False
    return False
