"""Search of near duplicates: blocks of images as units of work, merged, saved, and grown.

A search of a test set in a reference is saved in the workspace. Asked again after images were added,
it compares new images with all of the reference, and images of before with what is new there. An
image is the same while its id and the hash of its file are; one without a hash is always compared.

What is kept does not depend on the size of blocks, which follows from the memory that is allowed:
every distance is exact, and of equal distances the smaller id comes first.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heldout.core.engine import JobResults, Progress, Serial, Unit, no_progress, unit_key
from heldout.core.engine.jobs import map_units
from heldout.core.engine.results import remove_job, working
from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.core.files import canonical_json, sha256_text
from heldout.core.workspace import Workspace
from heldout.curate.dedupe.dssim import nearest_dssim
from heldout.curate.dedupe.nearest import Nearest, merge, nearest
from heldout.curate.dedupe.requests import Device, Measure
from heldout.data.judgements.neighbours import (
    ComparedImages,
    Neighbours,
    Search,
    read_neighbours,
    search_folder,
    write_neighbours,
)
from heldout.data.labels.wordnet import SpaceDistances
from heldout.data.testset.testset import TestSet
from heldout.models.adapters.model import Encoder
from heldout.models.descriptors import image_encoder
from heldout.models.embeddings import Embeddings

WORK = "dedupe-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""
FARTHEST: Mapping[str, float] = {"dssim": 0.25}
"""Neighbours farther away are not kept, which lets most pairs be skipped: the published threshold is
0.2205, and two photographs that have nothing in common are at about 0.4."""
_NOT_ASKED = ("schema_version", "files", "check")
_LARGEST = {"dssim": 512}
"""Most images on a side of a block; elsewhere memory decides up to 16,384. A unit is to take seconds."""


def encoder_of(measure: Measure, features: str) -> Encoder:
    """What makes the vectors that a measure compares."""
    return image_encoder({"features": features, "hash": "hash"}.get(measure, "pixels"), unit=True)


@dataclass(frozen=True, eq=False)
class Side:
    """The images on one side of a search: ids, sorted, with their rows among the vectors."""

    testset: TestSet
    vectors: Embeddings
    images: ComparedImages
    rows: np.ndarray
    classes: Sequence[str | None]

    @property
    def unknown(self) -> bool:
        """Whether it cannot be told of some image whether it is the same as before."""
        return None in self.images.identities

    @classmethod
    def of(cls, testset: TestSet, vectors: Embeddings, *, by_class: bool) -> Side:
        """The images of a set that have a vector; their classes too where those decide."""
        place = {name: row for row, name in enumerate(vectors.ids)}
        bad = vectors.facts.get("failures", {})
        digests = testset.file_hashes
        ids = sorted(name for name in digests if name not in bad)
        classes = testset.class_of_images() if by_class else {}
        of_each = [classes.get(name) for name in ids]
        identities = [
            digests[name] and (f"{digests[name]} {label}" if by_class else digests[name])
            for name, label in zip(ids, of_each, strict=True)
        ]
        rows = np.array([place[name] for name in ids], np.int64)
        return cls(testset, vectors, ComparedImages.of(ids, identities), rows, of_each)


class _Part(NamedTuple):
    """Candidates that are all compared with the same references; both by place in their side."""

    candidates: np.ndarray
    references: np.ndarray


def search(
    testset: TestSet,
    reference: TestSet,
    measure: Measure,
    *,
    vectors: Embeddings,
    reference_vectors: Embeddings,
    workspace: Workspace,
    keep: int = 100,
    near_classes: int | None = None,
    threshold: float | None = None,
    threshold_from: str = "",
    memory: int = 2**30,
    device: Device = "auto",
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Neighbours:
    """The nearest images of each image, saved; the same call resumes, or compares what is new.

    ``threshold``     a pair at most this far apart counts as found, and where that is from
    ``near_classes``  number of classes: an image is compared only with those of the classes most similar
                      to its own (by WordNet, its own first), and with those without a class
    ``memory``        bytes that a block may take
    """
    by_class = near_classes is not None
    ours = Side.of(testset, vectors, by_class=by_class)
    theirs = Side.of(reference, reference_vectors, by_class=by_class)
    asked: Search = {
        "measure": measure,
        "testset": {"name": testset.name, "images_hash": testset.card.images_hash},
        "reference": {"name": reference.name, "images_hash": reference.card.images_hash},
        "encoder": vectors.facts["encoder"],
        "keep": keep,
        "farthest": FARTHEST.get(measure),
        "near_classes": near_classes,
        "threshold": threshold,
        "threshold_from": threshold_from,
        "failures": dict(vectors.facts.get("failures", {})),
        "reference_failures": dict(reference_vectors.facts.get("failures", {})),
    }
    folder = search_folder(workspace, asked)
    known = _known(folder, asked)
    same = known is not None and all(
        before.table.equals(now.table)
        for before, now in ((known.candidates, ours.images), (known.references, theirs.images))
    )
    if known is not None and same and not ours.unknown and not theirs.unknown:
        before = {name: value for name, value in known.search.items() if name not in _NOT_ASKED}
        if canonical_json(before) != canonical_json(asked):
            write_neighbours(folder, replace(known, search=asked))  # another threshold, say
            known = read_neighbours(folder)
        return known
    kept = Nearest(
        np.full((len(ours.rows), keep), -1, np.int64), np.full((len(ours.rows), keep), math.inf)
    )
    fresh, new = np.ones(len(ours.rows), bool), np.ones(len(theirs.rows), bool)
    if known is not None:
        fresh, new = _take_over(known, ours, theirs, kept)
    allowed = _allowed(ours, theirs, near_classes)
    parts = [
        part
        for group, others in allowed
        for part in (
            _Part(group[fresh[group]], others),
            _Part(group[~fresh[group]], others[new[others]]),
        )
        if len(part.candidates) and len(part.references)
    ]
    work = SearchWork(
        measure, vectors, reference_vectors, keep, asked["testset"] == asked["reference"],
        asked["farthest"], memory, device, workers,
    )  # fmt: skip
    units = list(_units(parts, ours, theirs, work))
    job = f"dedupe-{sha256_text(canonical_json([unit.key for unit in units]))[:24]}"
    results = JobResults(workspace.runs / job)
    with working(results):  # until the results are read: who does the same removes them then
        map_units(
            work,
            units,
            name=job,
            what=f"{measure} of {testset.name} and {reference.name}",
            runs=workspace.runs,
            executor=Serial(),  # a unit itself uses all threads, or the GPU
            progress=_in_pairs(progress, units),
        )
        _collect(units, results, ours, theirs, kept, keep)
    found = Neighbours(asked, ours.images, theirs.images, kept.rows, kept.distances)
    write_neighbours(folder, found)
    remove_job(results.folder)
    return read_neighbours(folder)


def _known(folder: Path, asked: Search) -> Neighbours | None:
    """What was found before by the same measure; its own threshold is kept by whoever set it."""
    try:
        known = read_neighbours(folder)
    except (NotFound, BadFile):  # a damaged one is made anew
        return None
    same = ("encoder", "keep", "farthest", "near_classes")
    return known if all(known.search[name] == asked[name] for name in same) else None  # type: ignore[literal-required]


def _take_over(
    known: Neighbours, ours: Side, theirs: Side, kept: Nearest
) -> tuple[np.ndarray, np.ndarray]:
    """Fill in what an earlier search found; which candidates and references it did not compare.

    A candidate that had a neighbour which is gone is compared again: who comes after it is not known.
    """
    places = _places(theirs.images)
    moved = np.array(
        [
            places.get((name, identity), -1) if identity else -1
            for name, identity in known.references.keys
        ]
        + [-1],
        np.int64,
    )  # the last one for "fewer": rows of -1
    new = np.ones(len(theirs.rows), bool)
    new[moved[moved >= 0]] = False
    before = _places(known.candidates)
    fresh = np.ones(len(ours.rows), bool)
    for place, key in enumerate(ours.images.keys):
        row = before.get(key)
        if row is None or key[1] is None:
            continue
        rows = moved[known.rows[row]]
        if np.array_equal(rows >= 0, known.rows[row] >= 0):
            fresh[place] = False
            # Ids are sorted on both sides, so rows that are left keep their order among equals.
            kept.rows[place], kept.distances[place] = rows, known.distances[row]
    return fresh, new


def _places(images: ComparedImages) -> dict[tuple[str, str | None], int]:
    return {key: place for place, key in enumerate(images.keys)}


def _allowed(
    ours: Side, theirs: Side, near_classes: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Groups of candidates, and the references that all of a group are compared with."""
    everyone = np.arange(len(ours.rows)), np.arange(len(theirs.rows))
    if near_classes is None:
        yield everyone
        return
    space, other = ours.testset.label_space, theirs.testset.space
    if other is not None and other.ids != space.ids:
        raise MismatchError(
            f"{ours.testset.name} and {theirs.testset.name} have different classes",
            fix="leave --near-classes out",
        )
    distances = SpaceDistances(space)
    labels = np.array([label or "" for label in theirs.classes], object)
    mine = np.array([label or "" for label in ours.classes], object)
    for label in sorted(set(mine.tolist())):
        group = np.flatnonzero(mine == label)
        if not label:
            yield group, everyone[1]
            continue
        near = distances.most_similar(label, min(near_classes, len(space)))
        yield group, np.flatnonzero(np.isin(labels, ["", *near]))


