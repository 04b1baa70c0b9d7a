"""Tests of :mod:`heldout.curate.cutouts.outlines`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.cutouts.outlines import (
    OWN_ALPHA,
    MaskIndex,
    coco_jobs,
    draw_polygons,
    draw_runs,
    mask_file,
    openimages_jobs,
    polygons,
    read_class_names,
    read_mask,
    run_lengths,
    uncompressed,
)
from heldout.curate.cutouts.photos import Photo, Photographs
from tests.curate.cutouts.scenes import ellipse, write

# Files of COCO and OpenImages: which objects they name, and every way in which they can be wrong.


PHOTOS = Photographs(["val/1.jpg", "val/2.jpg"])
SQUARE = [[10, 10, 50, 10, 50, 50, 10, 50]]


def coco(tmp_path: Path, *annotations: dict[str, Any], **changes: Any) -> Path:
    value = {
        "images": [
            {"id": 1, "file_name": "1.jpg", "width": 120, "height": 90, "license": 4},
            {"id": 2, "file_name": "2.jpg", "width": 120, "height": 90, "flickr_url": "http://f/2"},
            {"id": 3, "file_name": "3.jpg", "width": 120, "height": 90},
        ],
        "licenses": [
            {"id": 4, "name": "Attribution", "url": "http://creativecommons.org/licenses/by/2.0/"}
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 8, "name": "traffic light"}],
        "annotations": [
            {"id": 100 + n, "image_id": 1, "category_id": 7, "segmentation": SQUARE, **entry}
            for n, entry in enumerate(annotations)
        ],
        **changes,
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(value))
    return path


def test_objects_of_coco(tmp_path: Path) -> None:
    runs = {"size": [90, 120], "counts": [100, 50, 10_650]}
    text = {"size": [90, 120], "counts": "T3b1jY:"}
    path = coco(
        tmp_path,
        {},
        {"image_id": 2, "category_id": 8, "segmentation": runs},
        {"segmentation": text},
        {"iscrowd": 1, "segmentation": runs},
    )
    found = coco_jobs(path, PHOTOS)
    assert [s.file for s in found.jobs] == [
        "dog/1_100.png", "dog/1_102.png", "traffic light/2_101.png",
    ]  # fmt: skip
    size = {"width": 120, "height": 90}
    expected = (
        polygons([list(map(float, SQUARE[0]))], **size),
        run_lengths("T3b1jY:", **size),
        run_lengths([100, 50, 10_650], **size),
    )
    for job, outline in zip(found.jobs, expected, strict=True):
        assert job.outline is not None and job.outline.identity == outline.identity
    assert (found.jobs[0].licence, found.jobs[2].source) == (
        "http://creativecommons.org/licenses/by/2.0/",
        "http://f/2",
    )
    assert [p.reason for p in found.skipped] == ["a crowd, not one object"] and not found.failures


def test_classes_can_be_chosen(tmp_path: Path) -> None:
    path = coco(tmp_path, {}, {"image_id": 2, "category_id": 8})
    found = coco_jobs(path, PHOTOS, only=["traffic light"])
    assert [s.photo for s in found.jobs] == ["val/2.jpg"] and not found.failures
    with pytest.raises(BadFile, match="no category 'cat'"):
        coco_jobs(path, PHOTOS, only=["cat"])


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"segmentation": []}, "no segmentation"),
        ({"segmentation": None}, "no segmentation"),
        ({"segmentation": [[1, 2, 3, 4]]}, "no segmentation"),
        ({"segmentation": [[1, 2, 3, 4, 5, "x"]]}, "no segmentation"),
        ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "not two numbers"),
        ({"segmentation": {"counts": "1"}}, "no segmentation"),
        ({"segmentation": {"size": [90, 120], "counts": [1.5]}}, "no segmentation"),
        ({"image_id": 99}, "image 99 is not in the file"),
        ({"category_id": 99}, "no category 99"),
    ],
)
def test_wrong_annotations_are_listed_and_the_rest_is_made(
    entry: dict[str, Any], says: str, tmp_path: Path
) -> None:
    found = coco_jobs(coco(tmp_path, entry, {}), PHOTOS)
    assert [s.name for s in found.jobs] == ["1_101"]
    assert len(found.failures) == 1 and says in found.failures[0].reason


def test_missing_photos_are_skipped(tmp_path: Path) -> None:
    found = coco_jobs(coco(tmp_path, {"image_id": 3}, {}), PHOTOS)
    assert not found.failures and len(found.jobs) == 1
    assert {p.reason for p in found.skipped} == {"the photo is not there", "no object is annotated"}


@pytest.mark.parametrize(
    "changes",
    [
        {"images": None},
        {"images": [{"id": 1}]},
        {"images": [{"id": "1", "file_name": "1.jpg"}]},
        {"annotations": {}},
        {"annotations": [{"id": 1, "image_id": None}]},
        {"categories": [{"id": True, "name": "x"}]},
        {"licenses": 5},
    ],
)
def test_files_that_are_not_coco(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"instances\.json"):
        coco_jobs(coco(tmp_path, {}, **changes), PHOTOS)


def test_files_that_are_not_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[")
    with pytest.raises(BadFile):
        coco_jobs(tmp_path / "x.json", PHOTOS)
    with pytest.raises(NotFound):
        coco_jobs(tmp_path / "none.json", PHOTOS)


@pytest.fixture
def openimages(tmp_path: Path) -> Path:
    write(tmp_path / "masks/a/1_m0k_x.png", (255 * ellipse()).astype(np.uint8))
    (tmp_path / "names.csv").write_text("/m/0k,Dog\n/m/0z,Zebra\n")
    (tmp_path / "seg.csv").write_text(
        "MaskPath,ImageID,LabelName,BoxID,BoxXMin\n"
        "1_m0k_x.png,1,/m/0k,x,0.1\n"
        "gone.png,1,/m/0k,y,0.1\n"
        "3_m0z.png,3,/m/0z,z,0.1\n"
    )
    return tmp_path


def test_masks_of_openimages(openimages: Path) -> None:
    found = openimages_jobs(
        openimages / "seg.csv", PHOTOS, masks=openimages / "masks", class_names=openimages / "names.csv"
    )  # fmt: skip
    assert [s.file for s in found.jobs] == ["Dog/1_m0k_x.png"]
    outline = mask_file(openimages / "masks/a/1_m0k_x.png")
    assert found.jobs[0].outline is not None
    assert found.jobs[0].outline.identity == outline.identity
    assert [(p.photo, p.object) for p in found.failures] == [("val/1.jpg", "gone.png")]
    assert [p.photo for p in found.skipped] == ["3", "val/2.jpg"]


def test_classes_of_openimages_need_their_names(openimages: Path) -> None:
    with pytest.raises(BadFile, match="--class-names"):
        openimages_jobs(openimages / "seg.csv", PHOTOS, masks=openimages / "masks")
    only = openimages_jobs(
        openimages / "seg.csv", PHOTOS, masks=openimages / "masks",
        class_names=openimages / "names.csv", only=["Zebra"],
    )  # fmt: skip
    assert not only.jobs and not only.failures


@pytest.mark.parametrize(
    "text", ["", "ImageID,LabelName\n1,/m/0k\n", "MaskPath,ImageID,LabelName\n"]
)
def test_other_tables_are_refused(text: str, openimages: Path) -> None:
    (openimages / "seg.csv").write_text(text)
    with pytest.raises(BadFile, match=r"seg\.csv"):
        openimages_jobs(openimages / "seg.csv", PHOTOS, masks=openimages / "masks")


def test_names_of_classes_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("/m/0k\n")
    with pytest.raises(BadFile, match="of id, name"):
        read_class_names(tmp_path / "n.csv")
    with pytest.raises(NotFound):
        read_class_names(tmp_path / "none.csv")
    with pytest.raises(UserError):
        read_class_names(tmp_path)


# Polygons and run lengths against slow, obvious references, and against COCO's own numbers.


_corner = st.integers(-64, 448).map(lambda n: n / 16 + 1 / 64)


def compressed(counts: Sequence[int]) -> str:
    """The text form of run lengths; :func:`uncompressed` gives them back."""
    made: list[str] = []
    for place, count in enumerate(counts):
        value = count - counts[place - 2] if place > 2 else count
        while True:
            group, value = value & 31, value >> 5
            more = value != (-1 if group & 16 else 0)
            made.append(chr(48 + (group | 32 if more else group)))
            if not more:
                break
    return "".join(made)


def slow_polygon(part: list[float], width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Even-odd rule in exact arithmetic, one ray a pixel; and the pixels whose centre is a tie."""
    made, tie = np.zeros((2, height, width), bool)
    exact = [Fraction(number) for number in part]
    corners = list(zip(exact[::2], exact[1::2], strict=True))
    for row in range(height):
        y = row + Fraction(1, 2)
        crossings = [
            x0 + (y - y0) * (x1 - x0) / (y1 - y0)
            for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True)
            if (y0 > y) != (y1 > y)
        ]
        for column in range(width):
            x = column + Fraction(1, 2)
            made[row, column] = sum(x > crossing for crossing in crossings) % 2 == 1
            tie[row, column] = x in crossings
    return made, tie


