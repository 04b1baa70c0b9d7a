"""Which images to label next, across domains: strategies, the loop that tries them, the next batch."""

from heldout.active.allocators import ALLOCATORS, Allocator, Standing, parse_allocator
from heldout.active.comparing import mean_over_seeds, paired_over_seeds, resample
from heldout.active.efficiency import data_efficiency, forward_mean
from heldout.active.features import FeatureEncoder, pool_features
from heldout.active.inputs import class_values, domain_values, pool_problem
from heldout.active.logistic import Logistic
from heldout.active.measuring import METRICS, Cells, count_cells, domain_accuracy, measure
from heldout.active.next_batch import NextBatch, next_batch, out_of_fold, read_labels, write_batch
from heldout.active.problem import PARTS, Problem, draw_parts, make_problem
from heldout.active.quotas import in_order, levelling, proportional
from heldout.active.results import study_records
from heldout.active.rounds import Round, do_round, first_labels
from heldout.active.selectors import SELECTORS, Selector, View, parse_selector
from heldout.active.spreading import badge, k_centre
from heldout.active.strategy import Strategy, parse_strategies, parse_strategy
from heldout.active.study import Outcome, Plan, run_study
from heldout.active.threshold import atc_threshold, estimated_errors, group_thresholds
from heldout.active.training import Images, Trained, Trainer, load_trainer

__all__ = [
    "ALLOCATORS",
    "METRICS",
    "PARTS",
    "SELECTORS",
    "Allocator",
    "Cells",
    "FeatureEncoder",
    "Images",
    "Logistic",
    "NextBatch",
    "Outcome",
    "Plan",
    "Problem",
    "Round",
    "Selector",
    "Standing",
    "Strategy",
    "Trained",
    "Trainer",
    "View",
    "atc_threshold",
    "badge",
    "class_values",
    "count_cells",
    "data_efficiency",
    "do_round",
    "domain_accuracy",
    "domain_values",
    "draw_parts",
    "estimated_errors",
    "first_labels",
    "forward_mean",
    "group_thresholds",
    "in_order",
    "k_centre",
    "levelling",
    "load_trainer",
    "make_problem",
    "mean_over_seeds",
    "measure",
    "next_batch",
    "out_of_fold",
    "paired_over_seeds",
    "parse_allocator",
    "parse_selector",
    "parse_strategies",
    "parse_strategy",
    "pool_features",
    "pool_problem",
    "proportional",
    "read_labels",
    "resample",
    "run_study",
    "study_records",
    "write_batch",
]