def _units(parts: Sequence[_Part], ours: Side, theirs: Side, work: SearchWork) -> Iterator[Unit]:
    """Blocks of pairs; a unit's key says which images with which vectors are compared how."""
    size = work.block
    for part in parts:
        columns = [(block, _digest(theirs, block)) for block in _chunks(part.references, size)]
        for some in _chunks(part.candidates, size):
            rows = _digest(ours, some)
            for others, digest in columns:
                key = unit_key(
                    WORK,
                    measure=work.measure,
                    encoder=work.candidates.facts["encoder"]["key"],
                    keep=work.keep,
                    farthest=work.farthest,
                    within=work.within,
                    candidates=rows,
                    references=digest,
                )
                yield Unit(key, (ours.rows[some], theirs.rows[others], some, others))


def _chunks(places: np.ndarray, size: int) -> list[np.ndarray]:
    return [places[start : start + size] for start in range(0, len(places), size)]


def _digest(side: Side, places: np.ndarray) -> str:
    """What a block holds: its images, and the vectors where an image's bytes are not known."""
    named = [[side.images.ids[place], side.images.identities[place]] for place in places.tolist()]
    unknown = [
        row
        for row, (_, identity) in zip(side.rows[places].tolist(), named, strict=True)
        if identity is None
    ]
    extra = sha256_text(side.vectors.vectors[unknown].tobytes().hex()) if unknown else ""
    return sha256_text(canonical_json([named, extra]))


