"""Tests of :mod:`heldout.curate.compose.fast_sprites`."""

from __future__ import annotations

import io
import math
import statistics
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.curate.compose.build import recipe
from heldout.curate.compose.factors import Factors
from heldout.curate.compose.fast_sprites import (
    STEPS,
    FastSprites,
    Pyramid,
    blur_of,
    premultiplied,
    step_of,
    turn_of,
)
from heldout.curate.compose.inputs import Inputs, MemoryCache, Pixels
from heldout.curate.compose.plan import ImagePlan, make_plan
from heldout.curate.compose.render import Encoding, Renderer, encode
from tests.curate.compose import compose_examples as examples
from tests.curate.compose.compose_examples import cutout, psnr

# Sprites out of blurred levels, against Pillow's own resizing and rotation.


def pyramid_of(image: Image.Image) -> Pyramid:
    return Pyramid(premultiplied(image), name="one", cache=MemoryCache(1 << 26))


def pillows(image: Image.Image, size: tuple[int, int], degrees: float = 0) -> Pixels:
    """The sprite as the exact renderer makes it: premultiplied, BGRA."""
    made = image.resize(size, Image.Resampling.BILINEAR)
    made = made.rotate(degrees, Image.Resampling.BICUBIC, expand=True)
    return premultiplied(made)


@given(
    width=st.integers(1, 60),
    height=st.integers(1, 60),
    degrees=st.floats(-720, 720, allow_nan=False).filter(lambda d: d % 90 != 0),
)
def test_a_turn_is_pillows(width, height, degrees):
    image = cutout(width, height, 3, soft=True).convert("RGBa")
    matrix, size = turn_of((width, height), degrees)
    by_matrix = image.transform(
        size,
        Image.Transform.AFFINE,
        [float(v) for v in matrix.reshape(-1)],
        Image.Resampling.BICUBIC,
    )
    rotated = image.rotate(degrees, Image.Resampling.BICUBIC, expand=True)
    assert rotated.size == size
    ours, theirs = (
        np.frombuffer(each.tobytes(), np.uint8).astype(int) for each in (by_matrix, rotated)
    )
    # Sums in another order may move a pixel of the outline, or round one differently.
    assert np.mean(np.abs(ours - theirs) > 1) < 0.01


LARGE = [(150, 105), (299, 209), (100, 70), (61, 43), (40, 39), (450, 315)]
FEW = [(1, 1), (2, 31), (31, 2), (7, 5), (24, 17), (500, 1)]


@pytest.mark.parametrize(("sizes", "least"), [(LARGE, 40), (FEW, 44)])
def test_sizes_are_close_to_pillows(sizes, least):
    image = cutout(300, 210, 3)
    pyramid = pyramid_of(image)
    for size in sizes:
        assert psnr(pyramid.upright(size), pillows(image, size)) >= least


@pytest.mark.parametrize("degrees", [1, 33.3, 121, 289, -17])
@pytest.mark.parametrize("size", [(150, 105), (60, 44), (20, 14), (333, 233)])
def test_turned_sprites_are_close_to_pillows(size, degrees):
    image = cutout(300, 210, 3)
    ours, theirs = pyramid_of(image).turned(size, degrees), pillows(image, size, degrees)
    assert ours.shape == theirs.shape
    assert psnr(ours, theirs) >= 36


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, 360, -90, 450])
def test_right_angles_only_move_pixels(degrees):
    pyramid = pyramid_of(cutout(300, 210, 3))
    upright = pyramid.upright((80, 50))
    expected = np.rot90(upright, round(degrees / 90) % 4)
    turned = pyramid.turned((80, 50), degrees)
    assert np.array_equal(turned, expected)
    assert turned.shape[:2] == pillows(cutout(300, 210, 3), (80, 50), degrees).shape[:2]


def test_its_own_size_is_the_cutout():
    image = cutout(70, 50, 3, soft=True)
    assert np.array_equal(pyramid_of(image).upright((70, 50)), premultiplied(image))


def test_premultiplied_is_pillows_with_channels_turned():
    image = cutout(33, 21, 3, soft=True)
    made = premultiplied(image)
    theirs = np.frombuffer(image.convert("RGBa").tobytes(), np.uint8).reshape(21, 33, 4)
    assert np.array_equal(made, theirs[..., [2, 1, 0, 3]])


def test_clear_rows_stay_clear():
    pixels = np.asarray(cutout(200, 160, 3)).copy()
    pixels[:60, :, 3] = 0
    pyramid = pyramid_of(Image.fromarray(pixels))
    assert not pyramid.upright((100, 80))[:28].any()
    assert pyramid.upright((100, 80))[33:].any()


@given(st.floats(1, 40))
def test_blurs_keep_what_they_spread(reduction):
    step = step_of(reduction)
    blur = blur_of(step)
    assert blur.size % 2 == 1
    assert np.array_equal(blur, blur[::-1])
    assert blur.sum() == pytest.approx(1, abs=1e-6)
    assert abs(math.log2(reduction) - step / STEPS) <= 0.5 / STEPS + 1e-9


