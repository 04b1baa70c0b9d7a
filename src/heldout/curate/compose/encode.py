"""How an image is written: the format and its options, as bytes.

The default is what the original wrote: Pillow's JPEG, quality 75, chroma at half size both ways.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from heldout.core.errors import UserError
from heldout.curate.compose.scene import Pixels

FORMATS = {"jpeg": ".jpg", "png": ".png", "webp": ".webp"}
"""The formats, and the endings of their files."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A format and its options.

    ``format``   ``jpeg``, ``png`` or ``webp``
    ``quality``  1 to 100; PNG has none, and takes the default
    """

    format: str = "jpeg"
    quality: int = 75

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UserError(f"no image format {self.format!r}", fix=f"one of {', '.join(FORMATS)}")
        if not 1 <= self.quality <= 100:
            raise UserError(f"quality {self.quality} is not of 1 to 100", fix="75 is usual")

    @property
    def ending(self) -> str:
        """What names of such files end with, such as ``.jpg``."""
        return FORMATS[self.format]


JPEG_75 = Encoding()


def encode(pixels: Pixels, encoding: Encoding = JPEG_75) -> bytes:
    """The file of an image (H, W, 3), RGB, by Pillow."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, encoding.format, **options_of(encoding))
    return file.getvalue()


def options_of(encoding: Encoding) -> dict[str, Any]:
    """What Pillow's ``save`` takes beside the name of the format."""
    if encoding.format == "jpeg":
        return {"quality": encoding.quality, "subsampling": "4:2:0"}
    if encoding.format == "webp":
        return {"quality": encoding.quality}
    return {}
