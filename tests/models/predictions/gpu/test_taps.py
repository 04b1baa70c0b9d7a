"""The resize of the GPU path against Pillow's, to the bit, in NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.data.images.preprocessing import (
    Geometry,
    apply_geometry,
)
from heldout.data.images.resize_weights import axis_taps, pillow_version, rows_first
from heldout.models.gpu.resize import Layout, lay_out

sides = st.integers(17, 180)
geometries = st.builds(
    Geometry,
    resize=st.sampled_from(["shorter", "exact", "none"]),
    resize_height=st.integers(20, 90),
    resize_width=st.integers(20, 90),
    interpolation=st.sampled_from(["bilinear", "bicubic"]),
    crop_height=st.integers(16, 100),
    crop_width=st.integers(16, 100),
)


def one_pass(image: np.ndarray, first: np.ndarray, weights: np.ndarray, low: int) -> np.ndarray:
    """Resize the second axis of (lines, size, 3), one tap after the other."""
    total = np.full((len(image), len(first), 3), 1 << 21, np.int64)
    for tap, weight in enumerate(weights):
        at = np.minimum(first - low + tap, image.shape[1] - 1)
        total += image[:, at].astype(np.int64) * weight[:, None]
    return np.clip(total >> 22, 0, 255).astype(np.uint8)


def by_taps(image: np.ndarray, layout: Layout, interpolation: str, i: int = 0) -> np.ndarray:
    """What the kernels do, for one image of a layout."""
    first, weights = axis_taps(
        layout.axes,
        interpolation,  # type: ignore[arg-type]
        outputs=layout.outputs,
        taps=layout.taps,
    )
    names = ("step", "line_low", "lines", "first_n", "second_n")
    step, low, count, n, m = (int(layout.column(name)[i]) for name in names)
    turned = step != 1
    second = len(layout.table) + i
    lines = (image.transpose(1, 0, 2) if turned else image)[low : low + count]
    half = one_pass(lines, first[i, :n], weights[i][:, :n], 0).transpose(1, 0, 2)
    done = one_pass(half, first[second, :m], weights[second][:, :m], low)
    return done if turned else done.transpose(1, 0, 2)


@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=3), geometries, st.integers(0, 99))
@settings(max_examples=150)
def test_pixels_are_pillows(shapes: list[tuple[int, int]], geometry: Geometry, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.array([(*shape, 1, 1) for shape in shapes])
    layout = lay_out(table, np.arange(len(table)), geometry, pillow=pillow_version())
    for i, shape in enumerate(shapes):
        image = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
        found = by_taps(image, layout, geometry.interpolation, i)
        np.testing.assert_array_equal(found, apply_geometry(Image.fromarray(image), geometry))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(375, 500), (500, 375), (601, 200), (90, 130), (1000, 1333)])
def test_usual_sizes(size: tuple[int, int], interpolation: str) -> None:
    geometry = Geometry(interpolation=interpolation)  # type: ignore[arg-type]
    image = np.random.default_rng(3).integers(0, 256, (*size, 3), dtype=np.uint8)
    layout = lay_out(np.array([[*size, 2, 2]]), np.array([0]), geometry, pillow=pillow_version())
    found = by_taps(image, layout, interpolation)
    expected = apply_geometry(Image.fromarray(image), geometry)
    np.testing.assert_array_equal(found, expected)


def test_the_order_of_passes_by_version() -> None:
    before, after = (np.array([900, 500, 2020]), np.array([300, 375, 20])), (
        np.array([768, 341, 500]), np.array([256, 256, 20])
    )  # fmt: skip
    for version, expected in (
        ((12, 1), [True, True, True]),
        ((12, 3), [True, True, False]),
        ((13, 0), [False, True, False]),
    ):
        assert rows_first(before, after, pillow=version).tolist() == expected


@given(st.lists(st.tuples(sides, sides, st.sampled_from([0, 1, 2])), min_size=1, max_size=12))
def test_images_of_a_batch_do_not_overlap(shapes: list[tuple[int, int, int]]) -> None:
    table = np.array([(h, w, s, s) for h, w, s in shapes])
    layout = lay_out(table, np.arange(len(table)), Geometry(), pillow=(13, 0))
    spans = []
    for i, (height, width, sampling) in enumerate(shapes):
        luma, blue, red = (int(layout.column(name)[i]) for name in ("luma", "blue", "red"))
        pitch, chroma = int(layout.column("pitch")[i]), int(layout.column("chroma_pitch")[i])
        assert pitch >= width
        spans.append((luma, luma + pitch * height))
        if sampling:
            rows = -(-height // sampling)
            assert chroma >= -(-width // sampling)
            spans += [(blue, blue + chroma * rows), (red, red + chroma * rows)]
    spans.sort()
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert spans[-1][1] <= layout.planes_bytes
    ends = layout.column("rgb") + 3 * layout.column("plane")
    assert (ends[:-1] <= layout.column("rgb")[1:]).all() and ends[-1] <= layout.rgb_bytes
