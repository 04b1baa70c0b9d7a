"""A figure: a Vega-Lite specification with the words that go with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from heldout.show.theme import Spec

_UNSAFE = re.compile(r"[^a-z0-9._]+")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a report.

    ``name``     unique in the report; also the file name without its ending
    ``section``  where the page shows it: ``accuracy``, ``changes``, ``slices``, ``learning``,
                 ``mistakes`` or ``comparisons``
    ``group``    figures of one group share a place, such as a test set
    ``choice``   which of the group's alternatives this is, such as ``probit``; empty for none
    ``columns``  the columns that a figure of slices shows
    ``variant``  which figure of these columns this is, after the first; empty for the first
    ``caption``  what is drawn and how the intervals were made
    ``spec``     Vega-Lite; its ``description`` is the text for readers who do not see the figure
    """

    name: str
    section: str
    title: str
    caption: str
    spec: Spec
    group: str = ""
    choice: str = ""
    columns: tuple[str, ...] = ()
    variant: str = ""

    @property
    def alt(self) -> str:
        """What the figure shows, in words."""
        return str(self.spec["description"])


def slug(*parts: str) -> str:
    """A lower-case name that is safe as a file name and an HTML id.

    >>> slug("scatter", "ImageNetV2 / b-33")
    'scatter-imagenetv2-b-33'
    """
    text = "-".join(_UNSAFE.sub("-", part.lower()).strip("-.") for part in parts)
    return text.strip("-")[:120] or "figure"


def with_unique_names(figures: Iterable[Figure]) -> list[Figure]:
    """The figures, later ones of an equal name numbered: two test sets may have one slug."""
    taken: set[str] = set()
    result: list[Figure] = []
    for figure in figures:
        name, number = figure.name, 2
        while name in taken:
            name, number = f"{figure.name}-{number}", number + 1
        taken.add(name)
        result.append(figure if name == figure.name else replace(figure, name=name))
    return result
