"""Encodings: what is asked for is what the file's header says."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from heldout.curate.compose.render import Encoding, encode
from tests.curate.compose.compose_examples import noise


def picture(width: int, height: int) -> Image.Image:
    return Image.fromarray(noise(width, height, 3, 1))


def opened(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file))


def test_the_default_is_the_originals_file():
    theirs = io.BytesIO()
    picture(50, 37).save(theirs, "JPEG")  # nothing asked for, as the original does
    assert encode(picture(50, 37), Encoding()) == theirs.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (17, 15), (33, 16), (64, 48)])
def test_headers_of_jpeg(size):
    image = opened(encode(picture(*size), Encoding("jpeg", 88)))
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", size)
    assert JpegImagePlugin.get_sampling(image) == 2  # 4:2:0
    assert image.info["jfif"] == 257
    assert "exif" not in image.info
    assert not image.info.get("progressive")
    other = opened(encode(picture(*size), Encoding("jpeg", 40)))
    assert image.quantization[0][0] < other.quantization[0][0]


def test_png_is_lossless():
    image = opened(encode(picture(23, 31), Encoding("png")))
    assert image.format == "PNG"
    assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(picture(23, 31)))


def test_quality_of_webp_counts():
    small, large = (encode(picture(60, 60), Encoding("webp", quality)) for quality in (20, 90))
    assert len(small) < len(large)


def test_endings():
    endings = [Encoding(name).ending for name in ("jpeg", "png", "webp")]
    assert endings == [".jpg", ".png", ".webp"]
