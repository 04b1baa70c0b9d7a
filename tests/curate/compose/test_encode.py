"""Encodings: what is asked for is what the file's header says."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from heldout.core.errors import UserError
from heldout.curate.compose.encode import FORMATS, Encoding, encode
from tests.curate.compose.compose_examples import noise


def opened(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file))


@pytest.mark.parametrize("values", [{"format": "gif"}, {"quality": 0}])
def test_bad_values_are_refused(values):
    with pytest.raises(UserError):
        Encoding(**values)


def test_the_default_is_the_originals_file():
    pixels = noise(50, 37, 3, 1)
    theirs = io.BytesIO()
    Image.fromarray(pixels).save(theirs, "JPEG")  # nothing asked for, as the original does
    assert encode(pixels) == theirs.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (17, 15), (33, 16), (64, 48)])
def test_headers_of_jpeg(size):
    pixels = noise(*size, 3, 1)
    file = encode(pixels, Encoding("jpeg", 88))
    image = opened(file)
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", size)
    assert JpegImagePlugin.get_sampling(image) == 2  # 4:2:0
    assert image.info["jfif"] == 257
    assert "exif" not in image.info
    assert not image.info.get("progressive")
    other = opened(encode(pixels, Encoding("jpeg", 40)))
    assert image.quantization[0][0] < other.quantization[0][0]


def test_png_is_lossless():
    pixels = noise(23, 31, 3, 1)
    image = opened(encode(pixels, Encoding("png")))
    assert image.format == "PNG"
    assert np.array_equal(np.asarray(image.convert("RGB")), pixels)


def test_quality_of_webp_counts():
    pixels = noise(60, 60, 3, 1)
    assert len(encode(pixels, Encoding("webp", 20))) < len(encode(pixels, Encoding("webp", 90)))


def test_endings():
    assert {name: Encoding(name).ending for name in FORMATS} == {
        "jpeg": ".jpg",
        "png": ".png",
        "webp": ".webp",
    }
