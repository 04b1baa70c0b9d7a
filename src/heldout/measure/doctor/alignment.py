"""A model's outputs aligned with the labels of a test set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.doctor.findings import Evidence, Finding
from heldout.measure.doctor.significance import hits_of, ranks_that_tell
from heldout.models.predictions import Predictions
from heldout.models.predictions.import_arrays import NAMED, image_order


@dataclass(frozen=True, eq=False, kw_only=True)
class AlignedOutputs:
    """A model's outputs beside the labels of a test set; a row for every image of the set.

    ``labels``   int64 (n,): class index in the test set's label space, -1 where there is none
    ``topk``     int64 (n, k): class ids as the model's file has them, -1 where there is none; they
                 may lie outside ``space``
    ``space``    the label space in which the outputs are said to be
    ``relabel``  int64 (positions,): the test set's class that each id means, -1 for none
    ``order``    the order that the file's rows were said to have, as for importing
    """

    testset: TestSet
    model: str
    labels: np.ndarray
    topk: np.ndarray
    space: LabelSpace
    relabel: np.ndarray
    order: str = "testset"

    @property
    def classes(self) -> int:
        """How many classes the test set's label space has."""
        return len(self.testset.label_space)

    @cached_property
    def labelled(self) -> np.ndarray:
        """bool (n,): images with a class."""
        return self.labels >= 0

    @cached_property
    def n(self) -> int:
        """How many images have a class."""
        return int(self.labelled.sum())

    @cached_property
    def ranks(self) -> int:
        """How many ranks the checks look at."""
        return ranks_that_tell(self.topk.shape[1], self.classes)

    @cached_property
    def guesses(self) -> np.ndarray:
        """int64 (n, k): the outputs as classes of the test set under the present reading."""
        return read(self.topk, self.relabel)

    def hits(self, relabel: np.ndarray | None = None) -> np.ndarray:
        """bool (n,): whether one of the telling ranks is right, under a reading of the ids."""
        guesses = self.guesses if relabel is None else read(self.topk, relabel)
        return hits_of(guesses[:, : self.ranks], self.labels)

    def accuracy(self, relabel: np.ndarray | None = None, *, column: int = 0) -> float:
        """Top-1 accuracy under a reading of the ids, taken from one column."""
        guesses = self.guesses if relabel is None else read(self.topk, relabel)
        right = (guesses[:, column] == self.labels) & self.labelled
        return float(right.sum()) / max(self.n, 1)

    def finding(self, code: str, message: str, evidence: Evidence, fix: str) -> Finding:
        """A finding on this model and test set."""
        return Finding(code, message, evidence, fix, self.testset.name, self.model)

    def turned(self) -> AlignedOutputs:
        """The same with its columns turned round."""
        return replace(self, topk=np.ascontiguousarray(self.topk[:, ::-1]))

    def reread(self, relabel: np.ndarray) -> AlignedOutputs:
        """The same under another reading of the ids."""
        return replace(self, relabel=relabel)


def read(topk: np.ndarray, relabel: np.ndarray) -> np.ndarray:
    """Stored class ids as classes of the test set; -1 for none; shape kept."""
    inside = (topk >= 0) & (topk < len(relabel))
    return np.where(inside, relabel[np.where(inside, topk, 0)], -1)


def single_labels(testset: TestSet, truth: str | None = None) -> np.ndarray:
    """One class index per image, int64 (n,), -1 for none or several.

    Of the truth that is named, else of the first single-label one, else of the default.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = {name: where.get("kind", "single") for name, where in testset.card.truths.items()}
    single = next((name for name, kind in kinds.items() if kind == "single"), None)
    table = testset.truth(truth or single or testset.card.default_truth)
    rows = pc.index_in(table["image_id"].combine_chunks(), value_set=testset.image_ids)
    space = pa.array(testset.label_space.ids, pa.string())
    found = pc.fill_null(pc.index_in(table["class_id"].combine_chunks(), value_set=space), -1)
    place = rows.to_numpy(zero_copy_only=False).astype(np.int64)
    labels = np.full(len(testset), -1, dtype=np.int64)
    labels[place] = found.to_numpy(zero_copy_only=False)
    labels[np.bincount(place, minlength=len(labels)) > 1] = -1
    return labels


def shared_reading(space: LabelSpace, target: LabelSpace) -> np.ndarray:
    """int64 (positions,): the class of ``target`` with the same id, -1 where there is none."""
    if space.fingerprint == target.fingerprint:
        return np.arange(len(target), dtype=np.int64)
    place = {class_id: index for index, class_id in enumerate(target.ids)}
    return np.array([place.get(class_id, -1) for class_id in space.ids], dtype=np.int64)


def rows_in_order(testset: TestSet, order: str) -> np.ndarray:
    """int64: the set's row of each image in a named order or that of a file; -1 for other images."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(image_order(testset, order), pa.string())
    rows = pc.fill_null(pc.index_in(ids, value_set=testset.image_ids), -1)
    found: np.ndarray = rows.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def align(testset: TestSet, predictions: Predictions, *, labels: np.ndarray) -> AlignedOutputs:
    """The case of stored predictions; their images must be those of the set.

    ``labels``  of the set's images, as :func:`single_labels` gives them
    """
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)
    order = str(predictions.run.get("order", "testset"))
    return AlignedOutputs(
        testset=testset,
        model=predictions.model,
        labels=labels,
        topk=predictions.topk[rows].astype(np.int64),
        space=predictions.label_space,
        relabel=shared_reading(predictions.label_space, testset.label_space),
        order=order if order in NAMED else "testset",
    )
