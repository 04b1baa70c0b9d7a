"""Spliced JPEG files against files encoded whole."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, JpegImagePlugin

from heldout.curate.compose import jpeg_splice
from heldout.curate.compose.fast_sprites import FastSprite
from heldout.curate.compose.inputs import Pixels
from heldout.curate.compose.jpeg_splice import BLOCK, Overlay, Splicer, grid_of, scan_start
from heldout.curate.compose.plan import ImagePlan
from tests.curate.compose.compose_examples import noise

SIDES = st.integers(1, 90) | st.sampled_from([128, 192, 200, 256])


def shot_at(left: int, top: int, frame: tuple[int, int]) -> ImagePlan:
    """A shot of which only the frame and the corner count."""
    return ImagePlan(0, 0, 0, *frame, 0.5, 0.5, 0.5, 0, (1, 1), (left, top, 1, 1), 1.0)


def blended(background: Pixels, sprite: Pixels, left: int, top: int) -> Pixels:
    """A premultiplied sprite over a background, pixel by pixel, rounded as the overlay does it."""
    out = background.copy()
    for y in range(max(top, 0), min(top + sprite.shape[0], out.shape[0])):
        for x in range(max(left, 0), min(left + sprite.shape[1], out.shape[1])):
            *colour, alpha = (int(v) for v in sprite[y - top, x - left])
            if alpha:
                rest = np.rint(out[y, x] * np.float32((255 - alpha) / 255.0))
                out[y, x] = np.minimum(rest + colour, 255)
    return out


def whole_file(pixels: Pixels, splicer: Splicer) -> bytes:
    """The file that the same encoder makes of a whole image."""
    import cv2

    return bytes(cv2.imencode(".jpg", pixels, splicer.options)[1])


def check_same(file: bytes, image: Pixels, splicer: Splicer) -> None:
    """The bytes of the whole file; where an encoder would leave out a block past the border, which
    nobody sees, the pixels."""
    whole = whole_file(image, splicer)
    if splicer.grid.filled < 8:
        assert file == whole
    else:
        ours, theirs = (np.asarray(Image.open(io.BytesIO(data))) for data in (file, whole))
        assert np.array_equal(ours, theirs)


def disc(width: int, height: int, seed: int, kind: str) -> Pixels:
    """A premultiplied sprite: an ellipse, hard or with a soft edge, or a full or empty box."""
    y, x = np.mgrid[:height, :width]
    radius = ((x + 0.5) / width * 2 - 1) ** 2 + ((y + 0.5) / height * 2 - 1) ** 2
    alpha = {
        "hard": (radius < 1) * 255.0,
        "edge": np.clip((1 - radius) * 20, 0, 1) * 255,
        "soft": np.clip(1 - radius, 0, 1) * 200,
        "full": np.full_like(radius, 255),
        "empty": np.zeros_like(radius),
    }[kind].astype(np.uint8)
    colour = noise(width, height, 3, seed) * (alpha[..., None] / 255.0)
    return np.dstack([colour.astype(np.uint8), alpha])


@given(
    frame=st.tuples(SIDES, SIDES),
    size=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    place=st.tuples(st.integers(-40, 200), st.integers(-40, 200)),
    kind=st.sampled_from(["hard", "edge", "soft", "full", "empty"]),
)
def test_a_spliced_file_is_the_whole_one(frame, size, place, kind):
    background = noise(*frame, 3, 1)
    sprite = FastSprite(disc(*size, 2, kind))
    left, top = place[0] % (frame[0] + 40) - 40, place[1] % (frame[1] + 40) - 40
    splicer = Splicer(background, quality=83)
    shot = shot_at(left, top, frame)
    image = background.copy()
    sprite.blend(image, shot)
    check_same(sprite.file(splicer, shot), image, splicer)


@pytest.mark.parametrize("size", [(512, 512), (500, 500), (224, 224), (336, 250)])
@pytest.mark.parametrize("kind", ["edge", "full"])
def test_a_large_object_is_cut_into_chosen_tiles(size, kind, monkeypatch):
    background, other = noise(*size, 3, 1), noise(*size, 3, 5)
    made = []
    monkeypatch.setattr(
        jpeg_splice._Canvas, "some", lambda *a, f=jpeg_splice._Canvas.some: made.append(a) or f(*a)
    )
    sprite = FastSprite(disc(size[0] - 30, size[1] - 7, 2, kind))
    for left, top in ((15, 3), (-100, 40), (60, -90)):
        shot = shot_at(left, top, size)
        for below in (background, other):  # the second takes the covered tiles of the first
            splicer = Splicer(below, quality=75)
            image = below.copy()
            sprite.blend(image, shot)
            check_same(sprite.file(splicer, shot), image, splicer)
    assert made or size[0] < 300


def test_files_decode_to_the_pixels_of_pillows_own():
    background = noise(500, 333, 3, 1)
    sprite = FastSprite(disc(210, 180, 2, "edge"))
    shot = shot_at(190, 160, (500, 333))
    image = background.copy()
    sprite.blend(image, shot)
    file = sprite.file(Splicer(background, quality=75), shot)
    theirs = io.BytesIO()
    Image.fromarray(image[..., ::-1]).save(theirs, "JPEG", quality=75)
    ours, pillows = Image.open(io.BytesIO(file)), Image.open(theirs)
    assert ours.quantization == pillows.quantization
    assert JpegImagePlugin.get_sampling(ours) == 2  # 4:2:0
    assert ours.info["jfif"] == 257
    assert "exif" not in ours.info
    assert np.array_equal(np.asarray(ours), np.asarray(pillows))


def test_restart_markers_follow_each_other():
    background = noise(512, 200, 3, 1)
    sprite = FastSprite(disc(300, 150, 2, "hard"))
    splicer = Splicer(background, quality=75)
    file = np.frombuffer(sprite.file(splicer, shot_at(90, 30, (512, 200))), np.uint8)
    start = scan_start(file)
    at = np.flatnonzero(file[start:-1] == 0xFF) + start
    markers = [m for m in file[at + 1].tolist() if m]
    count = splicer.grid.rows * splicer.grid.columns
    assert markers == [0xD0 + i % 8 for i in range(count - 1)] + [0xD9]


def test_without_an_object_the_file_is_the_backgrounds():
    background = noise(100, 60, 3, 1)
    sprite = FastSprite(disc(20, 20, 2, "hard"))
    shot = shot_at(300, 300, (100, 60))
    splicer = Splicer(background, quality=75)
    assert sprite.file(splicer, shot) == whole_file(background, splicer)
    assert sprite.measured(shot) == {"mask_fraction": 0.0, "visible_fraction": 0.0}


@given(width=st.integers(1, 2000), height=st.integers(1, 300))
def test_tiles_cut_rows_of_blocks_evenly(width, height):
    grid = grid_of(width, height)
    blocks = -(-width // BLOCK)
    assert grid.columns * grid.blocks == blocks
    assert grid.columns == 1 or grid.tile_width >= 48
    assert 0 <= grid.filled < BLOCK
    assert (grid.rows - 1) * grid.tile_height < height <= grid.rows * grid.tile_height


@pytest.mark.parametrize("kind", ["hard", "edge", "soft", "full", "empty"])
@pytest.mark.parametrize("place", [(3, 5), (-7, -4), (30, 22), (-20, -20), (80, 80)])
def test_a_blend_is_the_formula(kind, place):
    background, sprite = noise(41, 33, 3, 1), disc(19, 23, 2, kind)
    image = background.copy()
    FastSprite(sprite).blend(image, shot_at(*place, (41, 33)))
    expected = blended(background, sprite, *place)
    assert np.abs(image.astype(int) - expected).max() <= 1
    assert np.mean(image != expected) < 0.01


def test_edges_one_by_one_are_the_edges_all_at_once(monkeypatch):
    sprite = disc(80, 60, 2, "edge")
    colour, alpha = np.ascontiguousarray(sprite[..., :3]), np.ascontiguousarray(sprite[..., 3])
    colour[alpha == 0] = 9  # as rounding may leave it
    results = []
    for limit in (0, 10**9):
        monkeypatch.setattr(jpeg_splice, "_SPARSE", limit)
        below = noise(80, 60, 3, 1)
        Overlay(colour, alpha).onto(below)
        results.append(below)
    assert np.array_equal(*results)


@pytest.mark.parametrize("place", [(0, 0), (-5, 2), (33, 27), (-100, 0)])
def test_the_mask_in_sight_is_summed(place):
    pixels = disc(19, 23, 2, "soft")
    canvas = np.zeros((223, 241), np.int64)
    canvas[100 + place[1] : 123 + place[1], 100 + place[0] : 119 + place[0]] = pixels[..., 3]
    seen, total = int(canvas[100:133, 100:141].sum()), int(pixels[..., 3].sum(dtype=np.int64))
    measured = FastSprite(pixels).measured(shot_at(*place, (41, 33)))
    assert measured == {
        "mask_fraction": seen / 255 / (41 * 33),
        "visible_fraction": seen / total,
    }
