"""Tests of :mod:`heldout.curate.cutouts.photos`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.cutouts.outlines import masked_photos, whole_photos
from heldout.curate.cutouts.photos import (
    Photo,
    PhotoFacts,
    PhotoFinder,
    Photographs,
    cutout_names,
    read_photo,
    read_photo_table,
    table_rows,
    turned,
)
from heldout.data.images import BadImage
from tests.curate.cutouts.scenes import ellipse, encoded, scene, write

# Photographs: upright pixels, alpha kept apart, masks brought into place.


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


def test_a_mask_of_another_size_is_resized_and_of_another_shape_refused() -> None:
    photo = Photo(np.zeros((60, 80, 3), np.uint8))
    small = ellipse(40, 30).astype(np.float32)
    assert np.mean((photo.upright(small) >= 0.5) != ellipse(80, 60)) < 0.02
    with pytest.raises(UserError, match="30 × 30 pixels, the photo 80 × 60"):
        photo.upright(np.zeros((30, 30), np.float32))


# Photographs by name, their classes and credits, and the subjects that they and masks give.


def test_the_class_is_that_of_the_table_or_the_folder() -> None:
    ids = ["dog/a.jpg", "b.jpg"]
    assert Photographs(ids).class_of("dog/a.jpg") == "dog"
    facts = {photo: PhotoFacts(class_name="bird") for photo in ids}
    assert [Photographs(ids, facts).class_of(photo) for photo in ids] == ["bird", "bird"]
    with pytest.raises(UserError, match="--table"):
        Photographs(ids).class_of("b.jpg")


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".hidden", " dog", "x:y", "tab\there", "a\\b", "x.json"]
)
def test_classes_that_cannot_be_folders_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="cannot be a class"):
        Photographs(["a.jpg"], {"a.jpg": PhotoFacts(class_name=name)}).class_of("a.jpg")


def test_names_are_found_by_path_name_or_stem() -> None:
    finder = PhotoFinder(["val/1.jpg", "val/2.jpg", "train/2.jpg"])
    assert finder.find("val/2.jpg") == "val/2.jpg"
    assert finder.find("1.jpg") == finder.find("1") == finder.find("x/1.jpg") == "val/1.jpg"
    assert finder.find("3.jpg") is None
    with pytest.raises(UserError, match=r"val/2\.jpg or train/2\.jpg"):
        finder.find("2.jpg")


def test_names_of_cut_outs_never_collide() -> None:
    names = cutout_names(["a/x.jpg", "a/x.png", "a/deep/x.jpg", "b/x.jpg"])
    assert names == {
        "a/x.jpg": "x_jpg", "a/x.png": "x_png", "a/deep/x.jpg": "deep-x", "b/x.jpg": "x",
    }  # fmt: skip
    with pytest.raises(UserError, match="would both become"):
        whole_photos(Photographs(["a/X.jpg", "a/x.jpg"]))


def test_names_that_some_systems_cannot_have() -> None:
    subject = whole_photos(Photographs(["dog/what?.jpg"])).jobs[0]
    assert subject.file == "dog/what_.png"
    with pytest.raises(UserError, match="would both become"):
        whole_photos(Photographs(["dog/what?.jpg", "dog/what_.jpg"]))


BY = "https://creativecommons.org/licenses/by/2.0/"


def test_a_table_gives_classes_and_credits(tmp_path: Path) -> None:
    path = tmp_path / "photos.csv"
    path.write_text(
        "ImageID,License,Author,Title,OriginalLandingURL,class\n"
        'a,https://creativecommons.org/licenses/by/2.0/,Ann,"Cup, blue",https://x/1,cup\n'
        "other,CC0-1.0,Bob,,,dog\n"
    )
    facts = read_photo_table(path, ["a.jpg"])
    assert facts == {"a.jpg": PhotoFacts("cup", BY, "Cup, blue, Ann", "https://x/1")}
    subject = whole_photos(Photographs(["a.jpg"], facts)).jobs[0]
    assert (subject.file, subject.licence, subject.source) == (
        "cup/a.png",
        BY,
        "https://x/1",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("file,class\n", "no rows"),
        ("name,class\na,b\n", "no column 'file'"),
        ("file,class\na.jpg\n", "cannot be read as CSV"),
        ("file,class\nzzz.jpg,dog\n", "names none of the photos"),
        ("file,class\na.jpg,dog\na,cat\n", "two things of"),
        ("file,class\n\x00\n", "a"),
    ],
)
def test_tables_that_cannot_be_used_name_the_fault(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadFile, match=says):
        read_photo_table(tmp_path / "t.csv", ["a.jpg"])


def test_tables_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        table_rows(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"file\n\xff\xfe\x00")
    with pytest.raises(BadFile, match="UTF-8"):
        table_rows(tmp_path / "b.csv")


def test_masks_of_photos_one_several_and_none(tmp_path: Path) -> None:
    mask = (255 * ellipse()).astype(np.uint8)
    write(tmp_path / "dog/a.png", mask)
    write(tmp_path / "dog/b/0.png", mask)
    write(tmp_path / "dog/b/1.png", mask)
    photographs = Photographs(["dog/a.jpg", "dog/b.jpg", "dog/c.jpg"])
    found = masked_photos(photographs, tmp_path)
    assert [s.file for s in found.jobs] == ["dog/a.png", "dog/b_0.png", "dog/b_1.png"]
    assert [(p.photo, p.reason) for p in found.skipped] == [
        ("dog/c.jpg", f"no mask in {tmp_path.name}")
    ]
