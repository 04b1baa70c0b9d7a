"""Mistakes between models: what all make, what two share, and what other models say of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np

from heldout.core.errors import LabelError, NotApplicable, UserError
from heldout.core.records import Table
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.mistakes.verdicts import Verdicts
from heldout.measure.score.compare import error_consistency
from heldout.measure.score.slices import cluster_codes, cluster_column, with_cluster_name
from heldout.models.predictions import Predictions
from heldout.stats.intervals import Interval, wilson
from heldout.stats.slices import share_in_clusters

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class ModelConsensus:
    """How many of n images all models miss, with the Wilson interval of the share.

    ``missed_by``  images that 0, 1, … all models miss
    """

    record: ClassVar[str] = "consensus"
    table: ClassVar[Table] = Table(
        "{testset}: what models miss together",
        (
            "truth", "models", "images=n:,", "left out=left_out:,", "missed by all=missed_by_all:,",
            "percent=share:%[]", "right by all=right_by_all:,",
        ),
    )  # fmt: skip
    testset: str
    truth: str
    models: int
    n: int
    left_out: int
    missed_by_all: int
    share: float
    low: float
    high: float
    interval: str
    level: float
    right_by_all: int
    missed_by: list[int]


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An image that models miss together, and the class that most of them give instead.

    ``row``        its row of the verdicts
    ``original``   class id of its own label, or None
    ``acceptable`` class ids that the truth takes as right
    ``majority``   class id that most of the wrong models give, the first in the label space among
                   equals; None where none of them has an output
    ``votes``      models that give it; ``missed_by`` models that are wrong, of ``models``
    ``classes``    how many different classes the wrong models give
    """

    record: ClassVar[str] = "suspect"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: images to doubt",
        (
            "image=image_id", "label=original_name", "most models say=majority_name",
            "say so=votes:,", "wrong=missed_by:,", "models:,", "answers=classes:,",
        ),
        rows=6,
    )  # fmt: skip
    row: int
    testset: str
    truth: str
    image_id: str
    original: str | None
    original_name: str | None
    acceptable: tuple[str, ...]
    majority: str | None
    majority_name: str | None
    votes: int
    missed_by: int
    models: int
    classes: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without the row, which only this program knows."""
        return {name: value for name, value in asdict(self).items() if name != "row"}


def model_consensus(verdicts: Verdicts, *, level: float = LEVEL) -> ModelConsensus:
    """How many models miss each image."""
    n, models = verdicts.wrong.shape
    missed_by = np.bincount(verdicts.wrong.sum(axis=1), minlength=models + 1).tolist()
    limits = wilson(missed_by[-1], n, level=level)
    return ModelConsensus(
        testset=verdicts.testset.name,
        truth=verdicts.truth.name,
        models=models,
        n=n,
        left_out=verdicts.left_out,
        missed_by_all=missed_by[-1],
        share=missed_by[-1] / n,
        low=float(limits.low),
        high=float(limits.high),
        interval=limits.method,
        level=level,
        right_by_all=missed_by[0],
        missed_by=missed_by,
    )


def checked_models(verdicts: Verdicts, at_least: int | None) -> int:
    """At least how many models must miss an image: all of them by default."""
    models = len(verdicts.models)
    wanted = models if at_least is None else at_least
    if not 1 <= wanted <= models:
        raise UserError(
            f"images that {wanted} of {models} models miss", fix=f"ask for 1 to {models}"
        )
    return wanted


def suspects(verdicts: Verdicts, *, at_least: int | None = None) -> list[Suspect]:
    """Images that at least this many models miss (all of them by default), to look at their labels.

    Those on which most models agree on one other class come first, then those that more models miss,
    then by image id.
    """
    misses = verdicts.wrong.sum(axis=1)
    rows = np.flatnonzero(misses >= checked_models(verdicts, at_least))
    majority, votes, classes = _majorities(verdicts, rows)
    space = verdicts.truth.space
    ids = (*space.ids, None)  # -1 is no class
    names = (*(item.name for item in space), None)
    every = np.array(space.ids, dtype=object)
    lists = verdicts.acceptable.select(rows)
    made = [
        Suspect(
            row=row,
            testset=verdicts.testset.name,
            truth=verdicts.truth.name,
            image_id=verdicts.image_ids[row],
            original=ids[verdicts.truth.labels[row]],
            original_name=names[verdicts.truth.labels[row]],
            acceptable=tuple(every[lists.values[lists.starts[place] : lists.starts[place + 1]]]),
            majority=ids[majority[place]],
            majority_name=names[majority[place]],
            votes=int(votes[place]),
            missed_by=int(misses[row]),
            models=len(verdicts.models),
            classes=int(classes[place]),
        )
        for place, row in enumerate(rows.tolist())
    ]
    return sorted(made, key=lambda s: (-s.votes, -s.missed_by, s.image_id))


def _majorities(verdicts: Verdicts, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row the class that most wrong models give, its votes, and how many classes there are."""
    size = len(verdicts.truth.space)
    guesses = np.where(verdicts.wrong[rows], verdicts.guesses[rows], -1).astype(np.int64)
    where, models = np.nonzero(guesses >= 0)
    keys, votes = np.unique(where * size + guesses[where, models], return_counts=True)
    place, said = np.divmod(keys, size)
    order = np.lexsort((said, -votes, place))
    with_any, first = np.unique(place[order], return_index=True)
    majority = np.full(len(rows), -1, dtype=np.int64)
    best = np.zeros(len(rows), dtype=np.int64)
    majority[with_any], best[with_any] = said[order[first]], votes[order[first]]
    return majority, best, np.bincount(place, minlength=len(rows))


