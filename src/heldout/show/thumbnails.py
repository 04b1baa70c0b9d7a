"""Small copies of images as data URIs, for pages that need nothing but themselves."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from heldout.core.errors import HeldoutError
from heldout.data.images import BadImage, bytes_of, decode
from heldout.data.testset import TestSet
from heldout.measure.score.slices import unit_columns, values_in_order
from heldout.models.predictions.pixels import image_files
from heldout.show.wording import value_label

T = TypeVar("T")
SIDE = 96
QUALITY = 70
MOST = 6
"""Example images of one column."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A small image, as a data URI, that shows what a value of a column looks like."""

    testset: str
    column: str
    value: str
    image: str
    alt: str


def thumbnails(
    testset: TestSet,
    ids: Iterable[str],
    *,
    side: int = SIDE,
    quality: int = QUALITY,
    images: str | None = None,
) -> dict[str, str]:
    """By image id: a small JPEG as a data URI; what is not there or cannot be read is left out.

    ``images``  where the files are, if not where the set says
    """
    try:
        files = image_files(testset, images)
    except HeldoutError:
        return {}  # a published list without its images
    rows = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    found = {}
    for image_id in dict.fromkeys(ids):
        if image_id not in rows:
            continue
        data = bytes_of(files.source, files.names[rows[image_id]])
        image = data if isinstance(data, BadImage) else decode(data)
        if isinstance(image, BadImage):
            continue
        image.thumbnail((side, side))
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "JPEG", quality=quality)
        found[image_id] = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
    return found


def spread_over(sets: Sequence[Sequence[int]], *, each: int, most: int) -> list[int]:
    """Some members of every set: at most ``each`` of one and about ``most`` in all, evenly spaced."""
    share = max(1, min(each, most // max(1, len(sets))))
    return sorted({int(member) for members in sets for member in _evenly(members, share)})


def _evenly(items: Sequence[T], most: int) -> list[T]:
    """At most ``most`` items, evenly spaced, both ends among them."""
    steps = np.linspace(0, len(items) - 1, min(most, len(items)))
    return [items[round(float(step))] for step in steps]


def examples(testset: TestSet, column: str) -> list[Example]:
    """Small copies of images at values of one column; none where the files are not there.

    Of one unit (such as an object on a background) where the set says what its units are: the one
    that is present at most values, the first by name among equals.
    """
    if column not in testset.images.column_names:
        return []
    chosen = chosen_images(testset, column)
    small = thumbnails(testset, chosen.values(), side=120, quality=72)
    return [
        Example(
            testset=testset.name,
            column=column,
            value=value,
            image=small[image_id],
            alt=f"{image_id}: {column} {value}",
        )
        for value, image_id in chosen.items()
        if image_id in small
    ]


def chosen_images(testset: TestSet, column: str) -> dict[str, str]:
    """By value of the column, in their order: the id of an image to show."""
    ids = testset.image_ids.to_pylist()
    unit_of = [
        testset.images[name].to_pylist()
        for name in unit_columns(testset, [column], None)
        if name in testset.images.column_names
    ]
    values = list(map(cache(value_label), testset.images[column].to_pylist()))
    units: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in sorted(range(len(ids)), key=ids.__getitem__):
        if (value := values[row]) is not None:
            unit = tuple(names[row] for names in unit_of)
            units.setdefault(unit, {}).setdefault(value, ids[row])
    # The first of equals: units are in order of image id.
    best = max(units.values(), key=len, default={})
    ordered = values_in_order(best, testset.card.columns.get(column))
    return {value: best[value] for value in _evenly(ordered, MOST)}
