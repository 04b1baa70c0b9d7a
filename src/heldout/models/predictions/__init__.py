"""Predictions: one model's outputs on a set of images, and the store that keeps them."""

from heldout.models.predictions.aliases import find_aliases
from heldout.models.predictions.arrays import Outputs, looks_reversed, read_outputs
from heldout.models.predictions.predictions import Predictions, top_k
from heldout.models.predictions.store import PredictionStore, StoredRun
from heldout.models.predictions.tables import PredictionTable, read_prediction_table

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
