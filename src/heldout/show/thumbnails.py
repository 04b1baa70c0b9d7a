"""Small copies of images as data URIs, for pages that need nothing but themselves."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TypeVar

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
ALONG = 6
"""Example images of one column."""
ACROSS = 5
"""Example images across, and down, of two columns."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A small image that shows what some values of columns look like.

    ``values`` follow ``columns``, which are sorted as slices sort them; ``image`` is a data URI.
    """

    testset: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    image: str
    alt: str


def thumbnails(
    testset: TestSet, ids: Iterable[str], *, side: int = SIDE, quality: int = QUALITY
) -> dict[str, str]:
    """By image id: a small JPEG as a data URI; what is not there or cannot be read is left out."""
    try:
        files = image_files(testset)
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


def examples(testset: TestSet, columns: Sequence[str]) -> list[Example]:
    """Small copies of images at values of one column, or two; none where the files are not there.

    Of one unit (such as an object on a background) where the set says what its units are: the one
    that is present at most values, the first by name among equals.
    """
    if not 1 <= len(columns) <= 2 or any(c not in testset.images.column_names for c in columns):
        return []
    chosen = chosen_images(testset, columns)
    small = thumbnails(testset, chosen.values(), side=120, quality=72)
    return [
        Example(
            testset=testset.name,
            columns=tuple(columns),
            values=values,
            image=small[image_id],
            alt=f"{image_id}: "
            + ", ".join(f"{c} {v}" for c, v in zip(columns, values, strict=True)),
        )
        for values, image_id in chosen.items()
        if image_id in small
    ]


def chosen_images(testset: TestSet, columns: Sequence[str]) -> dict[tuple[str, ...], str]:
    """By values of the columns, in their order: the id of an image to show."""
    ids = testset.image_ids.to_pylist()
    unit_of = [
        _texts(testset, column)
        for column in unit_columns(testset, columns, None)
        if column in testset.images.column_names
    ]
    values = [_texts(testset, column) for column in columns]
    units: dict[tuple[str | None, ...], dict[tuple[str, ...], str]] = {}
    for row in sorted(range(len(ids)), key=ids.__getitem__):
        at = tuple(text for texts in values if (text := texts[row]) is not None)
        if len(at) == len(columns):
            unit = tuple(texts[row] for texts in unit_of)
            units.setdefault(unit, {}).setdefault(at, ids[row])
    if not units:
        return {}
    best = max(units.values(), key=len)  # the first of equals: units are in order of image id
    most = ALONG if len(columns) == 1 else ACROSS
    picked = [
        _evenly(values_in_order((at[i] for at in best), testset.card.columns.get(column)), most)
        for i, column in enumerate(columns)
    ]
    return {at: best[at] for at in product(*picked) if at in best}


def _texts(testset: TestSet, column: str) -> list[str | None]:
    """A column's values as slices name them, one per image."""
    return list(map(cache(value_label), testset.images[column].to_pylist()))