Change = Literal["fixed", "new", "shared"]
CHANGES: tuple[Change, ...] = ("fixed", "new", "shared")


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Mistakes of two models on the same n images.

    ``shared``    both are wrong; ``same`` of these give the same class
    ``expected``  how many both would miss if their mistakes had nothing to do with each other
    ``kappa``     agreement on right and wrong beyond that, from -1 to 1: the error consistency of
                  Geirhos et al. (NeurIPS 2020); None where both are always right, or always wrong
    ``share``     shared of ``wrong``: of the first model's mistakes those that the other also makes,
                  with its Wilson interval, or that over clusters where the card declares them
    ``reason``    why there is no interval
    """

    record: ClassVar[str] = "overlap"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: mistakes that two models share",
        (
            "model", "other", "its mistakes=wrong:,", "other's=other_wrong:,", "shared:,",
            "by chance=expected:,.0f", "kappa:.3f", "same class=same:,",
            "percent of its own=share:%1[]",
        ),
        rows=8,
    )  # fmt: skip
    testset: str
    truth: str
    model: str
    other: str
    n: int
    wrong: int
    other_wrong: int
    shared: int
    same: int
    expected: float
    kappa: float | None
    share: float | None
    low: float | None
    high: float | None
    reason: str | None = None


def overlaps(verdicts: Verdicts, of: str | None = None, *, level: float = LEVEL) -> list[Overlap]:
    """The overlap of all pairs of models, or of those with the model ``of``, which stands first."""
    if len(verdicts.models) < 2:
        raise UserError(f"{verdicts.models[0]} is one model", fix="name at least two")
    pairs: Iterable[tuple[int, int]] = combinations(range(len(verdicts.models)), 2)
    if of is not None:
        first = verdicts.position(of)
        pairs = [(first, other) for other in range(len(verdicts.models)) if other != first]
    made, n = [], len(verdicts)
    measured, column = verdicts.measured(), cluster_column(verdicts.testset, None)
    clusters = None if column is None else cluster_codes(measured, column)
    kappas = error_consistency(measured).kappa

    @cache
    def of_own(a: int) -> tuple[Interval | None, str | None]:
        """Which part of a model's mistakes each other one makes too, (models,), or why not."""
        rows = np.flatnonzero(verdicts.wrong[:, a])
        shared = verdicts.wrong[rows]
        if not len(rows):
            return None, None
        if clusters is None:
            return wilson(shared.sum(axis=0), len(rows), level=level), None
        try:
            return share_in_clusters(shared, clusters[rows], level=level), None
        except NotApplicable as refused:
            return None, with_cluster_name(refused.message, column)

    for a, b in pairs:
        model, other = verdicts.models[a], verdicts.models[b]
        found = changes(verdicts, model, other)
        only, other_only, shared = (len(found.rows[change]) for change in CHANGES)
        wrong, other_wrong = only + shared, other_only + shared
        limits, reason = of_own(a)
        made.append(
            Overlap(
                testset=verdicts.testset.name,
                truth=verdicts.truth.name,
                model=model,
                other=other,
                n=n,
                wrong=wrong,
                other_wrong=other_wrong,
                shared=shared,
                same=int(found.same.sum()),
                expected=wrong * other_wrong / n,
                kappa=None if np.isnan(kappas[a, b]) else float(kappas[a, b]),
                share=shared / wrong if wrong else None,
                low=None if limits is None else float(limits.low[b]),
                high=None if limits is None else float(limits.high[b]),
                reason=reason,
            )
        )
    return made


