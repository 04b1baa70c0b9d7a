"""Verdicts: the first guesses of models laid beside a truth, and what it says of each of them.

Confusions, consensus, overlap, categories and queues are all read from this one matrix, and it counts
the images that the scores under that truth count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.labels.label_map import LabelMap
from heldout.data.testset import TestSet
from heldout.measure.mistakes.collapse import Collapse
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import (
    accepted,
    get_metric,
    has_label,
    not_problematic,
)
from heldout.measure.score.truth import (
    LabelLists,
    RankedPredictions,
    Truth,
    ranked_predictions,
    top1_predictions,
    truth_arrays,
)
from heldout.models.predictions import Predictions

RIGHT, WRONG, UNREVIEWED, NOTHING = 0, 1, 2, 3
"""What a truth says of a first guess.

``RIGHT``       correct or unclear; a label that is also called wrong stays right: the hit wins
``WRONG``       neither
``UNREVIEWED``  neither, and not called wrong either, in a truth that reviewers made: an error until
                somebody has looked
``NOTHING``     there is no output: an error as well
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdicts:
    """What one truth says of the first guesses of some models.

    ``truth``     the truth, cut to the n rows that count; rows are in order of image id
    ``hashes``    of the models' predictions
    ``guesses``   int32 (n, models): class index in ``truth.space``; -1 for no output, or for a class
                  that is not of the set
    ``states``    int8 (n, models): RIGHT, WRONG, UNREVIEWED or NOTHING
    ``left_out``  rows of the truth that do not count
    ``reviewed``  whether the truth is one of reviewers, who also say what is wrong
    """

    testset: TestSet
    truth: Truth
    models: tuple[str, ...]
    hashes: tuple[str, ...]
    guesses: np.ndarray
    states: np.ndarray
    left_out: int
    reviewed: bool = False
    label_map: str = "identity"

    def __len__(self) -> int:
        return len(self.truth)

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """The image of every row."""
        return tuple(self.testset.image_ids.take(self.truth.rows).to_pylist())

    @cached_property
    def wrong(self) -> np.ndarray:
        """Whether a model is wrong on a row, whatever the reason; bool (n, models)."""
        return np.asarray(self.states != RIGHT)

    @cached_property
    def acceptable(self) -> LabelLists:
        """What would have been right on each row: correct and unclear labels, sorted, each once."""
        truth, size = self.truth, len(self.truth.space)
        keys = np.union1d(truth.correct.keys, truth.unclear.keys)
        rows, labels = np.divmod(keys, size)
        return LabelLists(np.searchsorted(rows, np.arange(len(truth) + 1)), labels, size)

    def position(self, model: str) -> int:
        """Which column a model is."""
        if model not in self.models:
            raise UserError(f"no model {model!r} here", fix=f"there is {', '.join(self.models)}")
        return self.models.index(model)

    def measured(self) -> Measured:
        """The verdicts as a measurement of hits, for what reads one."""
        return Measured(
            testset=self.testset,
            truth=self.truth.name,
            space=self.truth.space,
            metric=get_metric("accepted"),
            models=self.models,
            values=~self.wrong,
            rows=self.truth.rows,
            groups=self.truth.labels,
            label_map=self.label_map,
            hashes=self.hashes,
            left_out=self.left_out,
        )

    def of_models(self, models: Sequence[str]) -> Verdicts:
        """The same verdicts on some models, in that order."""
        where = [self.position(model) for model in models]
        return replace(
            self,
            models=tuple(models),
            hashes=tuple(self.hashes[m] for m in where),
            guesses=self.guesses[:, where],
            states=self.states[:, where],
        )


def verdicts(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    truth: str | None = None,
    collapse: Collapse | None = None,
    label_map: LabelMap | None = None,
) -> Verdicts:
    """The verdicts of one truth (the set's default if None) on models, in the order given.

    ``collapse`` says which further classes count as right where a class does. Each model's outputs
    are dropped before the next is read.
    """
    (found,) = verdicts_by_truth(
        testset,
        predictions,
        truths=[truth or testset.card.default_truth],
        collapse=collapse,
        label_map=label_map,
    )
    return found