@dataclass(frozen=True, eq=False)
class SearchWork:
    """The work of a search: ``work((rows, rows of the reference, …)) -> bytes``."""

    measure: Measure
    candidates: Embeddings
    references: Embeddings
    keep: int
    within: bool
    farthest: float | None
    memory: int
    device: Device
    workers: int | None

    @property
    def block(self) -> int:
        """Images on a side of a block: a quarter of the memory is for each side.

        A quarter is for scratch, one for the process itself and what is kept.
        """
        vectors = self.candidates.vectors
        fitting = self.memory // 4 // max(vectors.shape[1] * vectors.itemsize, 1)
        return max(1, min(int(fitting), _LARGEST.get(self.measure, 16_384)))

    def __call__(self, payload: tuple[np.ndarray, ...]) -> bytes:
        """The nearest of a block; rows are by place in the block of references."""
        ours, theirs, *_ = payload
        found = self._nearest(self.candidates.vectors[ours], self.references.vectors[theirs])
        if self.within:
            found = _without_self(found, ours, theirs, self.keep)
        handle = io.BytesIO()
        np.savez(handle, rows=found.rows, distances=found.distances)
        return handle.getvalue()

    def _nearest(self, candidates: np.ndarray, references: np.ndarray) -> Nearest:
        keep = min(self.keep + self.within, len(references))
        how: dict[str, Any] = {
            "device": self.device, "threads": self.workers, "memory": self.memory // 4
        }  # fmt: skip
        if self.measure != "dssim":
            return nearest(candidates, references, keep, **how)
        bound = math.inf if self.farthest is None else self.farthest
        return nearest_dssim(candidates, references, keep, bound=bound, **how)


def _without_self(found: Nearest, ours: np.ndarray, theirs: np.ndarray, keep: int) -> Nearest:
    """Leave each image out of its own neighbours."""
    padded = np.append(theirs, -1)
    own = padded[found.rows] == ours[:, None]
    rows = np.where(own, -1, found.rows)
    distances = np.where(own, math.inf, found.distances)
    order = np.argsort(distances, axis=1, kind="stable")[:, :keep]
    return Nearest(
        np.take_along_axis(rows, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )


def _collect(
    units: Sequence[Unit],
    results: JobResults,
    ours: Side,
    theirs: Side,
    kept: Nearest,
    keep: int,
) -> None:
    """Merge the blocks of each candidate into what is kept."""
    for unit in units:
        _, _, some, others = unit.payload
        with np.load(io.BytesIO(results.read(unit.key)), allow_pickle=False) as made:
            rows, distances = made["rows"], made["distances"]
        rows = np.where(rows < 0, -1, others[rows])
        merged = merge(
            [Nearest(kept.rows[some], kept.distances[some]), Nearest(rows, distances)], keep
        )
        kept.rows[some], kept.distances[some] = merged.rows, merged.distances


def _in_pairs(progress: Progress, units: Sequence[Unit]) -> Progress:
    """Progress that counts pairs of images instead of blocks."""
    from heldout.models.predictions.run_models import in_images

    pairs = sum(len(unit.payload[0]) * len(unit.payload[1]) for unit in units)
    return in_images(progress, pairs, len(units))
