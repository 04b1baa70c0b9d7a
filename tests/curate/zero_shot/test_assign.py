"""Tests of :mod:`heldout.curate.zero_shot.assign`."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.zero_shot.assign import (
    BLOCK,
    MOST_TIES,
    Assigned,
    assign,
    assign_blocks,
    best_classes,
    class_vectors,
    parse_similarities,
    product_error,
    temperatures_of,
)
from heldout.models.adapters.model import unit_rows
from tests.curate.zero_shot import dense_oracle as oracle

# assigning


def vectors(n: int, d: int, *, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def check(found: Assigned, images: np.ndarray, classes: np.ndarray, k: int) -> None:
    """Everything that was found, against the slow way."""
    dense = oracle.cosines(oracle.unit(images), oracle.unit(classes))
    for row, line in enumerate(dense):
        order = oracle.best(line, k)
        assert found.topk[row].tolist() == order
        assert found.topk_cosine[row].tolist() == line[order].tolist()
        assert found.label[row] == order[0]
        assert found.cosine[row] == line.max()
        ties = found.ties[found.ties[:, 0] == row, 1].tolist()
        assert ties == oracle.tied(line)[:MOST_TIES]
        if len(line) > 1:
            first, second = line[oracle.best(line, 2)]
            assert found.margin[row] == first - second
        for temperature, sums in found.lse.items():
            expected = oracle.log_sum_exp(line, temperature)
            assert sums[row] == pytest.approx(expected, rel=1e-7, abs=3e-7 * (temperature + 5))


@given(
    n=st.integers(1, 9),
    c=st.integers(1, 40),
    d=st.integers(1, 12),
    k=st.integers(1, 6),
    repeats=st.integers(0, 5),
    grid=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60)
def test_equals_the_dense_result(
    n: int, c: int, d: int, k: int, repeats: int, grid: bool, seed: int
) -> None:
    images, classes = vectors(n, d, seed=seed), vectors(c, d, seed=seed + 1)
    if grid:  # few distinct directions: ties between different vectors too
        images, classes = np.sign(np.rint(images)), np.sign(np.rint(classes))
        images[(images == 0).all(axis=1), 0] = 1
        classes[(classes == 0).all(axis=1), 0] = 1
    generator = np.random.default_rng(seed)
    for _ in range(repeats):
        classes[generator.integers(c)] = classes[generator.integers(c)]
    k = min(k, c)
    found = assign(images, class_vectors(classes), k=k, temperatures=[1, 30, 100], workers=1)
    check(found, images, classes, k)


def test_many_groups_and_blocks_equal_the_dense_result() -> None:
    images, classes = vectors(BLOCK + 3, 6, seed=0), vectors(700, 6, seed=1)
    classes[500:600] = classes[:100]
    space = class_vectors(classes)
    first = assign(images[:20], space, k=3, temperatures=[1.0, 100.0])
    check(first, images[:20], classes, 3)
    whole = assign(images, space, k=3, temperatures=[1.0])
    check(
        Assigned(
            whole.topk[-5:],
            whole.topk_cosine[-5:],
            whole.margin[-5:],
            whole.ties[whole.ties[:, 0] >= BLOCK - 2] - [BLOCK - 2, 0],
            {1.0: whole.lse[1.0][-5:]},
        ),
        images[-5:],
        classes,
        3,
    )


@pytest.mark.parametrize("bits", [0, 13, 16, 20])
def test_the_best_do_not_depend_on_the_precision_of_the_product(bits: int) -> None:
    """Pairs of classes that differ in the last bits of float32: every lower precision confuses them."""
    generator = np.random.default_rng(3)
    classes = generator.standard_normal((300, 32)).astype(np.float32)
    classes[150:] = classes[:150] * (
        1 + generator.uniform(-3e-7, 3e-7, (150, 32)).astype(np.float32)
    )
    images = classes[generator.integers(0, 300, 200)] + generator.normal(0, 0.05, (200, 32))
    images = unit_rows(images.astype(np.float32))
    space = class_vectors(classes)
    exact = assign(images, space, k=4)
    check(exact, images[:30], classes, 4)
    fast = rounded(images, bits) @ rounded(space.rows, bits).T
    error = abs(fast - images.astype(np.float64) @ space.rows.T.astype(np.float64)).max()
    classes, cosines, ties = best_classes(images, fast, float(error), space, 4)
    np.testing.assert_array_equal(exact.topk, classes)
    np.testing.assert_array_equal(exact.topk_cosine, cosines)
    np.testing.assert_array_equal(exact.ties, ties)
    if bits:
        lowest = space.members[space.offsets[fast.argmax(axis=1)]]
        assert (lowest != exact.label).any(), "the case is no test of precision"


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """float32 numbers without the last ``bits`` of their mantissas."""
    kept = np.ascontiguousarray(values).view(np.uint32) & np.uint32((1 << 32) - (1 << bits))
    return kept.view(np.float32)


@given(d=st.integers(1, 300), spread=st.floats(0, 30), seed=st.integers(0, 2**31))
def test_no_cosine_is_further_off_than_the_bound(d: int, spread: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scales = np.exp(generator.normal(0, spread, (1, d)))
    images = unit_rows(generator.standard_normal((7, d)) * scales)
    classes = unit_rows(generator.standard_normal((11, d)) * scales)
    exact = images.astype(np.float64) @ classes.astype(np.float64).T
    assert (abs(images @ classes.T - exact) <= product_error(d)).all()


def test_results_do_not_depend_on_neighbours_workers_or_order() -> None:
    images, classes = vectors(2 * BLOCK + 77, 24, seed=5), vectors(900, 24, seed=6)
    space = class_vectors(classes)
    whole = assign(images, space, k=2, temperatures=[1, 100], workers=2)
    order = np.random.default_rng(7).permutation(len(images))
    turned = assign(images[order], space, k=2, temperatures=[1, 100], workers=1)
    np.testing.assert_array_equal(whole.topk[order], turned.topk)
    np.testing.assert_array_equal(whole.cosine[order], turned.cosine)
    for temperature in (1.0, 100.0):
        # Sums are of float32 products, whose last bits may depend on a row's place in its block.
        np.testing.assert_allclose(
            whole.lse[temperature][order], turned.lse[temperature], rtol=1e-6
        )
    same = assign(images, space, k=2, temperatures=[1, 100], workers=1)
    np.testing.assert_array_equal(same.lse[100.0], whole.lse[100.0])
    alone = assign(images[600:601], space, k=2, temperatures=[1, 100])
    np.testing.assert_allclose(alone.lse[1.0][0], whole.lse[1.0][600], rtol=1e-6)


def test_vectors_without_a_direction_have_no_label() -> None:
    images = vectors(4, 3, seed=0)
    images[1], images[2, 0], images[3] = 0, np.nan, [np.inf, 0, 0]
    found = assign(images, class_vectors(vectors(5, 3, seed=1)), k=2, temperatures=[1.0, 100.0])
    assert found.label.tolist()[1:] == [-1, -1, -1]
    assert found.label[0] >= 0
    assert (found.topk[1:] == -1).all()
    for values in (found.cosine, found.margin, found.lse[1.0], found.lse[100.0]):
        assert np.isnan(values).tolist() == [False, True, True, True]
    assert not len(found.ties)


def test_any_length_and_any_float_type_give_the_same_labels() -> None:
    images, classes = vectors(50, 8, seed=0), vectors(30, 8, seed=1)
    space = class_vectors(classes)
    plain = assign(images, space)
    longer = assign(images.astype(np.float64) * 1e200, class_vectors(classes * 7))
    np.testing.assert_array_equal(plain.label, longer.label)
    half = images.astype(np.float16)
    np.testing.assert_array_equal(
        assign(half, space).label, assign(half.astype(np.float64), space).label
    )


def test_softmax_is_that_of_the_label() -> None:
    images, classes = vectors(6, 5, seed=0), vectors(9, 5, seed=1)
    found = assign(images, class_vectors(classes), temperatures=[1, 100])
    dense = oracle.cosines(oracle.unit(images), oracle.unit(classes)).astype(np.float64)
    for temperature in (1.0, 100.0):
        powers = np.exp(temperature * dense)
        shares = powers / powers.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found.softmax(temperature), shares.max(axis=1), rtol=3e-5)


def test_classes_that_all_tie_are_listed_up_to_a_limit() -> None:
    classes = np.zeros((400, 3), np.float32)
    classes[:, 1], classes[:, 2] = np.cos(np.arange(400)), np.sin(np.arange(400))
    found = assign(np.float32([[1, 0, 0]]), class_vectors(classes), k=3)
    assert found.topk.tolist() == [[0, 1, 2]]
    assert found.margin.tolist() == [0.0]
    assert found.ties[:, 1].tolist() == list(range(1, MOST_TIES + 1))


def test_memory_depends_on_neither_number() -> None:
    """20,000 images x 20,000 classes would be 1.6 GB of cosines."""
    classes = class_vectors(vectors(20_000, 4, seed=0))
    images = vectors(20_000, 4, seed=1)
    tracemalloc.start()
    try:
        for _ in assign_blocks(images, classes, k=1, temperatures=[1.0], workers=2):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6


def test_no_images_is_an_empty_result() -> None:
    found = assign(np.zeros((0, 4), np.float32), class_vectors(vectors(3, 4, seed=0)), k=2)
    assert (len(found), found.topk.shape, found.ties.shape) == (0, (0, 2), (0, 2))


def test_what_does_not_fit_is_refused() -> None:
    space = class_vectors(vectors(3, 4, seed=0))
    images = vectors(2, 4, seed=1)
    with pytest.raises(UserError, match="from one encoder"):
        assign(vectors(2, 5, seed=1), space)
    with pytest.raises(UserError, match="use 1 to 3"):
        assign(images, space, k=4)


# class vectors


def test_equal_vectors_are_one_row_in_the_order_of_their_lowest_class() -> None:
    found = class_vectors(np.float32([[0, 2], [3, 0], [0, 1], [1, 1], [1, -0.0]]))
    assert found.rows.tolist() == np.float32([[0, 1], [1, 0], [0.5**0.5] * 2]).tolist()
    assert found.members.tolist() == [0, 2, 1, 4, 3]
    assert found.offsets.tolist() == [0, 2, 4, 5]
    assert found.shared == ((0, 2), (1, 4))
    assert (len(found), found.counts.tolist()) == (5, [2, 2, 1])


@pytest.mark.parametrize("bad", [[0, 0], [np.nan, 1], [np.inf, 1]])
def test_a_class_without_a_direction_is_named(bad: list[float]) -> None:
    with pytest.raises(UserError, match="class 1 "):
        class_vectors(np.array([[1.0, 0], bad]))


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.zeros(3), np.ones((2, 2), int)])
def test_what_is_no_matrix_of_floats_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(UserError, match="one row per class"):
        class_vectors(bad)


# similarities


def test_names_become_columns() -> None:
    found = parse_similarities(
        "cosine, softmax@1,softmax@0.5,margin,lse@1,cosine,softmax@scale", scale=99.99999
    )
    assert [each.column for each in found] == [
        "similarity_cosine",
        "similarity_softmax_1",
        "similarity_softmax_0.5",
        "margin",
        "similarity_lse_1",
        "similarity_softmax_100",
    ]
    assert temperatures_of(found) == (1.0, 0.5, 100.0)


@pytest.mark.parametrize(
    "bad", ["cosin", "softmax", "cosine@1", "softmax@x", "softmax@0", "softmax@nan", ""]
)
def test_unknown_names_are_refused(bad: str) -> None:
    with pytest.raises(UserError, match="softmax@"):
        parse_similarities(bad)


def test_scale_needs_an_encoder() -> None:
    with pytest.raises(UserError, match="as a number"):
        parse_similarities("softmax@scale")


def test_values_are_what_the_names_say() -> None:
    """T = 1 is the published definition: the largest share of a softmax over raw cosines."""
    images = np.float32([[1, 0.5, 0.1], [0.2, 1, 0.9]])
    classes = np.float32([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    found = assign(images, class_vectors(classes), temperatures=[1, 100])
    cosines = images / np.linalg.norm(images, axis=1, keepdims=True)
    shares = np.exp(cosines) / np.exp(cosines).sum(axis=1, keepdims=True)
    ordered = np.sort(cosines, axis=1)
    expected = {
        "similarity_cosine": ordered[:, -1],
        "similarity_softmax_1": shares.max(axis=1),
        "margin": ordered[:, -1] - ordered[:, -2],
        "similarity_lse_1": np.log(np.exp(cosines).sum(axis=1)),
    }
    for each in parse_similarities("cosine,softmax@1,margin,lse@1"):
        np.testing.assert_allclose(each.values(found), expected[each.column], rtol=1e-5)
