from __future__ import annotations

import numpy as np
import pytest

from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.curate.active.task import PARTS, LabelingTask, draw_parts, make_problem
from tests.curate.active.conftest import made_problem


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
    shares = (0.5, 0.2, 0.3)
    parts = draw_parts(ids, strata, shares, seed=3)
    for stratum in range(12):
        mine = parts[strata == stratum]
        for code, share in enumerate(shares):
            assert abs((mine == code).sum() - share * len(mine)) < 2
    whole = np.bincount(parts, minlength=3)
    assert abs(whole - 500 * np.array(shares)).max() < 4
    again = draw_parts(ids, strata, shares, seed=4)
    assert (again != parts).any()


def test_given_parts_are_taken_as_they_are() -> None:
    parts = (["train", "val", "test"] * 80)[:240]
    problem = made_problem(parts=parts)
    assert [PARTS[code] for code in problem.parts[:3]] == ["train", "validation", "test"]


def test_what_does_not_fit_is_refused() -> None:
    ids, labels, domains = ["a", "b"], ["x", "y"], ["p", "p"]
    with pytest.raises(UserError, match="image id twice"):
        make_problem("p", ids=["a", "a"], labels=labels, domains=domains)
    with pytest.raises(MismatchError, match="2 images, but 1 values"):
        make_problem("p", ids=ids, labels=["x"], domains=domains)
    with pytest.raises(UserError, match="'dev' is not a part"):
        make_problem("p", ids=ids, labels=labels, domains=domains, parts=["train", "dev"])
    with pytest.raises(NotApplicable, match="have no features, such as 'b'"):
        features = np.array([[1.0], [np.nan]])
        make_problem("p", ids=ids, labels=labels, domains=domains, features=features)
    with pytest.raises(NotApplicable, match="validation or test have no class"):
        make_problem("p", ids=ids, labels=["x", None], domains=domains, parts=["train", "test"])
    with pytest.raises(UserError, match="three that sum to 1"):
        make_problem("p", ids=ids, labels=labels, domains=domains, shares=(0.5, 0.5, 0.5))
