"""Predictions: one model's outputs on a set of images, and the store that keeps them."""

from heldout.predictions.aliases import find_aliases
from heldout.predictions.arrays import Outputs, looks_reversed, read_outputs
from heldout.predictions.predictions import Predictions, top_k
from heldout.predictions.store import PredictionStore, StoredRun
from heldout.predictions.tables import PredictionTable, read_prediction_table

__all__ = [
    "Outputs",
    "PredictionStore",
    "PredictionTable",
    "Predictions",
    "StoredRun",
    "find_aliases",
    "looks_reversed",
    "read_outputs",
    "read_prediction_table",
    "top_k",
]
