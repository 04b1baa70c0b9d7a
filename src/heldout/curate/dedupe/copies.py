"""Copies of a photo, as they turn up: cropped, rescaled, compressed, mirrored, written on."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from heldout.core.files import sha256_text

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = 1024
"""The longer side of a photo, in pixels, above which it is reduced before it is copied: large photos take
no longer than others, and a JPEG holds every copy."""
_OVERLAY = 0.05  # of the photo's area
_FRAME = 0.05  # of its shorter side, on every edge
_CAPTION = "www.example.org"

Make = Callable[["Image", np.random.Generator], "Image"]


def _crop(kept: float, *, corner: bool) -> Make:
    """Keep so much of each side: of the middle, or of a corner that is drawn."""

    def make(image: Image, random: np.random.Generator) -> Image:
        width, height = (max(1, round(kept * side)) for side in image.size)
        across, down = random.integers(0, 2, 2).tolist() if corner else (0.5, 0.5)
        left, top = round(across * (image.width - width)), round(down * (image.height - height))
        return image.crop((left, top, left + width, top + height))

    return make


def _rescale(factor: float) -> Make:
    def make(image: Image, _: np.random.Generator) -> Image:
        from PIL.Image import Resampling

        width, height = (max(1, round(factor * side)) for side in image.size)
        return image.resize((width, height), Resampling.BICUBIC)

    return make


def _jpeg(quality: int) -> Make:
    def make(image: Image, _: np.random.Generator) -> Image:
        import PIL.Image

        handle = io.BytesIO()
        image.save(handle, "JPEG", quality=quality)
        return PIL.Image.open(handle).convert("RGB")

    return make


def _brightness(factor: float) -> Make:
    def make(image: Image, _: np.random.Generator) -> Image:
        return image.point([min(255, round(factor * value)) for value in range(256)] * 3)

    return make


def _flip(image: Image, _: np.random.Generator) -> Image:
    from PIL.Image import Transpose

    return image.transpose(Transpose.FLIP_LEFT_RIGHT)


def _logo(image: Image, random: np.random.Generator) -> Image:
    """A disc on a square of other colours, in a corner that is drawn."""
    from PIL import ImageDraw

    made = image.copy()
    side = max(1, int((_OVERLAY * image.width * image.height) ** 0.5))
    width, height = min(side, image.width), min(side, image.height)
    across, down = random.integers(0, 2, 2).tolist()
    left, top = across * (image.width - width), down * (image.height - height)
    box = (left, top, left + width - 1, top + height - 1)
    ground, disc = (tuple(colour) for colour in random.integers(0, 256, (2, 3)).tolist())
    draw = ImageDraw.Draw(made)
    draw.rectangle(box, fill=ground)
    draw.ellipse(box, fill=disc)
    return made


def _border(image: Image, random: np.random.Generator) -> Image:
    """A frame around the whole photo, black or white as is drawn."""
    from PIL import ImageOps

    colour = 255 * int(random.integers(0, 2))
    return ImageOps.expand(image, max(1, round(_FRAME * min(image.size))), (colour,) * 3)


def _text(image: Image, random: np.random.Generator) -> Image:
    """A caption over a third to a half of the width, at the top or the bottom as is drawn."""
    from PIL import ImageDraw, ImageFont

    made = image.copy()
    font = ImageFont.load_default(max(4, image.width // 18))
    down = "ma" if random.integers(0, 2) else "md"
    place = (image.width / 2, 0.02 * image.height if down == "ma" else 0.98 * image.height)
    draw = ImageDraw.Draw(made)
    draw.text(place, _CAPTION, (255,) * 3, font, down, stroke_width=1, stroke_fill=(0,) * 3)
    return made


COPIES: Mapping[str, Make] = {
    "crop-95": _crop(0.95, corner=False),
    "crop-95-corner": _crop(0.95, corner=True),
    "crop-90": _crop(0.90, corner=False),
    "crop-90-corner": _crop(0.90, corner=True),
    "rescale-50": _rescale(0.5),
    "rescale-75": _rescale(0.75),
    "rescale-150": _rescale(1.5),
    "jpeg-90": _jpeg(90),
    "jpeg-75": _jpeg(75),
    "jpeg-50": _jpeg(50),
    "jpeg-30": _jpeg(30),
    "darker-20": _brightness(0.8),
    "darker-10": _brightness(0.9),
    "brighter-10": _brightness(1.1),
    "brighter-20": _brightness(1.2),
    "flip": _flip,
    "logo": _logo,
    "border": _border,
    "text": _text,
}
"""Kinds of copies. Of a crop, percent of each side are kept; of a rescaled copy, percent of each side are
what it has; a JPEG's number is its quality; brightness is changed by percent and clipped."""


class Copy(NamedTuple):
    """One copy of a photo, and of which kind it is."""

    kind: str
    image: Image


def copies_of(photo: Image, name: str, *, seed: int = 0) -> Iterator[Copy]:
    """A copy of each kind of an RGB photo; what is drawn follows from ``seed`` and the photo's name.

    The photo should be :func:`reduced`.
    """
    for kind, make in COPIES.items():
        drawn = np.random.default_rng(int(sha256_text(f"{seed} {kind} {name}")[:16], 16))
        yield Copy(kind, make(photo, drawn))


def reduced(photo: Image) -> Image:
    """The photo with at most :data:`LARGEST` pixels on its longer side; a small one as it is."""
    from PIL.Image import Resampling

    factor = LARGEST / max(photo.size)
    if factor >= 1:
        return photo
    width, height = (max(1, round(factor * side)) for side in photo.size)
    return photo.resize((width, height), Resampling.BICUBIC)
