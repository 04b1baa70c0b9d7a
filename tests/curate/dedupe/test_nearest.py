"""The nearest vectors beside every pair compared one by one, and the bound beside exact scores."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.dedupe import nearest as module
from heldout.curate.dedupe.nearest import (
    Nearest,
    NumpyArrays,
    _Floats,
    halves,
    merge,
    nearest,
    search,
)
from heldout.data.images.decode import decode
from heldout.data.images.preprocessing import apply_geometry
from heldout.models.descriptors import image_encoder

HUGE = float(np.finfo(np.float32).max)
MIDDLE = np.float32(1.7)


def rows_of(kind: str, count: int, d: int, seed: int) -> np.ndarray:
    """Vectors that are hard to compare, float32 (count, d)."""
    made = np.random.default_rng(seed)
    plain = made.standard_normal((count, d))
    values = {
        "normal": lambda: plain,
        "features": lambda: np.maximum(plain - 0.5, 0) * made.lognormal(0, 0.3, (count, 1)),
        "unit": lambda: plain / np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), 1e-9),
        "zeros": lambda: plain * 0,
        "signed zeros": lambda: np.copysign(0.0, plain),
        "constant": lambda: np.full((count, d), 1 / 3),
        "few": lambda: made.integers(0, 2, (count, d)) * (made.random((1, d)) < 3 / d),
        "one-hot": lambda: np.arange(d) == made.integers(0, d, (count, 1)),
        "whole": lambda: made.integers(-3, 4, (count, d)),
        "huge": lambda: made.uniform(-HUGE, HUGE, (count, d)),
        "largest": lambda: np.where(plain > 0, HUGE, -HUGE),
        "tiny": lambda: plain * 1e-36,
        "subnormal": lambda: np.rint(plain * 3) * 2.0**-149,
        "all sizes": lambda: plain * 2.0 ** made.integers(-140, 126, (count, 1)),
        "mixed": lambda: plain * 2.0 ** made.integers(-30, 30, (count, d)),
        "outlier": lambda: plain * np.where(made.random((count, 1)) < 0.1, 1e18, 1.0),
        "far": lambda: 1000 + plain * 1e-3,
        "same sign": lambda: made.uniform(0.9, 1.0, (count, d)),
        # One bit apart in a few places: products of float32 cannot tell these.
        "one bit": lambda: (
            (MIDDLE + np.spacing(MIDDLE) * made.integers(-1, 2, (count, d)))
            * np.where(np.arange(d) % 2, 1, -1)
        ),
    }[kind]()
    return np.asarray(values, np.float32)


KINDS = (
    "normal", "features", "unit", "zeros", "signed zeros", "constant", "few", "one-hot", "whole", "huge",
    "largest", "tiny", "subnormal", "all sizes", "mixed", "outlier", "far", "same sign", "one bit",
)  # fmt: skip


def sides_of(
    kind: str, n: int, m: int, d: int, seed: int, copies: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Candidates and references; ``copies``: so many rows of references are of the first three rows."""
    both = rows_of(kind, n + m, d, seed)
    ours, theirs = both[:n], both[n:]
    made = np.random.default_rng(seed)
    places = made.permutation(m)[:copies]
    if len(both):
        theirs[places] = both[made.integers(0, min(3, len(both)), len(places))]
    return ours, theirs