def verdicts_by_truth(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    truths: Sequence[str],
    collapse: Collapse | None = None,
    label_map: LabelMap | None = None,
) -> tuple[Verdicts, ...]:
    """The verdicts of several truths on the same models, each model read once."""
    gathered = [_gathered(testset, name, collapse, label_map) for name in truths]
    names: list[str] = []
    hashes: list[str] = []
    for model in predictions:
        if model.model in names:
            raise UserError(
                f"{model.model} is there twice", fix="give each model a name of its own"
            )
        for each in gathered:
            guesses = ranked_predictions(model, testset, each.judged, label_map, logits=False)
            each.guesses.append(top1_predictions(guesses, label_map))
            each.states.append(_states(each.judged, guesses, each.reviewed))
        names.append(model.model)
        hashes.append(model.hash)
    if not names:
        raise UserError(f"no models to look at on {testset.name}", fix="name some with --model")
    return tuple(
        Verdicts(
            testset=testset,
            truth=each.truth,
            models=tuple(names),
            hashes=tuple(hashes),
            # A model's column lies together in memory: most of what follows goes model by model.
            guesses=np.stack(each.guesses).T,
            states=np.stack(each.states).T,
            left_out=each.left_out,
            reviewed=each.reviewed,
            label_map=label_map.describe() if label_map else "identity",
        )
        for each in gathered
    )


@dataclass(frozen=True, eq=False)
class _Gathered:
    """A truth as it counts (``truth``) and as guesses are judged by it, and what models answered."""

    truth: Truth
    judged: Truth
    reviewed: bool
    left_out: int
    guesses: list[np.ndarray]
    states: list[np.ndarray]


def _gathered(
    testset: TestSet, name: str, collapse: Collapse | None, label_map: LabelMap | None
) -> _Gathered:
    whole = counted = truth_arrays(testset, name)
    if label_map is not None:
        counted = whole.in_target(label_map)
    if collapse is not None:
        counted = collapse.widen(counted)
    kind = testset.card.truths[name].get("kind", "single")
    # Which rows count is what scores say: a multi-label accuracy leaves out what is problematic.
    include = not_problematic if kind == "multilabel" else has_label
    counted = rows_of(counted, np.flatnonzero(include(counted)))
    if not len(counted):
        raise NotApplicable(
            f"truth {name} of {testset.name} has no image to count", fix="choose another truth"
        )
    judged = counted
    if label_map is not None and label_map.reading == "full":
        judged = counted.judged_by(label_map)
    reviewed = kind == "multilabel" or bool(counted.wrong.lengths.any())
    return _Gathered(counted, judged, reviewed, len(whole) - len(counted), [], [])


def _states(truth: Truth, guesses: RankedPredictions, reviewed: bool) -> np.ndarray:
    firsts = guesses.topk[:, 0]
    right = accepted(truth, guesses)
    states = np.where(right, RIGHT, WRONG).astype(np.int8)
    if reviewed:
        states[~right & ~truth.wrong.contain(firsts)] = UNREVIEWED
    # A class that is not of the set is wrong, and there is nothing to review about it.
    states[~right & (firsts < 0)] = WRONG
    if guesses.failed is not None:
        states[guesses.failed] = NOTHING
    return states


def rows_of(truth: Truth, rows: np.ndarray) -> Truth:
    """A truth cut to some of its rows, in that order."""
    return replace(
        truth,
        rows=truth.rows[rows],
        labels=truth.labels[rows],
        problematic=truth.problematic[rows],
        correct=truth.correct.select(rows),
        unclear=truth.unclear.select(rows),
        wrong=truth.wrong.select(rows),
    )
