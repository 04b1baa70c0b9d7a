"""Accuracy on a pool of candidates, adjusted to the true selection frequencies of an original set.

The arithmetic and what is estimated are in :mod:`heldout.stats.selection_bias`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.for_testset import votes_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.workers import counted_votes, selection_frequency
from heldout.data.testset import TestSet
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import is_share
from heldout.measure.score.records import AdjustedScore, HeldOutFrequencies, estimated
from heldout.measure.score.slices import CLASS, with_cluster_name
from heldout.stats.bootstrap import MINIMUM_CLUSTERS
from heldout.stats.selection_bias import (
    ESTIMAND,
    ESTIMATORS,
    FEWEST_VOTES,
    Votes,
    check_votes,
    held_out_votes,
)

MOST_NEEDED = 10
"""Votes that are asked of an image where there are as many."""
_SHORT = 0.1
"""Share of images that may have fewer votes than are asked for, and are then left out."""


@dataclass(frozen=True, eq=False)
class VotedImages:
    """The images of a test set that have enough votes about their own class.

    ``rows``     row of the images table; int64 (n,)
    ``votes``    their votes, as :mod:`heldout.stats.selection_bias` takes them
    """

    rows: np.ndarray
    votes: Votes


@dataclass(frozen=True, eq=False)
class VotedSets:
    """A pool and an original set with the votes about their images.

    ``needed``   votes that an image needs: 10, or what nine of ten images have
    ``left_out`` (pool, original): images with votes, but fewer
    ``few``      why there is no interval: clusters are too few
    """

    pool: TestSet
    original: TestSet
    needed: int
    of_pool: VotedImages
    of_original: VotedImages
    left_out: tuple[int, int]
    few: str | None

    @property
    def subject(self) -> dict[str, Any]:
        """The fields of a record that say which images it rests on."""
        return {
            "testset": self.pool.name,
            "original": self.original.name,
            "n": len(self.of_pool.rows),
            "n_original": len(self.of_original.rows),
            "votes": self.needed,
            "testset_hash": self.pool.card.content_hash,
            "original_hash": self.original.card.content_hash,
        }

    @property
    def lines(self) -> Iterator[str]:
        """What a reader must know of the votes."""
        for testset, count in zip((self.pool, self.original), self.left_out, strict=True):
            if count:
                yield (
                    f"{testset.name}: {count:,} images with fewer than {self.needed} votes are left "
                    "out of the adjusted scores"
                )


def voted_sets(
    pool: TestSet, original: TestSet, address: str | Path, *, cluster: str | None = None
) -> VotedSets:
    """The votes about two sets, at ``address`` (:attr:`heldout.core.workspace.Workspace.judgements`).

    ``cluster``  a column, or ``class``: images that share its value, in either set, belong together
    """
    if pool.card.content_hash == original.card.content_hash:
        raise UserError(
            f"{pool.name} is adjusted to itself", fix="name the original set with --adjust-to"
        )
    votes = counted_votes(votes_about([pool, original], address))
    if not votes:
        raise NotApplicable(
            f"there are no votes on images of {pool.name} and {original.name}",
            fix="add them with heldout import judgements",
        )
    _check_fixed(votes)
    said = {
        (one.image_id, one.class_id): (one.selected, one.n) for one in selection_frequency(votes)
    }
    counts = [_counts(testset, said) for testset in (pool, original)]
    for testset, found in zip((pool, original), counts, strict=True):
        if not found.any():
            raise NotApplicable(
                f"no image of {testset.name} has votes about its class",
                fix="show it to people in grids; images of an original set are controls there",
            )
    usual = min(float(np.quantile(n[n > 0], _SHORT, method="lower")) for _, n in counts)
    needed = max(FEWEST_VOTES, min(MOST_NEEDED, int(usual)))
    rows = [np.flatnonzero(n >= needed) for _, n in counts]
    clusters = _clusters([(pool, rows[0]), (original, rows[1])], cluster)
    of_pool, of_original = (
        VotedImages(where, Votes(selected[where], n[where], codes))
        for where, (selected, n), codes in zip(rows, counts, clusters, strict=True)
    )
    check_votes(of_original.votes, of_pool.votes)
    few = None
    if clusters[0] is not None and clusters[1] is not None:
        units = len(np.unique(np.concatenate([clusters[0], clusters[1]])))
        if units < MINIMUM_CLUSTERS:
            few = f"{units} clusters are too few, {MINIMUM_CLUSTERS} are needed"
    short = [int((n > 0).sum()) - len(where) for where, (_, n) in zip(rows, counts, strict=True)]
    return VotedSets(
        pool=pool,
        original=original,
        needed=needed,
        of_pool=of_pool,
        of_original=of_original,
        left_out=(short[0], short[1]),
        few=with_cluster_name(few, cluster),
    )


def _check_fixed(votes: Sequence[Judgement]) -> None:
    """Votes that stopped because of what they said are not a sample of what people would say."""
    stopped = len(
        {vote.subject["image_id"] for vote in votes if vote.evidence.get("settled") is True}
    )
    if stopped:
        raise NotApplicable(
            f"{stopped:,} images have fewer votes because their fate was decided, so their votes do "
            "not show how often people select them",
            fix="adjust with votes whose number was fixed in advance",
        )


def _counts(testset: TestSet, said: dict[tuple[str, str], tuple[int, int]]) -> np.ndarray:
    """Selections and votes of every image for its own class; int64 (2, images)."""
    classes = testset.class_of_images()
    found = [
        said.get((image, classes.get(image, "")), (0, 0)) for image in testset.image_ids.to_pylist()
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2).T


def _clusters(
    parts: Sequence[tuple[TestSet, np.ndarray]], column: str | None
) -> list[np.ndarray | None]:
    """Which images belong together, by names that the sets share; one without a value is alone."""
    if column is None:
        return [None] * len(parts)
    names: list[str] = []
    for testset, rows in parts:
        images = testset.image_ids.to_pylist()
        classes = testset.class_of_images()
        values = (
            testset.images[column].to_pylist() if column in testset.images.column_names else None
        )
        for row in rows.tolist():
            image = images[row]
            value = classes.get(image) if column == CLASS else values and values[row]
            names.append(f"alone:{testset.name}:{image}" if value is None else f"of:{value}")
    codes = np.unique(names, return_inverse=True)[1].astype(np.int64).reshape(-1)
    return list(np.split(codes, np.cumsum([len(rows) for _, rows in parts])[:-1]))


def adjusted_scores(
    measured: Sequence[Measured], voted: VotedSets, *, level: float = 0.95
) -> Iterator[AdjustedScore]:
    """Every model's accuracy on the pool by every estimator, of the metrics that are shares of images."""
    parts = [item for item in measured if adjustable(item)]
    if not parts:
        names = ", ".join(item.metric.name for item in measured)
        raise NotApplicable(
            f"{names} cannot be adjusted to selection frequencies",
            fix="use a metric that is a share of images, such as top1",
        )
    for item in parts:
        part = item.one_row_per_image()
        # A metric may leave images out, such as those without a label.
        place = np.full(len(voted.pool), -1)
        place[part.rows] = np.arange(len(part))
        counted = place[voted.of_pool.rows] >= 0
        given = voted.of_pool.votes
        votes = given
        if not counted.all():
            cluster = None if given.cluster is None else given.cluster[counted]
            votes = Votes(given.selected[counted], given.n[counted], cluster)
            check_votes(voted.of_original.votes, votes)
        rows = place[voted.of_pool.rows[counted]]
        for m in range(len(part.models)):
            right = part.values[rows, m].astype(np.float64)
            for name, estimator in ESTIMATORS.items():
                found = estimator(voted.of_original.votes, votes, right)
                interval = found.interval(level)
                yield AdjustedScore(
                    **{**part.subject(m), **voted.subject, "n": len(rows)},
                    estimator=name,
                    estimand=ESTIMAND,
                    **estimated(found.value, None if voted.few else interval, reason=voted.few),
                )


def adjustable(measured: Measured) -> bool:
    """Whether a metric is the mean of a share over images, which frequencies can be matched for."""
    metric = measured.metric
    plain = not (metric.weighted or metric.binned or metric.per_class or metric.forgives)
    return plain and metric.average == "images" and is_share(metric.name)


def held_out_record(voted: VotedSets, *, level: float = 0.95) -> HeldOutFrequencies:
    """How far the frequency of a matched set falls when other votes are asked."""
    found = held_out_votes(voted.of_original.votes, voted.of_pool.votes)
    interval = found.drop.difference_interval(level)
    return HeldOutFrequencies(
        **voted.subject,
        selected=found.selected,
        held_out=found.held_out,
        drop=found.drop.value,
        low=None if voted.few else float(interval.low),
        high=None if voted.few else float(interval.high),
        level=None if voted.few else level,
        reason=voted.few,
    )