def slow_distances(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Every pair as a distance is defined, of bytes in whole numbers."""
    if ours.dtype == np.uint8:
        wide = ours.astype(np.int64), theirs.astype(np.int64)
        return np.array([[float(((x - y) ** 2).sum()) for y in wide[1]] for x in wide[0]]).reshape(
            len(ours), len(theirs)
        )
    size = 1
    while size < ours.shape[1]:
        size *= 2
    found = np.empty((len(ours), len(theirs)))
    values = np.zeros((len(theirs), size))
    for i, x in enumerate(ours.astype(np.float64)):
        values[:, : len(x)] = theirs - x
        sums = values * values
        while sums.shape[1] > 1:
            half = sums.shape[1] // 2
            sums = sums[:, :half] + sums[:, half:]
        found[i] = sums[:, 0]
    return found


def slow_nearest(distances: np.ndarray, k: int) -> Nearest:
    """The k smallest of each row, one after the other; of equal ones the smaller row."""
    rows = np.full((len(distances), k), -1)
    found = np.full((len(distances), k), math.inf)
    for i, line in enumerate(distances.tolist()):
        for place, (value, j) in enumerate(sorted((value, j) for j, value in enumerate(line))[:k]):
            rows[i, place], found[i, place] = j, value
    return Nearest(rows, found)


def assert_equal(found: Nearest, expected: Nearest) -> None:
    assert found.rows.dtype == np.int64 and found.distances.dtype == np.float64
    np.testing.assert_array_equal(found.rows, expected.rows)
    assert found.distances.tobytes() == expected.distances.tobytes()


@contextmanager
def products_by(library: str) -> Iterator[None]:
    """Matrix products by ONNX Runtime, or by NumPy as where that is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if library == "numpy":
            patch.setitem(sys.modules, "onnxruntime", None)
        module._product.cache_clear()
        try:
            yield
        finally:
            module._product.cache_clear()


# ------------------------------------------------------------------------- distances as defined


@given(
    kind=st.sampled_from([kind for kind in KINDS if kind != "all sizes"]),
    n=st.integers(1, 6),
    m=st.integers(1, 6),
    d=st.integers(1, 300),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_distances_are_those_of_a_sum_in_float64(
    kind: str, n: int, m: int, d: int, seed: int
) -> None:
    from scipy.spatial.distance import cdist

    ours, theirs = sides_of(kind, n, m, d, seed, 2)
    found = nearest(ours, theirs, m, device="cpu", threads=1)
    expected = cdist(ours.astype(np.float64), theirs.astype(np.float64), "sqeuclidean")
    np.testing.assert_allclose(
        found.distances, np.take_along_axis(expected, found.rows, axis=1), rtol=1e-6, atol=0
    )
    exact = sum(
        (Fraction(float(x)) - Fraction(float(y))) ** 2
        for x, y in zip(ours[0], theirs[0], strict=True)
    )
    place = int(np.flatnonzero(found.rows[0] == 0)[0])
    assert found.distances[0, place] == pytest.approx(float(exact), rel=1e-15, abs=0)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=70))
@example([1.0, 2.0**-53, 2.0**-53])
def test_halves_are_added_to_halves(values: list[float]) -> None:
    found = float(halves(np.array([values, values]))[1])
    while len(values) & (len(values) - 1):
        values = [*values, 0.0]
    while len(values) > 1:
        half = len(values) // 2
        values = [x + y for x, y in zip(values[:half], values[half:], strict=True)]
    assert found == values[0]


# --------------------------------------------------------------------------------- lists of floats


@pytest.mark.parametrize("library", ["onnxruntime", "numpy"])
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(0, 30),
    m=st.integers(0, 60),
    d=st.integers(1, 70),
    k=st.integers(0, 70),
    copies=st.integers(0, 60),
    threads=st.integers(1, 4),
    memory=st.sampled_from([2**29, 2**18, 20_000, 3_000]),
    seed=st.integers(0, 9999),
)
@example("normal", 30, 60, 70, 5, 0, 2, 1, 0)
@example("few", 30, 60, 70, 5, 60, 2, 2**29, 0)
@example("one bit", 30, 60, 70, 5, 20, 2, 2**29, 0)
@example("one bit", 30, 60, 70, 60, 60, 4, 3_000, 1)
@example("outlier", 30, 60, 70, 3, 0, 1, 20_000, 2)
@example("largest", 30, 60, 70, 3, 0, 1, 20_000, 2)
@settings(max_examples=150)
def test_lists_are_those_of_every_pair(
    library: str,
    kind: str,
    n: int,
    m: int,
    d: int,
    k: int,
    copies: int,
    threads: int,
    memory: int,
    seed: int,
) -> None:
    ours, theirs = sides_of(kind, n, m, d, seed, copies)
    with products_by(library):
        found = nearest(ours, theirs, k, device="cpu", threads=threads, memory=memory)
    assert_equal(found, slow_nearest(slow_distances(ours, theirs), k))


