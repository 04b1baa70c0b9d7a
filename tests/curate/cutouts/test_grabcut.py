"""GrabCut: the shared cut-outs, made-up scenes, and photographs without an object."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.curate.cutouts.quality_check import FOUND, Limits, cut, measure, reasons
from heldout.curate.cutouts.segmenters import GrabCut
from tests.curate.cutouts.scenes import ellipse, iou, scene


def predicted(pixels: np.ndarray, matte: np.ndarray) -> np.ndarray:
    """What is cut out, as a mask of the whole photograph."""
    made = cut(pixels, matte, FOUND)
    left, top, width, height = made.box
    mask = np.zeros(matte.shape, bool)
    mask[top : top + height, left : left + width] = made.pixels[..., 3] >= 128
    return mask


@pytest.mark.shared
def test_the_shared_cut_outs(shared_data: Path) -> None:
    """Their colours under alpha 0 are the photograph: find the object again, compare with alpha."""
    files = sorted((shared_data / "siscore/foreground_samples").glob("*/*.png"))
    assert len(files) == 5
    found = []
    for file in files:
        rgba = np.asarray(Image.open(file))
        pixels = np.ascontiguousarray(rgba[..., :3])
        matte = GrabCut()(pixels)
        found.append(iou(predicted(pixels, matte), rgba[..., 3] >= 128))
        assert reasons(measure(matte, short_side=100), Limits()) == ()
    assert np.mean(found) >= 0.80, found
    assert min(found) >= 0.70, found


@pytest.mark.parametrize("size", [(120, 90), (300, 500)])
def test_a_made_up_scene(size: tuple[int, int]) -> None:
    mask = ellipse(*size)
    pixels = scene(mask)
    matte = GrabCut()(pixels)
    assert matte.shape == mask.shape and matte.dtype == np.float32
    assert matte.min() >= 0 and matte.max() <= 1
    assert iou(predicted(pixels, matte), mask) > 0.95


def test_the_same_again() -> None:
    pixels = scene(ellipse())
    import cv2

    first = GrabCut()(pixels)
    cv2.setRNGSeed(99)
    cv2.kmeans(
        np.random.default_rng(0).random((50, 2)).astype(np.float32), 3, None, (3, 10, 1.0), 2, 2
    )
    assert np.array_equal(first, GrabCut()(pixels))


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (3, 3), (7, 200), (9, 9)])
def test_tiny_photos(shape: tuple[int, int]) -> None:
    matte = GrabCut()(np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8))
    assert matte.shape == shape and np.isfinite(matte).all()


def test_photos_without_an_object_are_flagged() -> None:
    flat = np.full((48, 64, 3), 90, np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    for pixels in (flat, noise):
        assert reasons(measure(GrabCut()(pixels), short_side=100), Limits())


def test_settings_are_its_identity() -> None:
    assert GrabCut().identity != GrabCut(seed=1).identity
    assert set(GrabCut().runtime) == {"opencv"}
