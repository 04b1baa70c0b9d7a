"""Content-addressed work: units, jobs, executors, results that survive anything.

Every room that does much work does it through :func:`run`, so pools, resuming, retries and records
of failures exist once.
"""

from __future__ import annotations

from heldout.core.engine.executors import Executor, Serial, Threads, make_executor
from heldout.core.engine.job import Job
from heldout.core.engine.processes import Processes
from heldout.core.engine.progress import Progress, Tick, no_progress, rich_progress
from heldout.core.engine.results import Done, Failure, Outcome, Results
from heldout.core.engine.run import Summary, run
from heldout.core.engine.unit import Shard, Unit, unit_key

__all__ = [
    "Done",
    "Executor",
    "Failure",
    "Job",
    "Outcome",
    "Processes",
    "Progress",
    "Results",
    "Serial",
    "Shard",
    "Summary",
    "Threads",
    "Tick",
    "Unit",
    "make_executor",
    "no_progress",
    "rich_progress",
    "run",
    "unit_key",
]
