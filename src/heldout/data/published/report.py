"""What a reader met: how many images, and what it could not use, counted, with examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_EXAMPLES = 5
_LONGEST = 300


@dataclass(frozen=True)
class Problem:
    """Something that was met ``count`` times.

    ``kind``      what it is and what was done about it
    ``examples``  where, the first few
    ``images``    whether whole images were lost by it
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()
    images: bool = False

    @property
    def line(self) -> str:
        """The problem on one line."""
        shown = f", such as {self.examples[0]}" if self.examples else ""
        return f"{self.count:,} × {self.kind}{shown}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "kind": self.kind,
            "count": self.count,
            "examples": list(self.examples),
            "images": self.images,
        }


@dataclass(frozen=True)
class Report:
    """What came of reading metadata.

    ``counts``    images, memberships, and for each column its memberships and distinct values
    ``problems``  what could not be used as it was
    """

    counts: Mapping[str, int]
    problems: tuple[Problem, ...] = ()

    @property
    def lost_images(self) -> bool:
        """Whether some images are not in the pool that the files name, or should have named."""
        return any(problem.images for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "counts": dict(self.counts),
            "problems": [problem.to_dict() for problem in self.problems],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Report:
        """The report that :meth:`to_dict` wrote."""
        problems = tuple(
            Problem(entry["kind"], entry["count"], tuple(entry["examples"]), entry["images"])
            for entry in value["problems"]
        )
        return cls(dict(value["counts"]), problems)


@dataclass
class Problems:
    """Problems as they are met. Kinds are few; places are many and only counted."""

    _counts: dict[str, int] = field(default_factory=dict)
    _examples: dict[str, list[str]] = field(default_factory=dict)
    _images: set[str] = field(default_factory=set)

    def add(self, kind: str, where: str, *, image_lost: bool = False, times: int = 1) -> None:
        """Count one more of ``kind``, met at ``where``."""
        self._counts[kind] = self._counts.get(kind, 0) + times
        shown = self._examples.setdefault(kind, [])
        if len(shown) < _EXAMPLES:
            # Half of a surrogate pair can be in a file, but not in one that we write.
            text = where.encode("utf-8", "backslashreplace").decode("utf-8")
            shown.append(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
        if image_lost:
            self._images.add(kind)

    def found(self) -> tuple[Problem, ...]:
        """All of them, lost images first, then by kind."""
        order = sorted(self._counts, key=lambda kind: (kind not in self._images, kind))
        return tuple(
            Problem(kind, self._counts[kind], tuple(self._examples[kind]), kind in self._images)
            for kind in order
        )
