"""Which JPEGs a GPU may decode, and what their headers say."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.predictions.gpu.header import JpegShape, jpeg_shape


def encoded(mode: str = "RGB", size: tuple[int, int] = (50, 37), **how: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 90 if mode == "L" else None).save(out, "JPEG", **how)
    return out.getvalue()


@pytest.mark.parametrize(("subsampling", "across", "down"), [(0, 1, 1), (1, 2, 1), (2, 2, 2)])
def test_size_and_sampling_are_read(subsampling: int, across: int, down: int) -> None:
    data = encoded(subsampling=subsampling)
    assert jpeg_shape(data) == JpegShape(37, 50, across, down)
    assert jpeg_shape(memoryview(data)) == JpegShape(37, 50, across, down)


def test_grey_has_no_chroma() -> None:
    assert jpeg_shape(encoded("L")) == JpegShape(37, 50, 0, 0)


def test_comments_and_tables_before_the_frame_are_skipped() -> None:
    data = encoded(
        comment=b"x" * 5000, icc_profile=b"p" * 100_000, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"
    )
    assert jpeg_shape(data) == JpegShape(37, 50, 2, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        encoded(progressive=True),
        encoded("CMYK"),
        encoded(size=(8, 300)),
        encoded()[:-2],
        encoded()[:400],
        encoded() + b"more",
        b"\x89PNG" + encoded(),
    ],
    ids=["empty", "start", "progressive", "cmyk", "narrow", "no end", "cut", "tail", "png"],
)
def test_others_take_the_cpu(data: bytes) -> None:
    assert jpeg_shape(data) is None


def test_rgb_that_is_stored_as_such_takes_the_cpu() -> None:
    data = bytearray(encoded())
    jfif = data.index(b"JFIF\0")
    data[jfif : jfif + 5] = b"XXXX\0"
    frame = data.index(b"\xff\xc0") + 10
    for number, name in enumerate(b"RGB"):
        data[frame + 3 * number] = name
    assert jpeg_shape(bytes(data)) is None


def test_exif_takes_the_cpu_only_where_it_turns_images() -> None:
    data = encoded(exif=b"Exif\0\0II*\0\x08\0\0\0\0\0")
    assert jpeg_shape(data, exif=False) is not None
    assert jpeg_shape(data, exif=True) is None


@given(st.binary(max_size=300), st.integers(0, 600))
def test_no_bytes_raise(noise: bytes, at: int) -> None:
    data = bytearray(encoded())
    data[at : at + len(noise)] = noise
    found = jpeg_shape(bytes(data))
    assert found is None or found.height >= 16
