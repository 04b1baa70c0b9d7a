"""Blending: Pillow's paste to the bit, feathers that reveal nothing, cloning against a dense solve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.curate.compose.factors import Frame, Layers
from heldout.curate.compose.factors.blending import (
    BLENDINGS,
    blended,
    feathered,
    matched,
    membrane,
)
from heldout.curate.compose.factors.factor import Extra

from .factor_examples import background, cutout, shot, stock

BEHIND = background(0)


def frame_of(layers: Layers, blending: str = "hard") -> Frame:
    one = shot({"blending": blending})
    return Frame(shot=one, inputs=stock(), layers=layers, shape=layers.alpha)


def blend(layers: Layers, blending: str = "hard") -> np.ndarray:
    return blended(frame_of(layers, blending))


@given(left=st.integers(-60, 110), top=st.integers(-50, 90), seed=st.integers(0, 50))
def test_hard_is_pillow_s_paste(left: int, top: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sprite = rng.integers(0, 256, (32, 40, 4)).astype(np.uint8)
    extra = Extra(rng.integers(0, 256, (9, 7, 4)).astype(np.uint8), top, left)
    expected = Image.fromarray(BEHIND)
    for part, at in ((sprite, (left, top)), (extra.pixels, (extra.left, extra.top))):
        image = Image.fromarray(part)
        expected.paste(image, at, image)
    before = BEHIND.copy()
    made = blend(Layers(sprite, left, top, BEHIND, [extra]))
    assert (made == np.asarray(expected)).all()
    assert (before == BEHIND).all()


@pytest.mark.parametrize("blending", BLENDINGS)
@given(left=st.integers(-60, 110), top=st.integers(-50, 90))
def test_only_the_mask_changes(blending: str, left: int, top: int) -> None:
    sprite = cutout(0)
    made = blend(Layers(sprite, left, top, BEHIND), blending)
    alpha = np.zeros((80 + 200, 96 + 200), dtype=np.uint8)
    alpha[100 + top : 132 + top, 100 + left : 140 + left] = sprite[..., 3]
    clear = alpha[100:180, 100:196] == 0
    assert made.dtype == np.uint8 and made.shape == BEHIND.shape
    assert (made[clear] == BEHIND[clear]).all()


def test_a_feather_only_takes_away() -> None:
    sprite = cutout(0)
    for radius in (0.5, 2.0, 6.0):
        soft = feathered(sprite, radius)
        assert (soft[..., :3] == sprite[..., :3]).all()
        assert (soft[..., 3] <= sprite[..., 3]).all()
        assert soft[..., 3].sum() < sprite[..., 3].sum()
    assert (feathered(sprite, 0.0) == sprite).all()
    assert (feathered(sprite, 0.01) == sprite).all()
    wide = np.full((60, 60, 4), 255, dtype=np.uint8)
    edge = feathered(wide, 3.0)[30, :, 3]
    assert edge[0] < 40 and (np.diff(edge[:30].astype(int)) >= 0).all() and edge[30] == 255


def test_a_match_takes_the_background_s_mean() -> None:
    sprite = np.dstack([background(3, (40, 32)) // 3 + 80, np.full((32, 40), 255, np.uint8)])
    sprite = sprite.astype(np.uint8)
    grey = (BEHIND // 3 + 90).astype(np.uint8)
    frame = frame_of(Layers(sprite, 0, 0, grey))
    made = matched(frame, 1.0).layers.foreground
    assert np.allclose(made[..., :3].mean(axis=(0, 1)), grey.mean(axis=(0, 1)), atol=1)
    assert matched(frame, 0.0) is frame


def dense(values: np.ndarray, region: np.ndarray, border: np.ndarray) -> np.ndarray:
    """The five-point equations, written out and solved as a dense system."""
    points = [tuple(p) for p in np.argwhere(region)]
    number = {p: i for i, p in enumerate(points)}
    matrix, right = np.zeros((len(points),) * 2), np.zeros((len(points), values.shape[2]))
    for i, (y, x) in enumerate(points):
        for near in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if not (0 <= near[0] < region.shape[0] and 0 <= near[1] < region.shape[1]):
                continue
            matrix[i, i] += 1
            if near in number:
                matrix[i, number[near]] -= 1
            else:
                right[i] += values[near]
    made = np.where(border[:, :, None], values, 0.0)
    if points:
        made[tuple(np.array(points).T)] = np.linalg.solve(matrix, right)
    return made


@given(
    shape=st.tuples(st.integers(3, 14), st.integers(3, 14)),
    seed=st.integers(0, 10_000),
    share=st.floats(0.3, 1.0),
)
def test_the_membrane_is_the_dense_solution(
    shape: tuple[int, int], seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < share
    mask[0, 0] = True
    region = mask.copy()
    for axis in (0, 1):
        for step in (1, -1):
            near = np.roll(mask, step, axis)
            edge = [slice(None), slice(None)]
            edge[axis] = slice(0, 1) if step == 1 else slice(-1, None)
            near[tuple(edge)] = True  # nothing is missed beyond the array
            region &= near
    border = mask & ~region
    if not border.any():
        border[0, 0] = True
        region[0, 0] = False
    values = rng.normal(0, 50, (*shape, 3))
    made = membrane(values, region=region, border=border)
    # Parts that touch no border have no solution: leave them out of the dense system too.
    from scipy.ndimage import binary_dilation, label

    parts, count = label(region)
    for part in range(1, count + 1):
        if not (binary_dilation(parts == part) & border).any():
            assert (made[parts == part] == 0).all()
            region = region & (parts != part)
    expected = dense(values, region, border)
    assert np.allclose(made[region | border], expected[region | border], atol=1e-6)


def test_cloning_a_shifted_background_gives_the_background() -> None:
    """An object that is the background, 40 levels darker, disappears."""
    behind = (BEHIND // 2 + 80).astype(np.uint8)
    sprite = cutout(0)
    sprite[..., :3] = behind[24:56, 28:68] - 40
    made = blend(Layers(sprite, 28, 24, behind), blending="poisson")
    assert np.abs(made.astype(int) - behind).max() <= 1


def test_cloning_keeps_the_object_s_gradients() -> None:
    behind = np.full((80, 96, 3), 150, dtype=np.uint8)
    sprite = cutout(0)
    sprite[..., :3] = (sprite[..., :3] // 8) + 60
    made = blend(Layers(sprite, 28, 24, behind), blending="poisson").astype(int)
    inner = np.zeros((32, 40), dtype=bool)
    inner[12:20, 15:25] = True
    part, own = made[24:56, 28:68][inner], sprite[..., :3].astype(int)[inner]
    second = (part - own).reshape(8, 10, 3)
    laplacian = 4 * second[1:-1, 1:-1] - second[:-2, 1:-1] - second[2:, 1:-1]
    laplacian -= second[1:-1, :-2] + second[1:-1, 2:]
    assert np.abs(laplacian).max() <= 4  # rounding of five pixels


def test_an_object_over_the_whole_image_is_left_alone() -> None:
    whole = np.dstack([background(1), np.full((80, 96), 255, dtype=np.uint8)])
    made = blend(Layers(whole, 0, 0, BEHIND), blending="poisson")
    assert (made == whole[..., :3]).all()
