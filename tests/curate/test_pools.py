from __future__ import annotations

import pytest
import recipe_examples as examples
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.data.testset import Card, image_table, make_testset, membership_table, truth_table
from heldout.data.testset.pool import make_pool, pool_of


def test_a_pool_needs_neither_truth_nor_label_space() -> None:
    pool = make_pool("bare", images=image_table({"image_id": ["a", "b"]}))
    assert len(pool) == 2 and pool.image_ids.to_pylist() == ["a", "b"]
    with pytest.raises(NotFound, match="no truth 'original'"):
        pool.truth()
    with pytest.raises(NotApplicable, match="no label space"):
        _ = pool.label_space


@given(st.integers(0, 1000))
def test_its_hash_knows_no_order_of_rows(seed: int) -> None:
    pool = examples.make_sources(9)["pool"]
    shuffled = pool.reordered(seed)
    assert shuffled.content_hash == pool.content_hash
    assert sorted(shuffled.image_ids.to_pylist()) == sorted(pool.image_ids.to_pylist())


def test_its_hash_knows_every_table() -> None:
    pool = examples.make_sources(9)["pool"]
    parts = {
        "images": pool.images,
        "memberships": pool.memberships,
        "truths": pool.truths,
        "label_space": pool.space,
    }
    hashes = {pool.content_hash}
    for change in (
        {"memberships": membership_table([("image000", "context", "other")])},
        {"truths": {"original": truth_table(["image000"], ["b"])}},
        {"truths": {"again": pool.truth()}},
        {"images": pool.images.drop_columns(["light"])},
    ):
        hashes.add(make_pool("p", **{**parts, **change}).content_hash)
    assert len(hashes) == 5


def test_a_test_set_as_a_pool_has_the_same_hash() -> None:
    pool = examples.make_sources(9)["pool"]
    testset = make_testset(
        Card(name="set", label_space="letters"),
        images=pool.images,
        truths=pool.truths,
        label_space=examples.SPACE,
        memberships=pool.memberships,
    )
    assert pool_of(testset).content_hash == testset.card.content_hash == pool.content_hash
    assert pool_of(testset).images_root is None


def test_tables_that_do_not_belong_together() -> None:
    images = image_table({"image_id": ["a"]})
    with pytest.raises(UserError, match="names image 'z'"):
        make_pool("p", images=images, memberships=membership_table([("z", "c", "v")]))
    with pytest.raises(UserError, match="no label space"):
        make_pool("p", images=images, truths={"original": truth_table(["a"], ["x"])})
    with pytest.raises(LabelError):
        make_pool(
            "p",
            images=images,
            truths={"original": truth_table(["a"], ["x"])},
            label_space=examples.SPACE,
        )
    with pytest.raises(UserError, match="is not a name"):
        make_pool("p/q", images=images)
