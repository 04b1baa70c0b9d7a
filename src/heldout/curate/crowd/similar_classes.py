"""Which classes are most alike: what a label space or a file says, then WordNet, then features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from heldout.core.context import Context
from heldout.core.errors import LabelError, NotApplicable, UserError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import SpaceDistances
from heldout.data.testset import TestSet
from heldout.models.descriptors import image_encoder
from heldout.models.embeddings import embed

Nearest = Callable[[str], Iterable[str]]
"""A class -> classes, the most similar first; it may be among them itself."""
FEATURES = "lite0"


def similar_classes(space: LabelSpace, images: TestSet | None, context: Context) -> Nearest:
    """Similar classes of a label space: those that a class names, then all others.

    The others are in the order of WordNet. Where it does not know the classes, they are in that of the
    distances between mean features of a class's images, of ``images``.
    """

    @cache
    def featured() -> Mapping[str, Sequence[str]]:
        if images is None:
            raise unknown
        context.note(
            f"{unknown.message}: classes are as similar as the {FEATURES} features of their images in "
            f"{images.name}"
        )
        return by_features(images, context)

    try:
        distances, unknown = SpaceDistances(space), LabelError("")
    except LabelError as error:
        distances, unknown = None, error

    def nearest(label: str) -> Iterator[str]:
        if label not in space:
            raise LabelError(
                f"{label!r} is not a class of {space.name}",
                fix="correct it, or name similar classes with --similar-classes",
            )
        yield from space.get(label).similar
        if distances is not None:
            yield from distances.most_similar(label, len(space))
        else:
            yield from featured().get(label, ())

    return nearest


def by_features(images: TestSet, context: Context) -> Mapping[str, Sequence[str]]:
    """Class -> the classes that have images, by squared distance of mean features; ties by id."""
    encoder = image_encoder(FEATURES, unit=True)
    with context.progress(f"{encoder.name} of {images.name}") as progress:
        try:
            made = embed(images, encoder, workspace=context.workspace, progress=progress)
        except UserError as error:
            raise NotApplicable(
                f"the classes of {images.name} are not in WordNet, and its images cannot be read "
                f"({error.message})",
                fix="name similar classes with --similar-classes, or in the file of the classes",
            ) from None
    classes, failed = images.class_of_images(), made.facts["failures"]
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(made.ids):
        if name not in failed and (label := classes.get(name)) is not None:
            rows.setdefault(label, []).append(row)
    labels = sorted(rows)
    means = np.array([made.vectors[rows[label]].mean(axis=0, dtype=np.float64) for label in labels])
    between = np.square(means[:, None] - means).sum(axis=2)
    return {
        label: [labels[place] for place in np.argsort(between[at], kind="stable")]
        for at, label in enumerate(labels)
    }
