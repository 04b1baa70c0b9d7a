"""Error consistency: do two models fail on the same images, beyond what their accuracies explain?

Geirhos, Meding, Wichmann: Beyond accuracy: quantifying trial-by-trial behaviour of CNNs and
humans by measuring error consistency, NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.estimating import LEVEL
from heldout.measure.score.measuring import Measured
from heldout.measure.score.records import Comparison
from heldout.stats.intervals import normal_quantile

_DUST = 1e-6  # a standard error below this is rounding: the formula gives none
_ROWS = 1 << 20  # float32 counts are exact up to 2^24; a block of rows stays below that


@dataclass(frozen=True, eq=False)
class ErrorConsistency:
    """Agreement of every pair of models on right and wrong; (models, models) each, symmetric.

    ``observed``  share of images on which both are right or both wrong
    ``expected``  what two independent models of these accuracies would share:
                  ``a b + (1 - a) (1 - b)``
    ``kappa``     ``(observed - expected) / (1 - expected)``: 1 same errors, 0 independent ones,
                  below 0 avoiding each other's. NaN where ``defined`` is not.
    ``error``     standard error of kappa (Fleiss, Cohen, Everitt 1969)
    ``defined``   False where both models are always right, or both always wrong
    """

    models: tuple[str, ...]
    n: int
    observed: np.ndarray
    expected: np.ndarray
    kappa: np.ndarray
    error: np.ndarray
    defined: np.ndarray


def error_consistency(measured: Measured) -> ErrorConsistency:
    """Error consistency of all pairs of models, from one matrix product over images.

    An image with several rows in the truth counts once, shared evenly among them.
    """
    metric = measured.metric
    if not metric.plain or metric.weighted or metric.per_class:
        raise NotApplicable(f"{metric.name} has no hits and misses", fix="measure top1")
    n = len(measured.firsts)
    both = _both_right(measured)
    right = np.diag(both)
    only = right[:, None] - both
    neither = n - right[:, None] - only.T
    observed = (both + neither) / n
    a, b = right[:, None] / n, right[None, :] / n
    expected = a * b + (1 - a) * (1 - b)
    everyone = right[:, None] + right[None, :]
    defined = (everyone > 0) & (everyone < 2 * n)
    room = np.where(defined, 1 - expected, 1.0)
    kappa = np.where(defined, (observed - expected) / room, np.nan)
    cells = np.stack([both, only, only.T, neither]) / n
    error = np.where(
        defined, _kappa_error(cells, a, b, observed, expected, room) / np.sqrt(n), np.nan
    )
    return ErrorConsistency(measured.models, n, observed, expected, kappa, error, defined)


def _both_right(measured: Measured) -> np.ndarray:
    """On how many images both models of each pair are right; float64 (models, models)."""
    rows, models = measured.values.shape
    share = None
    if len(measured.firsts) < rows:
        _, image, counts = np.unique(measured.rows, return_inverse=True, return_counts=True)
        share = 1.0 / counts[image]
    both = np.zeros((models, models))
    for first in range(0, rows, _ROWS):
        block = measured.values[first : first + _ROWS]
        if share is None:
            whole = block.astype(np.float32)
            both += whole.T @ whole
        else:
            hits = block.astype(np.float64)
            both += hits.T @ (hits * share[first : first + _ROWS, None])
    return both if share is None else both.round(9)  # three thirds are one


def consistency_records(
    measured: Measured, pairs: Sequence[tuple[str, str]] | None = None, *, level: float = LEVEL
) -> list[Comparison]:
    """Error consistency as comparison records, metric ``error_consistency``: of all pairs by default.

    ``difference`` holds kappa, which is symmetric; its interval is kappa ± z times its standard
    error, held inside -1 and 1. There is no p. Where the formula gives no spread (the same errors,
    or a model without any) there is no interval. Pairs without kappa are left out.
    """
    found = error_consistency(measured)
    z = normal_quantile(level)
    place = {model: m for m, model in enumerate(found.models)}
    records = []
    for model, other in pairs if pairs is not None else combinations(found.models, 2):
        for name in (model, other):
            if name not in place:
                raise UserError(
                    f"no model {name!r} among the measured", fix=f"there is {', '.join(place)}"
                )
        i, j = place[model], place[other]
        if not found.defined[i, j]:
            continue
        kappa, half = float(found.kappa[i, j]), z * float(found.error[i, j])
        records.append(
            Comparison(
                model=model,
                other=other,
                testset=measured.testset.name,
                truth=measured.truth,
                metric="error_consistency",
                n=found.n,
                difference=kappa,
                low=max(-1.0, kappa - half) if half > _DUST else None,
                high=min(1.0, kappa + half) if half > _DUST else None,
                test=f"kappa of {measured.metric.name}: observed agreement {found.observed[i, j]:.4f}, "
                f"expected {found.expected[i, j]:.4f}",
            )
        )
    return records


def _kappa_error(
    cells: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    observed: np.ndarray,
    expected: np.ndarray,
    room: np.ndarray,
) -> np.ndarray:
    """Large-sample standard error of kappa for n = 1: Fleiss, Cohen, Everitt (1969), equation 13.

    ``cells``  (4, models, models): both right, only the row's model, only the column's, neither
    """
    both, only_row, only_column, neither = cells
    diagonal = both * (room - (a + b) * (1 - observed)) ** 2
    diagonal += neither * (room - (2 - a - b) * (1 - observed)) ** 2
    # Off the diagonal the margins cross: the share that the other model puts on this answer.
    crossed = only_row * (b + 1 - a) ** 2 + only_column * (a + 1 - b) ** 2
    last = (observed * expected - 2 * expected + observed) ** 2
    variance = (diagonal + (1 - observed) ** 2 * crossed - last) / room**4
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))
