"""Pairs of images that a search found, or that people judged, and what holds of each.

What a person said holds. Without a person, images with the same pixels are duplicates; another pair
that was found (:meth:`Neighbours.found`) is unresolved until somebody looks, or until
``heldout dedupe --accept`` takes it for a duplicate, which is a judgement by ``threshold``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from heldout.core.records import Table
from heldout.data.judgements.duplicates import FIRST, PairVerdict
from heldout.data.judgements.neighbours import Neighbours
from heldout.data.testset import TestSet

Decision = Literal["duplicate", "different", "unresolved"]
IDENTICAL, SAME_FILE = "same pixels", "same file"
"""Who says that two images whose pixels, or bytes, do not differ are duplicates."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An image of a test set, another one, and what holds of the two.

    ``reference``  the set that the other one is of; "" for the test set itself
    ``distances``  how far apart they are, by measure, where a search kept that
    ``found_by``   measures by which they are near enough to count as found
    ``by``         who decided: people, ``threshold``, ``same pixels``; of an unresolved pair the people who
                   disagree; "" where nobody said anything
    ``files``      the hashes of their files, by the names that judgements use, where they are known
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
    found_by: tuple[str, ...] = ()
    decision: Decision = "unresolved"
    by: str = ""
    when: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def other(self) -> str:
        """The other image as judgements name it."""
        return named(self.reference, self.other_id)

    @property
    def distance_text(self) -> str:
        """The distances, for a person."""
        return ", ".join(f"{name} {value:.4g}" for name, value in sorted(self.distances.items()))

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


def decided_pairs(
    testset: TestSet,
    searches: Iterable[Neighbours],
    verdicts: Mapping[tuple[str, str], PairVerdict],
) -> list[Pair]:
    """Every pair that was found, or judged to be duplicates, with what holds of it; nearest first.

    Nearest is by the smallest distance in units of its measure's threshold. What was found of an
    image whose file has changed since is left out.
    """
    ours = testset.file_hashes
    by_reference: dict[str, list[Neighbours]] = {"": []}
    for search in searches:
        by_reference.setdefault(search.reference, []).append(search)
    ranked: list[tuple[str, float, tuple[str, str], Pair]] = []
    for reference, several in by_reference.items():
        found: dict[tuple[str, str], set[str]] = {}
        for search in several:
            # Images with the same pixels are duplicates whatever the threshold, and without any.
            least = 0.0 if search.search["measure"] == "l2" else -math.inf
            limit = max(search.threshold, least)
            pairs = [pair[:2] for pair in search.found(at_most=limit, first=FIRST)]
            names = {image for pair in pairs for image in (pair if search.within else pair[:1])}
            same = {name for name in names if name in ours} - changed_since(search, ours, names)
            for pair in pairs:
                if pair[0] in same and (pair[1] in same or not search.within):
                    found.setdefault(pair, set()).add(search.label)
        said = _of_reference(reference, verdicts, ours, several)
        for pair, verdict in said.items():
            if verdict.answer == "duplicate":
                found.setdefault(pair, set())
        distances: dict[tuple[str, str], dict[str, float]] = {pair: {} for pair in found}
        nearest = dict.fromkeys(found, math.inf)
        for search in several:
            unit = max(search.threshold, 0.0) or 1.0
            for pair, distance in search.distances_of(found).items():
                distances[pair].setdefault(search.label, distance)
                nearest[pair] = min(nearest[pair], distance / unit)
        theirs = hashes_of(several, {other for _, other in found}) if reference else ours
        for pair, labels in found.items():
            one, other = pair
            hashes = {one: ours.get(one), named(reference, other): theirs.get(other)}
            made = Pair(
                image_id=one,
                other_id=other,
                reference=reference,
                distances=distances[pair],
                found_by=tuple(sorted(labels)),
                files={name: digest for name, digest in hashes.items() if digest is not None},
            )
            ranked.append((reference, nearest[pair], pair, _decided(made, said.get(pair))))
    return [pair for *_, pair in sorted(ranked, key=lambda entry: entry[:3])]


def hashes_of(searches: Iterable[Neighbours], names: Collection[str]) -> dict[str, str]:
    """The hashes of files of a reference, as they were when it was compared, where they are known."""
    found: dict[str, str] = {}
    for search in searches:
        rows = search.references.rows(names)
        places = np.array(list(rows.values()), np.int64)
        known = search.references.table["identity"].take(places).to_pylist()
        found |= {
            n: each.split()[0] for n, each in zip(rows, known, strict=True) if each is not None
        }
    return found


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


def _decided(pair: Pair, verdict: PairVerdict | None) -> Pair:
    """The pair with what people say of it; without that, images that do not differ are duplicates."""
    if verdict is not None:
        return replace(pair, decision=verdict.answer, by=verdict.who, when=verdict.when)
    if len(pair.files) == 2 and len(set(pair.files.values())) == 1:
        return replace(pair, decision="duplicate", by=SAME_FILE)
    if pair.distances.get("l2") == 0.0:
        return replace(pair, decision="duplicate", by=IDENTICAL)
    return pair
