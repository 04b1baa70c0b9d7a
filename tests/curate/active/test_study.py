"""Tests of :mod:`heldout.curate.active.study`."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from heldout.core.engine import Processes, Shard
from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.curate.active.classifier import Images, Logistic, load_trainer
from heldout.curate.active.strategies import ALLOCATORS, SELECTORS, parse_strategies, parse_strategy
from heldout.curate.active.study import (
    METRICS,
    Cells,
    LabelPlan,
    count_cells,
    do_round,
    domain_accuracy,
    domain_loss,
    first_labels,
    measure,
    pack_round,
    run_study,
    unpack_round,
)
from heldout.curate.active.task import TEST, TRAIN, LabelingTask, pool_features, pool_problem
from heldout.data.importing import read_testset
from heldout.models.adapters import ModelOutput
from tests.curate.active.conftest import made_problem

# measuring


def test_a_table_by_hand() -> None:
    """Two domains of 4 and 2 images, a third without any; two classes."""
    cells = Cells(
        np.array([[2, 2], [1, 1], [0, 0]]),
        np.array([[2, 1], [0, 1], [0, 0]]),
        np.array([2.0, 3.0, 0.0]),
    )
    found = measure(cells, np.array([10, 30, 60]))
    assert found["accuracy"] == 4 / 6
    assert found["mean_of_domains"] == (3 / 4 + 1 / 2) / 2
    assert found["ambient"] == pytest.approx((10 * 3 / 4 + 30 * 1 / 2) / 40)
    assert found["worst_domain"] == 1 / 2
    assert found["worst_cell"] == 0.0
    assert found["loss"] == 5 / 6
    assert tuple(found) == METRICS
    assert math.isnan(domain_accuracy(cells)[2]) and math.isnan(domain_loss(cells)[2])


def test_nothing_at_all_is_null() -> None:
    empty = Cells(np.zeros((2, 2), int), np.zeros((2, 2), int), np.zeros(2))
    assert all(math.isnan(value) for value in measure(empty, np.array([1, 1])).values())


def test_cells_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 4)), rng.integers(4, size=50)
    domains = rng.integers(3, size=50)
    cells = count_cells(logits, labels, domains, count=4)
    for d in range(4):
        for c in range(4):
            mine = [i for i in range(50) if domains[i] == d and labels[i] == c]
            assert cells.images[d, c] == len(mine)
            assert cells.right[d, c] == sum(int(np.argmax(logits[i])) == c for i in mine)
        loss = sum(
            math.log(sum(math.exp(x) for x in logits[i])) - logits[i, labels[i]]
            for i in range(50)
            if domains[i] == d
        )
        assert cells.losses[d] == pytest.approx(loss)


# Four real domains: the orderings that the benchmark found to be far beyond chance.


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


# study


PLAN = LabelPlan(initial=12, budget=9, rounds=3)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("selector", SELECTORS)
def test_budgets_are_met_and_no_image_comes_twice(
    problem: LabelingTask, selector: str, tmp_path: Path
) -> None:
    strategies = parse_strategies([f"{selector}+all"])
    outcome = run_study(problem, Logistic(), strategies, plan=PLAN, seeds=[0, 7], runs=tmp_path)
    train = set(problem.rows(TRAIN).tolist())
    for strategy in strategies:
        for seed in (0, 7):
            rounds = outcome.rounds[strategy.name][seed]
            assert [made.labels for made in rounds] == [12, 21, 30, 39]
            chosen = np.concatenate([made.chosen for made in rounds])
            first = first_labels(problem, 12, seed=seed)
            every = [*first.tolist(), *chosen.tolist()]
            assert len(set(every)) == 39 and set(every) <= train
            assert [len(made.chosen) for made in rounds] == [9, 9, 9, 0]
            for made in rounds:
                assert made.quota.sum() == len(made.chosen)
                assert made.images.sum() == len(problem.rows(TEST)) == len(made.correct)
                assert made.right.sum() == made.correct.sum()


def test_the_pool_can_be_spent_to_the_last_image(problem: LabelingTask, tmp_path: Path) -> None:
    candidates = len(problem.rows(TRAIN))
    plan = LabelPlan(initial=10, budget=(candidates - 10) // 2, rounds=2)
    plan = LabelPlan(initial=candidates - 2 * plan.budget, budget=plan.budget, rounds=2)
    strategies = parse_strategies(["margin+worst,badge+interpolate,k-centre+lowest-confidence"])
    outcome = run_study(problem, Logistic(), strategies, plan=plan, seeds=[0], runs=tmp_path)
    for strategy in strategies:
        last = outcome.rounds[strategy.name][0][-1]
        assert last.labels == candidates
    finals = {name: c[0, -1] for name, c in outcome.curves("accuracy").items()}
    assert len(set(finals.values())) == 1  # all labels, one classifier, whatever the way there


def test_all_strategies_share_the_first_round(problem: LabelingTask, tmp_path: Path) -> None:
    outcome = run_study(
        problem,
        Logistic(),
        parse_strategies(["random,margin+error"]),
        plan=PLAN,
        seeds=[3],
        runs=tmp_path,
    )
    a, b = (outcome.rounds[name][3][0] for name in ("random", "margin+error"))
    assert (a.correct == b.correct).all() and a.losses.tolist() == b.losses.tolist()


def test_quotas_are_what_the_allocator_said(problem: LabelingTask) -> None:
    labelled = first_labels(problem, 30, seed=0)
    made = do_round(
        problem, Logistic(), parse_strategy("margin+uniform"), labelled, budget=12, seed=0, number=0
    )
    assert made.quota.tolist() == [4, 4, 4]
    assert np.bincount(problem.domains[made.chosen], minlength=3).tolist() == [4, 4, 4]


def test_the_order_of_labels_makes_no_difference(problem: LabelingTask) -> None:
    labelled = first_labels(problem, 30, seed=0)
    rounds = [
        do_round(
            problem, Logistic(), parse_strategy("badge+error"), rows, budget=9, seed=0, number=1
        )
        for rows in (labelled, labelled[::-1].copy())
    ]
    assert pack_round(rounds[0]) == pack_round(rounds[1])


def test_rounds_are_read_back(problem: LabelingTask) -> None:
    made = do_round(
        problem,
        Logistic(),
        parse_strategy("margin"),
        first_labels(problem, 20, seed=0),
        budget=5,
        seed=0,
        number=0,
    )
    again = unpack_round(pack_round(made))
    assert pack_round(again) == pack_round(made)


def test_worker_processes_change_nothing(problem: LabelingTask, tmp_path: Path) -> None:
    strategies = parse_strategies(["random,badge+error"])
    arguments: dict[str, Any] = {"plan": PLAN, "seeds": [0, 1]}
    run_study(problem, Logistic(), strategies, runs=tmp_path / "one", **arguments)
    run_study(
        problem, Logistic(), strategies, runs=tmp_path / "two", executor=Processes(2), **arguments
    )
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_shares_of_a_study_make_the_whole(problem: LabelingTask, tmp_path: Path) -> None:
    strategies = parse_strategies(["random,margin,entropy+uniform"])
    arguments: dict[str, Any] = {"plan": PLAN, "seeds": [0, 1]}
    run_study(problem, Logistic(), strategies, runs=tmp_path / "whole", **arguments)
    with pytest.raises(NotApplicable, match="of 6 parts are done"):
        run_study(
            problem, Logistic(), strategies, runs=tmp_path / "parts", shard=Shard(1, 2), **arguments
        )
    run_study(
        problem, Logistic(), strategies, runs=tmp_path / "parts", shard=Shard(2, 2), **arguments
    )
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


KILLED = """
import sys, time
from pathlib import Path
from heldout.curate.active.classifier import Logistic
from heldout.curate.active.strategies import parse_strategies
from heldout.curate.active.study import LabelPlan, run_study
from tests.curate.active.conftest import made_problem

