"""Rules: the category of a mistake from thresholds alone, for when nobody has judged any.

The first that holds wins, in the order of M. Peychev et al., "Automated classification of model errors
on ImageNet", NeurIPS 2023:

1. *Multi-label or synonym*: the collapse table, or one node of the hierarchy, joins prediction and label
2. *Fine-grained error*: they share a superclass; without a superclass file, they stand close in the
   hierarchy or look alike to models
3. *Fine-grained error with OOV*: the image looks more like something that is no class
4. *Spurious Correlation*: prediction and label are often seen together
5. *Non-prototypical*: the image is among the least typical
6. *Other*
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heldout.measure.mistakes.categories import (
    FINE_GRAINED,
    NO_MISTAKE,
    NON_PROTOTYPICAL,
    OTHER,
    OUT_OF_VOCABULARY,
    SPURIOUS,
)
from heldout.measure.mistakes.evidence import EvidenceTable

ORDER: tuple[str, ...] = (
    NO_MISTAKE,
    FINE_GRAINED,
    OUT_OF_VOCABULARY,
    SPURIOUS,
    NON_PROTOTYPICAL,
    OTHER,
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Where each kind of evidence begins to hold.

    ``lca_size``       at most so many classes under the lowest common ancestor; None:
                       :func:`usual_lca_size` of the label space
    ``affinity``       at least so much
    ``cooccurrence``   at least so many images with both classes
    ``typicality``     among this share of least typical images
    ``outside_share``  at least so much of the image-text similarity on things that are no classes
    """

    lca_size: float | None = None
    affinity: float = 0.1
    cooccurrence: float = 2.0
    typicality: float = 0.05
    outside_share: float = 0.5


def usual_lca_size(classes: int) -> float:
    """How many classes two of a kind may stand among: 25 of 1,000, 8 of 100, 3 of 10.

    It grows with the root of the number of classes: a tree of twice as many has more kinds, and more
    classes of a kind.
    """
    return max(3.0, float(np.floor(0.8 * np.sqrt(classes))))


def strengths(table: EvidenceTable, rules: Rules | None = None) -> np.ndarray:
    """How strongly each category of :data:`ORDER` is supported, float (n, 6) in 0 … 1.

    A half is where a rule begins to hold. ``Other`` has what the strongest of the rest leaves.
    """
    at = rules or Rules()
    likeness = table.column("same_superclass")
    if "same_superclass" not in table.columns:
        most = at.lca_size or usual_lca_size(len(table.knowledge.space))
        near = most / (most + table.column("lca_size"))
        alike = table.column("affinity")
        likeness = np.fmax(near, alike / (alike + at.affinity))
    together = table.column("cooccurrence")
    share = table.column("outside_share")
    # Two lines that meet in the threshold: 0 stays 0, the threshold is a half, 1 stays 1.
    outside = np.where(
        share < at.outside_share,
        0.5 * share / at.outside_share,
        1.0 - 0.5 * (1.0 - share) / max(1.0 - at.outside_share, 1e-9),
    )
    found = [
        table.collapsed.astype(np.float64),
        likeness,
        outside,
        together / (together + at.cooccurrence),
        at.typicality / (at.typicality + table.column("typicality")),
    ]
    known = np.nan_to_num(np.stack(found, axis=1), nan=0.0)
    return np.hstack([known, 1.0 - known.max(axis=1, keepdims=True, initial=0.0)])


def first_that_holds(found: np.ndarray) -> np.ndarray:
    """The first category whose strength reaches a half, else ``Other``; places in :data:`ORDER`."""
    holds = found >= 0.5
    holds[:, -1] = True
    return np.asarray(holds.argmax(axis=1))


def rule_categories(table: EvidenceTable, rules: Rules | None = None) -> tuple[str, ...]:
    """The category that the rules give each mistake."""
    return tuple(ORDER[place] for place in first_that_holds(strengths(table, rules)).tolist())


def reasons() -> Mapping[str, tuple[str, ...]]:
    """The kinds of evidence that speak for each category, when rules decide."""
    return {
        NO_MISTAKE: ("lca_size",),
        FINE_GRAINED: ("same_superclass", "affinity", "lca_size", "path_distance"),
        OUT_OF_VOCABULARY: ("outside_share",),
        SPURIOUS: ("cooccurrence", "cooccurrence_share"),
        NON_PROTOTYPICAL: ("typicality",),
        OTHER: (),
    }
