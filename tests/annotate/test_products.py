from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.annotate.products import PRECISIONS, make_product, rounded
from heldout.models.unit_vectors import unit_rows


@given(
    d=st.integers(1, 300),
    spread=st.floats(0, 30),
    precision=st.sampled_from(PRECISIONS),
    seed=st.integers(0, 2**31),
)
def test_no_cosine_is_further_off_than_the_bound(
    d: int, spread: float, precision: str, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    scales = np.exp(generator.normal(0, spread, (1, d)))
    images = unit_rows(generator.standard_normal((7, d)) * scales)
    classes = unit_rows(generator.standard_normal((11, d)) * scales)
    product = make_product(classes, precision)
    bound = product.load(images)
    found = np.empty((7, 8), np.float32)
    product.multiply(2, 10, found)
    exact = images.astype(np.float64) @ classes[2:10].astype(np.float64).T
    assert (abs(found - exact) <= bound[:, None]).all()


def test_the_bound_of_each_format_is_of_its_size() -> None:
    images = unit_rows(np.random.default_rng(0).standard_normal((50, 384)))
    sizes = {name: float(make_product(images, name).load(images).max()) for name in PRECISIONS}
    assert sizes["float32"] < 3e-5 < sizes["float16"] < 1e-3 < sizes["bfloat16"] < 6e-3
    assert sizes["bfloat16"] < sizes["int8"] < 5e-2


@pytest.mark.parametrize(
    ("value", "near"),
    [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (-0.1, -0.10009765625)],
)
def test_bfloat16_rounds_to_the_nearest_and_to_even(value: float, near: float) -> None:
    assert rounded(np.float32([[value]]), "bfloat16").tolist() == [[near]]


def test_int8_has_one_scale_a_row() -> None:
    found = rounded(np.float32([[1.27, 0.014, -1.27], [0, 0, 0]]), "int8")
    np.testing.assert_allclose(found, [[1.27, 0.01, -1.27], [0, 0, 0]], rtol=1e-6)
