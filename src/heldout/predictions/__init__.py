"""Predictions: one model's outputs on a set of images, and the store that keeps them."""

from heldout.predictions.aliases import find_aliases
from heldout.predictions.arrays import Outputs, looks_reversed, read_outputs
from heldout.predictions.predictions import Predictions, top_k
from heldout.predictions.store import PredictionStore, StoredRun

__all__ = [
    "Outputs",
    "PredictionStore",
    "Predictions",
    "StoredRun",
    "find_aliases",
    "looks_reversed",
    "read_outputs",
    "top_k",
]
