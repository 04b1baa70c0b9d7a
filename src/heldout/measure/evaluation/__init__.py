"""The eval flow: plan, run, score, gate; the Python entry point."""

from heldout.measure.evaluation.flow import (
    Results,
    default_metrics,
    evaluate,
    evaluate_revisions,
    fits_to_baseline,
    robustness_to_baseline,
)

__all__ = [
    "Results",
    "default_metrics",
    "evaluate",
    "evaluate_revisions",
    "fits_to_baseline",
    "robustness_to_baseline",
]
