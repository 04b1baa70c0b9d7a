"""Label maps: how predictions in one label space are judged in another.

A model predicts among N source classes; a test set has K target classes. Each target class has its
own accepted set of source classes. What counts as the prediction has two readings, and they give
different accuracies, so a map always states which one it is:

``restricted``  argmax over K: source classes that no target accepts are taken out first, and the
                best of the rest is the prediction. This is how ImageNet-A and ImageNet-R are
                scored by their authors.
``full``        argmax over N, judged on K: the model's own prediction stands, and one that no
                target accepts is wrong.

Restricted accuracy is never lower than full accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import LabelError, MismatchError
from heldout.data.labels.label_space import LabelSpace, checked_name, listed
from heldout.data.labels.mapped_topk import Indices, MappedTopk, checked_indices, checked_topk

Kind = Literal["identity", "subset", "many-to-one", "hierarchy"]
Reading = Literal["restricted", "full"]
KINDS: tuple[Kind, ...] = ("identity", "subset", "many-to-one", "hierarchy")
READINGS: tuple[Reading, ...] = ("restricted", "full")
_BLOCK = 4096  # rows of logits that are gathered at once


@dataclass(frozen=True)
class AcceptedCsr:
    """Accepted sets as two arrays: those of target t are ``indices[indptr[t]:indptr[t + 1]]``.

    ``indptr``   (K + 1,)
    ``indices``  source indices, sorted within each target
    """

    indptr: Indices
    indices: Indices


@dataclass(frozen=True, eq=False)
class LabelMap:
    """How predictions in ``source`` are judged in ``target``; see :mod:`heldout.data.labels.map_kinds`.

    ``accepted``  for each target class, in order, the sorted indices of the source classes that
                  count as that target; never empty, and each class's set is its own
    ``reading``   ``restricted`` or ``full``, see the module's head

    Two targets may share a source class only where the maker allowed it (``overlaps``), and only
    under ``full``: with a shared class there is no one best target.
    """

    name: str
    kind: Kind
    source: LabelSpace
    target: LabelSpace
    accepted: tuple[tuple[int, ...], ...]
    reading: Reading
    allow_overlap: bool = False

    def __post_init__(self) -> None:
        checked_name(self.name, "a label map")
        _checked_choice(self.kind, KINDS, "kind")
        _checked_choice(self.reading, READINGS, "reading")
        if len(self.accepted) != len(self.target):
            raise LabelError(
                f"label map {self.name} has {len(self.accepted)} accepted sets "
                f"for {len(self.target)} classes of {self.target.name}",
                fix="give one for each",
            )
        for item, sources in zip(self.target, self.accepted, strict=True):
            if not sources:
                raise LabelError(
                    f"label map {self.name}: no class of {self.source.name} is accepted for "
                    f"{item.id} ({item.name})",
                    fix="give it a class, or leave it out of the target label space",
                )
            if list(sources) != sorted(set(sources)):
                raise LabelError(
                    f"label map {self.name}: the accepted set of {item.id} is not sorted",
                    fix="sort it",
                )
            if sources[0] < 0 or sources[-1] >= len(self.source):
                raise LabelError(
                    f"label map {self.name}: {item.id} accepts an index outside 0 to "
                    f"{len(self.source) - 1}",
                    fix=f"use indices of {self.source.name}",
                )
        if self.overlaps and not self.allow_overlap:
            shared = self.overlaps[0]
            both = [self.target.classes[t] for t, s in enumerate(self.accepted) if shared in s]
            raise LabelError(
                f"label map {self.name}: {self.source.classes[shared].id} "
                f"({self.source.classes[shared].name}) is accepted for {listed(both)}",
                fix="give it to one of them, or allow overlap under the reading 'full'",
            )
        if self.overlaps and self.reading == "restricted":
            raise LabelError(
                f"label map {self.name}: targets that share a class have no argmax over K",
                fix="use the reading 'full'",
            )

    def __repr__(self) -> str:
        return (
            f"LabelMap({self.describe()!r}, {self.source.name} {len(self.source)} -> "
            f"{self.target.name} {len(self.target)})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelMap):
            return NotImplemented
        return (
            self._key == other._key and self.source == other.source and self.target == other.target
        )

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return (self.name, self.kind, self.accepted, self.reading, self.allow_overlap)

    def describe(self) -> str:
        """What the ``label_map`` field of records holds.

        ``identity``, or kind, name and reading such as ``subset:imagenet-a:restricted``.
        """
        return "identity" if self.kind == "identity" else f"{self.kind}:{self.name}:{self.reading}"

    @cached_property
    def overlaps(self) -> tuple[int, ...]:
        """Source indices that more than one target accepts, sorted."""
        counts = np.bincount(self.csr.indices, minlength=len(self.source))
        return tuple(int(i) for i in np.flatnonzero(counts > 1))

    @cached_property
    def csr(self) -> AcceptedCsr:
        """The accepted sets as arrays."""
        sizes = np.array([len(sources) for sources in self.accepted], dtype=np.int64)
        flat = np.fromiter(
            (i for sources in self.accepted for i in sources),
            dtype=np.int64,
            count=int(sizes.sum()),
        )
        return AcceptedCsr(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), flat)

    def accepted_matrix(self) -> NDArray[np.bool_]:
        """(K, N): whether a target accepts a source class."""
        matrix = np.zeros((len(self.target), len(self.source)), dtype=np.bool_)
        rows = np.repeat(np.arange(len(self.target)), np.diff(self.csr.indptr))
        matrix[rows, self.csr.indices] = True
        return matrix

    def accepted_ids(self, target_id: str) -> tuple[str, ...]:
        """Ids of the source classes that count as a target class."""
        return tuple(self.source.ids[i] for i in self.accepted[self.target.index(target_id)])

    @cached_property
    def target_of_source(self) -> Indices:
        """(N,): the target index of each source class, -1 where none accepts it."""
        if self.overlaps:
            raise LabelError(
                f"label map {self.name}: {self.source.ids[self.overlaps[0]]} belongs to several "
                "targets, so no class has one target",
                fix="judge with judge_topk, which needs only the accepted sets",
            )
        table = np.full(len(self.source), -1, dtype=np.int64)
        table[self.csr.indices] = np.repeat(np.arange(len(self.target)), np.diff(self.csr.indptr))
        table.flags.writeable = False
        return table

    def map_truth(self, truth: NDArray[Any]) -> Indices:
        """Source indices to target indices of the same shape, -1 for a class outside the target.

        The clean baseline of a subset: the images of the source's test set whose mapped truth is
        not -1, judged with this same map.
        """
        checked = checked_indices(truth, len(self.source), "class", minimum=-1)
        return np.where(checked < 0, np.int64(-1), self.target_of_source[checked])

    def map_topk(self, topk: NDArray[Any]) -> Indices:
        """(n, k) source indices, best first, to (n, k) target indices; -1 = in no target.

        Ranks stay where they are: this is argmax over N judged on K. A source index of -1 means
        no prediction and stays -1.
        """
        return self.map_truth(checked_topk(topk))

    def restrict_topk(self, topk: NDArray[Any]) -> MappedTopk:
        """(n, k) source indices, best first, to the best targets among the K.

        What no target accepts is taken out, and of several source classes of one target the first
        stands for it. The first rank is the argmax over K that full logits would give, provided
        that it is known.
        """
        mapped = self.map_topk(topk)
        # A stable sort puts equal targets side by side in rank order: the first of a run stays.
        by_target = np.argsort(mapped, axis=1, kind="stable")
        grouped = np.take_along_axis(mapped, by_target, axis=1)
        first = grouped >= 0
        first[:, 1:] &= grouped[:, 1:] != grouped[:, :-1]
        keep = np.zeros_like(first)
        np.put_along_axis(keep, by_target, first, axis=1)
        order = np.argsort(~keep, axis=1, kind="stable")
        targets = np.take_along_axis(np.where(keep, mapped, -1), order, axis=1)
        return MappedTopk(targets, keep.sum(axis=1).astype(np.int64), len(self.target))

    def read_topk(self, topk: NDArray[Any]) -> MappedTopk:
        """(n, k) source indices to targets under this map's own reading."""
        if self.reading == "restricted":
            return self.restrict_topk(topk)
        mapped = self.map_topk(topk)
        # Under `full` every stored rank is certain, and no list of k ranks can say more.
        known = np.full(len(mapped), max(mapped.shape[1], len(self.target)), dtype=np.int64)
        return MappedTopk(mapped, known, len(self.target))

    def judge_topk(self, topk: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n, k): whether each rank is right, under this map's reading; ``truth`` is (n,) targets.

        Top-1 accuracy is the mean of column 0, top-k accuracy that of ``any`` over k columns. The
        only judgement that overlapping targets allow. Under ``restricted`` a miss may be a class
        that is not on file: :meth:`MappedTopk.unknown` of :meth:`read_topk` says where.
        """
        if not self.overlaps:
            return self.read_topk(topk).hits(truth)
        sources = checked_indices(checked_topk(topk), len(self.source), "class", minimum=-1)
        right = checked_indices(truth, len(self.target), "truth", minimum=0)
        if right.shape != sources.shape[:1]:
            raise MismatchError(
                f"{len(right)} truths for {len(sources)} predictions", fix="join by image id"
            )
        return (sources >= 0) & self.accepted_matrix()[right[:, None], sources]

    def map_logits(self, logits: NDArray[Any]) -> NDArray[Any]:
        """(n, N) logits to (n, K), whose argmax is the prediction of the restricted reading.

        The best accepted source class stands for the target. The winner is then the target of the
        best-ranked accepted class, so stored top-k and logits agree; no target gains by having
        many classes; and any increasing transform of the logits gives the same answer. The dtype
        is kept; NaN stays NaN.
        """
        if logits.ndim != 2 or logits.shape[1] != len(self.source):
            raise MismatchError(
                f"logits of shape {logits.shape} for the {len(self.source)} classes of "
                f"{self.source.name}",
                fix="use the label space of the model",
            )
        starts, columns = self.csr.indptr[:-1], self.csr.indices
        if len(columns) == len(self.target):  # one class each: nothing to combine
            return logits[:, columns]
        out = np.empty((len(logits), len(self.target)), dtype=logits.dtype)
        for start in range(0, len(logits), _BLOCK):
            block = logits[start : start + _BLOCK]
            part = out[start : start + _BLOCK]
            np.maximum.reduceat(block[:, columns], starts, axis=1, out=part)
        return out


def _checked_choice(value: str, allowed: Sequence[str], what: str) -> None:
    if value not in allowed:
        raise LabelError(f"{value!r} is no {what}", fix=f"use one of {', '.join(allowed)}")