@given(st.lists(_corner, min_size=6, max_size=12).filter(lambda p: len(p) % 2 == 0))
def test_polygons_as_the_even_odd_rule_says(part: list[float]) -> None:
    fast = draw_polygons([part], width=22, height=17) > 0
    slow, tie = slow_polygon(part, 22, 17)
    assert np.array_equal(fast[~tie], slow[~tie])


def test_a_square_covers_its_pixels() -> None:
    made = draw_polygons([[1, 2, 4, 2, 4, 5, 1, 5]], width=6, height=6)
    assert made[2:5, 1:4].all() and made.sum() == 9


def test_parts_are_united_and_cut_at_the_image() -> None:
    inside, across = [0, 0, 2, 0, 2, 2, 0, 2], [1, 1, 99, 1, 99, 99, 1, 99]
    made = draw_polygons([inside, across], width=4, height=4)
    assert made.sum() == 4 + 9 - 1


def test_a_polygon_outside_covers_nothing() -> None:
    assert draw_polygons([[50, 50, 60, 50, 60, 60]], width=9, height=9).sum() == 0


@given(st.integers(1, 9), st.integers(1, 9), st.randoms())
def test_runs_give_the_mask_back(width: int, height: int, random: object) -> None:
    mask = np.array([[random.random() < 0.5 for _ in range(width)] for _ in range(height)])  # type: ignore[attr-defined]
    counts: list[int] = []
    value = False
    run = 0
    for column in range(width):  # down the columns, background first
        for row in range(height):
            if mask[row, column] != value:
                counts.append(run)
                value, run = not value, 0
            run += 1
    counts.append(run)
    assert np.array_equal(draw_runs(counts, width=width, height=height) > 0, mask)
    assert uncompressed(compressed(counts)) == tuple(counts)