def test_no_reduction_needs_no_blur_and_half_a_plain_one():
    assert blur_of(step_of(0.3)).tolist() == [1.0]
    assert np.allclose(blur_of(STEPS), [0.25, 0.5, 0.25], atol=1e-6)


@pytest.mark.parametrize("reduction", [1.3, 1.7, 2.0, 2.6, 3.5])
def test_a_blur_before_linear_interpolation_is_nearly_the_triangle(reduction):
    step = step_of(reduction)
    exactly = 2 ** (step / STEPS)
    random = np.random.default_rng(0)
    signal = np.convolve(random.normal(0, 1, 4000), np.ones(4) / 4, "same")
    blurred = np.convolve(signal, blur_of(step), "same")
    places = np.arange(50, 3900, exactly)
    ours = np.interp(places, np.arange(signal.size), blurred)
    offsets = np.arange(signal.size)[:, None] - places
    weights = np.maximum(0, 1 - np.abs(offsets) / exactly)
    theirs = signal @ (weights / weights.sum(axis=0))
    plain = np.interp(places, np.arange(signal.size), signal)
    error = np.sqrt(np.mean((ours - theirs) ** 2))
    assert error < 0.06 * theirs.std()
    assert error < 0.5 * np.sqrt(np.mean((plain - theirs) ** 2))


class Block:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), max_size=40))
def test_what_is_kept_stays_within_its_bound(asked):
    kept = MemoryCache(100)
    for key, size in asked:
        made = kept.get((key, size), lambda size=size: Block(size))
        assert made.nbytes == size
        assert kept.nbytes <= 100 or len(kept) == 1
        assert kept.get((key, size), lambda: pytest.fail("made again")) is made


def test_the_least_recently_used_goes_first():
    kept = MemoryCache(2)
    for key in ("a", "b"):
        kept.get(key, lambda: Block(1))
    kept.get("a", lambda: pytest.fail("made again"))
    kept.get("c", lambda: Block(1))
    kept.get("a", lambda: pytest.fail("made again"))
    assert kept.get("b", lambda: Block(7)).nbytes == 7


def test_two_threads_that_make_one_value_get_the_same():
    kept, meeting, found = MemoryCache(1000), threading.Barrier(2), []

    def make() -> Block:
        meeting.wait(10)
        return Block(10)

    threads = [
        threading.Thread(target=lambda: found.append(kept.get("key", make))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]
    assert kept.nbytes == 10


# The fast renderer against the exact one.


PLACES = (0.0, 0.05, 0.45, 0.5, 0.95, 1.0)
GRIDS: dict[str, dict[str, Any]] = {
    "size": {"size": (0.01, 0.03, 0.2, 0.47, 0.8, 1.0)},
    "rotation": {"size": (0.2, 0.5), "rotation": (1, 41, 121, 221, 341)},
    "right angles": {"size": (0.3,), "rotation": (0, 90, 180, 270)},
    "full turns and back": {"size": (0.3,), "rotation": (360, -90, 450)},
    "location": {"size": (0.2,), "x": PLACES, "y": PLACES, "min_inside": 0.0},
    "large": {"size": (1.5, 3.0), "rotation": (0, 33), "x": (0.1, 0.5), "min_inside": 0.0},
    "tiny": {"size": (0.0008, 0.002), "rotation": (0, 21), "min_inside": 0.0},
}


def renderer(name: str) -> Renderer:
    return Renderer(name, Factors())


def inputs_in(folder: Path, *, odd: bool) -> Inputs:
    foregrounds = (examples.make_odd_foregrounds if odd else examples.make_foregrounds)(
        folder / "cutouts"
    )
    backgrounds = examples.make_backgrounds(folder / "scenes")
    return examples.read_inputs(foregrounds, backgrounds)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return inputs_in(tmp_path_factory.mktemp("plain"), odd=False)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return inputs_in(tmp_path_factory.mktemp("odd"), odd=True)


def shots_of(inputs: Inputs, name: str, resolution: str = "160x160") -> tuple[ImagePlan, ...]:
    parameters = recipe.read({"resolution": resolution, **GRIDS[name]})
    return make_plan(inputs, parameters, seed=0).shots


def fidelity(inputs: Inputs, shots: tuple[ImagePlan, ...]) -> list[float]:
    """PSNR of each shot; shapes, order and measured columns are checked on the way."""
    found = []
    fast, exact = renderer("fast"), renderer("exact")
    pairs = zip(fast.render(inputs, shots), exact.render(inputs, shots), strict=True)
    for (shot, ours, measured), (other, theirs, expected) in pairs:
        assert shot is other
        assert ours.shape == theirs.shape == (shot.height, shot.width, 3)
        assert ours.dtype == np.uint8
        assert measured.keys() == expected.keys()
        outline = 2 * sum(shot.box[2:]) / (shot.width * shot.height)
        masks = measured["mask_fraction"], expected["mask_fraction"]
        assert masks[0] == pytest.approx(masks[1], abs=0.05 * outline)
        assert measured["visible_fraction"] == pytest.approx(expected["visible_fraction"], abs=0.02)
        found.append(examples.psnr(ours, theirs))
    return found


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("resolution", ["160x160", "101x75"])
def test_close_to_the_exact_pixels(plain, name, resolution):
    found = fidelity(plain, shots_of(plain, name, resolution))
    assert statistics.median(found) >= 40
    assert min(found) >= 30


@pytest.mark.parametrize("name", GRIDS)
def test_odd_cutouts_are_close_too(odd, name):
    found = fidelity(odd, shots_of(odd, name, "120x90"))
    assert statistics.median(found) >= 40
    assert min(found) >= 30


@pytest.mark.shared
@pytest.mark.parametrize(
    "grid",
    [
        {"preset": "size", "size": (0.01, 0.13, 0.35, 0.62, 0.9)},
        {"preset": "rotation", "rotation": (1, 61, 161, 281)},
        {"preset": "location", "x": (0.0, 0.35, 0.5), "y": (0.15, 0.5, 1.0)},
    ],
    ids=lambda grid: grid["preset"],
)
def test_close_on_published_cutouts(shared_data, grid):
    folder = shared_data / "siscore"
    inputs = examples.read_inputs(folder / "foreground_samples", folder / "background_samples")
    shots = make_plan(inputs, recipe.read(grid), seed=0).shots
    found = fidelity(inputs, shots)
    assert statistics.median(found) >= 48
    assert min(found) >= 42


@pytest.mark.parametrize("encoding", [Encoding(), Encoding(quality=92)])
@pytest.mark.parametrize("name", ["rotation", "location", "large"])
def test_files_hold_the_pixels_of_arrays(plain, name, encoding):
    shots = shots_of(plain, name, "130x75")
    fast = renderer("fast")
    arrays = list(fast.render(plain, shots))
    files = list(fast.encoded(plain, shots, encoding))
    for (shot, pixels, measured), (other, file, again) in zip(arrays, files, strict=True):
        assert shot is other
        assert measured == again
        expected = np.asarray(Image.open(io.BytesIO(encode(Image.fromarray(pixels), encoding))))
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(file))), expected)


