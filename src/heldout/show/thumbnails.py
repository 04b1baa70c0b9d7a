"""Small copies of images as data URIs, for pages that need nothing but themselves."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence

import numpy as np

from heldout.core.errors import HeldoutError
from heldout.data.images import BadImage, bytes_of, decode
from heldout.data.testset import TestSet
from heldout.models.predictions.pixels import image_files

SIDE = 96
_QUALITY = 70


def thumbnails(testset: TestSet, ids: Iterable[str], *, side: int = SIDE) -> dict[str, str]:
    """By image id: a small JPEG as a data URI; what is not there or cannot be read is left out."""
    wanted = list(dict.fromkeys(ids))
    try:
        files = image_files(testset)
    except HeldoutError:
        return {}  # a published list without its images
    rows = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    found = {}
    for image_id in wanted:
        if image_id not in rows:
            continue
        data = bytes_of(files.source, files.names[rows[image_id]])
        image = data if isinstance(data, BadImage) else decode(data)
        if isinstance(image, BadImage):
            continue
        image.thumbnail((side, side))
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "JPEG", quality=_QUALITY)
        text = base64.b64encode(buffer.getvalue()).decode("ascii")
        found[image_id] = f"data:image/jpeg;base64,{text}"
    return found


def spread_over(sets: Sequence[Sequence[int]], *, each: int, most: int) -> list[int]:
    """Some members of every set: at most ``each`` of one and about ``most`` in all, evenly spaced."""
    share = max(1, min(each, most // max(1, len(sets))))
    chosen: dict[int, None] = {}
    for members in sets:
        places = np.linspace(0, len(members) - 1, min(share, len(members)))
        chosen.update(dict.fromkeys(int(members[round(float(p))]) for p in places))
    return sorted(chosen)
