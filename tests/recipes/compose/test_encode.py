"""Encodings: what is asked for is what the file's header says."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, JpegImagePlugin

from heldout.errors import UserError
from heldout.recipes.compose.encode import FORMATS, JPEG_75, Encoding, encode, encoding_of
from tests.recipes.compose.compose_examples import noise

ENCODINGS = st.one_of(
    st.builds(
        Encoding,
        st.just("jpeg"),
        st.integers(1, 100),
        st.sampled_from(["4:2:0", "4:2:2", "4:4:4"]),
    ),
    st.builds(Encoding, st.just("webp"), st.integers(1, 100), lossless=st.booleans()),
    st.just(Encoding("png")),
)


def opened(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file))


@given(ENCODINGS)
def test_a_spec_says_all_of_an_encoding(encoding):
    assert encoding_of(encoding.spec) == encoding


@pytest.mark.parametrize(
    ("spec", "encoding"),
    [
        ("jpeg", JPEG_75),
        ("jpeg,90", Encoding("jpeg", 90)),
        (" jpeg, 90, 4:4:4 ", Encoding("jpeg", 90, "4:4:4")),
        ("jpeg,4:2:2", Encoding("jpeg", 75, "4:2:2")),
        ("webp,80,lossless", Encoding("webp", 80, lossless=True)),
        ("png", Encoding("png")),
    ],
)
def test_specs(spec, encoding):
    assert encoding_of(spec) == encoding


@pytest.mark.parametrize(
    "spec",
    ["", "bmp", "jpeg,0", "jpeg,101", "jpeg,-3", "jpeg,75,4:1:1", "png,90", "webp,80,4:4:4",
     "jpeg,75,lossless", "JPEG;75", "jpeg,75,75"],
)  # fmt: skip
def test_other_specs_are_refused(spec):
    with pytest.raises(UserError):
        encoding_of(spec)


@pytest.mark.parametrize("values", [{"format": "gif"}, {"quality": 0}, {"subsampling": "4:1:1"}])
def test_bad_values_are_refused(values):
    with pytest.raises(UserError):
        Encoding(**values)


def test_the_default_is_the_originals_file():
    pixels = noise(50, 37, 3, 1)
    theirs = io.BytesIO()
    Image.fromarray(pixels).save(theirs, "JPEG")  # nothing asked for, as the original does
    assert encode(pixels) == theirs.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (17, 15), (33, 16), (64, 48)])
@pytest.mark.parametrize(("subsampling", "code"), [("4:4:4", 0), ("4:2:2", 1), ("4:2:0", 2)])
def test_headers_of_jpeg(size, subsampling, code):
    pixels = noise(*size, 3, 1)
    file = encode(pixels, Encoding("jpeg", 88, subsampling))
    image = opened(file)
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", size)
    assert JpegImagePlugin.get_sampling(image) == code
    assert image.info["jfif"] == 257
    assert "exif" not in image.info
    assert not image.info.get("progressive")
    other = opened(encode(pixels, Encoding("jpeg", 40, subsampling)))
    assert image.quantization[0][0] < other.quantization[0][0]


@pytest.mark.parametrize("encoding", [Encoding("png"), Encoding("webp", lossless=True)])
def test_lossless_is_lossless(encoding):
    pixels = noise(23, 31, 3, 1)
    image = opened(encode(pixels, encoding))
    assert image.format == encoding.format.upper()
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
