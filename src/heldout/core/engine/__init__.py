"""Content-addressed work: units, jobs, executors, results that survive anything.

Everything that takes long runs through :func:`run`, so pools, resuming and records of failures
exist once.
"""

from __future__ import annotations

from heldout.core.engine.executors import Executor, Processes, Serial, Threads
from heldout.core.engine.jobs import Job, JobSummary, run
from heldout.core.engine.results import Done, JobResults, Outcome, UnitFailure
from heldout.core.engine.unit import Shard, Unit, unit_key
from heldout.core.progress import Progress, Tick, no_progress, rich_progress

__all__ = [
    "Done",
    "Executor",
    "Job",
    "JobResults",
    "JobSummary",
    "Outcome",
    "Processes",
    "Progress",
    "Serial",
    "Shard",
    "Threads",
    "Tick",
    "Unit",
    "UnitFailure",
    "no_progress",
    "rich_progress",
    "run",
    "unit_key",
]
