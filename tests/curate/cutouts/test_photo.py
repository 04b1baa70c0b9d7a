"""Photographs: upright pixels, alpha kept apart, masks brought into place."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from heldout.core.errors import UserError
from heldout.curate.cutouts.photos import Photo, read_photo, turned
from heldout.data.images import BadImage
from tests.curate.cutouts.scenes import ellipse, encoded, scene


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_is_what_pillow_does(orientation: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(pixels, exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert np.array_equal(turned(pixels, orientation), expected)
    photo = read_photo(data)
    assert isinstance(photo, Photo)
    assert photo.orientation == orientation and np.array_equal(photo.pixels, expected)


def test_colours_under_alpha_are_kept() -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (6, 8, 4)).astype(np.uint8)
    rgba[..., 3] = np.where(rgba[..., 3] > 127, 255, 0)
    photo = read_photo(encoded(rgba))
    assert isinstance(photo, Photo) and photo.alpha is not None
    assert np.array_equal(photo.pixels, rgba[..., :3])
    assert np.array_equal(photo.alpha, rgba[..., 3])


def test_alpha_turns_with_the_photo() -> None:
    rgba = np.random.default_rng(1).integers(0, 256, (6, 8, 4)).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = read_photo(encoded(rgba, exif=exif))
    assert isinstance(photo, Photo) and photo.alpha is not None
    assert photo.size == (6, 8) and np.array_equal(photo.alpha, turned(rgba[..., 3], 6))


def test_transparent_palette_is_alpha() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.putpixel((0, 0), 0)
    handle = io.BytesIO()
    image.save(handle, "PNG", transparency=0)
    photo = read_photo(handle.getvalue())
    assert isinstance(photo, Photo) and photo.alpha is not None
    assert photo.alpha[0, 0] == 0 and (photo.alpha == 255).sum() == 15


def test_a_photo_without_alpha_has_none() -> None:
    photo = read_photo(encoded(scene(ellipse()), "JPEG"))
    assert isinstance(photo, Photo) and photo.alpha is None


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff\xe0junk", b"hello", encoded(scene(ellipse()))[:900]]
)
def test_broken_files_are_answers(data: bytes) -> None:
    assert isinstance(read_photo(data), BadImage)


def test_a_mask_of_stored_pixels_is_turned() -> None:
    photo = Photo(np.zeros((8, 6, 3), np.uint8), orientation=6)  # stored as 6 rows of 8
    stored = np.random.default_rng(2).random((6, 8)).astype(np.float32)
    assert np.array_equal(photo.upright(stored), turned(stored, 6))
    upright = np.random.default_rng(3).random((8, 6)).astype(np.float32)
    assert np.array_equal(photo.upright(upright), upright)


def test_a_mask_of_another_size_is_refused_or_resized() -> None:
    photo = Photo(np.zeros((60, 80, 3), np.uint8))
    small = ellipse(40, 30).astype(np.float32)
    with pytest.raises(UserError, match="40 × 30 pixels, the photo 80 × 60"):
        photo.upright(small)
    resized = photo.upright(small, resize=True) >= 0.5
    assert np.mean(resized != ellipse(80, 60)) < 0.02
    with pytest.raises(UserError, match="30 × 30"):
        photo.upright(np.zeros((30, 30), np.float32), resize=True)
