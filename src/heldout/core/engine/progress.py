"""Progress: what a run tells about itself, and one way to show it."""

from __future__ import annotations

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
        """Units a second, of those that were worked on now."""
        worked = self.done - self.found + self.failed
        return worked / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds left at this rate, or None while that cannot be said."""
        if self.total is None or not self.rate:
            return None
        return (self.total - self.done - self.failed) / self.rate


Progress = Callable[[Tick], None]


def format_seconds(seconds: float) -> str:
    """A span of time for people.

    >>> format_seconds(75.4), format_seconds(3 * 3600 + 62)
    ('1:15', '3:01:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def no_progress(tick: Tick) -> None:
    """Say nothing."""


@contextmanager
def rich_progress(label: str) -> Iterator[Progress]:
    """Show a bar with counts, rate and time left on standard error.

    On a terminal the bar moves; elsewhere (a log file) only the last state is written.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[failures]}"),
    )
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task(label, total=None, speed="", left="", failures="")

        def show(tick: Tick) -> None:
            bars.update(
                bar,
                total=tick.total,
                completed=tick.done + tick.failed,
                speed=f"{tick.rate:,.1f}/s",
                left="" if tick.left is None else f"{format_seconds(tick.left)} left",
                failures=f"[red]{tick.failed:,} failed" if tick.failed else "",
            )

        yield show