@pytest.mark.parametrize("kind", ["features", "one bit", "far", "one-hot"])
@pytest.mark.parametrize("library", ["onnxruntime", "numpy"])
def test_lists_of_many_groups_and_blocks(kind: str, library: str) -> None:
    """Hundreds of references: several groups of columns, blocks of candidates and of references."""
    ours, theirs = sides_of(kind, 150, 900, 33, 5, 300)
    expected = slow_nearest(slow_distances(ours, theirs), 7)
    for memory, threads in ((2**29, 1), (2**29, 3), (2**18, 2)):
        with products_by(library):
            found = nearest(ours, theirs, 7, device="cpu", threads=threads, memory=memory)
        assert_equal(found, expected)


class Counting(NumpyArrays):
    """Counts the pairs whose distance is computed."""

    pairs = 0

    def exact(self, *given: Any) -> np.ndarray:
        distances = super().exact(*given)
        self.pairs += len(distances)
        return distances


@pytest.mark.parametrize(("kind", "most"), [("normal", 8), ("features", 8), ("far", 8)])
def test_few_distances_are_computed(kind: str, most: int) -> None:
    ours, theirs = sides_of(kind, 100, 4000, 200, 1)
    arrays = Counting(1, 2**29)
    rows, distances = search(arrays, ours, theirs, 5)
    assert_equal(Nearest(rows, distances), slow_nearest(slow_distances(ours, theirs), 5))
    assert 5 * 100 <= arrays.pairs <= most * 100


def test_copies_beyond_k_are_never_compared() -> None:
    """A placeholder that is there 3,000 times, among others: its first k copies stand for all."""
    ours, theirs = sides_of("features", 60, 3100, 40, 2)
    spots = np.random.default_rng(0).permutation(3100)[:3000]
    theirs[spots] = theirs[0]
    ours[0] = theirs[0]
    arrays = Counting(1, 2**29)
    rows, distances = search(arrays, ours, theirs, 4)
    assert_equal(Nearest(rows, distances), slow_nearest(slow_distances(ours, theirs), 4))
    assert (distances[0] == 0).all()
    np.testing.assert_array_equal(rows[0], np.unique(np.append(spots, 0))[:4])
    assert arrays.pairs < 60 * 100


# --------------------------------------------------------------------------------- lists of bytes


def bytes_of(kind: str, count: int, d: int, made: np.random.Generator) -> np.ndarray:
    values = {
        "random": lambda: made.integers(0, 256, (count, d)),
        "extreme": lambda: made.integers(0, 2, (count, d)) * 255,
        "constant": lambda: np.broadcast_to(made.integers(0, 2, (count, 1)) * 255, (count, d)),
        "bits": lambda: made.integers(0, 2, (count, d)),
        "near": lambda: 128 + (made.random((count, d)) < 2 / d),
    }[kind]()
    return np.array(values, np.uint8)


@pytest.mark.parametrize("library", ["onnxruntime", "numpy"])
@given(
    kind=st.sampled_from(["random", "extreme", "constant", "bits", "near"]),
    n=st.integers(0, 20),
    m=st.integers(0, 40),
    d=st.integers(1, 100) | st.sampled_from([1023, 1024, 1025, 3000]),
    k=st.integers(0, 50),
    threads=st.integers(1, 4),
    memory=st.sampled_from([2**29, 2**20, 20_000]),
    seed=st.integers(0, 9999),
)
@example("near", 20, 40, 1025, 50, 2, 2**20, 0)
@settings(max_examples=80)
def test_bytes_are_compared_in_whole_numbers(
    library: str, kind: str, n: int, m: int, d: int, k: int, threads: int, memory: int, seed: int
) -> None:
    made = np.random.default_rng(seed)
    ours, theirs = (bytes_of(kind, count, d, made) for count in (n, m))
    with products_by(library):
        found = nearest(ours, theirs, k, device="cpu", threads=threads, memory=memory)
    assert_equal(found, slow_nearest(slow_distances(ours, theirs), k))


