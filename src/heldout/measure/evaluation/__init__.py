"""The eval flow: plan, run, score, gate; the Python entry point."""

from heldout.measure.evaluation.flow import (
    Results,
    evaluate,
    evaluate_revisions,
    fits_to_baseline,
    robustness_to_baseline,
)
from heldout.measure.evaluation.options import default_metrics

__all__ = [
    "Results",
    "default_metrics",
    "evaluate",
    "evaluate_revisions",
    "fits_to_baseline",
    "robustness_to_baseline",
]
