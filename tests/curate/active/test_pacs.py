"""Four real domains: the orderings that the benchmark found to be far beyond chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.curate.active.classifier import Logistic
from heldout.curate.active.strategies import parse_strategies
from heldout.curate.active.study import LabelPlan, run_study
from heldout.curate.active.task import pool_features, pool_problem
from heldout.data.importing import read_testset


@pytest.mark.shared
def test_quotas_by_error_save_the_worst_domain(shared_data: Path, tmp_path: Path) -> None:
    pool = read_testset(shared_data / "pacs", classes="folders")
    features = pool_features(
        pool, "lite0", workspace=Workspace.find(tmp_path), images=shared_data / "pacs"
    )
    problem, left = pool_problem(pool, features, domain="folder:1")
    assert len(problem) == 1120 and problem.domain_sizes.tolist() == [140] * 4
    assert (left.without_class, left.without_domain, left.without_features) == (0, 0, 0)
    outcome = run_study(
        problem,
        Logistic(),
        parse_strategies(["random,k-centre,k-centre+error,margin+error"]),
        plan=LabelPlan(initial=60, budget=20, rounds=5),
        seeds=range(2),
        runs=tmp_path / "runs",
    )
    worst = {name: curve.mean() for name, curve in outcome.curves("worst_domain").items()}
    overall = {name: curve.mean() for name, curve in outcome.curves("accuracy").items()}
    assert worst["k-centre"] < worst["random"] < worst["k-centre+error"]
    assert overall["margin+error"] > overall["random"] > 0.6
    rounds = outcome.rounds["margin+error"].values()
    share = sum(made.quota for by_seed in rounds for made in by_seed)
    assert problem.domain_names[int(np.argmin(share))] == "photo"  # what the features know already
