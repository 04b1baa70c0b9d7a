"""What labels tell about domains: in bits, and class by class.

A *demonym* (Jordanian, Icelander) says where a photograph was taken and not what it shows: WordNet has
them under ``inhabitant``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from heldout.core.records import Table
from heldout.curate.domains.selection import Counts
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy
from heldout.stats.intervals import wilson

INHABITANT = "n09620078"
"""WordNet 3.0: inhabitant, habitant, dweller, denizen, indweller."""


def demonyms(classes: Sequence[str], space: LabelSpace) -> set[str]:
    """The classes that stand for people of a place; one without a WordNet id is none."""
    hierarchy = Hierarchy.wordnet()
    nodes = {name: space.get(name).wnid or name for name in classes}
    return {
        name
        for name, node in nodes.items()
        if node in hierarchy and hierarchy.is_under(node, INHABITANT)
    }


DOCUMENT = "leakage.json"
CONCENTRATED = (0.8, 0.9)
"""Shares from which a class counts as living in one domain."""


@dataclass(frozen=True)
class ClassLeak:
    """One class: the domain that has most of it, with the share's interval (Wilson, 95 %).

    ``lift``  the share over that domain's share of the whole set
    """

    record: ClassVar[str] = "class_leak"
    table: ClassVar[Table] = Table(
        "",
        (
            "class=class_id",
            "name",
            "images=n:,",
            "in one domain=domain",
            "share:%1[]",
            "lift:.1f",
            "name stands for=stands_for",
        ),
        rows=6,
    )
    class_id: str
    name: str
    n: int
    domain: str
    share: float
    low: float
    high: float
    lift: float
    demonym: bool

    @property
    def stands_for(self) -> str:
        """What is suspicious about its name, in words."""
        return "people of a place" if self.demonym else ""


@dataclass(frozen=True, eq=False)
class Leakage:
    """What labels of a set tell about its domains."""

    n: int
    domains: dict[str, int]
    domain_entropy: float
    information: float
    information_plain: float
    explained: float
    concentrated: dict[str, int]
    classes: tuple[ClassLeak, ...]


def leakage(counts: Counts, space: LabelSpace) -> Leakage:
    """The report of a set's classes by domains; classes and domains without images do not count."""
    rows, columns = counts.by_class > 0, counts.by_domain > 0
    cells = counts.cells[np.ix_(rows, columns)]
    classes = [name for name, kept in zip(counts.classes, rows, strict=True) if kept]
    domains = [name for name, kept in zip(counts.domains, columns, strict=True) if kept]
    n = int(cells.sum())
    by_domain, by_class = cells.sum(axis=0), cells.sum(axis=1)
    entropy = _entropy(by_domain)
    plain = entropy + _entropy(by_class) - _entropy(cells.ravel())
    excess = (len(classes) - 1) * (len(domains) - 1) / (2 * n * np.log(2))
    information = min(max(plain - excess, 0.0), entropy)
    people = demonyms(classes, space)
    leaks = []
    for place, class_id in enumerate(classes):
        most = int(np.argmax(cells[place]))
        hits, size = int(cells[place, most]), int(by_class[place])
        interval = wilson(hits, size)
        leaks.append(
            ClassLeak(
                class_id,
                space.get(class_id).name if class_id in space else class_id,
                size,
                domains[most],
                hits / size,
                float(interval.low),
                float(interval.high),
                hits / size / (int(by_domain[most]) / n),
                class_id in people,
            )
        )
    leaks.sort(key=lambda leak: (-leak.share, -leak.n, leak.class_id))
    return Leakage(
        n=n,
        domains=dict(zip(domains, map(int, by_domain), strict=True)),
        domain_entropy=entropy,
        information=information,
        information_plain=plain,
        explained=information / entropy if entropy else 0.0,
        concentrated={
            f"{share:g}": sum(leak.share > share for leak in leaks) for share in CONCENTRATED
        },
        classes=tuple(leaks),
    )


def _entropy(counts: NDArray[np.int64]) -> float:
    """Entropy in bits of the distribution that counts give."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0  # one group: 0, not -0
