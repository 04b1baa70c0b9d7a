"""A truth as arrays, and predictions aligned with its rows; a failed image is the guess -1, never right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from heldout.core.errors import LabelError, NotApplicable, UserError
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.models.predictions import Predictions, top_k

BLOCK = 4096  # rows of logits that are turned into float64 at once


@dataclass(frozen=True, eq=False)
class LabelLists:
    """Lists of class indices, one list per row: ``values[starts[i]:starts[i + 1]]`` belongs to row i."""

    starts: np.ndarray
    values: np.ndarray
    classes: int

    @classmethod
    def from_arrow(cls, column: Any, space: LabelSpace) -> LabelLists:
        """From an Arrow column of lists of class ids."""
        lists = column.combine_chunks()
        if lists.null_count:
            raise UserError(
                "a truth has null where a list of classes belongs", fix="write an empty list"
            )
        starts = np.asarray(lists.offsets, dtype=np.int64)
        values = class_indices(lists.flatten(), space)
        if (values < 0).any():
            raise UserError(
                "a truth has null among the classes of a list", fix="leave it out of the list"
            )
        return cls(starts - starts[0], values, len(space))

    @property
    def lengths(self) -> np.ndarray:
        """How many labels each row has, repeats counted; int64 (n,)."""
        return np.diff(self.starts)

    @cached_property
    def keys(self) -> np.ndarray:
        """(row, class) as one sorted integer ``row * classes + class``, each pair once."""
        rows = np.repeat(np.arange(len(self.starts) - 1), self.lengths)
        return np.unique(rows * self.classes + self.values)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and class of every label, a label that its list repeats only once; int64 (pairs,) each."""
        rows, labels = np.divmod(self.keys, self.classes)
        return rows, labels

    def select(self, rows: np.ndarray) -> LabelLists:
        """The lists of some rows, in that order."""
        places, starts = _ranges(self.starts, rows)
        return LabelLists(starts, self.values[places], self.classes)

    def expanded(self, starts: np.ndarray, values: np.ndarray, classes: int) -> LabelLists:
        """Each label replaced by a list of its own: label c by ``values[starts[c]:starts[c + 1]]``."""
        places, ends = _ranges(starts, self.values)
        return LabelLists(ends[self.starts], values[places], classes)

    def renamed(self, table: np.ndarray, classes: int) -> LabelLists:
        """Each label c replaced by ``table[c]``, and left out where that is -1."""
        values = table[self.values]
        kept = values >= 0
        return LabelLists(
            np.concatenate([[0], np.cumsum(kept)])[self.starts], values[kept], classes
        )

    def contain(self, guesses: np.ndarray) -> np.ndarray:
        """Whether row i's list holds ``guesses[i]``; guesses int (n,) or (n, k) give bool of that shape.

        A guess of -1, or outside the classes, is in no list.
        """
        if len(self.keys) == 0:
            return np.zeros(guesses.shape, dtype=bool)
        wide = guesses.reshape(len(guesses), -1).astype(np.int64)
        wanted = np.arange(len(wide))[:, None] * self.classes + wide
        # One search in the sorted keys answers all rows at once.
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        found = (self.keys[place] == wanted) & (wide >= 0) & (wide < self.classes)
        return np.asarray(found.reshape(guesses.shape), dtype=bool)


