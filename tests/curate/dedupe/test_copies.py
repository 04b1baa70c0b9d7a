"""Planted copies: what each kind is, for photos of any size, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops

from heldout.curate.dedupe.copies import COPIES, LARGEST, copies_of, reduced
from tests.curate.dedupe.conftest import picture


def of(photo: Image.Image, kind: str, **how: int) -> Image.Image:
    return next(copy.image for copy in copies_of(photo, "a.png", **how) if copy.kind == kind)


def changed(one: Image.Image, other: Image.Image) -> np.ndarray:
    differs: np.ndarray = np.asarray(ImageChops.difference(one, other)) > 0
    return np.asarray(differs.any(axis=2))


@given(width=st.integers(1, 90), height=st.integers(1, 90), seed=st.integers(0, 3))
def test_a_photo_of_any_size_has_a_copy_of_each_kind(width: int, height: int, seed: int) -> None:
    photo = picture(seed, (width, height))
    made = dict(copies_of(photo, "a.png", seed=seed))
    assert list(made) == list(COPIES)
    for kind, image in made.items():
        assert image.mode == "RGB" and min(image.size) >= 1, kind
        name, _, number = kind.partition("-")
        factor = int(number.partition("-")[0]) / 100 if name in ("crop", "rescale") else 1
        frame = 2 * max(1, round(0.05 * min(photo.size))) if name == "border" else 0
        expected = tuple(max(1, round(factor * side)) + frame for side in photo.size)
        assert image.size == expected, kind
    again = dict(copies_of(photo, "a.png", seed=seed))
    assert all(image.tobytes() == again[kind].tobytes() for kind, image in made.items())
    assert photo.tobytes() == picture(seed, (width, height)).tobytes()  # left alone


def test_each_kind_is_what_it_says() -> None:
    photo = picture(4, (200, 160))
    pixels = np.asarray(photo).astype(int)
    middle = photo.crop((10, 8, 190, 152))
    assert of(photo, "crop-90").tobytes() == middle.tobytes()
    corners = {of(photo, "crop-90-corner", seed=seed).tobytes() for seed in range(20)}
    starts = [(left, top) for left in (0, 20) for top in (0, 16)]
    assert corners == {photo.crop((x, y, x + 180, y + 144)).tobytes() for x, y in starts}
    assert (np.asarray(of(photo, "flip")) == pixels[:, ::-1]).all()
    for kind, factor in {"darker-20": 0.8, "brighter-20": 1.2}.items():
        expected = np.minimum(255, np.rint(pixels * factor))
        assert (np.asarray(of(photo, kind)) == expected).all()
    off = [np.abs(np.asarray(of(photo, f"jpeg-{q}")) - pixels).mean() for q in (90, 75, 50, 30)]
    assert 0 < off[0] < off[1] < off[2] < off[3] < 10
    assert of(photo, "border").crop((8, 8, 208, 168)).tobytes() == photo.tobytes()
    edges = {of(photo, "border", seed=seed).getpixel((0, 0)) for seed in range(20)}
    assert edges == {(0, 0, 0), (255, 255, 255)}
    logo, text = (changed(of(photo, kind), photo) for kind in ("logo", "text"))
    assert 0.04 < logo.mean() <= 0.05
    rows, columns = np.flatnonzero(text.any(axis=1)), np.flatnonzero(text.any(axis=0))
    assert (rows < 40).all() or (rows >= 120).all()
    assert 60 < np.ptp(columns) < 120 and 0.005 < text.mean() < 0.1


@pytest.mark.parametrize("kind", ["crop-95-corner", "logo", "border", "text"])
def test_what_is_drawn_follows_from_the_seed_and_the_name(kind: str) -> None:
    photo = picture(1)
    assert len({of(photo, kind, seed=seed).tobytes() for seed in range(30)}) > 1
    named = (next(c.image for c in copies_of(photo, str(n)) if c.kind == kind) for n in range(30))
    assert len({image.tobytes() for image in named}) > 1


@pytest.mark.parametrize("size", [(3000, 2000), (9, 5000), (70_000, 2), (1024, 7), (3, 3)])
def test_large_photos_are_reduced(size: tuple[int, int]) -> None:
    made = reduced(picture(0, size))
    assert max(made.size) == min(LARGEST, max(size)) and min(made.size) >= 1
    if max(size) <= LARGEST:
        assert made.size == size
