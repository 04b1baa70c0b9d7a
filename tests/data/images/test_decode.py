"""Tests of :mod:`heldout.data.images.decode`."""

from __future__ import annotations

import hashlib
import io
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from heldout.data.images import (
    BadImage,
    FolderSource,
    ImageInfo,
    MemorySource,
    check,
    decode,
    examine,
    probe,
    sha256_bytes,
)
from heldout.data.images.decode import MemoryPool, decoding_bytes
from tests.data.images.odd_images import DEEP, PIXELS, exif, picture, png, saved

# Decoding: equal to Pillow's ``convert("RGB")``, the EXIF rule, limits, and memory shared.


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


# Odd files, made here: what each of them is, and that none of them raises.


def declared_png(width: int, height: int) -> bytes:
    """A tiny PNG whose header declares any size."""
    return png([bytes(100)], bits=8, colour=2, size=(width, height))


JPEG = saved(picture(), "JPEG")


def animated_gif() -> bytes:
    frames = [picture("P"), picture("P").transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    return saved(frames[0], "GIF", save_all=True, append_images=frames[1:])


GOOD = {
    "jpeg": (JPEG, "JPEG", "RGB"),
    "grey": (saved(picture("L"), "JPEG"), "JPEG", "L"),
    "cmyk": (saved(picture("CMYK"), "JPEG"), "JPEG", "CMYK"),
    "16 bit": (saved(Image.fromarray(DEEP), "PNG"), "PNG", "I;16"),
    "palette": (saved(picture("P"), "PNG", transparency=bytes(range(256))), "PNG", "P"),
    "animation": (animated_gif(), "GIF", "P"),
    "webp": (saved(picture(), "WEBP"), "WEBP", "RGB"),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_images_are_described(name: str) -> None:
    data, kind, mode = GOOD[name]
    expected = ImageInfo(width=40, height=30, format=kind, mode=mode)
    assert probe(data) == expected
    assert check(data) == expected


def test_a_bomb_is_seen_by_its_header_and_not_decoded() -> None:
    bomb = declared_png(200_000, 200_000)
    assert probe(bomb) == ImageInfo(width=200_000, height=200_000, format="PNG", mode="RGB")
    assert check(bomb) == BadImage(
        trouble="too large", reason="200000 x 200000 pixels, more than 50,000,000"
    )


def test_the_limit_is_the_callers() -> None:
    assert isinstance(check(JPEG, max_pixels=40 * 30), ImageInfo)
    small = check(JPEG, max_pixels=40 * 30 - 1)
    assert isinstance(small, BadImage) and small.trouble == "too large"
    wide = saved(Image.new("1", (100_000, 1000)), "PNG")  # past Pillow's own warning
    assert isinstance(check(wide, max_pixels=10**8), ImageInfo)
    limit = Image.MAX_IMAGE_PIXELS
    check(declared_png(200_000, 200_000))
    assert limit == Image.MAX_IMAGE_PIXELS


def test_a_header_is_enough_for_probe_only() -> None:
    cut = JPEG[:-20]
    assert probe(cut) == ImageInfo(width=40, height=30, format="JPEG", mode="RGB")
    assert isinstance(check(cut), BadImage)


def test_examine_hashes_and_describes() -> None:
    source = MemorySource({"good.jpg": JPEG, "bad.jpg": JPEG[:300]})
    good = examine(source, "good.jpg")
    assert (good.sha256, good.bytes) == (hashlib.sha256(JPEG).hexdigest(), len(JPEG))
    assert good.result == check(JPEG)
    assert sha256_bytes(JPEG) == good.sha256
    bad = examine(source, "bad.jpg")
    assert isinstance(bad.result, BadImage) and bad.bytes == 300
    assert examine(source, "bad.jpg", decode=False).result == probe(JPEG[:300])


def test_examine_of_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").mkdir()
    (tmp_path / "a.jpg" / "b.jpg").write_bytes(JPEG)
    source = FolderSource(tmp_path)
    missing = examine(source, "c.jpg").result
    assert isinstance(missing, BadImage) and missing.trouble == "unreadable"
    folder = examine(source, "a.jpg").result
    assert isinstance(folder, BadImage) and folder.trouble == "unreadable"
    assert isinstance(examine(source, "a.jpg/b.jpg").result, ImageInfo)
