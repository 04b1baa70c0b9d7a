"""Affinity: how alike two classes look, from what models or people made of them.

Three sources, one question: how often do two classes come up together?

``co-prediction``   both are among a model's best guesses for one image
``confusions``      a published or counted list of confused pairs
``similarity``      any matrix of numbers between 0 and 1

For counts, ``share(a, b) = n_ab / (min(n_a, n_b) + prior)``: of the lists that hold the rarer of the
two classes, the share that holds both. ``prior`` keeps a class that came up three times from being
everybody's double. Where it is known how many lists there are, chance is taken out: with ``base`` the
share of all lists that hold the more frequent class, ``affinity = (share - base) / (1 - base)``, and
0 below that. Among a thousand classes chance is nothing; among ten, five best guesses hold half.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from heldout.core.errors import BadFile, LabelError
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.confusion_files import ConfusionFile
from heldout.measure.mistakes.cooccurrence import Cooccurrence
from heldout.measure.mistakes.peers import Peers, without_repeats

PRIOR = 5.0
_CELLS = 1 << 22  # a table of all pairs up to 2,048 classes: quicker than sorting pairs
_BLOCK = 1 << 16


class Affinity(Protocol):
    """How alike classes are; ``source`` is one of the three above."""

    @property
    def source(self) -> str:
        """Where it comes from."""
        ...

    def values(self, a: np.ndarray, b: np.ndarray, images: np.ndarray | None = None) -> np.ndarray:
        """Affinity in 0 … 1 of class indices ``a`` (n,) and ``b`` (n,).

        ``images`` (n,) are rows of the peers behind it, -1 for none: what models said of this very
        image is taken out, so that a mistake is no evidence for itself.
        """
        ...


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Affinity from counts of pairs.

    ``keys``    int64, sorted: ``a * classes + b`` with a < b
    ``counts``  how often each pair came up
    ``totals``  (classes,) how often each class did
    ``lists``   in how many lists they could have; 0 where that is not known
    ``peers``   the models whose lists were counted, if they were
    """

    space: LabelSpace
    source: str
    keys: np.ndarray
    counts: np.ndarray
    totals: np.ndarray
    lists: float = 0.0
    peers: Peers | None = None
    prior: float = PRIOR

    def values(self, a: np.ndarray, b: np.ndarray, images: np.ndarray | None = None) -> np.ndarray:
        """See :class:`Affinity`."""
        both, n_a, n_b = self.together(a, b), self.totals[a], self.totals[b]
        lists = np.full(len(a), self.lists)
        if images is not None and self.peers is not None:
            own, own_a, own_b = _own_counts(self.peers, a, b, images)
            both, n_a, n_b = both - own, n_a - own_a, n_b - own_b
            lists -= np.where(images >= 0, _lists_of_an_image(self.peers), 0)
        found: np.ndarray = both / (np.minimum(n_a, n_b) + self.prior)
        if self.lists:
            base = np.minimum(np.maximum(n_a, n_b) / np.maximum(lists, 1.0), 1.0)
            found = (found - base) / np.maximum(1.0 - base, 1e-9)
        return np.where(a == b, 1.0, np.clip(found, 0.0, 1.0))

    def together(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How often classes ``a`` (n,) and ``b`` (n,) came up together."""
        if not len(self.keys):
            return np.zeros(len(a))
        wanted = np.minimum(a, b) * len(self.space) + np.maximum(a, b)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[place] == wanted, self.counts[place], 0.0)


@dataclass(frozen=True, eq=False)
class Similarity:
    """Affinity from a matrix (classes, classes) of numbers in 0 … 1; the larger of both directions."""

    space: LabelSpace
    matrix: np.ndarray
    source: str = "similarity"

    def __post_init__(self) -> None:
        size = len(self.space)
        if self.matrix.shape != (size, size):
            raise LabelError(
                f"a similarity of shape {self.matrix.shape} does not fit the {size} classes of "
                f"{self.space.name}",
                fix="give a row and a column for each class, in its order",
            )
        if not np.isfinite(self.matrix).all() or self.matrix.min() < 0 or self.matrix.max() > 1:
            raise LabelError("a similarity lies outside 0 to 1", fix="scale the matrix")

    def values(self, a: np.ndarray, b: np.ndarray, images: np.ndarray | None = None) -> np.ndarray:
        """See :class:`Affinity`."""
        found: np.ndarray = np.maximum(self.matrix[a, b], self.matrix[b, a]).astype(np.float64)
        return found


def co_prediction(peers: Peers) -> PairCounts:
    """Affinity from the best guesses of models: two classes are alike if lists hold both.

    A list is one model's guesses for one image. Where models keep one guess alone, a list is what all
    of them said of the image.
    """
    models, ranks = peers.topk.shape[1:]
    size = len(peers.space)
    if ranks > 1:
        blocks = [peers.topk[:, model] for model in range(models)]
    else:
        blocks = [without_repeats(peers.topk[:, :, 0])]
    totals = np.zeros(size)
    dense = np.zeros(size * size) if size * size <= _CELLS else None
    keys: np.ndarray = np.empty(0, dtype=np.int64)
    counts: np.ndarray = np.empty(0)
    for lists in blocks:
        lists = lists.astype(np.int64)
        totals += np.bincount(lists[lists >= 0], minlength=size)
        found = _pair_keys(lists, size)
        if dense is not None:
            dense += np.bincount(found, minlength=size * size)
        else:
            new, times = np.unique(found, return_counts=True)
            merged, place = np.unique(np.concatenate([keys, new]), return_inverse=True)
            counts = np.bincount(place.reshape(-1), weights=np.concatenate([counts, times]))
            keys = merged
    if dense is not None:
        keys = np.flatnonzero(dense)
        counts = dense[keys]
    in_all = float(len(peers.image_ids) * _lists_of_an_image(peers))
    return PairCounts(peers.space, "co-prediction", keys, counts, totals, in_all, peers)


def _lists_of_an_image(peers: Peers) -> int:
    return peers.topk.shape[1] if peers.topk.shape[2] > 1 else 1


def _pair_keys(lists: np.ndarray, size: int) -> np.ndarray:
    found = []
    for i in range(lists.shape[1]):
        for j in range(i + 1, lists.shape[1]):
            a, b = lists[:, i], lists[:, j]
            given = (a >= 0) & (b >= 0)
            a, b = a[given], b[given]
            found.append(np.minimum(a, b) * size + np.maximum(a, b))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _own_counts(
    peers: Peers, a: np.ndarray, b: np.ndarray, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many lists of each pair's own image hold both, the first, the second."""
    out = np.zeros((3, len(a)))
    if peers.topk.shape[2] > 1:
        lists = peers.topk
    else:
        lists = without_repeats(peers.topk[:, :, 0])[:, None, :]
    for start in range(0, len(a), _BLOCK):
        part = slice(start, start + _BLOCK)
        mine = lists[images[part]]
        has_a = (mine == a[part, None, None]).any(axis=2)
        has_b = (mine == b[part, None, None]).any(axis=2)
        known = images[part] >= 0
        for place, holds in enumerate((has_a & has_b, has_a, has_b)):
            out[place, part] = np.where(known, holds.sum(axis=1), 0)
    return out[0], out[1], out[2]


def from_cooccurrence(found: Cooccurrence) -> PairCounts:
    """Pairs of labels of one image, in the same shape: how often, and of how many pairs."""
    size = len(found.space)
    keys = found.first * size + found.second
    order = np.argsort(keys)
    totals = np.bincount(found.first, weights=found.n, minlength=size)
    totals = totals + np.bincount(found.second, weights=found.n, minlength=size)
    return PairCounts(
        found.space, "co-occurrence", keys[order], found.n[order].astype(np.float64), totals
    )


def from_confusions(file: ConfusionFile, *, label_space: LabelSpace) -> PairCounts:
    """Affinity from a file of confusions; one of names needs names that only one class has."""
    size = len(label_space)
    counts: dict[int, float] = {}
    totals = np.zeros(size)
    for (first, second), n in file.pairs.items():
        if file.form == "names":
            first, second = label_space.by_name(first).id, label_space.by_name(second).id
        a, b = sorted((label_space.index(first), label_space.index(second)))
        counts[a * size + b] = counts.get(a * size + b, 0.0) + n
        totals[[a, b]] += n
    keys = np.array(sorted(counts), dtype=np.int64)
    return PairCounts(
        label_space, "confusions", keys, np.array([counts[k] for k in keys.tolist()]), totals
    )


def read_affinity(path: Path, *, label_space: LabelSpace) -> Affinity:
    """Affinity from a file: ``.npy`` is a matrix, ``.json`` a list of confusions."""
    if path.suffix == ".json":
        from heldout.measure.mistakes.confusion_files import read_confusion_file

        return from_confusions(
            read_confusion_file(path, label_space=label_space), label_space=label_space
        )
    if path.suffix != ".npy" or not path.is_file():
        raise BadFile(
            path, "is no file of affinities", fix="give a matrix (.npy) or confusions (.json)"
        )
    try:
        matrix = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadFile(path, f"is not a NumPy array ({error})", fix="write it again") from None
    return Similarity(label_space, matrix)
