"""Example images along a column: one unit followed over its values, small enough for the page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np

from heldout.core.errors import HeldoutError
from heldout.data.images import BadImage, bytes_of, decode
from heldout.data.testset import TestSet
from heldout.measure.score.slices import format_value, parse_slice, unit_columns
from heldout.models.predictions.pixels import ImageFiles, image_files
from heldout.show.data import Example

ALONG = 6
"""Images of one column."""
ACROSS = 5
"""Images across, and down, of two."""
SIDE = 120
_QUALITY = 72


def examples(testset: TestSet, columns: Sequence[str]) -> list[Example]:
    """Small copies of images at values of one column, or two; none where the files are not there.

    Of one unit (such as an object on a background) where the set says what its units are: the one
    that is there at most values, the first by name among equals.
    """
    if not 1 <= len(columns) <= 2 or any(c not in testset.images.column_names for c in columns):
        return []
    try:
        files = image_files(testset)
    except HeldoutError:
        return []  # a published list without its images
    rows = chosen_rows(testset, columns)
    found = []
    for values, row in rows:
        small = _small(files, row)
        if small is not None:
            texts = tuple(parse_slice(f"v={value}")["v"] for value in values)
            said = ", ".join(f"{c} {v}" for c, v in zip(columns, texts, strict=True))
            found.append(
                Example(
                    testset=testset.name,
                    columns=tuple(columns),
                    values=texts,
                    image=small,
                    alt=f"{testset.image_ids[row].as_py()}: {said}",
                )
            )
    return found


def chosen_rows(testset: TestSet, columns: Sequence[str]) -> list[tuple[tuple[str, ...], int]]:
    """Values (as slices write them) and a row of the images table for each, in order of value."""
    values = [_texts(testset, column) for column in columns]
    known = [row for row, texts in enumerate(zip(*values, strict=True)) if None not in texts]
    given = unit_columns(testset, columns, None)
    parts = [_texts(testset, c) for c in given if c in testset.images.column_names]
    units: dict[tuple[str | None, ...], dict[tuple[str, ...], int]] = {}
    ids = testset.image_ids.to_pylist()
    for row in sorted(known, key=ids.__getitem__):
        unit = tuple(part[row] for part in parts)
        at = tuple(str(texts[row]) for texts in values)
        units.setdefault(unit, {}).setdefault(at, row)
    if not units:
        return []
    best = max(units.values(), key=len)  # the first of equals: units are in order of image id
    most = ALONG if len(columns) == 1 else ACROSS
    picked = [
        _spread(testset, columns[i], {at[i] for at in best}, most) for i in range(len(columns))
    ]
    order = [dict(zip(texts, range(len(texts)), strict=True)) for texts in picked]
    kept = [at for at in best if all(text in order[i] for i, text in enumerate(at))]
    kept.sort(key=lambda at: [order[i][text] for i, text in enumerate(at)])
    return [(at, best[at]) for at in kept]


def _texts(testset: TestSet, column: str) -> list[str | None]:
    """A column's values as slices write them; None where there is none."""
    listed = testset.images[column].to_pylist()
    known: dict[object, str | None] = {}
    found = []
    for value in listed:
        if value not in known:
            missing = value is None or value != value
            known[value] = None if missing else format_value(value)
        found.append(known[value])
    return found


def _spread(testset: TestSet, column: str, texts: set[str], most: int) -> list[str]:
    """At most ``most`` values, evenly over their order, both ends among them."""
    kind = testset.card.columns.get(column)
    listed = [format_value(value) for value in kind.order] if kind is not None else []
    place = {text: number for number, text in enumerate(listed)}

    def key(text: str) -> tuple[int, float, str]:
        try:
            return place.get(text, len(place)), float(text), text
        except ValueError:
            return place.get(text, len(place)), 0.0, text

    ordered = sorted(texts, key=key)
    steps = np.linspace(0, len(ordered) - 1, min(most, len(ordered)))
    return [ordered[round(float(step))] for step in steps]


def _small(files: ImageFiles, row: int) -> str | None:
    """One image as a data URI, or None where it cannot be read."""
    data = bytes_of(files.source, files.names[row])
    image = data if isinstance(data, BadImage) else decode(data)
    if isinstance(image, BadImage):
        return None
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
