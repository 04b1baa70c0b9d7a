"""What a verb works in and what it gives back: the workspace, notes, records, exit code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from heldout.core.errors import EXIT_DONE
from heldout.core.extras import require
from heldout.core.progress import (
    Bytes,
    Progress,
    byte_progress,
    image_progress,
    no_bytes,
    no_progress,
)
from heldout.core.records import to_dict, to_json
from heldout.core.workspace import Workspace

T = TypeVar("T")


@dataclass
class Context:
    """Where a verb works, the objects that its request names, and what it says on the way.

    ``bound`` holds Python objects (a model in memory, a test set) under the names by which a request
    refers to them. ``talk`` says whether notes and progress also go to standard error.
    """

    workspace: Workspace = field(default_factory=Workspace.find)
    bound: dict[str, Any] = field(default_factory=dict)
    talk: bool = False
    notes: list[str] = field(default_factory=list)

    def bind(self, value: Any) -> str:
        """Keep an object; the name to put into a request."""
        wanted = name = f"python:{getattr(value, 'name', None) or type(value).__name__}"
        number = 1
        while self.bound.setdefault(name, value) is not value:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def find(self, name: str, finder: Callable[[Workspace, str], T]) -> T:
        """The object that a request names: a bound one, else what the workspace has."""
        return self.bound[name] if name in self.bound else finder(self.workspace, name)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self.notes.append(text)
        self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """What was done, or is going on."""
        if self.talk:
            sys.stderr.write(text + "\n")

    def progress(self, label: str, *, what: str = "images") -> AbstractContextManager[Progress]:
        """Progress of long work, shown on standard error."""
        return image_progress(label, what=what) if self.talk else nullcontext(no_progress)

    def downloads(self) -> AbstractContextManager[Bytes]:
        """Progress of bytes: call it with a name, bytes done and bytes in all."""
        return byte_progress() if self.talk else nullcontext(no_bytes)


@dataclass(repr=False)
class Result:
    """What a verb gives back.

    ``records``  typed records: what ``--json`` prints, and what the tables are made of
    ``brief``    the records that a person is shown; all by default. ``--full`` shows ``records`` too
    ``lines``    what a person reads after the tables
    ``value``    what a Python caller gets instead of the result, such as a test set
    ``drawn``    what the verb's page draws, where it has one
    ``code``     the exit code
    """

    records: Sequence[Any] = ()
    brief: Sequence[Any] | None = None
    lines: Sequence[str] = ()
    value: Any = None
    drawn: Any = None
    code: int = EXIT_DONE
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        found = Counter(record.record for record in self.records)
        listed = ", ".join(f"{count:,} {kind}" for kind, count in found.items())
        notes = f"; notes: {len(self.notes)}" if self.notes else ""
        return f"<{type(self).__name__}: {listed or 'no'} records{notes}>"

    def __str__(self) -> str:
        """What a person is shown."""
        from heldout.core.notebook import markdown

        return "\n\n".join(filter(None, [markdown(self.shown), *self.lines]))

    def _repr_html_(self) -> str:
        from heldout.core.notebook import html

        return html(self.shown)

    @property
    def shown(self) -> Sequence[Any]:
        """The records that a person is shown."""
        return self.records if self.brief is None else self.brief

    def to_json(self) -> str:
        """All records as one JSON array."""
        return to_json(self.records)

    def to_pandas(self, kind: str | None = None) -> Any:
        """The records of one kind as a data frame; of the first kind that there is by default."""
        pandas = require("pandas", extra="pandas", purpose="a data frame")
        first = kind or next((record.record for record in self.records), None)
        return pandas.DataFrame([to_dict(r) for r in self.records if r.record == first])

    def to_markdown(self, *, full: bool = False) -> str:
        """The tables that a person is shown, as Markdown; ``full`` for those of all records."""
        from heldout.core.notebook import markdown

        return markdown(self.records if full else self.shown)

    def to_latex(self, *, full: bool = False) -> str:
        """The tables that a person is shown, for LaTeX with booktabs; ``full`` as for Markdown."""
        from heldout.core.notebook import latex

        return latex(self.records if full else self.shown)
