"""Decoding: equal to Pillow's ``convert("RGB")``, the EXIF rule, limits, and memory shared."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from heldout.data.images import BadImage, FolderSource, decode
from heldout.data.images.decode import MemoryPool, decoding_bytes
from tests.data.images.odd_images import PIXELS, exif, picture, saved


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_the_exif_orientation_is_applied_only_when_asked(kind: str, orientation: int) -> None:
    data = saved(picture(), kind, exif=exif(orientation))
    stored, turned = decode(data), decode(data, exif=True)
    assert not isinstance(stored, BadImage) and not isinstance(turned, BadImage)
    original = Image.open(io.BytesIO(data))
    np.testing.assert_array_equal(np.asarray(stored), np.asarray(original.convert("RGB")))
    expected = ImageOps.exif_transpose(original).convert("RGB")
    np.testing.assert_array_equal(np.asarray(turned), np.asarray(expected))
    assert (turned.size == stored.size) == (orientation < 5)


@pytest.mark.parametrize("orientation", [0, 9, 99])
def test_an_orientation_that_does_not_exist_turns_nothing(orientation: int) -> None:
    result = decode(saved(picture(), "PNG", exif=exif(orientation)), exif=True)
    assert not isinstance(result, BadImage) and np.array_equal(np.asarray(result), PIXELS)


def test_a_tiff_is_turned_once() -> None:
    data = saved(picture(), "TIFF", exif=exif(6))
    for rule in (False, True):
        result = decode(data, exif=rule)
        assert not isinstance(result, BadImage)
        np.testing.assert_array_equal(np.asarray(result), np.rot90(PIXELS, -1))


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=200)
def test_any_exif_leaves_the_pixels_alone(noise: bytes, rule: bool) -> None:
    segment = b"Exif\0\0" + noise
    jpeg = saved(picture(), "JPEG")
    data = jpeg[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]
    result = decode(data, exif=rule)
    plain = decode(jpeg)
    assert not isinstance(result, BadImage) and not isinstance(plain, BadImage)
    assert sorted(result.size) == sorted(plain.size)
    if not rule:
        np.testing.assert_array_equal(np.asarray(result), np.asarray(plain))


def test_a_decoded_image_does_not_need_its_bytes() -> None:
    for kind in ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF", "JPEG2000"):
        result = decode(saved(picture(), kind))
        assert not isinstance(result, BadImage)
        assert result.copy().resize((5, 4)).size == (5, 4)
        assert result.getpixel((0, 0)) is not None


def test_an_image_to_be_turned_needs_twice_the_room() -> None:
    image = Image.new("RGB", (6000, 6000))
    data = saved(image, "PNG", exif=exif(6), compress_level=1)
    assert not isinstance(decode(data), BadImage)
    result = decode(data, exif=True)
    assert isinstance(result, BadImage) and "to be turned" in result.reason


@pytest.mark.parametrize(
    ("kind", "mode", "options", "bytes_a_pixel"),
    [
        ("JPEG", "RGB", {}, 4),
        ("JPEG", "L", {}, 5),
        ("JPEG", "CMYK", {}, 8),
        ("JPEG", "RGB", {"progressive": True}, 10),
        ("PNG", "RGB", {}, 4),
        ("PNG", "RGBA", {}, 8),
        ("PNG", "1", {}, 5),
        ("WEBP", "RGB", {}, 16),
        ("JPEG2000", "RGB", {}, 22),
        ("AVIF", "RGB", {}, 10),
    ],
)
def test_memory_is_known_from_the_header(
    kind: str, mode: str, options: dict[str, object], bytes_a_pixel: int
) -> None:
    data = saved(Image.new(mode, (300, 200)), kind, **options)
    needed = decoding_bytes(Image.open(io.BytesIO(data)), data)  # type: ignore[arg-type]
    assert bytes_a_pixel <= needed / (300 * 200) < bytes_a_pixel + 0.1


def test_shared_memory_is_never_exceeded() -> None:
    shared = MemoryPool(100, small=5)
    used = most = 0
    lock = threading.Lock()
    begin = threading.Barrier(8)

    def work(amount: int) -> None:
        nonlocal used, most
        begin.wait()
        for _ in range(200):
            with shared.reserve(amount):
                held = 0 if amount <= 5 else min(amount, 100)
                with lock:
                    used += held
                    most = max(most, used)
                with lock:
                    used -= held

    threads = [
        threading.Thread(target=work, args=(n,)) for n in (3, 30, 40, 50, 60, 99, 100, 10**6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used == 0 and 0 < most <= 100


def test_shared_memory_comes_back_after_an_error() -> None:
    shared = MemoryPool(100, small=5)
    with pytest.raises(KeyError), shared.reserve(90):
        raise KeyError
    with shared.reserve(90):
        pass


@pytest.mark.shared
def test_photographs_are_equal_to_pillows(shared_data: object) -> None:
    source = FolderSource(shared_data / "photos")  # type: ignore[operator]
    for image_id in list(source.ids())[::10]:
        with source.open(image_id) as handle:
            data = handle.read()
        result = decode(data)
        assert not isinstance(result, BadImage)
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        np.testing.assert_array_equal(np.asarray(result), expected)
