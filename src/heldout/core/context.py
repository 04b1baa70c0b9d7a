"""What a verb works in and what it gives back: the workspace, what it says, records, exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from heldout.core.errors import EXIT_DONE
from heldout.core.progress import Progress, byte_progress, image_progress, no_progress
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
        name = str(getattr(value, "name", None) or type(value).__name__)
        if self.bound.setdefault(name, value) is not value:
            name = f"{name}-{len(self.bound)}"
            self.bound[name] = value
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
        return image_progress(label, what=what) if self.talk else _silence()

    def downloads(self) -> AbstractContextManager[Callable[[str, int, int | None], None]]:
        """Progress of bytes: call it with a name, bytes done and bytes in all."""
        return byte_progress() if self.talk else _no_bytes()


@contextmanager
def _silence() -> Iterator[Progress]:
    yield no_progress


@contextmanager
def _no_bytes() -> Iterator[Callable[[str, int, int | None], None]]:
    yield lambda name, done, total: None


@dataclass
class Result:
    """What a verb gives back.

    ``records``  typed records: what ``--json`` prints, and what the tables are made of
    ``brief``    the records that a person is shown unless ``--full`` is given; all by default
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
