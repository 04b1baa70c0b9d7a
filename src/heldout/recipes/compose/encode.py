"""How an image is written: the format and its options, as bytes.

The default is what the original wrote: Pillow's JPEG, quality 75, chroma at half size both ways.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

from heldout.errors import UserError
from heldout.recipes.compose.scene import Pixels

FORMATS = {"jpeg": ".jpg", "png": ".png", "webp": ".webp"}
"""The formats, and the endings of their files."""
SUBSAMPLINGS = ("4:2:0", "4:2:2", "4:4:4")
_SPEC = re.compile(r"(jpeg|png|webp)(?:,(\d{1,3}))?(?:,(4:[24]:[024]))?(,lossless)?")


@dataclass(frozen=True, slots=True)
class Encoding:
    """A format and its options.

    ``format``       ``jpeg``, ``png`` or ``webp``
    ``quality``      1 to 100; PNG has none, and takes the default
    ``subsampling``  of chroma in JPEG: 4:2:0, 4:2:2 or 4:4:4
    ``lossless``     of WebP; PNG always is
    """

    format: str = "jpeg"
    quality: int = 75
    subsampling: str = "4:2:0"
    lossless: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UserError(f"no image format {self.format!r}", fix=f"one of {', '.join(FORMATS)}")
        if not 1 <= self.quality <= 100:
            raise UserError(f"quality {self.quality} is not of 1 to 100", fix="75 is usual")
        if self.subsampling not in SUBSAMPLINGS:
            raise UserError(
                f"no chroma subsampling {self.subsampling!r}",
                fix=f"one of {', '.join(SUBSAMPLINGS)}",
            )

    @property
    def ending(self) -> str:
        """What names of such files end with, such as ``.jpg``."""
        return FORMATS[self.format]

    @property
    def spec(self) -> str:
        """The encoding in a line that :func:`encoding_of` reads, such as ``jpeg,75,4:2:0``."""
        if self.format == "jpeg":
            return f"jpeg,{self.quality},{self.subsampling}"
        if self.format == "webp":
            return f"webp,{self.quality}" + (",lossless" if self.lossless else "")
        return "png"


JPEG_75 = Encoding()


def encoding_of(spec: str) -> Encoding:
    """The encoding of a line: ``jpeg``, ``jpeg,90``, ``jpeg,90,4:4:4``, ``png``, ``webp,80``.

    >>> encoding_of("jpeg,90")
    Encoding(format='jpeg', quality=90, subsampling='4:2:0', lossless=False)
    """
    found = _SPEC.fullmatch(spec.strip().replace(" ", ""))
    unfit = found and (
        (found[1] == "png" and (found[2] or found[4]))
        or (found[1] != "jpeg" and found[3])
        or (found[1] == "jpeg" and found[4])
    )
    if found is None or unfit:
        raise UserError(
            f"no encoding {spec!r}", fix="such as jpeg,75 or jpeg,90,4:4:4, png, webp,80"
        )
    return Encoding(
        found[1],
        int(found[2]) if found[2] else JPEG_75.quality,
        found[3] or JPEG_75.subsampling,
        bool(found[4]),
    )


def encode(pixels: Pixels, encoding: Encoding = JPEG_75) -> bytes:
    """The file of an image (H, W, 3), RGB, by Pillow."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, encoding.format, **options_of(encoding))
    return file.getvalue()


def options_of(encoding: Encoding) -> dict[str, Any]:
    """What Pillow's ``save`` takes beside the name of the format."""
    if encoding.format == "jpeg":
        return {"quality": encoding.quality, "subsampling": encoding.subsampling}
    if encoding.format == "webp":
        return {"quality": encoding.quality, "lossless": encoding.lossless}
    return {}
