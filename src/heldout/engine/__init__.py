"""Content-addressed work: units, jobs, executors, results that survive anything.

Every room that does much work does it through :func:`run`, so pools, resuming, retries and records
of failures exist once.
"""

from __future__ import annotations

from heldout.engine.executors import Executor, Serial, Threads, make_executor
from heldout.engine.job import Job
from heldout.engine.processes import Processes
from heldout.engine.progress import Progress, Tick, no_progress, rich_progress
from heldout.engine.results import Done, Failure, Outcome, Results
from heldout.engine.run import Summary, run
from heldout.engine.unit import Shard, Unit, unit_key

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
