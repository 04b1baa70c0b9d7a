"""Intervals, bootstrap, paired tests, many comparisons, ranks, agreement, planning.

Pure functions on arrays. Nothing here knows about models, test sets or files, and importing it
loads numpy alone: scipy waits inside the functions that need it.
"""

from heldout.stats.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
from heldout.stats.bootstrap import Estimate, bootstrap_mean, bootstrap_statistic, resample_weights
from heldout.stats.designs import FEW_CLUSTERS, MINIMUM_CLUSTERS
from heldout.stats.intervals import Interval, clopper_pearson, wilson
from heldout.stats.multinomial import multinomial_gradient, multinomial_newton, softmax
from heldout.stats.multiple import WorstSlice, holm, max_t, simultaneous_level, worst_slice_interval
from heldout.stats.paired import (
    PairedDifference,
    mcnemar_exact,
    paired_bootstrap,
    paired_difference,
)
from heldout.stats.planning import (
    design_effect,
    images_for_difference,
    images_for_half_width,
    images_to_say_anything,
    mcnemar_power,
    smallest_detectable,
    smallest_detectable_difference,
)
from heldout.stats.prediction_powered import (
    Powered,
    drawing_chances,
    drawing_order,
    prediction_powered,
)
from heldout.stats.ranks import Ranks, rank_intervals
from heldout.stats.replicates import interval_from_error, interval_from_replicates, t_quantile
from heldout.stats.shrinkage import Shrunken, shrink
from heldout.stats.slice_means import Contrast, SliceMeans, joint_quantile, slice_means

__all__ = [
    "FEW_CLUSTERS",
    "MINIMUM_CLUSTERS",
    "Contrast",
    "Estimate",
    "Interval",
    "PairedDifference",
    "Powered",
    "Ranks",
    "Shrunken",
    "SliceMeans",
    "WorstSlice",
    "bootstrap_mean",
    "bootstrap_statistic",
    "clopper_pearson",
    "cohen_kappa",
    "design_effect",
    "drawing_chances",
    "drawing_order",
    "fleiss_kappa",
    "holm",
    "images_for_difference",
    "images_for_half_width",
    "images_to_say_anything",
    "interval_from_error",
    "interval_from_replicates",
    "joint_quantile",
    "krippendorff_alpha",
    "max_t",
    "mcnemar_exact",
    "mcnemar_power",
    "multinomial_gradient",
    "multinomial_newton",
    "paired_bootstrap",
    "paired_difference",
    "prediction_powered",
    "rank_intervals",
    "resample_weights",
    "shrink",
    "simultaneous_level",
    "slice_means",
    "smallest_detectable",
    "smallest_detectable_difference",
    "softmax",
    "t_quantile",
    "wilson",
    "worst_slice_interval",
]
