"""Polygons and run lengths against slow, obvious references, and against COCO's own numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.cutouts.outlines import (
    Polygons,
    RunLengths,
    draw_polygons,
    draw_runs,
    uncompressed,
)
from heldout.curate.cutouts.photos import Photo

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
        ([4, 4], "counts of 8 pixels"),
        ([-1, 10], "a negative count"),
        ([], "counts of 0 pixels"),
        ([2**70, 9], "counts of 1,180,591,620,717,411,303,433 pixels"),
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
    photo = Photo(np.zeros((10, 12, 3), np.uint8))
    for outline in (Polygons(9, 9, ((0, 0, 5, 0, 5, 5),)), RunLengths(9, 9, (81,))):
        with pytest.raises(UserError, match="9 × 9 pixels, the photo 12 × 10"):
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
