"""Predictions: one model's outputs on a set of images, and the store that keeps them."""

from heldout.models.predictions.predictions import Predictions, top_k
from heldout.models.predictions.store import PredictionStore, StoredRun

__all__ = ["PredictionStore", "Predictions", "StoredRun", "top_k"]
