"""From encoded bytes to RGB pixels, equal to ``Image.open(file).convert("RGB")``.

That is what torchvision and timm do, so it is what models were trained on: alpha is dropped, not
blended; colour profiles are ignored; CMYK is converted without one; of an animation or of many
pages the first is taken; a JPEG is decoded at full size, never in a faster draft. One thing is
mended: images of 16 bits a value are scaled to 8 (the upper byte, as Pillow itself does for those
with colours), where ``convert`` would clip them to white.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from heldout.data.images.memory import MAX_PIXELS, budget
from heldout.data.images.opening import BadImage, Refused, opened

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

_ORIENTATION = 0x0112  # the EXIF and TIFF tag
_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0  # TIFF


def decode(data: bytes, *, exif: bool = False, max_pixels: int = MAX_PIXELS) -> Image | BadImage:
    """The image as RGB, or why there is none. Never raises, whatever the bytes are.

    ``exif``        turn the image as its EXIF orientation says; torchvision and timm do not. (A
                    TIFF is always turned: Pillow does that on loading, for them too.)
    ``max_pixels``  larger images are refused by their header, before memory is taken
    """
    return opened(
        data, lambda image: rgb(image, exif=exif, max_pixels=max_pixels), max_pixels=max_pixels
    )


def rgb(image: ImageFile, *, exif: bool, max_pixels: int = MAX_PIXELS) -> Image:
    """An opened image, decoded whole, as RGB; for use inside :func:`opened`."""
    image.load()
    turn = _orientation(image) if exif else 1
    if turn > 1 and 8 * image.width * image.height > budget(max_pixels):
        raise Refused("too large", f"{image.width} x {image.height} pixels, to be turned")
    decoded: Image = image
    if image.mode.startswith("I"):
        decoded = _eight_bits(image).convert("RGB")
    elif image.mode != "RGB":
        # Makes no difference to the colours, and Pillow would warn about some kinds of it.
        image.info.pop("transparency", None)
        decoded = image.convert("RGB")
    return _turned(decoded, turn) if turn > 1 else decoded


def _eight_bits(image: ImageFile) -> Image:
    """A grey image of 16 bits (or of 12, in TIFF) as one of 8: the upper bits."""
    from PIL import Image

    bits = 16
    inverted = False
    if image.format == "TIFF":
        tags = image.tag_v2  # type: ignore[attr-defined]
        bits = int(tags[_BITS][0])
        inverted = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO  # Pillow leaves these as they are
    values = np.asarray(image)
    upper = (values >> (bits - 8)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(~upper if inverted else upper)


def _orientation(image: ImageFile) -> int:
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Warning:
        raise
    except Exception:  # EXIF is a file in the file: damage there does not touch the pixels
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _turned(image: Image, orientation: int) -> Image:
    from PIL.Image import Transpose

    return image.transpose(
        {
            2: Transpose.FLIP_LEFT_RIGHT,
            3: Transpose.ROTATE_180,
            4: Transpose.FLIP_TOP_BOTTOM,
            5: Transpose.TRANSPOSE,
            6: Transpose.ROTATE_270,
            7: Transpose.TRANSVERSE,
            8: Transpose.ROTATE_90,
        }[orientation]
    )
