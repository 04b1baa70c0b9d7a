"""The fast renderer against the exact one."""

from __future__ import annotations

import io
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.curate.compose.factors import Factors
from heldout.curate.compose.fast_sprites import FastSprites
from heldout.curate.compose.inputs import Inputs
from heldout.curate.compose.plan import ImagePlan, make_plan
from heldout.curate.compose.render import Encoding, Renderer, encode
from heldout.curate.compose.request import ComposeParameters
from tests.curate.compose import compose_examples as examples

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
    parameters = ComposeParameters(resolution=(resolution,), **GRIDS[name])
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
    shots = make_plan(inputs, ComposeParameters(**grid), seed=0).shots
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
