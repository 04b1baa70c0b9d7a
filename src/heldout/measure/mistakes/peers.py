"""Peers: the best guesses of other models on the same images, as evidence about a mistake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heldout.core.errors import LabelError, UserError
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.models.predictions import Predictions

RANKS = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class Peers:
    """The best guesses of some models on some images.

    ``image_ids``  n of them
    ``topk``       int32 (n, models, k): class indices of ``space``, best first, each at most once a
                   list; -1 where there is none
    """

    space: LabelSpace
    models: tuple[str, ...]
    image_ids: tuple[str, ...]
    topk: np.ndarray

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {image: row for row, image in enumerate(self.image_ids)}

    def rows(self, image_ids: Sequence[str]) -> np.ndarray:
        """The row of each image, -1 where no peer has seen it; int64."""
        return np.array([self._rows.get(image, -1) for image in image_ids], dtype=np.int64)

    def only(self, models: Sequence[str]) -> Peers:
        """The same images, seen by some of the models."""
        where = [self.models.index(model) for model in models]
        return Peers(
            space=self.space,
            models=tuple(models),
            image_ids=self.image_ids,
            topk=self.topk[:, where],
        )


def read_peers(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    label_map: LabelMap | None = None,
    ranks: int = RANKS,
) -> Peers:
    """The first ``ranks`` guesses of models on a test set, in its label space."""
    names: list[str] = []
    lists: list[np.ndarray] = []
    for model in predictions:
        rows = model.rows_for(testset.image_ids, testset=testset.name)
        topk = model.topk[rows]
        if model.failures:
            topk = np.where(np.isin(rows, list(model.failures))[:, None], -1, topk)
        if model.label_space.fingerprint != testset.label_space.fingerprint:
            topk = _mapped(topk, model, testset, label_map)
        names.append(model.model)
        lists.append(without_repeats(topk[:, :ranks].astype(np.int32)))
    if not names:
        raise UserError(f"no peers on {testset.name}", fix="name models that have seen it")
    # Models may keep lists of different length: the shorter ones end in -1.
    together = np.full(
        (len(testset), len(lists), max(kept.shape[1] for kept in lists)), -1, dtype=np.int32
    )
    for place, kept in enumerate(lists):
        together[:, place, : kept.shape[1]] = kept
    return Peers(
        space=testset.label_space,
        models=tuple(names),
        image_ids=tuple(testset.image_ids.to_pylist()),
        topk=together,
    )


def without_repeats(lists: np.ndarray) -> np.ndarray:
    """Lists (n, k) in which every class stands once: later ones of a kind become -1."""
    kept = lists.copy()
    for place in range(1, lists.shape[1]):
        again = (lists[:, :place] == lists[:, place : place + 1]).any(axis=1)
        kept[again, place] = -1
    return kept


def _mapped(
    topk: np.ndarray, model: Predictions, testset: TestSet, label_map: LabelMap | None
) -> np.ndarray:
    if label_map is None or label_map.source.fingerprint != model.label_space.fingerprint:
        raise LabelError(
            f"{model.model} predicts {model.label_space.name}, {testset.name} is labelled in "
            f"{testset.label_space.name}",
            fix="name a --label-map from the model's label space, or leave the model out",
        )
    if label_map.reading == "restricted":
        return label_map.restrict_topk(topk).targets
    return label_map.map_topk(topk)
