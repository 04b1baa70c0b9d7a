"""What the images that a reference holds too add to a score."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.core.errors import BadFile
from heldout.core.workspace import Workspace
from heldout.data.judgements.neighbours import saved_searches
from heldout.data.judgements.resolution import near_duplicates
from heldout.data.testset import TestSet
from heldout.measure.score.estimate import Estimates, IntervalOptions, estimate, part_of
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Leak
from heldout.measure.score.slices import cluster_codes
from heldout.stats.intervals import Bounded, square_and_add

LEAKED, DOUBTED = "leaked", "leaked or unresolved"


@dataclass(frozen=True)
class KnownLeaks:
    """What searches and people say of a test set: by reference, its images that are there too.

    ``leaked``        images that hang together with one of the reference by duplicates
    ``unresolved``    images that were found near one, and nobody has decided
    ``not_compared``  how many images were added or have changed since; nothing is known of them
    ``damaged``       why what was found could not be read
    """

    leaked: Mapping[str, frozenset[str]]
    unresolved: Mapping[str, frozenset[str]]
    not_compared: int = 0
    damaged: str = ""

    @property
    def references(self) -> tuple[str, ...]:
        """The references that hold any."""
        return tuple(
            sorted({r for part in (self.leaked, self.unresolved) for r in part if part[r]})
        )

    def images(self, kind: str) -> frozenset[str]:
        """The images to leave out: ``leaked``, or ``leaked or unresolved``."""
        parts = (self.leaked, self.unresolved)[: 1 if kind == LEAKED else 2]
        return frozenset().union(*(each for part in parts for each in part.values()))

    @property
    def lines(self) -> list[str]:
        """A line for each reference that holds some, and for what is not known."""
        found = []
        for reference in self.references:
            leaked, doubted = (
                len(part.get(reference, ())) for part in (self.leaked, self.unresolved)
            )
            said = [f"{leaked:,} images are duplicates of images of {reference}"] if leaked else []
            if doubted:
                one = "one" if leaked else f"one of {reference}"
                said.append(
                    f"{doubted:,} {'more' if leaked else 'images'} are near {one}, and nobody has looked"
                )
            found.append(", ".join(said))
        if self.not_compared:
            found.append(
                f"{self.not_compared:,} images were added or have changed since the others were compared "
                "with references: heldout dedupe compares them"
            )
        if self.damaged:
            found.append(f"what leaked is not known: {self.damaged}")
        return found


def known_leaks(testset: TestSet, workspace: Workspace) -> KnownLeaks:
    """What the workspace knows of a test set's leaks."""
    try:
        searches = saved_searches(workspace, testset.name)
    except BadFile as error:
        return KnownLeaks({}, {}, damaged=error.line)
    if not any(search.reference for search in searches):
        return KnownLeaks({}, {})
    found = near_duplicates(testset, workspace, searches=searches)
    doubted = {reference: images for reference, images in found.in_doubt.items() if reference}
    return KnownLeaks(found.leaked, doubted, len(found.not_compared))


def leak_records(
    measured: Iterable[Measured],
    leaks: KnownLeaks,
    *,
    cluster: str | None = None,
    options: IntervalOptions,
) -> Iterator[Leak]:
    """Every model's score with and without leaked images, by the first metric that is a mean over images."""
    item = next((m for m in measured if _is_mean(m)), None)
    if item is None:
        return
    clusters = None if cluster is None else cluster_codes(item, cluster)
    ids = np.array(item.testset.image_ids.to_pylist(), object)[item.rows]
    before: Collection[str] = ()
    for kind in (LEAKED, DOUBTED):
        images = leaks.images(kind)
        if images and images != before:
            yield from _leaks(item, ids, kind, images, leaks.references, cluster, clusters, options)
        before = images


def _is_mean(item: Measured) -> bool:
    """Whether a score is the mean of its images' values, each counting the same."""
    metric = item.metric
    other = metric.binned or metric.per_class or metric.weighted
    return metric.average == "images" and not other


def _leaks(
    item: Measured,
    ids: np.ndarray,
    kind: str,
    images: Collection[str],
    references: Sequence[str],
    cluster: str | None,
    clusters: np.ndarray | None,
    options: IntervalOptions,
) -> Iterator[Leak]:
    out = np.isin(ids, sorted(images))
    whole, _ = part_of(item, np.arange(len(item)), clusters)
    values = whole.estimates()
    parts: list[tuple[int, Estimates | None]] = []
    for rows in (np.flatnonzero(out), np.flatnonzero(~out)):
        part, together = part_of(item, rows, clusters)
        purpose = f"leaks {item.metric.name} {kind} {len(parts)}"
        made = (
            estimate(part, options, purpose, clusters=together, cluster=cluster)
            if len(rows)
            else None
        )
        parts.append((len(part), made))
    (left_out, gone), (_, kept) = parts
    share = left_out / len(whole)
    for m in range(len(item.models)):
        found: dict[str, Any] = {"value_without": None, "difference": None}
        if gone is None:
            found = {"value_without": float(values[m]), "difference": 0.0}
        elif kept is None:
            found["reason"] = "no image is left"
        else:
            found = _difference(gone.of_model(m), kept.of_model(m), share)
        subject = item.subject(m)
        subject.pop("label_map")
        yield Leak(
            **subject,
            references=tuple(references),
            images=kind,
            n=len(whole),
            left_out=left_out,
            value=float(values[m]),
            **found,
        )


def _difference(gone: Mapping[str, Any], kept: Mapping[str, Any], share: float) -> dict[str, Any]:
    """All images less the kept ones: the share of leaked images times how much easier they are."""
    found = {
        "value_without": kept["value"],
        "difference": share * (gone["value"] - kept["value"]),
    }
    reason = gone["reason"] or kept["reason"]
    ends: list[tuple[Any, Any, Any]] = [
        (part["value"], part.get("low"), part.get("high")) for part in (gone, kept)
    ]
    if reason is not None or any(None in side for side in ends):
        return found | {"reason": reason}
    low, high = square_and_add(*(Bounded(*side) for side in ends))
    limits = {"low": share * low, "high": share * high}
    return found | limits | {"interval": "square-and-add", "level": kept["level"]}
