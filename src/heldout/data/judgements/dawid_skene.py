"""Dawid and Skene's model: true answers and each worker's reliability, inferred together.

A. P. Dawid and A. M. Skene, "Maximum likelihood estimation of observer error-rates using the EM
algorithm", Applied Statistics 28 (1979). Each subject has one true answer t, drawn from a prior;
worker w gives the answer a with probability ``confusion[w, t, a]``, independently of the others.
A person may give answers that are never true, such as "unclear".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.data.judgements.panel import Panel
from heldout.data.judgements.questions import QUESTIONS

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """What the model inferred.

    ``truths``      the answers that can be true; ``answers`` all that can be given
    ``posterior``   probability of each truth: shape (subjects, truths), rows sum to 1
    ``confusion``   shape (workers, truths, answers), last axis sums to 1
    ``prior``       share of each truth: shape (truths,)
    ``objective``   what EM raises, at each step: log likelihood plus log Dirichlet prior
    ``converged``   whether no probability moved by more than the tolerance in the last step
    """

    truths: tuple[str, ...]
    answers: tuple[str, ...]
    workers: tuple[str, ...]
    posterior: FloatArray
    confusion: FloatArray
    prior: FloatArray
    objective: FloatArray
    converged: bool

    @property
    def accuracy(self) -> FloatArray:
        """Each worker's expected share of right answers: shape (workers,)."""
        right = [self.answers.index(truth) for truth in self.truths]
        return np.asarray(self.confusion[:, np.arange(len(right)), right] @ self.prior)


def dawid_skene(
    panel: Panel,
    *,
    truths: Sequence[str] | None = None,
    smoothing: float = 0.01,
    tolerance: float = 1e-6,
    max_steps: int = 2000,
) -> Reliability:
    """Fit the model by EM, starting from the shares of votes; no randomness.

    ``truths``     the answers that can be true; unless given, the question's own (a label is
                   correct or wrong, however unclear it looks), else all answers
    ``smoothing``  a count added to every cell (a Dirichlet prior), so that a worker who never gave
                   an answer does not rule it out
    """
    panel.need_people()
    if not smoothing > 0 or not tolerance > 0 or max_steps < 1:
        raise UserError(
            "smoothing, tolerance and max_steps must be above zero", fix="use the defaults"
        )
    names = _truths(panel, truths)
    shape = (len(names), len(panel.workers), len(panel.answers))
    given = panel.worker * shape[2] + panel.answer
    starts = np.flatnonzero(np.diff(panel.subject, prepend=-1))  # rows are sorted by subject
    posterior = _vote_shares(panel, names)
    objective: list[float] = []
    while True:
        prior = posterior.sum(axis=0) + smoothing
        prior /= prior.sum()
        weight = posterior[panel.subject]
        expected = np.stack(
            [
                np.bincount(given, weights=weight[:, truth], minlength=shape[1] * shape[2])
                for truth in range(shape[0])
            ]
        )
        by_worker = expected.reshape(shape).swapaxes(0, 1)
        confusion = np.asarray(by_worker + smoothing, dtype=np.float64)
        confusion /= confusion.sum(axis=2, keepdims=True)
        log_confusion = np.log(confusion)
        joint = np.add.reduceat(log_confusion[panel.worker, :, panel.answer], starts, axis=0)
        joint += np.log(prior)
        top = joint.max(axis=1, keepdims=True)
        updated = np.exp(joint - top)
        total = updated.sum(axis=1, keepdims=True)
        updated /= total
        penalty = smoothing * (float(np.log(prior).sum()) + float(log_confusion.sum()))
        objective.append(float((top + np.log(total)).sum()) + penalty)
        converged = bool(np.abs(updated - posterior).max() < tolerance)
        posterior = updated
        if converged or len(objective) == max_steps:
            break
    return Reliability(
        names,
        panel.answers,
        panel.workers,
        posterior,
        confusion,
        prior,
        np.array(objective),
        converged,
    )


def _truths(panel: Panel, given: Sequence[str] | None) -> tuple[str, ...]:
    question = QUESTIONS.get(panel.question)
    own = question.truths if question is not None else ()
    # A part of an answer, or a user's own list, may not have the question's truths.
    default = own if own and set(own) <= set(panel.answers) else panel.answers
    names = tuple(dict.fromkeys(default if given is None else given))
    if not names or not set(names) <= set(panel.answers):
        raise UserError(
            f"the truths {', '.join(names) or 'none'} are not answers of this panel",
            fix=f"choose among {', '.join(panel.answers)}",
        )
    return names


def _vote_shares(panel: Panel, truths: tuple[str, ...]) -> FloatArray:
    """Share of votes for each truth; votes for what cannot be true are split evenly."""
    votes = panel.counts()
    columns = votes[:, [panel.answers.index(truth) for truth in truths]].astype(np.float64)
    n = votes.sum(axis=1, keepdims=True)
    split = (n - columns.sum(axis=1, keepdims=True)) / len(truths)
    return np.asarray((columns + split) / n)