def _ranges(starts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the members of the chosen lists, one after another, and where each list starts."""
    lengths = np.diff(starts)[chosen]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    inner = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)
    return np.repeat(starts[:-1][chosen], lengths) + inner, ends


@dataclass(frozen=True, eq=False)
class Truth:
    """One truth of a test set as arrays, a row for each of its (image, class) rows.

    ``rows``         int64 (n,): the row of the set's images table
    ``labels``       int64 (n,): index of ``class_id``, -1 where null
    ``correct``, ``unclear``, ``wrong``  lists of class indices
    ``problematic``  bool (n,)
    """

    name: str
    space: LabelSpace
    rows: np.ndarray
    labels: np.ndarray
    correct: LabelLists
    unclear: LabelLists
    wrong: LabelLists
    problematic: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def judged_by(self, label_map: LabelMap) -> Truth:
        """This truth in a label map's source space: each label becomes its own accepted set.

        ``labels`` stay indices of the target space, for averages one class at a time.
        """
        csr, classes = label_map.csr, len(label_map.source)
        lists = {
            name: getattr(self, name).expanded(csr.indptr, csr.indices, classes)
            for name in ("correct", "unclear", "wrong")
        }
        return replace(self, **lists)

    def in_target(self, label_map: LabelMap) -> Truth:
        """This truth in a label map's target space, rows of other classes left out.

        A truth that is already labelled in the target is returned as it is. One that is labelled
        in the source becomes the clean baseline of the target's classes: its rows whose class (or,
        without one, some correct label) counts as a target.
        """
        if self.space.fingerprint == label_map.target.fingerprint:
            return self
        if self.space.fingerprint != label_map.source.fingerprint:
            raise LabelError(
                f"truth {self.name} is labelled in {self.space.name}, label map {label_map.name} goes from "
                f"{label_map.source.name} to {label_map.target.name}",
                fix="use a map to (or from) the test set's label space",
            )
        table = label_map.target_of_source
        lists = {
            name: getattr(self, name).renamed(table, len(label_map.target))
            for name in ("correct", "unclear", "wrong")
        }
        labels = np.where(self.labels >= 0, table[self.labels], -1)
        keep = np.flatnonzero(np.where(self.labels >= 0, labels >= 0, lists["correct"].lengths > 0))
        return replace(
            self,
            space=label_map.target,
            rows=self.rows[keep],
            labels=labels[keep],
            problematic=self.problematic[keep],
            **{name: given.select(keep) for name, given in lists.items()},
        )


def class_indices(ids: Any, space: LabelSpace) -> np.ndarray:
    """Indices of an Arrow array of class ids in a label space; -1 for null; int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    found = pc.index_in(array, value_set=pa.array(space.ids, pa.string()))
    if found.null_count > array.null_count:
        foreign = array.filter(pc.and_(found.is_null(), array.is_valid()))[0].as_py()
        raise LabelError(f"class {foreign!r} is not in label space {space.name}")
    indices: np.ndarray = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return indices


def truth_arrays(testset: TestSet, name: str | None = None) -> Truth:
    """A truth of a test set as arrays, sorted by image id and class.

    The order is the ids' own, so that nothing computed from it depends on the order of the files.
    """
    import pyarrow.compute as pc

    table = testset.truth(name)
    order = pc.sort_indices(table, sort_keys=[("image_id", "ascending"), ("class_id", "ascending")])
    table = table.take(order)
    rows = pc.index_in(table["image_id"].combine_chunks(), value_set=testset.image_ids)
    space = testset.label_space
    return Truth(
        name=name or testset.card.default_truth,
        space=space,
        rows=rows.to_numpy(zero_copy_only=False).astype(np.int64),
        labels=class_indices(table["class_id"], space),
        correct=LabelLists.from_arrow(table["correct"], space),
        unclear=LabelLists.from_arrow(table["unclear"], space),
        wrong=LabelLists.from_arrow(table["wrong"], space),
        problematic=pc.fill_null(table["problematic"], False)
        .to_numpy(zero_copy_only=False)
        .astype(bool),
    )


@dataclass(frozen=True, eq=False)
class RankedPredictions:
    """One model's outputs laid beside a truth's rows, in the label space in which they are judged.

    ``topk``    int (n, k), best first, -1 where there is no (mapped) class
    ``space``   the label space of ``topk`` and ``logits``
    ``failed``  bool (n,): rows without an output
    ``logits``  float (n, classes), zero in rows without an output; or None
    ``known``   int (n,): how many leading ranks are certain; None where all are
    """

    topk: np.ndarray
    space: LabelSpace
    failed: np.ndarray
    logits: np.ndarray | None = None
    known: np.ndarray | None = None

    @property
    def needed_logits(self) -> np.ndarray:
        """The logits, for a metric that cannot do without: they were asked for."""
        return np.asarray(self.logits)

    @cached_property
    def normaliser(self) -> np.ndarray:
        """log of the summed exponentials of each row of logits; float64 (n,)."""
        return log_sum_exp(self.needed_logits)

    def unknown(self, ranks: int) -> np.ndarray:
        """Rows whose best ``ranks`` classes are not all on file; bool (n,)."""
        if self.known is None:
            return np.zeros(len(self.topk), dtype=bool)
        return np.asarray(self.known < min(ranks, len(self.space)))


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """log of the summed exponentials of each row; float64 (n,), without overflow."""
    found = np.empty(len(logits))
    for start in range(0, len(logits), BLOCK):
        block = logits[start : start + BLOCK].astype(np.float64)
        top = block.max(axis=1)
        found[start : start + BLOCK] = top + np.log(np.exp(block - top[:, None]).sum(axis=1))
    return found


