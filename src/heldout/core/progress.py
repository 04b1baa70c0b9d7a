"""Progress of long work: what a run reports, and the bars that show it on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """How far a run is.

    ``done``     units with a result, whether made now or found
    ``found``    those of them that were there before
    ``failed``   units given up
    ``total``    units in all, or None where that is not known beforehand
    ``seconds``  since the run began
    """

    done: int
    found: int
    failed: int
    total: int | None
    seconds: float

    @property
    def rate(self) -> float:
        """Units per second, of those that were worked on now."""
        worked = self.done - self.found + self.failed
        return worked / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds left at this rate, or None while that is not known."""
        if self.total is None or not self.rate:
            return None
        return (self.total - self.done - self.failed) / self.rate


Progress = Callable[[Tick], None]


def no_progress(tick: Tick) -> None:
    """Report nothing."""


Bytes = Callable[[str, int, int | None], None]
"""Takes a name, bytes done and bytes in all (or None)."""


def no_bytes(name: str, done: int, total: int | None) -> None:
    """Report nothing."""


def format_seconds(seconds: float) -> str:
    """A span of time for people.

    >>> format_seconds(75.4), format_seconds(3 * 3600 + 62)
    ('1:15', '3:01:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def image_progress(label: str, *, what: str = "images") -> Iterator[Progress]:
    """Progress of images through models: a bar with rate and time left, or one line at the end."""
    if sys.stderr.isatty():
        with rich_progress(label) as progress:
            yield progress
        return
    last: Tick | None = None

    def remember(tick: Tick) -> None:
        nonlocal last
        last = tick

    yield remember
    if last is not None:
        before = f" ({last.found:,} were done before)" if last.found else ""
        sys.stderr.write(
            f"{label}: {last.done - last.found:,} {what} in {last.seconds:.1f} s, "
            f"{last.rate:,.1f}/s{before}\n"
        )


@contextmanager
def rich_progress(label: str) -> Iterator[Progress]:
    """Show a bar with counts, rate and time left on standard error.

    On a terminal the bar moves; elsewhere (a log file) only the last state is written.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(label, total=None, state="")

        def show(tick: Tick) -> None:
            state = f"{tick.rate:,.1f}/s"
            if tick.left is not None:
                state += f" {format_seconds(tick.left)} left"
            if tick.failed:
                state += f" [red]{tick.failed:,} failed"
            bars.update(bar, total=tick.total, completed=tick.done + tick.failed, state=state)

        yield show


@contextmanager
def byte_progress() -> Iterator[Bytes]:
    """Progress of downloads."""
    if not sys.stderr.isatty():
        yield no_bytes
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    tasks: dict[str, rich.TaskID] = {}
    with rich.Progress(*columns, console=Console(stderr=True)) as bar:

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield update
