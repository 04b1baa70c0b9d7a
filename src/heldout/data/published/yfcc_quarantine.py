"""Rows that cannot be used: counted, and kept with file, line number, reason and text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from heldout.core.files import atomic_path
from heldout.data.published.report import Problems

_LISTED = 100
_LONGEST = 2000


class Quarantine:
    """Takes in rows that are malformed; nothing is dropped without a line here.

    All of them go to ``sink`` as JSON lines where one is given; the first hundred are in ``facts``,
    without their text.
    """

    def __init__(self, problems: Problems, sink: IO[str] | None = None) -> None:
        self._problems = problems
        self._sink = sink
        self._listed: list[dict[str, Any]] = []
        self._waiting: list[tuple[int, str, Path, bytes]] = []
        self.count = 0

    def add(self, path: Path, line: int, reason: str, text: bytes = b"") -> None:
        """One row: its line number counts from 1 in its file."""
        self.count += 1
        self._waiting.append((line, reason, path, text))

    def settle(self) -> None:
        """Put down what was added, by line; called after each block, as its checks come in turn."""
        for line, reason, path, text in sorted(self._waiting, key=lambda row: row[0]):
            where = f"{path.name} line {line}"
            self._problems.add(f"row in quarantine: {reason}", where, image_lost=True)
            entry: dict[str, Any] = {"file": path.name, "line": line, "reason": reason}
            if len(self._listed) < _LISTED:
                self._listed.append(entry)
            if self._sink is not None:
                shown = text[:_LONGEST].decode("utf-8", "backslashreplace")
                self._sink.write(json.dumps(entry | {"text": shown}, ensure_ascii=False) + "\n")
        self._waiting.clear()

    def note(self, path: Path, line: int, what: str) -> None:
        """Something odd on a line by which no photo is lost."""
        self._problems.add(f"{what}, not used", f"{path.name} line {line}")

    @property
    def facts(self) -> dict[str, Any]:
        """What a pool remembers of it."""
        return {"quarantined": self.count, "quarantine": list(self._listed)}


@contextmanager
def quarantine(problems: Problems, to: Path | None) -> Iterator[Quarantine]:
    """A quarantine that is written to ``to`` as JSON lines, whole or not at all."""
    if to is None:
        yield Quarantine(problems)
        return
    with atomic_path(to) as temporary, temporary.open("w", encoding="utf-8") as sink:
        yield Quarantine(problems, sink)