def ranked_predictions(
    predictions: Predictions,
    testset: TestSet,
    truth: Truth,
    label_map: LabelMap | None,
    *,
    logits: bool,
    ranks: int = 1,
) -> RankedPredictions:
    """A model's outputs beside a truth's rows, in the label space in which they are judged.

    ``ranks`` guesses are taken from the logits where fewer are stored. Rows without an output
    have guesses of -1 and logits of zero, which is the uniform guess.
    """
    expected = testset.label_space if label_map is None else label_map.source
    if predictions.label_space.fingerprint != expected.fingerprint:
        raise _foreign_space(predictions, testset, label_map)
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)[truth.rows]
    topk = predictions.topk[rows]
    failed = np.asarray((topk < 0).all(axis=1))
    restricted = label_map is not None and label_map.reading == "restricted"
    short = topk.shape[1] < min(ranks, len(expected))
    values = None
    # Under a restriction the best remaining class may be anywhere: all logits are looked at.
    if predictions.logits is not None and (logits or restricted or short):
        values = _checked_logits(predictions, predictions.logits, rows, failed)
    if label_map is None or not restricted:
        if short and values is not None:
            topk = np.where(failed[:, None], -1, top_k(values, ranks))
        return RankedPredictions(topk, expected, failed, values if logits else None)
    if values is None:
        mapped = label_map.read_topk(topk)
        return RankedPredictions(
            mapped.targets, label_map.target, failed=failed, known=mapped.known
        )
    # The larger type: half precision is enough to store logits, and slow to compare.
    values = label_map.map_logits(values.astype(np.float32, copy=False))
    best = np.where(failed[:, None], -1, top_k(values, max(ranks, topk.shape[1])))
    return RankedPredictions(best, label_map.target, failed, values if logits else None)


def top1_predictions(guesses: RankedPredictions, label_map: LabelMap | None) -> np.ndarray:
    """First guesses as classes of the test set, -1 for none of them; int32 (n,)."""
    firsts = guesses.topk[:, :1]
    if label_map is not None and label_map.reading == "full":
        firsts = label_map.map_topk(firsts)
    return firsts[:, 0].astype(np.int32)


def _checked_logits(
    predictions: Predictions, logits: np.ndarray, rows: np.ndarray, failed: np.ndarray
) -> np.ndarray:
    """The logits of some rows, those without an output zero; NaN and +inf are refused."""
    values: np.ndarray = logits[rows]
    values[failed] = 0
    # A row's maximum is NaN or +inf if any of its logits is.
    bad = ~np.isfinite(values.max(axis=1))
    if bad.any():
        example = predictions.image_ids[int(rows[int(bad.argmax())])].as_py()
        raise NotApplicable(
            f"{predictions.model} has NaN or infinite logits for {int(bad.sum())} images, "
            f"such as {example!r}",
            fix="predict these images again, or mark them as failed",
        )
    return values


def _foreign_space(
    predictions: Predictions, testset: TestSet, label_map: LabelMap | None
) -> LabelError:
    model, space = predictions.model, predictions.label_space
    if label_map is not None:
        return LabelError(
            f"label map {label_map.name} reads {label_map.source.name}, {model} predicts {space.name}",
            fix="use a map from the model's own label space",
        )
    return LabelError(
        f"{model} predicts {space.name} ({len(space)} classes), {testset.name} is labelled in "
        f"{testset.label_space.name} ({len(testset.label_space)})",
        fix="name a --label-map, such as subset:restricted (argmax over the set's classes) "
        "or subset:full (argmax over all the model's classes)",
    )
