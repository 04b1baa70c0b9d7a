"""Severity: how likely people would call a mistake Major, suggested with its uncertainty.

A regression with a ridge on the same evidence as for categories. The interval is that of the fitted
probability (delta method on the log odds), so it is wide where few judged mistakes were like this one.
A suggestion is made only where the whole interval lies on one side of a half. People decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.data.judgements.questions import SEVERITIES
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.measure.mistakes.folds import grouped_folds
from heldout.measure.mistakes.learning import FEWEST, FOLDS, RIDGES, tuned_ridge, values_for
from heldout.measure.mistakes.logistic import Logistic, fit_logistic
from heldout.stats.intervals import normal_quantile

MAJOR = SEVERITIES[0]
NOT_MAJOR = SEVERITIES[1]
_LEVEL = 0.95


@dataclass(frozen=True, eq=False, kw_only=True)
class SeverityModel:
    """What was learned about severity; ``share`` of the judged mistakes are Major."""

    kinds: tuple[str, ...]
    regression: Logistic
    ridge: float
    share: float
    n: int
    level: float = _LEVEL

    def suggest(self, table: EvidenceTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probability of Major and the limits of its interval, (n,) each."""
        kinds, values = table.features()
        return self.suggest_from(values_for(self.kinds, kinds, values))

    def suggest_from(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """:meth:`suggest` for features (n, d) of ``kinds``."""
        logits = self.regression.logits(values)
        odds = logits[:, 1] - logits[:, 0]
        reach = normal_quantile(self.level) * self.regression.spread(values, 1)
        return _sigmoid(odds), _sigmoid(odds - reach), _sigmoid(odds + reach)


def learn_severity(
    kinds: tuple[str, ...],
    values: np.ndarray,
    images: Sequence[str],
    severities: Sequence[str],
    *,
    seed: int = 0,
    ridges: Sequence[float] = RIDGES,
    folds: int = FOLDS,
    level: float = _LEVEL,
) -> SeverityModel:
    """Learn from judged severities; Borderline counts with Minor."""
    major = np.array([severity == MAJOR for severity in severities], dtype=np.int64)
    if min(major.sum(), len(major) - major.sum()) < FEWEST or not kinds:
        raise NotApplicable(
            f"severity cannot be learned: {int(major.sum())} of {len(major)} judged mistakes are Major",
            fix=f"judge at least {FEWEST} Major and {FEWEST} other mistakes",
        )
    parts = grouped_folds(
        images, [str(code) for code in major.tolist()], folds, rng=np.random.default_rng(seed)
    )
    ridge, _ = tuned_ridge(values, major, 2, parts, ridges)
    return SeverityModel(
        kinds=kinds,
        regression=fit_logistic(values, major, 2, ridge=ridge),
        ridge=ridge,
        share=float(major.mean()),
        n=len(major),
        level=level,
    )


def suggested(low: float, high: float) -> str | None:
    """What to suggest: a severity where the interval leaves no doubt, else None."""
    if low > 0.5:
        return MAJOR
    return NOT_MAJOR if high < 0.5 else None


def _sigmoid(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found
