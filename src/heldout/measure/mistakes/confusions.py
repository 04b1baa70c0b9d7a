"""Confusions: which classes are taken for which, under any truth, with the images behind each pair.

An error pairs its prediction with every label that would have been right, so that under a multi-label
truth one image may stand behind several pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.verdicts import Verdicts
from heldout.stats.intervals import wilson

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class ConfusionPair:
    """Two classes that are confused ``n`` times.

    Directed: images that may be called ``first_id`` are taken for ``second_id``; ``of`` is how often a
    model looked at such an image, and ``share`` is n of these. Its Wilson interval is given for one
    model only: what several models say of one image is not independent. Unordered: ``first_id``
    stands first in the label space, and the last four are None.
    """

    first_id: str
    first_name: str
    second_id: str
    second_name: str
    n: int
    of: int | None = None
    share: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Confusions:
    """Pairs of classes with their counts, most frequent first, ties in the label space's order.

    ``first``, ``second``  int64 (pairs,): class indices; directed: what is right, what was said
    ``n``        int64 (pairs,)
    ``errors``   wrong guesses behind them, of all models; a guess that is no class is not among them
    ``looks``    int64 (classes,): how often a model looked at an image that may be called this
    ``rows``, ``keys``  int64 (sum of n,): the row of the verdicts of every confusion, and its pair as
                 ``first * classes + second``
    """

    verdicts: Verdicts
    models: tuple[str, ...]
    directed: bool
    first: np.ndarray
    second: np.ndarray
    n: np.ndarray
    errors: int
    looks: np.ndarray
    rows: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.n)

    @property
    def space(self) -> LabelSpace:
        """The label space of the pairs."""
        return self.verdicts.truth.space

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return int(self.n.sum())

    def top(self, count: int | None = None, *, level: float = LEVEL) -> list[ConfusionPair]:
        """The most frequent pairs, or all of them."""
        classes = self.space.classes
        shown = slice(None) if count is None else slice(0, count)
        first, second, n = self.first[shown], self.second[shown], self.n[shown]
        of = self.looks[first]
        alone = self.directed and len(self.models) == 1 and len(n) > 0
        limits = wilson(n, of, level=level) if alone else None
        pairs = []
        for place in range(len(n)):
            a, b = classes[first[place]], classes[second[place]]
            pairs.append(
                ConfusionPair(
                    first_id=a.id,
                    first_name=a.name,
                    second_id=b.id,
                    second_name=b.name,
                    n=int(n[place]),
                    of=int(of[place]) if self.directed else None,
                    share=float(n[place] / of[place]) if self.directed else None,
                    low=None if limits is None else float(limits.low[place]),
                    high=None if limits is None else float(limits.high[place]),
                )
            )
        return pairs

    def images(self, first_id: str, second_id: str) -> tuple[str, ...]:
        """The images behind a pair, sorted, each once; empty for a pair that does not occur."""
        first, second = self.space.index(first_id), self.space.index(second_id)
        if not self.directed:
            first, second = min(first, second), max(first, second)
        keys, rows = self._sorted
        key = first * len(self.space) + second
        behind = rows[np.searchsorted(keys, key) : np.searchsorted(keys, key, side="right")]
        return tuple(sorted({self.verdicts.image_ids[row] for row in behind.tolist()}))

    @cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys in order with their rows: made when images are first asked for."""
        order = np.argsort(self.keys, kind="stable")
        return self.keys[order], self.rows[order]


def confusions(
    verdicts: Verdicts, model: str | None = None, *, directed: bool = False
) -> Confusions:
    """The confusions of one model, or of all models together.

    Each error counts once for every correct or unclear label of its image. Under a truth of one
    label an image, the counts add up to the errors.
    """
    size = len(verdicts.truth.space)
    chosen = verdicts if model is None else verdicts.of_models([model])
    acceptable = verdicts.acceptable
    starts, labels = acceptable.starts, acceptable.values
    rows, columns = np.nonzero(chosen.wrong & (chosen.guesses >= 0))
    guesses = chosen.guesses[rows, columns].astype(np.int64)
    counts = acceptable.lengths[rows]
    ends = np.concatenate([[0], np.cumsum(counts)])
    inner = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
    right = labels[np.repeat(starts[rows], counts) + inner]
    said = np.repeat(guesses, counts)
    first, second = (
        (right, said) if directed else (np.minimum(right, said), np.maximum(right, said))
    )
    keys = first * size + second
    pairs, n = np.unique(keys, return_counts=True)
    order = np.lexsort((pairs, -n))
    firsts, seconds = np.divmod(pairs[order], size)
    return Confusions(
        verdicts=chosen,
        models=chosen.models,
        directed=directed,
        first=firsts,
        second=seconds,
        n=n[order].astype(np.int64),
        errors=len(rows),
        looks=np.bincount(labels, minlength=size) * len(chosen.models),
        rows=np.repeat(rows, counts),
        keys=keys,
    )
