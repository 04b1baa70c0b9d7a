"""Odd files, made here: what each of them is, and that none of them raises."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from PIL import Image

from heldout.data.images import (
    BadImage,
    FolderSource,
    ImageInfo,
    MemorySource,
    check,
    examine,
    probe,
    sha256_bytes,
)
from tests.data.images.odd_images import DEEP, picture, png, saved


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