@dataclass(frozen=True, eq=False)
class Changes:
    """What became of mistakes between an old and a new model, on the same images.

    ``rows``  by change, int64: rows of the verdicts that only the old model misses (fixed), only the
              new one (new), both (shared)
    ``same``  bool (shared,): whether both give the same class there
    """

    verdicts: Verdicts
    old: str
    new_model: str
    rows: dict[Change, np.ndarray]
    same: np.ndarray


@dataclass(frozen=True, kw_only=True)
class ChangedImage:
    """One image that at least one of two models misses; class ids, None where there is no class."""

    record: ClassVar[str] = "changed"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: {change} mistakes",
        ("image=image_id", "label=original_name", "old=old_name", "new=new_name"),
        rows=5,
    )
    testset: str
    truth: str
    image_id: str
    change: Change
    original: str | None
    original_name: str | None
    old_prediction: str | None
    old_name: str | None
    new_prediction: str | None
    new_name: str | None


def changes(verdicts: Verdicts, old: str, new: str) -> Changes:
    """What the new model fixes, what it breaks, and what both miss."""
    if old == new:
        raise UserError(f"{old} is compared with itself", fix="name two models")
    a, b = verdicts.position(old), verdicts.position(new)
    before, after = verdicts.wrong[:, a], verdicts.wrong[:, b]
    rows: dict[Change, np.ndarray] = {
        "fixed": np.flatnonzero(before & ~after),
        "new": np.flatnonzero(~before & after),
        "shared": np.flatnonzero(before & after),
    }
    one, other = verdicts.guesses[rows["shared"]][:, [a, b]].T
    return Changes(verdicts, old, new, rows, (one == other) & (one >= 0))


def changed_images(found: Changes) -> list[ChangedImage]:
    """Every image that either model misses: fixed ones first, then new ones, then shared, by id."""
    verdicts = found.verdicts
    ids = (*verdicts.truth.space.ids, None)  # -1 is no class
    names = (*(item.name for item in verdicts.truth.space), None)
    both = verdicts.guesses[:, [verdicts.position(found.old), verdicts.position(found.new_model)]]
    return [
        ChangedImage(
            testset=verdicts.testset.name,
            truth=verdicts.truth.name,
            image_id=verdicts.image_ids[row],
            change=change,
            original=ids[verdicts.truth.labels[row]],
            original_name=names[verdicts.truth.labels[row]],
            old_prediction=ids[both[row, 0]],
            old_name=names[both[row, 0]],
            new_prediction=ids[both[row, 1]],
            new_name=names[both[row, 1]],
        )
        for change in CHANGES
        for row in found.rows[change].tolist()
    ]


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
    def lists(self) -> np.ndarray:
        """Classes that were said together, int32 (n, lists, k), -1 for none.

        A list is one model's guesses for an image; where models keep one guess alone, it is what all of
        them say of the image.
        """
        if self.topk.shape[2] > 1:
            return self.topk
        return without_repeats(self.topk[:, :, 0])[:, None, :]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {image: row for row, image in enumerate(self.image_ids)}

    def rows(self, image_ids: Sequence[str]) -> np.ndarray:
        """The row of each image, -1 where no peer has seen it; int64."""
        return np.array([self._rows.get(image, -1) for image in image_ids], dtype=np.int64)


def read_peers(
    testset: TestSet, predictions: Iterable[Predictions], *, label_map: LabelMap | None = None
) -> Peers:
    """The first five guesses of models on a test set, in its label space."""
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
        lists.append(without_repeats(topk[:, :RANKS].astype(np.int32)))
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
    """Lists (n, k) in which every class is there once: later ones of a kind become -1."""
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
    return label_map.read_topk(topk).targets
