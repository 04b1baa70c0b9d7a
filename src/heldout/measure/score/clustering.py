"""Which images belong together, and which make one unit that is repeated along a factor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.testset import TestSet
from heldout.measure.score.measuring import Measured
from heldout.measure.score.slicing import partitions

NO_CLUSTERS = "none"


def cluster_column(testset: TestSet, asked: str | None) -> str | None:
    """The column to cluster by: the one asked for, else the card's; ``none`` is none at all."""
    card = testset.card
    if asked == NO_CLUSTERS and NO_CLUSTERS not in card.columns:
        return None
    return asked or (card.clusters if card.clusters in card.columns else None)


def cluster_codes(measured: Measured, column: str) -> np.ndarray:
    """Which rows belong together by a column; int64 (n,). A row without a value stands alone."""
    (partition,) = partitions(measured, [column], text=True)  # such as photographers' names
    if not partition.single:
        raise NotApplicable(
            f"{column!r} has several values an image, so it cannot say which images belong together",
            fix="cluster by a single-valued column",
        )
    codes = len(partition.names) + measured.rows
    codes[partition.positions] = partition.codes
    return codes


def naming_clusters(reason: str | None, column: str | None) -> str | None:
    """Why there is no interval, with the column that the clusters come from.

    >>> naming_clusters("5 clusters are too few", "object")
    '5 clusters (object) are too few'
    """
    if reason is None or column is None:
        return reason
    return reason.replace(" clusters ", f" clusters ({column}) ", 1)


def unit_columns(testset: TestSet, columns: Sequence[str], asked: str | None) -> list[str]:
    """The columns that name what is repeated at every value of ``columns``.

    Those asked for, such as ``object&background``; else the card's units (or its clusters)
    together with all factors. ``columns`` themselves are left out: they are what varies.
    """
    card = testset.card
    if asked is not None:
        given = [asked] if asked in card.columns else [part.strip() for part in asked.split("&")]
        if not all(given):
            raise UserError(f"--balance {asked!r}", fix="write column, or column&column")
    else:
        given = list(card.units) or ([card.clusters] if card.clusters else [])
        if given:
            given += [column for entry in card.factors for column in factor_columns(testset, entry)]
        given = [column for column in given if column in card.columns]
    return [column for column in dict.fromkeys(given) if column not in columns]


def factor_columns(testset: TestSet, entry: str) -> list[str]:
    """The columns of a factor: itself, or the two axes of ``x&y``."""
    return [entry] if entry in testset.card.columns else entry.split("&")


def unit_codes(measured: Measured, columns: Sequence[str]) -> np.ndarray:
    """Which rows belong to one unit: those that share all of ``columns``; int64 (n,).

    Values are compared as slices write them, so that 0.15000000000000002 is 0.15.
    """
    together = np.stack([cluster_codes(measured, column) for column in columns], axis=1)
    codes: np.ndarray = np.unique(together, axis=0, return_inverse=True)[1].ravel()
    return codes.astype(np.int64)
