"""Progress on standard error: what is done, how fast, and how long it will take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heldout.engine import Progress


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
def image_progress(label: str) -> Iterator[Progress]:
    """Progress of images through models; nothing where standard error is no terminal."""
    from heldout.engine import no_progress, rich_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    with rich_progress(label) as progress:
        yield progress
