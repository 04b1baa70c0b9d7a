"""From a decoded image to a model's input: resize, crop, and the values, exactly as trained with.

Bit-equal with torchvision's ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize`` on Pillow
images, and with the transforms that timm makes of them. All of it runs outside Python's global
lock, so threads scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heldout.errors import UserError
from heldout.images.decoding import rgb
from heldout.images.memory import MAX_PIXELS, budget
from heldout.images.opening import BadImage, Refused, opened
from heldout.images.preprocessing import Geometry, Preprocessing

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

_SUPPORT = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0, "box": 0.5, "hamming": 1.0}
"""Radius of Pillow's filters, in pixels of the smaller of the two images."""

_KNOWN_PILLOW = 13  # the last major version whose order of resizing is known

_WORTH_COPYING = 2_000_000  # pixels; more cost more to copy than their rows cost to resize


def pixels_of(
    data: bytes, geometry: Geometry, *, max_pixels: int = MAX_PIXELS
) -> np.ndarray | BadImage:
    """Encoded bytes to uint8 pixels (crop_height, crop_width, 3), or why there are none.

    Never raises, whatever the bytes are; may be called by many threads at once.
    """
    result = pixels_of_each(data, [geometry], max_pixels=max_pixels)
    return result if isinstance(result, BadImage) else result[0]


def pixels_of_each(
    data: bytes, geometries: Sequence[Geometry], *, max_pixels: int = MAX_PIXELS
) -> list[np.ndarray] | BadImage:
    """The same in several geometries at once, decoded once; bad where it is bad in any of them."""

    def use(image: ImageFile) -> list[np.ndarray]:
        decoded = {
            exif: rgb(image, exif=exif, max_pixels=max_pixels)
            for exif in sorted({geometry.exif for geometry in geometries})
        }
        return [_limited(decoded[geometry.exif], geometry, max_pixels) for geometry in geometries]

    return opened(data, use, max_pixels=max_pixels)


def _limited(image: Image, geometry: Geometry, max_pixels: int) -> np.ndarray:
    """An image's pixels, unless the resize would take too much memory: a line, blown up."""
    taken = 4 * image.width * image.height + _resizing_bytes(image.width, image.height, geometry)
    if taken > budget(max_pixels):
        width, height = resized_size(image.width, image.height, geometry)
        raise Refused(
            "too large",
            f"{image.width} x {image.height} pixels, to be resized to {width} x {height}",
        )
    return apply_geometry(image, geometry)


def apply_geometry(image: Image, geometry: Geometry) -> np.ndarray:
    """An RGB image to uint8 pixels (crop_height, crop_width, 3): resized, then cropped.

    Sizes and offsets are those of :class:`Geometry`. ``geometry.exif`` plays no part here: the
    image is taken as it was decoded.
    """
    if image.mode != "RGB":
        raise UserError(f"an image of mode {image.mode}", fix='decode it, or convert it to "RGB"')
    width, height = resized_size(*image.size, geometry)
    left, top = crop_offset(width, geometry.crop_width), crop_offset(height, geometry.crop_height)
    right, bottom = left + geometry.crop_width, top + geometry.crop_height
    if (width, height) == image.size:
        return np.array(image.crop((left, top, right, bottom)))
    window = (max(left, 0), max(top, 0), min(right, width), min(bottom, height))
    resized = _resized(image, (width, height), window, geometry.interpolation)
    return np.array(
        resized.crop((left - window[0], top - window[1], right - window[0], bottom - window[1]))
    )


def resized_size(width: int, height: int, geometry: Geometry) -> tuple[int, int]:
    """Width and height after the resize and before the crop.

    >>> resized_size(500, 375, Geometry(resize="shorter", resize_height=256))
    (341, 256)
    """
    if geometry.resize == "none":
        return width, height
    if geometry.resize == "exact":
        return geometry.resize_width, geometry.resize_height
    shorter = geometry.resize_height
    if width <= height:
        return shorter, int(shorter * height / width)
    return int(shorter * width / height), shorter


