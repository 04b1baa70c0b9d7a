"""Mask files of every kind, and which belong to which photograph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.core.errors import BadFile, UserError
from heldout.curate.cutouts.outlines import (
    MaskFile,
    MaskIndex,
    OwnAlpha,
    read_labels,
    read_mask,
)
from heldout.curate.cutouts.photos import Photo
from tests.curate.cutouts.scenes import ellipse, write

SHAPE = ellipse(20, 14)


def _kinds() -> dict[str, Image.Image]:
    byte = SHAPE.astype(np.uint8)
    grey = Image.fromarray(255 * byte)
    alpha = Image.merge("RGBA", [*Image.new("RGB", grey.size, (9, 200, 30)).split(), grey])
    palette = grey.convert("P")
    return {
        "bit": Image.fromarray(SHAPE),
        "zero and one": Image.fromarray(byte),
        "black and white": grey,
        "black and 38": Image.fromarray(38 * byte),
        "rgb": Image.merge("RGB", [grey] * 3),
        "palette of greys": palette,
        "alpha": alpha,
        "grey with alpha": Image.merge("LA", [Image.new("L", grey.size, 77), grey]),
        "opaque alpha": Image.merge("RGBA", [grey, grey, grey, Image.new("L", grey.size, 255)]),
        "16 bits": Image.fromarray(SHAPE.astype(np.uint16) * 65_535),
    }


@pytest.mark.parametrize("kind", _kinds())
def test_every_kind_of_mask_reads_the_same(kind: str, tmp_path: Path) -> None:
    _kinds()[kind].save(tmp_path / "m.png")
    assert np.array_equal(read_mask(tmp_path / "m.png"), SHAPE.astype(np.float32))


def test_grey_is_opacity(tmp_path: Path) -> None:
    ramp = np.tile(np.arange(0, 256, 5, dtype=np.uint8), (4, 1))
    path = write(tmp_path / "m.png", ramp)
    assert np.allclose(read_mask(path), ramp / 255)


def test_a_coloured_mask_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "m.png", np.random.default_rng(0).integers(0, 9, (5, 5, 3)).astype(np.uint8)
    )
    with pytest.raises(BadFile, match="--instances"):
        read_mask(path)


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_a_broken_mask_names_its_file(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.png").write_bytes(data)
    with pytest.raises(BadFile, match=r"m\.png"):
        read_mask(tmp_path / "m.png")


def test_label_maps(tmp_path: Path) -> None:
    labels = np.zeros((4, 6), np.uint8)
    labels[0, :2], labels[2, 3:], labels[3, 0] = 3, 7, 255
    palette = Image.frombytes("P", (6, 4), labels.tobytes())
    palette.putpalette([v for n in range(256) for v in (n, 255 - n, (7 * n) % 256)])
    palette.save(tmp_path / "voc.png")
    assert np.unique(read_labels(tmp_path / "voc.png")).tolist() == [
        0,
        3,
        7,
    ]  # 255 is "not labelled" in VOC
    write(tmp_path / "grey.png", labels)
    assert np.unique(read_labels(tmp_path / "grey.png")).tolist() == [0, 3, 7, 255]
    panoptic = np.zeros((4, 6, 3), np.uint8)
    panoptic[1, 1] = (44, 1, 2)
    write(tmp_path / "panoptic.png", panoptic)
    assert read_labels(tmp_path / "panoptic.png")[1, 1] == 44 + 256 + 2 * 65_536
    photo = Photo(np.zeros((4, 6, 3), np.uint8))
    assert MaskFile.of(tmp_path / "voc.png", value=7).matte(photo).sum() == 3


def test_own_alpha() -> None:
    alpha = np.array([[0, 255], [51, 0]], np.uint8)
    photo = Photo(np.zeros((2, 2, 3), np.uint8), alpha=alpha)
    assert np.allclose(OwnAlpha().matte(photo), alpha / 255)
    with pytest.raises(UserError, match="no alpha"):
        OwnAlpha().matte(Photo(np.zeros((2, 2, 3), np.uint8)))


@pytest.mark.parametrize(
    ("photo", "files", "found"),
    [
        ("dog/a.jpg", ["dog/a.png", "cat/a.png"], ("dog/a.png",)),
        ("dog/a.jpg", ["dog/a_mask.png"], ("dog/a_mask.png",)),
        ("dog/a.jpg", ["dog/a-mask.png", "dog/b.png"], ("dog/a-mask.png",)),
        ("dog/a.jpg", ["dog/a/1.png", "dog/a/0.png"], ("dog/a/0.png", "dog/a/1.png")),
        ("dog/a.jpg", ["a/0.png"], ("a/0.png",)),
        ("dog/a.jpg", ["a.png"], ("a.png",)),
        ("dog/a.jpg", ["dog/ab.png"], ()),
        ("a.jpg", ["b/0.png"], ()),
    ],
)
def test_which_masks_belong_to_a_photo(
    photo: str, files: list[str], found: tuple[str, ...]
) -> None:
    assert MaskIndex(files).of(photo) == found
    assert MaskIndex(list(reversed(files))).of(photo) == found