class Slow(Logistic):
    def __call__(self, *args, **more):
        time.sleep(0.15)
        return super().__call__(*args, **more)

run_study(made_problem(), Slow(), parse_strategies(["margin+error,badge"]),
          plan=LabelPlan(initial=12, budget=9, rounds=3), seeds=[0, 1], runs=Path(sys.argv[1]))
"""


def test_a_killed_study_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    strategies = parse_strategies(["margin+error,badge"])
    arguments: dict[str, Any] = {"plan": PLAN, "seeds": [0, 1]}
    problem = made_problem()
    run_study(problem, Logistic(), strategies, runs=tmp_path / "whole", **arguments)
    root = Path(__file__).parents[3]
    for wanted in (1, 6):  # in the middle of the first run, then of a later one
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "cut")], cwd=root)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if len(list((tmp_path / "cut").glob("*-rounds/results/*/*"))) >= wanted:
                break
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = set(files(tmp_path / "cut"))
    assert len([name for name in before if "-rounds/results" in name]) < 16
    outcome = run_study(problem, Logistic(), strategies, runs=tmp_path / "cut", **arguments)
    after = {name: data for name, data in files(tmp_path / "cut").items() if ".tmp-" not in name}
    assert after == files(tmp_path / "whole")
    assert outcome.curves("accuracy")["badge"].shape == (2, 4)


class Majority:
    """A trainer of another kind: the most frequent class, and counts as features."""

    name = "majority"
    identity: ClassVar[dict[str, str]] = {"trainer": "majority"}

    def __call__(self, images: Images, labels: np.ndarray, *, classes: int, seed: int) -> Any:
        counts = np.bincount(labels, minlength=classes).astype(float)
        return lambda asked: ModelOutput(
            np.tile(counts, (len(asked), 1)).astype(np.float32),
            np.array([[float(name[-1])] for name in asked.ids], np.float32),
        )


def test_any_trainer_will_do(tmp_path: Path) -> None:
    whole = made_problem()
    bare = LabelingTask(**{**whole.__dict__, "features": None})
    outcome = run_study(
        bare,
        Majority(),
        parse_strategies(["k-centre,badge+uniform"]),
        plan=PLAN,
        seeds=[0],
        runs=tmp_path,
    )
    share = np.bincount(whole.labels[whole.rows(TEST)]).max() / len(whole.rows(TEST))
    assert outcome.curves("accuracy")["k-centre"].max() <= share


def test_a_trainer_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from heldout.curate.active.classifier import Logistic\n"
        "class Mine(Logistic):\n    def __init__(self):\n        super().__init__(strength=1.0)\n"
        "nothing = 3\n"
    )
    trainer = load_trainer(f"{path}:Mine")
    assert trainer.identity["strength"] == 1.0 and len(trainer.identity["source"]) == 64
    with pytest.raises(UserError, match="is not a trainer"):
        load_trainer(f"{path}:nothing")


class Broken(Majority):
    def __call__(self, images: Images, labels: np.ndarray, *, classes: int, seed: int) -> Any:
        return lambda asked: ModelOutput(np.full((len(asked), classes), np.nan))


def test_a_trainer_that_fails_is_a_users_error(problem: LabelingTask, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="majority gives logits that are not finite"):
        run_study(
            problem, Broken(), parse_strategies(["random"]), plan=PLAN, seeds=[0], runs=tmp_path
        )


def test_what_cannot_be_run_is_refused_before_anything_is_trained(
    problem: LabelingTask, tmp_path: Path
) -> None:
    def study(plan: LabelPlan = PLAN, texts: str = "random", **more: Any) -> None:
        arguments = {"problem": problem, "seeds": [0]} | more
        run_study(
            arguments["problem"],
            Majority(),
            parse_strategies([texts]),
            plan=plan,
            seeds=arguments["seeds"],
            runs=tmp_path,
        )

    with pytest.raises(UserError, match="labels are asked for, made has"):
        study(LabelPlan(initial=100, budget=100, rounds=2))
    no_validation = made_problem(parts=["train", "test"] * 120)
    with pytest.raises(UserError, match="random\\+error needs validation images"):
        study(problem=no_validation, texts="random+error")
    with pytest.raises(UserError, match="has no test images"):
        study(problem=made_problem(parts=["train", "validation"] * 120))
    assert not list(tmp_path.iterdir())


def test_strategies_by_name() -> None:
    assert len(parse_strategies(["all+all"])) == len(SELECTORS) * len(ALLOCATORS)
    assert [s.name for s in parse_strategies(["margin, margin+none", "random+worst"])] == [
        "margin",
        "random+worst",
    ]
    for text in ("", "margin+", "+error", "margin+best"):
        with pytest.raises(UserError):
            parse_strategies([text])
