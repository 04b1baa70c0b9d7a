"""A photograph as it is cut: upright pixels, its own alpha where it has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heldout.core.errors import UserError
from heldout.data.images.decode import MAX_PIXELS, BadImage, rgb, with_image

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_ORIENTATION = 0x0112  # the EXIF tag


@dataclass(frozen=True, eq=False)
class Photo:
    """One decoded photograph, turned upright as its EXIF orientation says.

    ``pixels``       (h, w, 3) uint8; where there is alpha, the colours under alpha 0 are kept
    ``alpha``        (h, w) uint8, or None where the file has no alpha
    ``orientation``  the EXIF value by which the stored pixels were turned, 1 to 8
    """

    pixels: np.ndarray
    alpha: np.ndarray | None = None
    orientation: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), upright."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def upright(self, mask: np.ndarray, *, resize: bool = False) -> np.ndarray:
        """A mask of this photograph in upright pixels; (h, w) float32 in and out.

        A mask may have been drawn on the upright photograph or on its stored pixels; its size
        tells which, and where both fit it is taken as upright. With ``resize`` a smaller or
        larger mask of the same shape is brought to the photograph's size (OpenImages).
        """
        width, height = self.size
        if mask.shape == (height, width):
            return mask
        if self.orientation > 4 and mask.shape == (width, height):
            return turned(mask, self.orientation)
        if resize and _same_shape(mask.shape, (height, width)):
            from PIL import Image

            made = Image.fromarray(mask.astype(np.float32)).resize(
                (width, height), Image.Resampling.BILINEAR
            )
            return np.asarray(made)
        raise UserError(
            f"the mask has {mask.shape[1]} × {mask.shape[0]} pixels, the photo {width} × {height}",
            fix="use the mask of this photo, or resize it to the photo's size",
        )


def read_photo(data: bytes) -> Photo | BadImage:
    """The photograph in these bytes, or why there is none."""

    def use(image: ImageFile) -> Photo:
        image.load()
        orientation = _orientation(image)
        alpha = _alpha(image)
        pixels = np.asarray(rgb(image, exif=True, max_pixels=MAX_PIXELS))
        if alpha is not None and orientation > 1:
            alpha = turned(alpha, orientation)
        return Photo(pixels=pixels, alpha=alpha, orientation=orientation)

    return with_image(data, use, max_pixels=MAX_PIXELS)


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Stored pixels (h, w, …) turned upright, as EXIF defines its eight orientations."""
    flipped = pixels.swapaxes(0, 1) if orientation > 4 else pixels
    made = {
        1: flipped,
        2: flipped[:, ::-1],
        3: flipped[::-1, ::-1],
        4: flipped[::-1],
        5: flipped,
        6: flipped[:, ::-1],
        7: flipped[::-1, ::-1],
        8: flipped[::-1],
    }[orientation]
    return np.ascontiguousarray(made)


def _alpha(image: ImageFile) -> np.ndarray | None:
    if "A" in image.getbands():
        return np.asarray(image.getchannel("A"))
    if "transparency" in image.info and image.mode in ("1", "L", "P", "RGB"):
        return np.asarray(image.convert("RGBA").getchannel("A"))
    return None


def _orientation(image: ImageFile) -> int:
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Warning:
        raise
    except Exception:  # damage in the EXIF block does not touch the pixels
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _same_shape(a: tuple[int, ...], b: tuple[int, int]) -> bool:
    """Whether two (h, w) have one aspect ratio, up to the rounding of whole pixels."""
    left, right = a[0] * b[1], a[1] * b[0]
    return abs(left - right) <= max(a[0] + b[1], a[1] + b[0], 0.01 * right)
