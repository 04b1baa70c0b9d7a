"""Progress on standard error: what is done, how fast, and how long it will take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heldout.core.engine import Progress


@contextmanager
def byte_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Progress of downloads: call it with a name, bytes done and bytes in all (or None)."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def update(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield update


@contextmanager
def image_progress(label: str, *, what: str = "images") -> Iterator[Progress]:
    """Progress of images through models: a bar with rate and time left, or one line at the end."""
    from heldout.core.engine import Tick, rich_progress

    if sys.stderr.isatty():
        with rich_progress(label) as progress:
            yield progress
        return
    last: list[Tick] = []

    def remember(tick: Tick) -> None:
        last[:] = [tick]

    yield remember
    for tick in last:
        made = tick.done - tick.found
        before = f" ({tick.found:,} were done before)" if tick.found else ""
        sys.stderr.write(
            f"{label}: {made:,} {what} in {tick.seconds:.1f} s, {tick.rate:,.1f}/s{before}\n"
        )