@given(st.lists(st.integers(0, 2**31), max_size=40))
def test_compressing_is_undone(counts: list[int]) -> None:
    assert uncompressed(compressed(counts)) == tuple(counts)


def test_texts_of_the_reference_implementation() -> None:
    """Two masks as pycocotools 2.0 writes them."""
    mask = np.zeros((7, 9), bool)
    mask[2:5, 3:8] = mask[0, 0] = mask[6, 8] = True
    assert np.array_equal(draw_runs(uncompressed("01f02^O00000004N"), width=9, height=7) > 0, mask)
    y, x = np.mgrid[:120, :150]
    disc = ((x - 70) / 50) ** 2 + ((y - 60) / 40) ** 2 < 1
    text = (
        "]`2?U38J4L4L4M2M4M2N2N2M4N0O2N2N2N2N2O0O2O0O2N2O0O2O0O2O000O2O000O2O000O2O00000O2O0000000000"
        "0000000000000000000000000000000001N1000001N10001N10001N10001N101N101N2N101N101N2N2N2N2N102L3"
        "N2N2N3L3N3L4L4L6Ho^3"
    )
    assert np.array_equal(draw_runs(uncompressed(text), width=150, height=120) > 0, disc)
    assert compressed(uncompressed(text)) == text


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([4, 4], "lengths of 8 pixels"),
        ([-1, 10], "lengths of 9 pixels"),
        ([], "lengths of 0 pixels"),
        ([2**70, 9], "lengths of 1,180,591,620,717,411,303,433 pixels"),
    ],
)
def test_wrong_counts_are_refused(counts: list[int], says: str) -> None:
    with pytest.raises(UserError, match=says):
        draw_runs(counts, width=3, height=3)