def crop_offset(size: int, crop: int) -> int:
    """Where a centre crop begins. Negative: that many zeros come first, the larger half last.

    >>> crop_offset(341, 224), crop_offset(337, 224), crop_offset(339, 224), crop_offset(5, 8)
    (58, 56, 58, -1)
    """
    if crop > size:
        return -((crop - size) // 2)
    return round((size - crop) / 2)  # half to even, as Python rounds


def normalise(
    pixels: np.ndarray, preprocessing: Preprocessing, *, out: np.ndarray | None = None
) -> np.ndarray:
    """uint8 pixels (b, height, width, 3), RGB, to a model's float32 input.

    (b, 3, height, width) or (b, height, width, 3) by ``preprocessing.layout``. The operations
    are those of ``ToTensor`` and ``Normalize``, in that order, each rounded to float32:
    ``((pixel / scale) - mean) / std``; results are equal to the bit. (A table of 256 values a
    channel gives the same and is slower: 0.15 against 0.11 ms for 224 x 224.) ``out``, of that
    shape and float32, is filled and returned.
    """
    batch, height, width, _ = pixels.shape
    first = preprocessing.layout == "NCHW"
    shape = (batch, 3, height, width) if first else (batch, height, width, 3)
    result = np.empty(shape, np.float32) if out is None else out
    if result.shape != shape or result.dtype != np.float32:
        raise UserError(f"an output of {result.shape} {result.dtype}", fix=f"give {shape} float32")
    channel = (3, 1, 1) if first else (3,)
    scale = np.float32(preprocessing.scale)
    mean = np.asarray(preprocessing.mean, np.float32).reshape(channel)
    std = np.asarray(preprocessing.std, np.float32).reshape(channel)
    for image, values in zip(pixels, result, strict=True):  # one image at a time stays in cache
        ordered = image if preprocessing.colours == "RGB" else image[..., ::-1]
        values[...] = ordered.transpose(2, 0, 1) if first else ordered
        if scale != 1:
            values /= scale
        values -= mean
        values /= std
    return result


def _resized(
    image: Image, size: tuple[int, int], window: tuple[int, int, int, int], interpolation: str
) -> Image:
    """The part ``window`` of ``image.resize(size)``, to the bit, without computing all of it.

    Pillow resizes along rows, rounds to bytes, then along columns; each row and each column by
    itself. So rows that the window does not need may be left out of the first step, and columns
    outside it out of the second. (Its argument ``box`` could do both in one call, but takes
    32-bit floats, and about 3 % of the values come out different.)
    """
    from PIL.Image import Resampling

    method = Resampling[interpolation.upper()]
    left, top, right, bottom = window
    if (right - left, bottom - top) == size or not _rows_first(image.size, size, interpolation):
        return image.resize(size, method).crop(window)
    width, height = image.size
    first, last = _rows(height, size[1], top, bottom, interpolation)
    if last - first > 0.9 * height or width * (last - first) > _WORTH_COPYING:
        first, last = 0, height
    else:
        image = image.crop((0, first, width, last))
    across = image.resize((size[0], last - first), method)
    # Rows left out come back as zeros, which nothing reads, so that the geometry stays the same.
    strip = across.crop((left, -first, right, height - first))
    return strip.resize((right - left, size[1]), method).crop((0, top, right - left, bottom))


def _rows_first(before: tuple[int, int], after: tuple[int, int], interpolation: str) -> bool:
    """Whether Pillow is known to resize along rows first, whichever version it is.

    Version 13 begins with columns where the height loses more than twice what the width does, and
    some before it where an image is a hundred times as tall as wide; all else is rows first. (So
    tall images come out differently by a version: it belongs to a result.) What later versions
    do is not known here.
    """
    from PIL import __version__

    if interpolation == "nearest" or int(__version__.partition(".")[0]) > _KNOWN_PILLOW:
        return False
    lost_across, lost_down = before[0] - after[0], before[1] - after[1]
    return lost_down <= max(0, 2 * lost_across) and before[1] <= 100 * before[0]


def _rows(height: int, resized: int, top: int, bottom: int, interpolation: str) -> tuple[int, int]:
    """The rows that rows ``top`` to ``bottom`` of the resized image are made from; one to spare."""
    scale = height / resized
    support = _SUPPORT[interpolation] * max(scale, 1.0)
    first = int((top + 0.5) * scale - support) - 1
    last = int((bottom - 0.5) * scale + support) + 2
    return max(first, 0), min(last, height)


def _resizing_bytes(width: int, height: int, geometry: Geometry) -> int:
    """Bytes that the resize takes beside the image itself: images between, and the filters."""
    across, down = resized_size(width, height, geometry)
    if (across, down) == (width, height):
        return 0
    images = max(across * height, width * down) + across * down
    support = _SUPPORT.get(geometry.interpolation, 0.5)
    filters = sum(
        after * (2 * support * max(before / after, 1) + 4)
        for before, after in ((width, across), (height, down))
    )
    return int(4 * images + 8 * filters)
