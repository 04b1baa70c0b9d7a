"""Accuracy by domain, and the numbers that sum it up; a group without images has none.

``accuracy``         of all test images
``ambient``          of domains, weighted by their natural shares of the candidates
``mean_of_domains``  each domain alike
``worst_domain``     the lowest of the domains
``worst_cell``       the lowest of the pairs of domain and class
and ``loss``, ``ambient_loss``, ``mean_loss_of_domains``, ``worst_loss_of_domains`` likewise.

A domain, or a pair, without test images is null: it enters no mean and is never the worst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heldout.curate.active.uncertainty import log_probabilities

ACCURACIES = ("accuracy", "ambient", "mean_of_domains", "worst_domain", "worst_cell")
LOSSES = ("loss", "ambient_loss", "mean_loss_of_domains", "worst_loss_of_domains")
METRICS = (*ACCURACIES, *LOSSES)


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of test images.

    ``images``  by domain and class, int64 (domains, classes); ``right`` likewise, of the right ones
    ``losses``  summed over the images of each domain, float64 (domains,)
    """

    images: np.ndarray
    right: np.ndarray
    losses: np.ndarray


def count_cells(
    logits: np.ndarray, labels: np.ndarray, domains: np.ndarray, *, count: int
) -> Cells:
    """The cells of labelled images: ``logits`` (n, classes), ``labels`` (n,), ``domains`` (n,)."""
    classes = logits.shape[1]
    place = domains * classes + labels
    correct = logits.argmax(axis=1) == labels
    losses = -log_probabilities(logits)[np.arange(len(labels)), labels]
    shape = (count, classes)
    return Cells(
        np.bincount(place, minlength=count * classes).reshape(shape),
        np.bincount(place[correct], minlength=count * classes).reshape(shape),
        np.bincount(domains, weights=losses, minlength=count),
    )


def domain_accuracy(cells: Cells) -> np.ndarray:
    """Accuracy of every domain, float64 (domains,); NaN without images."""
    return _share(cells.right.sum(axis=1), cells.images.sum(axis=1))


def domain_loss(cells: Cells) -> np.ndarray:
    """Mean loss of every domain, float64 (domains,); NaN without images."""
    return _share(cells.losses, cells.images.sum(axis=1))


def measure(cells: Cells, sizes: np.ndarray) -> Mapping[str, float]:
    """All numbers of :data:`METRICS`; ``sizes`` (domains,) are the natural mix. NaN is null."""
    accuracy, loss = domain_accuracy(cells), domain_loss(cells)
    total = np.array([cells.images.sum()])
    return {
        "accuracy": float(_share(np.array([cells.right.sum()]), total)[0]),
        "ambient": _weighted(accuracy, sizes),
        "mean_of_domains": _weighted(accuracy, np.ones(len(accuracy))),
        "worst_domain": _least(accuracy),
        "worst_cell": _least(_share(cells.right, cells.images).ravel()),
        "loss": float(_share(np.array([cells.losses.sum()]), total)[0]),
        "ambient_loss": _weighted(loss, sizes),
        "mean_loss_of_domains": _weighted(loss, np.ones(len(loss))),
        "worst_loss_of_domains": -_least(-loss),
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    there = np.isfinite(values) & (np.asarray(weights) > 0)
    if not there.any():
        return float("nan")
    chosen = np.asarray(weights, np.float64)[there]
    return float((values[there] * chosen).sum() / chosen.sum())


def _least(values: np.ndarray) -> float:
    there = values[np.isfinite(values)]
    return float(there.min()) if len(there) else float("nan")
