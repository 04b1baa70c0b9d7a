"""Gathering: what a test set, its truths and stored predictions know about its mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import BadFile, LabelError, NotApplicable, UserError
from heldout.data.judgements.formats import rows_of_file
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.superclasses import Superclasses, read_superclasses
from heldout.data.testset import TestSet
from heldout.measure.mistakes.affinity import Affinity, co_prediction, read_affinity
from heldout.measure.mistakes.collapse import BUILT_IN, Collapse, load_collapse
from heldout.measure.mistakes.cooccurrence import Cooccurrence, cooccurrence
from heldout.measure.mistakes.knowledge import Knowledge, hierarchy_for
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.peers import Peers, read_peers
from heldout.measure.score.truth import truth_arrays
from heldout.models.predictions import Predictions

AUTO = "auto"
NONE = "none"


def gather_knowledge(
    testset: TestSet,
    *,
    truth: str,
    predictions: Iterable[Predictions] | None = None,
    label_map: LabelMap | None = None,
    superclasses: Path | None = None,
    collapse: str | Collapse | None = AUTO,
    affinity: Path | None = None,
    seen_together: str = AUTO,
    prototypes: str | Path | None = None,
) -> Knowledge:
    """All that is known about the mistakes of a test set under one truth.

    ``predictions``    of other models on the same images: they give peers and, without a file of
                       affinities, how alike classes look
    ``superclasses``   file of superclasses
    ``collapse``       a collapse table, its name or its file; ``auto`` takes the built-in ones that
                       are about classes of this space, ``none`` none
    ``affinity``       file of a similarity matrix (``.npy``) or of confusions (``.json``)
    ``seen_together``  truth whose labels say which classes are seen together; ``auto`` takes one of
                       several labels an image, if there is one; ``none`` does without
    ``prototypes``     column of numbers, or CSV file (``image_id``, ``typicality``): larger is more
                       typical
    """
    space = testset.label_space
    peers: Peers | None = None
    if predictions is not None:
        peers = read_peers(testset, predictions, label_map=label_map)
    alike: Affinity | None = None
    if affinity is not None:
        alike = read_affinity(affinity, label_space=space)
    elif peers is not None and testset.card.clusters is None:
        # Where an object comes again and again, its own confusion would look like everybody's.
        alike = co_prediction(peers)
    groups: Superclasses | None = None
    if superclasses is not None:
        groups = read_superclasses(superclasses, label_space=space)
    return Knowledge(
        space=space,
        collapse=_collapse(collapse, space),
        hierarchy=hierarchy_for(space),
        superclasses=groups,
        affinity=alike,
        peers=peers,
        cooccurrence=_seen_together(testset, truth, seen_together),
        prototypes=None if prototypes is None else read_prototypes(testset, prototypes),
    )


def _collapse(choice: str | Collapse | None, space: LabelSpace) -> Collapse | None:
    if choice is None or isinstance(choice, Collapse):
        return choice
    if choice == NONE:
        return None
    if choice != AUTO:
        return load_collapse(choice, label_space=space)
    for name in BUILT_IN:
        try:
            return load_collapse(name, label_space=space)
        except LabelError:
            continue  # it is about other classes
    return None


def _seen_together(testset: TestSet, truth: str, choice: str) -> Cooccurrence | None:
    if choice == NONE:
        return None
    if choice != AUTO:
        return _outside(testset, choice, truth)
    several = [
        name
        for name in testset.truths
        if testset.card.truths.get(name, {}).get("kind") in ("multilabel", "real")
    ]
    for name in sorted(several, key=lambda name: (name == truth, name)):
        found = _outside(testset, name, truth)
        if len(found):
            return found
    return None


def _outside(testset: TestSet, name: str, truth: str) -> Cooccurrence:
    """Pairs from images that the mistakes are not judged on, or from all where there are no others."""
    try:
        return cooccurrence(testset, truth=name, without=truth if name != truth else None)
    except NotApplicable:
        return cooccurrence(testset, truth=name)


def read_prototypes(testset: TestSet, where: str | Path) -> Mapping[str, float]:
    """How typical images are: a column of numbers of the test set, or a CSV file."""
    ids = testset.image_ids.to_pylist()
    if str(where) in testset.images.column_names:
        values = testset.images[str(where)].to_pylist()
        try:
            numbers = {i: float(v) for i, v in zip(ids, values, strict=True) if v is not None}
        except (TypeError, ValueError):
            raise UserError(
                f"column {where} of {testset.name} is not one of numbers", fix="name another"
            ) from None
        return {image: number for image, number in numbers.items() if math.isfinite(number)}
    path = Path(where)
    if path.suffix != ".csv" or not path.is_file():
        raise UserError(
            f"{testset.name} has no column {str(where)!r}, and there is no such CSV file",
            fix="name a column of numbers, or a CSV with image_id and typicality",
        )
    return _prototype_file(path, set(ids))


def _prototype_file(path: Path, known: set[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for where, row in rows_of_file(path):
        if not {"image_id", "typicality"} <= row.keys():
            raise BadFile(path, "lacks a column", fix="it needs image_id and typicality")
        try:
            value = float(row["typicality"])
            if not math.isfinite(value):
                raise ValueError
        except ValueError:
            raise BadFile(path, f"{where}: typicality is no number", fix="mend it") from None
        found[row["image_id"]] = value
    if known.isdisjoint(found):
        raise BadFile(path, "names no image of the test set", fix="use its image ids")
    return found


@dataclass(frozen=True)
class Located:
    """Judged pairs as mistakes under a truth.

    ``unknown``  pairs whose image, or class, the truth does not have
    ``right``    pairs that the truth calls right after all
    """

    mistakes: tuple[Mistake, ...]
    unknown: int
    right: int


def mistakes_at(
    testset: TestSet,
    pairs: Iterable[tuple[str, str]],
    *,
    truth: str,
    models: tuple[str, ...] = (),
) -> Located:
    """(image, prediction) pairs as mistakes, with what a truth takes as right; sorted, each once."""
    arrays = truth_arrays(testset, truth)
    ids, images = arrays.space.ids, testset.image_ids.take(arrays.rows).to_pylist()
    rows: dict[str, list[int]] = {}
    for row, image in enumerate(images):
        rows.setdefault(image, []).append(row)
    found, unknown, right = [], 0, 0
    for image, prediction in sorted(set(pairs)):
        if image not in rows or prediction not in arrays.space:
            unknown += 1
            continue
        labels = [int(arrays.labels[row]) for row in rows[image] if arrays.labels[row] >= 0]
        listed = dict.fromkeys(
            value
            for lists in (arrays.correct, arrays.unclear)
            for row in rows[image]
            for value in lists.values[lists.starts[row] : lists.starts[row + 1]].tolist()
        )
        ordered = {label: None for label in labels if label in listed} | listed
        acceptable = tuple(ids[value] for value in ordered)
        if prediction in acceptable:
            right += 1
            continue
        found.append(
            Mistake(
                image_id=image,
                prediction=prediction,
                acceptable=acceptable,
                original=ids[labels[0]] if labels else None,
                models=models,
                reviewed=True,
            )
        )
    return Located(tuple(found), unknown, right)
