"""Scores: metrics, slices, comparisons, fits and effective robustness.

Everything comes from a :class:`Measured`: a value for each image and model. Public names load their
module when first used, so that reading a record costs no more than the record.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heldout.measure.score.calibration import Bins, expected_calibration_error
    from heldout.measure.score.clustering import (
        cluster_codes,
        cluster_column,
        unit_codes,
        unit_columns,
    )
    from heldout.measure.score.comparing import compare
    from heldout.measure.score.consistency import (
        ErrorConsistency,
        consistency_records,
        error_consistency,
    )
    from heldout.measure.score.curves import Curve, curve_of
    from heldout.measure.score.discovery import Discovered, Discovery, discover, discovery_records
    from heldout.measure.score.fits import (
        AXES,
        Axes,
        Line,
        fit_lines,
        fit_points,
        from_axes,
        line,
        to_axes,
    )
    from heldout.measure.score.lines import line_between, published_line, published_lines
    from heldout.measure.score.measuring import Measured, measure
    from heldout.measure.score.metrics import METRICS, Metric, get_metric
    from heldout.measure.score.overlapping import (
        Overlapping,
        membership_records,
        overlapping_slices,
    )
    from heldout.measure.score.per_class import (
        Confusion,
        ConfusionMatrix,
        class_counts,
        class_scores,
        confusion_matrix,
    )
    from heldout.measure.score.population import Population, read_population
    from heldout.measure.score.properties import SliceNumber, property_records
    from heldout.measure.score.records import (
        Comparison,
        Count,
        Fit,
        Learning,
        Record,
        Score,
        Summary,
        Tally,
        from_dict,
        to_dict,
        to_json,
    )
    from heldout.measure.score.revisions import Pooled, pool_predictions, score_revisions
    from heldout.measure.score.robustness import (
        EffectiveRobustness,
        ReferenceLine,
        effective_robustness,
        reference_line,
        robustness_scores,
    )
    from heldout.measure.score.scoring import counts, rank_scores, scores
    from heldout.measure.score.slices import format_slice, parse_slice
    from heldout.measure.score.slicing import Partition, partitions
    from heldout.measure.score.summaries import curve_records
    from heldout.measure.score.support import Support, balanced, support_of

_HOMES = {
    "clustering": ("cluster_codes", "cluster_column", "unit_codes", "unit_columns"),
    "calibration": ("Bins", "expected_calibration_error"),
    "comparing": ("compare",),
    "consistency": ("ErrorConsistency", "consistency_records", "error_consistency"),
    "curves": ("Curve", "curve_of"),
    "discovery": ("Discovered", "Discovery", "discover", "discovery_records"),
    "fits": ("AXES", "Axes", "Line", "fit_lines", "fit_points", "from_axes", "line", "to_axes"),
    "lines": ("line_between", "published_line", "published_lines"),
    "measuring": ("Measured", "measure"),
    "metrics": ("METRICS", "Metric", "get_metric"),
    "overlapping": ("Overlapping", "membership_records", "overlapping_slices"),
    "per_class": (
        "Confusion",
        "ConfusionMatrix",
        "class_counts",
        "class_scores",
        "confusion_matrix",
    ),
    "population": ("Population", "read_population"),
    "properties": ("SliceNumber", "property_records"),
    "records": (
        "Comparison",
        "Count",
        "Fit",
        "Learning",
        "Record",
        "Score",
        "Summary",
        "Tally",
        "from_dict",
        "to_dict",
        "to_json",
    ),
    "revisions": ("Pooled", "pool_predictions", "score_revisions"),
    "robustness": (
        "EffectiveRobustness",
        "ReferenceLine",
        "effective_robustness",
        "reference_line",
        "robustness_scores",
    ),
    "scoring": ("counts", "rank_scores", "scores"),
    "slices": ("format_slice", "parse_slice"),
    "slicing": ("Partition", "partitions"),
    "summaries": ("curve_records",),
    "support": ("Support", "balanced", "support_of"),
}

__all__ = [
    "AXES",
    "METRICS",
    "Axes",
    "Bins",
    "Comparison",
    "Confusion",
    "ConfusionMatrix",
    "Count",
    "Curve",
    "Discovered",
    "Discovery",
    "EffectiveRobustness",
    "ErrorConsistency",
    "Fit",
    "Learning",
    "Line",
    "Measured",
    "Metric",
    "Overlapping",
    "Partition",
    "Pooled",
    "Population",
    "Record",
    "ReferenceLine",
    "Score",
    "SliceNumber",
    "Summary",
    "Support",
    "Tally",
    "balanced",
    "class_counts",
    "class_scores",
    "cluster_codes",
    "cluster_column",
    "compare",
    "confusion_matrix",
    "consistency_records",
    "counts",
    "curve_of",
    "curve_records",
    "discover",
    "discovery_records",
    "effective_robustness",
    "error_consistency",
    "expected_calibration_error",
    "fit_lines",
    "fit_points",
    "format_slice",
    "from_axes",
    "from_dict",
    "get_metric",
    "line",
    "line_between",
    "measure",
    "membership_records",
    "overlapping_slices",
    "parse_slice",
    "partitions",
    "pool_predictions",
    "property_records",
    "published_line",
    "published_lines",
    "rank_scores",
    "read_population",
    "reference_line",
    "robustness_scores",
    "score_revisions",
    "scores",
    "support_of",
    "to_axes",
    "to_dict",
    "to_json",
    "unit_codes",
    "unit_columns",
]


def __getattr__(name: str) -> Any:
    """A public name, from its module."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"heldout.measure.score.{home}"), name)
    raise AttributeError(f"module 'heldout.measure.score' has no attribute {name!r}")
