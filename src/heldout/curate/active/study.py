"""A study: many strategies, each from the same first labels, over several seeds; resumable.

A strategy with a seed is a unit of work, and each of its rounds is kept under what it depends on:
the problem, the trainer, the strategy, the seed and the labels so far. After a kill the same call
goes on with the round that was lost, and gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from heldout.core.engine import (
    Executor,
    Job,
    Progress,
    Results,
    Shard,
    Unit,
    no_progress,
    run,
    unit_key,
)
from heldout.core.errors import HeldoutError, NotApplicable, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.active.measuring import METRICS, measure
from heldout.curate.active.problem import TEST, TRAIN, Problem
from heldout.curate.active.rounds import (
    Round,
    do_round,
    first_labels,
    pack_many,
    pack_round,
    unpack_many,
    unpack_round,
)
from heldout.curate.active.strategy import Strategy
from heldout.curate.active.training import Trainer

WORK = "active-round-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""


class ShardsMissing(NotApplicable):
    """Only some strategies and seeds are there yet: ``done`` of ``total``."""

    def __init__(self, name: str, done: int, total: int) -> None:
        super().__init__(
            f"the study of {name} is not complete: {done:,} of {total:,} runs are done",
            fix="run the other shards, then the same command without --shard",
        )
        self.done, self.total = done, total


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How labels are spent: ``initial`` first, then ``budget`` more in each of ``rounds``."""

    initial: int
    budget: int
    rounds: int

    def __post_init__(self) -> None:
        if self.initial < 1 or self.budget < 1 or self.rounds < 0:
            raise UserError(
                f"{self.initial} first labels and {self.rounds} rounds of {self.budget}",
                fix="give at least 1 label a time, and 0 rounds or more",
            )

    @property
    def total(self) -> int:
        """Labels at the end."""
        return self.initial + self.budget * self.rounds


@dataclass(frozen=True, eq=False)
class Outcome:
    """The rounds of a study: ``rounds[strategy name][seed]``, from the first labels to the last."""

    problem: Problem
    trainer: str
    plan: Plan
    strategies: tuple[Strategy, ...]
    seeds: tuple[int, ...]
    rounds: dict[str, dict[int, list[Round]]] = field(repr=False)

    @property
    def labels(self) -> list[int]:
        """Labels at each point of the curves."""
        return [self.plan.initial + self.plan.budget * n for n in range(self.plan.rounds + 1)]

    @cached_property
    def _measured(self) -> dict[str, np.ndarray]:
        """By strategy: every metric, float64 (metrics, seeds, points)."""
        sizes, found = self.problem.domain_sizes, {}
        for name, by_seed in self.rounds.items():
            numbers = [
                [list(measure(made.cells, sizes).values()) for made in by_seed[seed]]
                for seed in self.seeds
            ]
            found[name] = np.moveaxis(np.array(numbers), 2, 0)
        return found

    def curves(self, metric: str) -> dict[str, np.ndarray]:
        """By strategy: a metric, float64 (seeds, points); NaN is null."""
        place = METRICS.index(metric)
        return {name: numbers[place] for name, numbers in self._measured.items()}

    def only(self, names: Sequence[str]) -> Outcome:
        """The same with some strategies alone."""
        return Outcome(
            self.problem,
            self.trainer,
            self.plan,
            tuple(strategy for strategy in self.strategies if strategy.name in set(names)),
            self.seeds,
            {name: self.rounds[name] for name in names},
        )

    def shares(self, strategy: str) -> np.ndarray:
        """What each round chose of each domain, on average over seeds, float64 (rounds, domains)."""
        by_seed = self.rounds[strategy]
        quotas = [[made.quota for made in by_seed[seed][:-1]] for seed in self.seeds]
        found: np.ndarray = np.asarray(quotas, np.float64).mean(axis=0) / self.plan.budget
        return found


