"""Learning: categories of mistakes from those that people have judged.

A multinomial regression with a ridge on the evidence (:mod:`.logistic`). Two things are
chosen by cross-validation inside the judged mistakes, with folds that share no image: the ridge by
log-loss, then how far a rare category is favoured, by kappa. Probabilities stay what the regression
says; the favour only enters the choice: ``argmax p_c / prior_c ** balance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.measure.mistakes.folds import grouped_folds
from heldout.measure.mistakes.logistic import Logistic, fit_logistic
from heldout.stats.agreement import cohen_kappa

RIDGES: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
BALANCES: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS = 5
FEWEST = 5
"""A category with fewer judged mistakes is not learned, and never proposed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """What was learned from judged mistakes.

    ``categories``  those that had enough mistakes, sorted
    ``kinds``       the evidence that the columns of ``regression`` stand for
    ``prior``       (categories,): their shares among the judged mistakes
    ``n``           judged mistakes that it was learned from
    """

    categories: tuple[str, ...]
    kinds: tuple[str, ...]
    regression: Logistic
    prior: np.ndarray
    ridge: float
    balance: float
    n: int

    def probabilities(self, table: EvidenceTable) -> np.ndarray:
        """(n, categories), each row summing to one."""
        return self.regression.probabilities(self._values(table))

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """The category of each row, as a place in ``categories``; int64 (n,)."""
        return np.asarray((probabilities / self.prior**self.balance).argmax(axis=1))

    def pulls(self, table: EvidenceTable) -> np.ndarray:
        """How far each column moves each category from its average, (n, categories, columns)."""
        reduced = self.regression.reduced(self._values(table))
        coefficients = self.regression.coefficients - self.regression.coefficients.mean(axis=0)
        found: np.ndarray = reduced[:, None, :] * coefficients[None, :, :]
        return found

    def _values(self, table: EvidenceTable) -> np.ndarray:
        kinds, values = table.features()
        return values_for(self.kinds, kinds, values)


def values_for(wanted: Sequence[str], kinds: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Columns for the kinds that were learned from; NaN for one that is not known now."""
    places: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    columns = []
    seen: dict[str, int] = {}
    for kind in wanted:
        turn = seen.get(kind, 0)
        seen[kind] = turn + 1
        if kind in places:
            columns.append(values[:, places[kind][turn]])
        else:
            columns.append(np.full(len(values), np.nan))
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))


def learn(
    table: EvidenceTable,
    answers: Sequence[str],
    *,
    seed: int = 0,
    ridges: Sequence[float] = RIDGES,
    balances: Sequence[float] = BALANCES,
    folds: int = FOLDS,
) -> Learned:
    """Learn from the judged category of each mistake of ``table``."""
    kinds, values = table.features()
    images = [mistake.image_id for mistake in table.mistakes]
    return learn_from(
        kinds, values, images, answers, seed=seed, ridges=ridges, balances=balances, folds=folds
    )


def learn_from(
    kinds: tuple[str, ...],
    values: np.ndarray,
    images: Sequence[str],
    answers: Sequence[str],
    *,
    seed: int = 0,
    ridges: Sequence[float] = RIDGES,
    balances: Sequence[float] = BALANCES,
    folds: int = FOLDS,
) -> Learned:
    """:func:`learn` from features (n, d) of kinds; ``images`` keep folds apart."""
    counts = {answer: list(answers).count(answer) for answer in sorted(set(answers))}
    categories = tuple(answer for answer, n in counts.items() if n >= FEWEST)
    if len(categories) < 2 or not kinds:
        raise NotApplicable(
            f"categories cannot be learned from {len(answers)} judged mistakes: two categories of at "
            f"least {FEWEST} are needed",
            fix="judge more mistakes, or go by rules",
        )
    place = {category: code for code, category in enumerate(categories)}
    kept = np.array([answer in place for answer in answers])
    x = values[kept]
    mine = [answer for answer in answers if answer in place]
    codes = np.array([place[answer] for answer in mine])
    seen = [image for image, keep in zip(images, kept.tolist(), strict=True) if keep]
    prior = np.bincount(codes, minlength=len(categories)) / len(codes)
    parts = grouped_folds(seen, mine, folds, rng=np.random.default_rng(seed))
    ridge, guessed = tuned_ridge(x, codes, len(categories), parts, ridges)
    kappas = [cohen_kappa((guessed / prior**balance).argmax(axis=1), codes) for balance in balances]
    balance = balances[int(np.argmax(kappas))]
    regression = fit_logistic(x, codes, len(categories), ridge=ridge)
    return Learned(
        categories=categories,
        kinds=kinds,
        regression=regression,
        prior=prior,
        ridge=ridge,
        balance=balance,
        n=len(codes),
    )


def tuned_ridge(
    values: np.ndarray,
    codes: np.ndarray,
    categories: int,
    folds: np.ndarray,
    ridges: Sequence[float] = RIDGES,
) -> tuple[float, np.ndarray]:
    """The ridge of least log-loss outside the training folds, and its probabilities there (n, k).

    Of equal ones the strongest.
    """
    best: tuple[float, float, np.ndarray] | None = None
    for ridge in sorted(ridges, reverse=True):
        guessed = np.empty((len(codes), categories))
        for fold in np.unique(folds).tolist():
            out = folds == fold
            fitted = fit_logistic(values[~out], codes[~out], categories, ridge=ridge)
            guessed[out] = fitted.probabilities(values[out])
        loss = float(-np.log(np.maximum(guessed[np.arange(len(codes)), codes], 1e-12)).mean())
        if best is None or loss < best[0]:
            best = (loss, ridge, guessed)
    if best is None:
        raise ValueError("there must be at least one ridge")
    return best[1], best[2]
