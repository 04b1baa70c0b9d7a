"""Tests of :mod:`heldout.curate.active.task`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.curate.active.task import (
    PARTS,
    SHARES,
    LabelingTask,
    class_values,
    domain_values,
    draw_parts,
    make_problem,
    pool_features,
    pool_problem,
)
from heldout.data.labels import LabelSpace
from heldout.data.testset.tables import image_table, membership_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool
from heldout.models.adapters import ModelOutput
from heldout.models.descriptors import FeatureEncoder
from heldout.models.embeddings import Embeddings
from heldout.testing.model import FakeModel
from tests.curate.active.conftest import made_problem

# inputs


def made_pool() -> TestSet:
    ids = [f"{place}/{number}.jpg" for place in ("north", "south") for number in range(10)]
    images = image_table({"image_id": ids, "path": ids})
    images = images.append_column("region", pa.array(["n"] * 10 + ["s"] * 9 + [None]))
    images = images.append_column("part", pa.array((["train"] * 3 + ["val", "test"]) * 4))
    memberships = membership_table(
        [(ids[0], "context", "snow"), (ids[1], "context", "snow"), (ids[1], "context", "sun")]
    )
    truth = truth_table(ids[:18], ["cat", "dog"] * 9)
    return make_pool(
        "places",
        images=images,
        memberships=memberships,
        truths={"original": truth},
        label_space=LabelSpace.from_ids("pets", ["cat", "dog"]),
    )


def vectors(pool: TestSet) -> Embeddings:
    ids = pool.images["image_id"].to_pylist()
    values = np.random.default_rng(0).normal(size=(len(ids), 4)).astype(np.float32)
    values[2] = np.nan
    return Embeddings(ids, values)


def test_domains_from_columns_memberships_and_folders() -> None:
    pool = made_pool()
    assert domain_values(pool, "region")[:1] + domain_values(pool, "region")[-1:] == ["n", None]
    assert domain_values(pool, "context")[:3] == ["snow", None, None]  # two values are no domain
    assert set(domain_values(pool, "folder:1")) == {"north", "south"}
    assert set(domain_values(pool, "folder:2")) == {None}
    with pytest.raises(NotFound, match="has no column 'country'"):
        domain_values(pool, "country")
    with pytest.raises(UserError, match="no domain 'folder:0'"):
        domain_values(pool, "folder:0")


def test_classes_from_truths_and_columns() -> None:
    pool = made_pool()
    assert class_values(pool)[:2] == ["cat", "dog"] and class_values(pool)[-1] is None
    assert class_values(pool, column="region")[0] == "n"
    with pytest.raises(NotFound):
        class_values(pool, column="colour")


def test_what_lacks_something_is_left_out_and_counted() -> None:
    pool = made_pool()
    problem, left = pool_problem(pool, vectors(pool), domain="region", split="part")
    assert (left.without_class, left.without_domain, left.without_features) == (2, 0, 1)
    assert len(problem) == 17 and problem.classes == ("cat", "dog")
    assert problem.domain_names == ("n", "s")
    with pytest.raises(NotFound, match="no column 'fold'"):
        pool_problem(pool, vectors(pool), domain="region", split="fold")
    with pytest.raises(NotApplicable, match="no image of places"):
        pool_problem(pool, vectors(pool), domain="folder:2")


def test_features_of_a_model(tmp_path: Path) -> None:
    from PIL import Image

    from heldout.curate.pool_images import folder_pool

    for number in range(3):
        Image.new("RGB", (40, 40), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    pool = folder_pool(tmp_path)
    found = pool_features(pool, "lite0", workspace=Workspace.find(tmp_path / "w"))
    assert found.vectors.shape == (3, 1280) and np.isfinite(found.vectors).all()
    again = pool_features(pool, "lite0", workspace=Workspace.find(tmp_path / "w"))
    assert (np.asarray(again.vectors) == found.vectors).all()


class Bare(FakeModel):
    """A model that gives logits alone."""

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        return ModelOutput(super().__call__(pixels).logits)


def test_a_model_without_features_is_refused() -> None:
    assert FeatureEncoder(FakeModel()).dimension == 24
    with pytest.raises(NotApplicable, match="gives no features"):
        FeatureEncoder(Bare())
    with pytest.raises(NotApplicable, match="reads no texts"):
        FeatureEncoder(FakeModel()).encode_texts(["a"])


# problem


def test_the_order_of_rows_makes_no_difference(problem: LabelingTask) -> None:
    order = np.random.default_rng(1).permutation(len(problem))
    assert problem.features is not None
    again = make_problem(
        "made",
        ids=[problem.ids[row] for row in order],
        labels=[problem.classes[problem.labels[row]] for row in order],
        domains=[problem.domain_names[problem.domains[row]] for row in order],
        features=problem.features[order],
    )
    assert again.digest == problem.digest and again.ids == problem.ids


def test_everything_that_matters_changes_the_digest(problem: LabelingTask) -> None:
    others = [made_problem(seed=1), made_problem(n=239)]
    moved = ["train"] * 100 + ["test"] * 140
    others.append(made_problem(parts=moved))
    assert len({problem.digest, *(other.digest for other in others)}) == 4


def test_parts_keep_their_shares_in_every_stratum() -> None:
    rng = np.random.default_rng(0)
    ids = [f"i{row}" for row in range(500)]
    strata = rng.integers(12, size=500)
    parts = draw_parts(ids, strata, seed=3)
    for stratum in range(12):
        mine = parts[strata == stratum]
        for code, share in enumerate(SHARES):
            assert abs((mine == code).sum() - share * len(mine)) < 2
    whole = np.bincount(parts, minlength=3)
    assert abs(whole - 500 * np.array(SHARES)).max() < 4
    again = draw_parts(ids, strata, seed=4)
    assert (again != parts).any()


def test_given_parts_are_taken_as_they_are() -> None:
    parts = (["train", "val", "test"] * 80)[:240]
    problem = made_problem(parts=parts)
    assert [PARTS[code] for code in problem.parts[:3]] == ["train", "validation", "test"]


def test_what_does_not_fit_is_refused() -> None:
    ids, labels, domains = ["a", "b"], ["x", "y"], ["p", "p"]
    with pytest.raises(UserError, match="'dev' is not a part"):
        make_problem("p", ids=ids, labels=labels, domains=domains, parts=["train", "dev"])
    with pytest.raises(NotApplicable, match="validation or test have no class"):
        make_problem("p", ids=ids, labels=["x", None], domains=domains, parts=["train", "test"])