@dataclass(frozen=True, eq=False)
class StudyWork:
    """The work of a study: ``work((strategy, seed)) -> bytes``, all rounds of one strategy and seed.

    Each round is stored in ``rounds`` when it is done, and read from there by whoever comes back.
    """

    problem: Problem
    trainer: Trainer
    plan: Plan
    rounds: Results

    def __call__(self, payload: tuple[Strategy, int]) -> bytes:
        """Follow one strategy from one seed."""
        strategy, seed = payload
        labelled = first_labels(self.problem, self.plan.initial, seed=seed)
        found: list[bytes] = []
        for number in range(self.plan.rounds + 1):
            budget = self.plan.budget if number < self.plan.rounds else 0
            key = round_key(self.problem, self.trainer, strategy, seed, number, budget, labelled)
            if not self.rounds.has(key):
                made = do_round(
                    self.problem,
                    self.trainer,
                    strategy,
                    labelled,
                    budget=budget,
                    seed=seed,
                    number=number,
                )
                self.rounds.write(key, pack_round(made))
            found.append(self.rounds.read(key))
            labelled = np.concatenate([labelled, unpack_round(found[-1]).chosen])
        return pack_many(found)


def round_key(
    problem: Problem,
    trainer: Trainer,
    strategy: Strategy,
    seed: int,
    number: int,
    budget: int,
    labelled: np.ndarray,
) -> str:
    """What a round is kept under: all that it depends on."""
    return unit_key(
        WORK,
        problem=problem.digest,
        trainer=dict(trainer.identity),
        strategy=strategy.name,
        seed=seed,
        number=number,
        budget=budget,
        labelled=sha256_text(canonical_json(labelled.tolist())),
    )


def run_study(
    problem: Problem,
    trainer: Trainer,
    strategies: Sequence[Strategy],
    *,
    plan: Plan,
    seeds: Sequence[int],
    runs: Path,
    executor: Executor | None = None,
    shard: Shard | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Follow every strategy from every seed; the same call again resumes.

    With ``shard`` only that share of strategies and seeds is followed here; until all are there,
    asking for the outcome is refused.
    """
    check_study(problem, strategies, plan=plan, seeds=seeds)
    stated = canonical_json({"problem": problem.digest, "trainer": dict(trainer.identity)})
    name = f"active-{sha256_text(stated)[:16]}"
    rounds = Results(runs / f"{name}-rounds")
    rounds.prepare(f"{name}-rounds")
    units = [
        Unit(
            unit_key(
                WORK,
                problem=problem.digest,
                trainer=dict(trainer.identity),
                strategy=strategy.name,
                seed=seed,
                plan=asdict(plan),
            ),
            (strategy, seed),
        )
        for strategy in strategies
        for seed in seeds
    ]
    summary = run(
        Job(name=name, work=StudyWork(problem, trainer, plan, rounds)),
        units,
        runs=runs,
        executor=executor,
        shard=shard,
        progress=progress,
    )
    if summary.failed:
        first = next(iter(summary.results.failures()))
        raise _fault(summary.failed, first.reason, first.traceback)
    done = sum(summary.results.has(unit.key) for unit in units)
    if done < len(units):
        raise ShardsMissing(problem.name, done, len(units))
    made: dict[str, dict[int, list[Round]]] = {strategy.name: {} for strategy in strategies}
    for unit in units:
        strategy, seed = unit.payload
        made[strategy.name][seed] = [
            unpack_round(data) for data in unpack_many(summary.results.read(unit.key))
        ]
    return Outcome(problem, trainer.name, plan, tuple(strategies), tuple(seeds), made)


def check_study(
    problem: Problem, strategies: Sequence[Strategy], *, plan: Plan, seeds: Sequence[int]
) -> None:
    """Refuse what cannot be run, before anything is trained."""
    candidates, tested = len(problem.rows(TRAIN)), len(problem.rows(TEST))
    if plan.total > candidates:
        raise UserError(
            f"{plan.total:,} labels are asked for, {problem.name} has {candidates:,} candidates",
            fix="give fewer rounds, a smaller budget or a larger share to train",
        )
    if not tested:
        raise UserError(f"{problem.name} has no test images", fix="give test a share, or a split")
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError("seeds must be given, each once", fix="such as --seeds 5")
    names = [strategy.name for strategy in strategies]
    if not names or len(set(names)) != len(names):
        raise UserError("strategies must be given, each once", fix="such as random,margin+error")
    needing = next((s.name for s in strategies if s.needs_validation), None)
    if needing is not None and not (problem.parts == 1).any():
        raise UserError(
            f"strategy {needing} needs validation images", fix="give validation a share, or a split"
        )


def _fault(failed: int, reason: str, trace: str) -> HeldoutError:
    kind, _, text = reason.partition(": ")
    if kind in ("NotApplicable", "UserError", "MismatchError"):
        return UserError(text)
    return HeldoutError(f"{failed} rounds failed; the first: {reason}\n{trace}")
