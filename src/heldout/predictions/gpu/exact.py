"""The exact path's pixels: Pillow decodes, resizes and crops one image on the CPU."""

from __future__ import annotations

import io

import numpy as np

from heldout.images.preprocessing import Geometry
from heldout.predictions.gpu.taps import crop_start, resized


def exact_pixels(data: bytes, geometry: Geometry) -> np.ndarray:
    """uint8 (crop_height, crop_width, 3) of an encoded image; raises what Pillow raises."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data)) as opened:
        image: Image.Image = opened
        if geometry.exif:
            image = ImageOps.exif_transpose(image)
        image = image.convert("RGB")
    height, width = resized(image.height, image.width, geometry)
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling[geometry.interpolation.upper()])
    top, left = crop_start(height, geometry.crop_height), crop_start(width, geometry.crop_width)
    # Pillow fills what lies outside the image with zeros.
    box = (left, top, left + geometry.crop_width, top + geometry.crop_height)
    return np.asarray(image.crop(box))
