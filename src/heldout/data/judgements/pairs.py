"""Pairs of images that a search found, or that people judged, and what holds of each.

What a person said holds. Without a person, images with the same pixels are duplicates; another pair
that was found (:meth:`Neighbours.found`) is unresolved until somebody looks, or until
``heldout dedupe --accept`` takes it for a duplicate, which is a judgement by ``threshold``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from heldout.core.records import Table
from heldout.core.workspace import Workspace
from heldout.data.judgements.duplicates import FIRST, PairVerdict, current_verdicts
from heldout.data.judgements.neighbours import Neighbours, saved_searches
from heldout.data.testset import TestSet

Decision = Literal["duplicate", "different", "unresolved"]
IDENTICAL = "same pixels"
"""Who says that two images without any difference in their pixels are duplicates."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An image of a test set, another one, and what holds of the two.

    ``reference``  the set that the other one is of; "" for the test set itself
    ``distances``  how far apart they are, by measure, where a search kept that
    ``by``         who decided: a person, ``threshold``, ``same pixels``; "" where nobody did
    """

    record: ClassVar[str] = "pair"
    table: ClassVar[Table] = Table(
        "pairs, nearest first",
        ("image=image_id", "other", "distances=distance_text", "decision", "by", "when"),
    )
    image_id: str
    other_id: str
    reference: str = ""
    distances: Mapping[str, float] = field(default_factory=dict)
    decision: Decision = "unresolved"
    by: str = ""
    when: str | None = None

    @property
    def other(self) -> str:
        """The other image as judgements name it."""
        return named(self.reference, self.other_id)

    @property
    def distance_text(self) -> str:
        """The distances, for a person."""
        return ", ".join(f"{name} {value:.6g}" for name, value in sorted(self.distances.items()))

    @property
    def said(self) -> str:
        """Who decided and when; nothing where nobody did."""
        who = f"{self.decision}: {self.by}" if self.by else ""
        return f"{who}, {self.when[:10]}" if who and self.when else who


def named(reference: str, image_id: str) -> str:
    """An image as judgements name it: one of another set than the judged one with its set's name.

    >>> named("train", "cat/1.jpg"), named("", "cat/1.jpg")
    ('train:cat/1.jpg', 'cat/1.jpg')
    """
    return f"{reference}:{image_id}" if reference else image_id


def known_pairs(testset: TestSet, workspace: Workspace) -> list[Pair]:
    """All that the workspace knows of duplicates of a test set's images; nearest first."""
    searches = saved_searches(workspace, testset.name)
    return decided_pairs(testset, searches, current_verdicts(testset, workspace))


def decided_pairs(
    testset: TestSet,
    searches: Iterable[Neighbours],
    verdicts: Mapping[tuple[str, str], PairVerdict],
) -> list[Pair]:
    """Every pair that was found, or judged to be duplicates, with what holds of it; nearest first.

    Nearest is by the smallest distance in units of its measure's threshold. What was found of an
    image whose file has changed since is left out.
    """
    ids, digests = testset.image_ids.to_pylist(), testset.images["sha256"].to_pylist()
    ours = dict(zip(ids, digests, strict=True))
    by_reference: dict[str, list[Neighbours]] = {"": []}
    for search in searches:
        reference = "" if search.within else search.search["reference"]["name"]
        by_reference.setdefault(reference, []).append(search)
    ranked: list[tuple[str, float, tuple[str, str], Pair]] = []
    for reference, several in by_reference.items():
        asked: set[tuple[str, str]] = set()
        for search in several:
            # Images with the same pixels are duplicates whatever the threshold, and without any.
            least = 0.0 if search.search["measure"] == "l2" else -math.inf
            limit = max(search.threshold, least)
            pairs = [pair[:2] for pair in search.found(at_most=limit, first=FIRST)]
            names = {image for pair in pairs for image in (pair if search.within else pair[:1])}
            same = {name for name in names if name in ours} - changed_since(search, ours, names)
            asked |= {p for p in pairs if p[0] in same and (p[1] in same or not search.within)}
        said = _of_reference(reference, verdicts, ours, several)
        asked |= {pair for pair, verdict in said.items() if verdict.answer == "duplicate"}
        distances: dict[tuple[str, str], dict[str, float]] = {pair: {} for pair in asked}
        nearest = dict.fromkeys(asked, math.inf)
        for search in several:
            unit = max(search.threshold, 0.0) or 1.0
            for pair, distance in search.distances_of(asked).items():
                distances[pair].setdefault(search.search["measure"], distance)
                nearest[pair] = min(nearest[pair], distance / unit)
        ranked += [
            (
                reference,
                nearest[pair],
                pair,
                _decided(pair, reference, distances[pair], said.get(pair)),
            )
            for pair in asked
        ]
    return [pair for *_, pair in sorted(ranked, key=lambda entry: entry[:3])]


def changed_since(
    search: Neighbours, digests: Mapping[str, str | None], names: Collection[str]
) -> set[str]:
    """Images of a test set, among some, whose file is not the one that was compared.

    ``digests``  the hashes of the set's files; an image without one cannot be told to have changed
    """
    rows = search.candidates.rows(names)
    places = np.array(list(rows.values()), np.int64)
    known = search.candidates.table["identity"].take(places).to_pylist()
    return {
        name
        for name, identity in zip(rows, known, strict=True)
        if identity is not None and identity.split()[0] != digests.get(name)
    }


def _of_reference(
    reference: str,
    verdicts: Mapping[tuple[str, str], PairVerdict],
    ours: Collection[str],
    searches: Sequence[Neighbours],
) -> dict[tuple[str, str], PairVerdict]:
    """Verdicts of an image of ours with one of theirs, ours first.

    Published verdicts name images of a reference without its name.
    """
    start = named(reference, "")
    bare = {name.removeprefix(start) for names in verdicts for name in names}
    theirs: Collection[str] = ours
    if reference:
        theirs = {name for search in searches for name in search.references.rows(bare)}
    found: dict[tuple[str, str], PairVerdict] = {}
    for names, verdict in verdicts.items():
        for image, other in (names, names[::-1]):
            name = other.removeprefix(start)
            if (
                image in ours
                and name in theirs
                and (name != other or other not in ours or not start)
            ):
                found.setdefault((image, name), verdict)
                break
    return found


def _decided(
    pair: tuple[str, str],
    reference: str,
    distances: Mapping[str, float],
    verdict: PairVerdict | None,
) -> Pair:
    decision: Decision = "unresolved"
    by, when = "", None
    if verdict is not None:
        decision, by, when = verdict
    elif distances.get("l2") == 0.0:
        decision, by = "duplicate", IDENTICAL
    return Pair(
        image_id=pair[0],
        other_id=pair[1],
        reference=reference,
        distances=dict(distances),
        decision=decision,
        by=by,
        when=when,
    )


def leaks_of(
    pairs: Iterable[Pair],
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """By reference: images with a duplicate there, and others with an unresolved pair there."""
    found: dict[Decision, dict[str, set[str]]] = {"duplicate": {}, "unresolved": {}}
    for pair in pairs:
        if pair.reference and pair.decision in found:
            found[pair.decision].setdefault(pair.reference, set()).add(pair.image_id)
    leaked, doubted = found.values()
    return (
        {reference: frozenset(images) for reference, images in leaked.items()},
        {
            reference: frozenset(images - leaked.get(reference, set()))
            for reference, images in doubted.items()
        },
    )