@pytest.mark.parametrize("library", ["onnxruntime", "numpy"])
def test_pixels_at_the_limits_of_their_sums(library: str) -> None:
    """256 × 256 × 3 of 0 and 255 only: every product is as large as it gets, and so are the sums."""
    d, made = 256 * 256 * 3, np.random.default_rng(4)
    images = np.stack(
        [
            np.zeros(d, np.uint8),
            np.full(d, 255, np.uint8),
            *(made.integers(0, 2, (3, d)) * 255).astype(np.uint8),
            np.zeros(d, np.uint8),
            np.where(np.arange(d) == d - 1, 255, 0).astype(np.uint8),
            np.where(np.arange(d) == 1024, 254, 255).astype(np.uint8),
        ]
    )
    with products_by(library):
        found = nearest(images, images, 8, device="cpu")
    assert_equal(found, slow_nearest(slow_distances(images, images), 8))
    first = dict(zip(found.rows[0].tolist(), found.distances[0].tolist(), strict=True))
    assert first[1] == d * 255**2 and first[6] == 255**2 and first[7] == (d - 1) * 255**2 + 254**2


# ------------------------------------------------------------------------------------- photographs


@pytest.fixture(scope="module")
def pictures(shared_data: Path) -> list[Any]:
    """Sixty photographs, drawings and paintings, and a darker copy of every tenth."""
    files = sorted((shared_data / "photos").glob("*.JPEG"))[::10]
    for style in ("photo", "sketch", "cartoon", "art_painting"):
        files += sorted((shared_data / "pacs" / style).rglob("*.jpg"))[::28]
    images = [decode(file.read_bytes(), exif=True) for file in files]
    return images + [image.point(lambda value: int(value * 0.9)) for image in images[::10]]


@pytest.mark.shared
@pytest.mark.parametrize("features", ["pixels", "lite0"])
def test_lists_of_photographs(pictures: list[Any], features: str) -> None:
    encoder = image_encoder(features, unit=True)
    geometry = encoder.preprocessing.geometry
    vectors = np.concatenate(
        [
            encoder.encode_images(np.stack([apply_geometry(image, geometry) for image in some]))
            for some in (pictures[:32], pictures[32:])
        ]
    )
    expected = slow_distances(vectors, vectors)
    for memory, threads in ((2**29, 2), (2**22, 1)):
        found = nearest(vectors, vectors, 30, device="cpu", threads=threads, memory=memory)
        assert_equal(found, slow_nearest(expected, 30))
    assert (found.distances[:, 0] == 0).all() and (
        found.rows[:, 0] == np.arange(len(vectors))
    ).all()


# -------------------------------------------------------------------------------------- the bound