@pytest.mark.parametrize("text", ["!", "\x7f", "P", "oooooooooooo0", "é"])
def test_texts_that_are_no_runs_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="run lengths"):
        uncompressed(text)


def test_sizes_that_would_fill_memory_are_refused() -> None:
    with pytest.raises(UserError, match="pixels"):
        draw_polygons([[0, 0, 1, 0, 1, 1]], width=1 << 20, height=1 << 20)
    with pytest.raises(UserError, match="0 × 5"):
        draw_runs([0], width=0, height=5)


def test_an_outline_of_another_photo_is_refused() -> None:
    photo = Photo(np.zeros((100, 120, 3), np.uint8))
    size = {"width": 90, "height": 90}
    for outline in (polygons([(0, 0, 5, 0, 5, 5)], **size), run_lengths([8100], **size)):
        with pytest.raises(UserError, match="90 × 90 pixels, the photo 120 × 100"):
            outline.matte(photo)


@pytest.mark.shared
@pytest.mark.parametrize("split", ["train", "val"])
def test_areas_of_published_annotations(shared_data: Path, split: str) -> None:
    """COCO states the area of each object, measured on its own drawing of the polygons."""
    path = shared_data / f"metashift/coco-mini/instances_{split}2017.json"
    value = json.loads(path.read_bytes())
    sizes = {image["id"]: (image["width"], image["height"]) for image in value["images"]}
    ratios = []
    for entry in value["annotations"]:
        width, height = sizes[entry["image_id"]]
        if isinstance(entry["segmentation"], dict):
            counts = entry["segmentation"]["counts"]
            assert draw_runs(counts, width=width, height=height).sum() == sum(counts[1::2])
        elif entry["area"] > 500:
            made = draw_polygons(entry["segmentation"], width=width, height=height)
            ratios.append(made.sum() / entry["area"])
    assert len(ratios) > 300
    assert abs(np.median(ratios) - 1) < 0.001
    assert np.abs(np.array(ratios) - 1).max() < 0.06


# Mask files of every kind, and which belong to which photograph.


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
    with pytest.raises(BadFile, match="one mask per object"):
        read_mask(path)


@pytest.mark.parametrize("data", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_a_broken_mask_names_its_file(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.png").write_bytes(data)
    with pytest.raises(BadFile, match=r"m\.png"):
        read_mask(tmp_path / "m.png")


def test_own_alpha() -> None:
    alpha = np.array([[0, 255], [51, 0]], np.uint8)
    photo = Photo(np.zeros((2, 2, 3), np.uint8), alpha=alpha)
    assert np.allclose(OWN_ALPHA.matte(photo), alpha / 255)
    with pytest.raises(UserError, match="no alpha"):
        OWN_ALPHA.matte(Photo(np.zeros((2, 2, 3), np.uint8)))


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