def test_png_files_are_the_arrays(plain):
    shots = shots_of(plain, "size", "64x48")[:6]
    arrays = renderer("fast").render(plain, shots)
    files = renderer("fast").encoded(plain, shots, Encoding("png"))
    for (_, pixels, _), (_, file, _) in zip(arrays, files, strict=True):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(file))), pixels)


def by_number(rendered: Any) -> dict[int, tuple[bytes, dict[str, float]]]:
    return {shot.number: (file, dict(measured)) for shot, file, measured in rendered}


def test_order_and_memory_change_nothing(plain):
    shots = shots_of(plain, "rotation") + shots_of(plain, "location")[:40]
    shots = tuple(
        ImagePlan(**{**{f: getattr(s, f) for f in ImagePlan.__slots__}, "number": i})
        for i, s in enumerate(shots)
    )
    expected = by_number(renderer("fast").encoded(plain, shots, Encoding()))
    assert len(expected) == len(shots)
    assert by_number(renderer("fast").encoded(plain, shots, Encoding())) == expected
    assert by_number(renderer("fast").encoded(plain, shots[::-1], Encoding())) == expected
    shuffled = np.random.default_rng(0).permutation(len(shots))
    small = renderer("fast")
    small.sprites = FastSprites(sources=1, sprites=1)  # nothing is kept but the last
    assert by_number(small.encoded(plain, [shots[i] for i in shuffled], Encoding())) == expected


def test_memory_is_bounded(plain):
    fast = renderer("fast")
    kept = fast.sprites = FastSprites(sources=200_000, sprites=100_000)
    for _ in fast.encoded(plain, shots_of(plain, "size"), Encoding()):
        assert kept.sources.nbytes <= 200_000 or len(kept.sources) == 1
        assert kept.sprites.nbytes <= 100_000 or len(kept.sprites) == 1


def test_backgrounds_and_cutouts_are_not_changed(plain):
    before = [plain.background(i, 160, 160).copy() for i in range(3)]
    cutouts = [plain.cutout(i).copy() for i in range(len(plain.cutouts))]
    fast = renderer("fast")
    shots = shots_of(plain, "location")[:20]
    list(fast.render(plain, shots))
    list(fast.encoded(plain, shots, Encoding()))
    for i, pixels in enumerate(before):
        assert np.array_equal(plain.background(i, 160, 160), pixels)
    for i, pixels in enumerate(cutouts):
        assert np.array_equal(plain.cutout(i), pixels)


def test_an_object_outside_leaves_the_background(plain):
    shot = shots_of(plain, "size")[0]
    away = ImagePlan(
        **{**{f: getattr(shot, f) for f in ImagePlan.__slots__}, "box": (400, 400, 10, 10)}
    )
    ((_, pixels, measured),) = renderer("fast").render(plain, [away])
    assert np.array_equal(pixels, plain.background(shot.background, 160, 160))
    assert measured == {"mask_fraction": 0.0, "visible_fraction": 0.0}
