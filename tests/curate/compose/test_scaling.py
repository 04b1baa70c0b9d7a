"""Scaling a cut-out: Pillow's pixels to the bit, whichever way they are made."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.curate.compose import pillow_resize
from heldout.curate.compose.pillow_resize import Scaler, load_kernels
from heldout.data.images.resize_weights import axis_taps, plan_axes

sides = st.one_of(st.integers(1, 12), st.integers(13, 300))


def noise(width: int, height: int, seed: int) -> Image.Image:
    """Premultiplied noise with holes."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
    pixels[rng.random((height, width)) < 0.3] = 0
    return Image.frombuffer("RGBa", (width, height), pixels.tobytes(), "raw", "RGBa", 0, 1)


@settings(max_examples=250, deadline=None)
@given(width=sides, height=sides, to_width=sides, to_height=sides, seed=st.integers(0, 99))
def test_every_size_is_pillows(
    width: int, height: int, to_width: int, to_height: int, seed: int
) -> None:
    image, size = noise(width, height, seed), (to_width, to_height)
    found = Scaler(image).scaled(size)
    expected = image.resize(size, Image.Resampling.BILINEAR)
    assert (found.mode, found.size) == ("RGBa", size)
    assert found.tobytes() == expected.tobytes()


def test_both_orders_of_passes_occur() -> None:
    """From Pillow 13 on an image that loses much of its height is scaled down first."""
    image = noise(60, 280, 0)
    for size in ((55, 20), (20, 270), (60, 30), (30, 280)):
        expected = image.resize(size, Image.Resampling.BILINEAR)
        assert Scaler(image).scaled(size).tobytes() == expected.tobytes()


def test_the_load_kernels_is_there_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = load_kernels()
    assert kernels is not None, "numba is among the requirements of the tests"
    calls = []

    def counted(*given: object) -> None:
        calls.append(given)
        kernels.weigh_rows(*given)

    double = SimpleNamespace(weigh_rows=counted, bilinear_taps=kernels.bilinear_taps)
    monkeypatch.setattr(pillow_resize, "load_kernels", lambda: double)
    scaler = Scaler(noise(40, 30, 0))
    scaler.scaled((20, 10), quick=False)
    assert not calls
    scaler.scaled((20, 10))
    assert len(calls) == 2


@settings(max_examples=300, deadline=None)
@given(size=st.integers(1, 3000), target=st.integers(1, 600))
def test_weights_are_those_of_every_other_path(size: int, target: int) -> None:
    one = np.ones(1, np.int64)
    axes = plan_axes(size * one, target * one, 0 * one, target * one, "bilinear")
    expected, table = axis_taps(axes, "bilinear", outputs=target, taps=int(axes.taps[0]))
    first, count, weights = load_kernels().bilinear_taps(size, target)
    np.testing.assert_array_equal(weights, table[0, : len(weights)])
    assert not table[0, len(weights) :].any()
    np.testing.assert_array_equal(first, expected[0])
    assert (first + count <= size).all() and (weights.sum(axis=0) > 0).all()


def test_without_numba_pillow_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow_resize, "load_kernels", lambda: None)
    image = noise(40, 30, 1)
    expected = image.resize((17, 23), Image.Resampling.BILINEAR)
    assert Scaler(image).scaled((17, 23)).tobytes() == expected.tobytes()


def test_only_premultiplied_images() -> None:
    with pytest.raises(ValueError, match="RGBA"):
        Scaler(Image.new("RGBA", (4, 4)))
