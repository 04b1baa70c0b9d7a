"""How likely a prediction that nobody has reviewed is acceptable: a guess that guides reviewing.

It is learned from the labels that reviewers of the same truth accepted or refused: whether the
prediction was accepted for other images of the same class, whether it is accepted at all beside
other labels, and how many of the models say it. Estimates stay right whatever it says; it only
makes them narrower.
"""

from __future__ import annotations

import numpy as np

from heldout.measure.mistakes.logistic import Logistic, fit_logistic
from heldout.measure.mistakes.verdicts import Verdicts

_RIDGE = 1.0
_PRIOR = 2.0  # answers that a pair of classes starts with, at the rate of the whole truth
_ENOUGH = 20


def acceptability(verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The probability that ``classes[i]`` is acceptable for row ``rows[i]``; float64 (pairs,).

    Under a truth without reviews nothing can be learned: then it is the share of models that say
    so, one more model counted that does not.
    """
    said = _said(verdicts, rows, classes)
    learned = _learned(verdicts)
    if learned is None:
        return said * len(verdicts.models) / (len(verdicts.models) + 1.0)
    history, model = learned
    return np.asarray(model.probabilities(history.columns(rows, classes, said))[:, 1])


def standing_odds(verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The same from the truth's lists alone, whatever the models; 1/2 where there are none."""
    history = _History.of(verdicts)
    if history is None:
        return np.full(len(rows), 0.5)
    pair, _ = history.rates(rows, classes, leave_out=None)
    return np.asarray(pair)


class _History:
    """What a truth's lists say of labels other than an image's own.

    For a pair (label of the image, other class): how often it was accepted and refused; the same
    for the other class whatever the label.
    """

    def __init__(self, verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray, good: np.ndarray):
        self._verdicts = verdicts
        self.rows, self.classes, self.good = rows, classes, good
        self.width = len(verdicts.truth.space)
        self.rate = float((good.sum() + 1.0) / (len(good) + 2.0))
        keys = self._keys(rows, classes)
        self._pairs, place = np.unique(keys, return_inverse=True)
        place = place.reshape(-1)
        self._pair_n = np.bincount(place, minlength=len(self._pairs)).astype(np.float64)
        self._pair_good = np.bincount(place, weights=good, minlength=len(self._pairs))
        self._class_n = np.bincount(classes, minlength=self.width).astype(np.float64)
        self._class_good = np.bincount(classes, weights=good, minlength=self.width)

    @classmethod
    def of(cls, verdicts: Verdicts) -> _History | None:
        """The history of a truth, or None where reviewers left too little."""
        truth = verdicts.truth
        if not verdicts.reviewed:
            return None
        good_rows, good_classes = truth.correct.pairs()
        more_rows, more_classes = truth.unclear.pairs()
        width = len(truth.space)
        good = np.union1d(good_rows * width + good_classes, more_rows * width + more_classes)
        bad_rows, bad_classes = truth.wrong.pairs()
        # A label that is both counts as accepted: the hit wins here too.
        bad = np.setdiff1d(bad_rows * width + bad_classes, good)
        codes = np.concatenate([good, bad])
        answer = np.concatenate([np.ones(len(good)), np.zeros(len(bad))])
        rows, classes = np.divmod(codes, width)
        other = classes != truth.labels[rows]
        if answer[other].sum() < _ENOUGH or (1 - answer[other]).sum() < _ENOUGH:
            return None
        return cls(verdicts, rows[other], classes[other], answer[other])

    def _keys(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        labels = self._verdicts.truth.labels[rows]
        return np.asarray((labels + 1) * self.width + classes)

    def rates(
        self, rows: np.ndarray, classes: np.ndarray, *, leave_out: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Smoothed shares of acceptance of the pair of classes, and of the other class.

        ``leave_out`` (pairs,) is the answer of each of these very pairs, to be taken out.
        """
        keys = self._keys(rows, classes)
        place = np.minimum(np.searchsorted(self._pairs, keys), len(self._pairs) - 1)
        there = self._pairs[place] == keys
        own = np.zeros(len(rows)) if leave_out is None else np.ones(len(rows))
        value = np.zeros(len(rows)) if leave_out is None else leave_out
        n = np.where(there, self._pair_n[place], 0.0) - own
        good = np.where(there, self._pair_good[place], 0.0) - value
        class_n, class_good = self._class_n[classes] - own, self._class_good[classes] - value
        by_class = (class_good + _PRIOR * self.rate) / (class_n + _PRIOR)
        return (good + _PRIOR * by_class) / (n + _PRIOR), by_class

    def columns(
        self,
        rows: np.ndarray,
        classes: np.ndarray,
        said: np.ndarray,
        *,
        leave_out: np.ndarray | None = None,
    ) -> np.ndarray:
        """What a regression sees of pairs; float64 (pairs, 3)."""
        pair, by_class = self.rates(rows, classes, leave_out=leave_out)
        return np.stack([_log_odds(pair), _log_odds(by_class), said], axis=1)


def _log_odds(p: np.ndarray) -> np.ndarray:
    inside = np.clip(p, 1e-4, 1.0 - 1e-4)
    return np.asarray(np.log(inside / (1.0 - inside)))


def _learned(verdicts: Verdicts) -> tuple[_History, Logistic] | None:
    history = _History.of(verdicts)
    if history is None:
        return None
    said = _said(verdicts, history.rows, history.classes)
    columns = history.columns(history.rows, history.classes, said, leave_out=history.good)
    fitted = fit_logistic(columns, history.good.astype(np.int64), 2, ridge=_RIDGE)
    return history, fitted


def _said(verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The share of models that predict each pair."""
    return np.asarray((verdicts.guesses[rows] == classes[:, None]).mean(axis=1))