def errors_and_bounds(
    arrays: Any, ours: np.ndarray, theirs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How far computed scores of all pairs are off, and how far they may be, in units of the scores.

    The score of X and Y is X·Y − ‖Y‖²/2 and a constant.
    """
    with arrays.context():
        vectors = _Floats(arrays, arrays.put(ours), arrays.put(theirs))
        block = vectors.references(arrays.sort(vectors.squares))
        scores, e = vectors.scores(vectors.candidates(slice(0, len(ours))), block)
        scores, e, rows, middle = map(arrays.take, (scores, e, block.rows, vectors._middle))
    wide = np.longdouble
    x = ours.astype(wide) * wide(vectors._scale) - middle.astype(wide)
    y = theirs[rows].astype(wide) * wide(vectors._scale) - middle.astype(wide)
    true = x @ y.T - (y**2).sum(1) / 2 + wide(vectors._constant)
    return np.abs(scores - true).astype(float), np.broadcast_to(e[:, None], scores.shape)


def check_bound(arrays: Any, kind: str, n: int, m: int, d: int, seed: int) -> None:
    error, bound = errors_and_bounds(arrays, *sides_of(kind, n, m, d, seed, m // 10))
    assert np.isfinite(bound).all()
    worst = int((error - bound).argmax())
    assert (error <= bound).all(), (error.flat[worst], bound.flat[worst])


class OneByOne(NumpyArrays):
    """Sums of products in float32 in the worst order: the largest first, which swallow the others."""

    def product(self, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        found = np.empty((len(ours), len(theirs)), np.float32)
        for i, x in enumerate(ours):
            products = x * theirs
            order = np.argsort(-np.abs(products), axis=1)
            found[i] = np.take_along_axis(products, order, axis=1).cumsum(1)[:, -1]
        return found


@pytest.mark.parametrize("library", ["onnxruntime", "numpy", "one by one"])
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 12),
    m=st.integers(1, 40),
    d=st.integers(1, 400),
    seed=st.integers(0, 9999),
)
@settings(max_examples=80)
def test_no_score_is_farther_off_than_its_bound(
    library: str, kind: str, n: int, m: int, d: int, seed: int
) -> None:
    arrays = (OneByOne if library == "one by one" else NumpyArrays)(1, 2**29)
    with products_by(library):
        check_bound(arrays, kind, n, m, d, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_no_score_of_long_vectors_is_farther_off_than_its_bound(kind: str) -> None:
    check_bound(NumpyArrays(1, 2**29), kind, 6, 20, 20_000, 0)


def test_the_bound_is_no_wider_than_it_needs_to_be() -> None:
    """Errors come within a factor of what is allowed, so one that was lost would be seen above."""
    ours, theirs = rows_of("same sign", 4, 300, 1), rows_of("same sign", 40, 300, 2)
    error, bound = errors_and_bounds(NumpyArrays(1, 2**29), ours, theirs)
    assert (error / bound).max() > 1e-3


# ----------------------------------------------------------------------------- what else is refused


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["candidates", "references"])
def test_values_that_are_not_finite_are_refused_by_row(bad: float, side: str) -> None:
    both = dict(zip(("candidates", "references"), sides_of("huge", 40, 900, 65, 0), strict=True))
    both[side][33, 64] = both[side][39, 0] = bad
    with pytest.raises(UserError, match=f"{side} have values that are not finite, first in row 33"):
        nearest(**both, k=3, device="cpu", threads=2)
    both[side][[33, 39]] = 0
    nearest(**both, k=3, device="cpu", threads=2)


def test_vectors_of_other_kinds_are_refused() -> None:
    floats, pixels = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.uint8)
    for ours, theirs in [
        (floats, pixels),
        (floats, floats[:, :3]),
        (floats.astype(np.float64), floats.astype(np.float64)),
        (floats[0], floats[0]),
    ]:
        with pytest.raises(ValueError, match="not both uint8 or both float32, of one length"):
            nearest(ours, theirs, 1)
    with pytest.raises(UserError, match="'tpu' is not a device"):
        nearest(floats, floats, 1, device="tpu")


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_mapped_and_cut_arrays(kind: type, tmp_path: Path) -> None:
    made = np.random.default_rng(8).integers(0, 256, (90, 50)).astype(kind)
    np.save(tmp_path / "vectors.npy", made)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    expected = slow_nearest(slow_distances(made[::3, 4:], made[:, 4:]), 5)
    assert_equal(nearest(mapped[::3, 4:], mapped[:, 4:], 5, device="cpu"), expected)
    turned = np.asfortranarray(made)
    assert_equal(nearest(turned[::3, 4:], turned[:, 4:], 5, device="cpu"), expected)
    assert mapped.tobytes() == made.tobytes()


# ------------------------------------------------------------------------------------------ merging


@given(
    cuts=st.lists(st.integers(0, 50), max_size=5),
    k=st.integers(0, 60),
    seed=st.integers(0, 99),
)
def test_parts_merge_to_the_whole(cuts: list[int], k: int, seed: int) -> None:
    ours, theirs = sides_of("few", 7, 50, 9, seed, 20)
    bounds = [0, *sorted(cuts), 50]
    parts = []
    for start, stop in itertools.pairwise(bounds):
        part = nearest(ours, theirs[start:stop], k, device="cpu", threads=1)
        parts.append(Nearest(np.where(part.rows < 0, -1, part.rows + start), part.distances))
    expected = slow_nearest(slow_distances(ours, theirs), k)
    assert_equal(merge(parts, k), expected)
    assert_equal(merge(parts[::-1], k), expected)


def test_merging_too_few_leaves_places_free() -> None:
    one = Nearest(np.array([[4, -1]]), np.array([[2.0, math.inf]]))
    other = Nearest(np.array([[3, 9]]), np.array([[2.0, 5.0]]))
    found = merge([one, other], 5)
    assert found.rows.tolist() == [[3, 4, 9, -1, -1]]
    assert found.distances.tolist() == [[2.0, 2.0, 5.0, math.inf, math.inf]]
