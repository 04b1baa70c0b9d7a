"""A study: every strategy from every seed, round by round, resumable; and what each round measures."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from heldout.core.engine import (
    Executor,
    JobResults,
    Progress,
    Shard,
    Unit,
    no_progress,
    unit_key,
)
from heldout.core.engine.jobs import map_units
from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.active.classifier import Trainer, outputs
from heldout.curate.active.strategies import (
    DomainStatus,
    SelectorInput,
    Strategy,
    atc_threshold,
    confidence,
    log_probabilities,
)
from heldout.curate.active.task import TEST, TRAIN, VALIDATION, LabelingTask
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.models.adapters.model import ModelOutput

METRICS = ("accuracy", "ambient", "mean_of_domains", "worst_domain", "worst_cell", "loss")


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of test images.

    ``images``  by domain and class, int64 (domains, classes); ``right`` likewise, of the right ones
    ``losses``  summed over the images of each domain, float64 (domains,)
    """

    images: np.ndarray
    right: np.ndarray
    losses: np.ndarray


def count_cells(
    logits: np.ndarray, labels: np.ndarray, domains: np.ndarray, *, count: int
) -> Cells:
    """The cells of labelled images: ``logits`` (n, classes), ``labels`` (n,), ``domains`` (n,)."""
    classes = logits.shape[1]
    place = domains * classes + labels
    correct = logits.argmax(axis=1) == labels
    losses = -log_probabilities(logits)[np.arange(len(labels)), labels]
    shape = (count, classes)
    return Cells(
        np.bincount(place, minlength=count * classes).reshape(shape),
        np.bincount(place[correct], minlength=count * classes).reshape(shape),
        np.bincount(domains, weights=losses, minlength=count),
    )


def domain_accuracy(cells: Cells) -> np.ndarray:
    """Accuracy of every domain, float64 (domains,); NaN without images."""
    return _share(cells.right.sum(axis=1), cells.images.sum(axis=1))


def domain_loss(cells: Cells) -> np.ndarray:
    """Mean loss of every domain, float64 (domains,); NaN without images."""
    return _share(cells.losses, cells.images.sum(axis=1))


def measure(cells: Cells, sizes: np.ndarray) -> Mapping[str, float]:
    """All numbers of :data:`METRICS`; ``sizes`` (domains,) are the natural mix. NaN is null."""
    accuracy, total = domain_accuracy(cells), cells.images.sum()
    return {
        "accuracy": float(_share(cells.right.sum(), total)),
        "ambient": _weighted(accuracy, sizes),
        "mean_of_domains": _weighted(accuracy, np.ones(len(accuracy))),
        "worst_domain": _least(accuracy),
        "worst_cell": _least(_share(cells.right, cells.images)),
        "loss": float(_share(cells.losses.sum(), total)),
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    empty = np.full(np.shape(whole), np.nan)
    return np.asarray(np.divide(part, whole, out=empty, where=np.asarray(whole) > 0))


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    chosen = np.where(np.isfinite(values), weights, 0).astype(np.float64)
    return float(_share((np.nan_to_num(values) * chosen).sum(), chosen.sum()))


def _least(values: np.ndarray) -> float:
    there = values[np.isfinite(values)]
    return float(there.min()) if len(there) else float("nan")


@dataclass(frozen=True, eq=False, kw_only=True)
class Round(Cells):
    """What came out of a round, with the counts of the test images.

    ``labels``   how many images were trained on
    ``correct``  which test images are right, bool (test,)
    ``chosen``   rows of the problem to label next, best first; empty in the last round
    ``quota``    of every domain, int64 (domains,): what ``chosen`` holds of it
    """

    labels: int
    correct: np.ndarray
    chosen: np.ndarray
    quota: np.ndarray


def first_labels(problem: LabelingTask, count: int, *, seed: int) -> np.ndarray:
    """The images that are labelled first: drawn evenly from the candidates, int64 (count,).

    The same for every strategy; a smaller count gives a part of a larger.
    """
    rows = problem.rows(TRAIN)
    hashes = row_hash(problem.id_column.take(rows), seed=derived_seed("active first labels", seed))
    return rows[np.argsort(hashes, kind="stable")[:count]]


Answer = Callable[[np.ndarray], ModelOutput]
"""What a classifier says of the images at some rows."""


def trained_on(problem: LabelingTask, trainer: Trainer, rows: np.ndarray, *, seed: int) -> Answer:
    """The classifier that is trained on the labels of some rows."""
    classes = len(problem.classes)
    trained = trainer(
        problem.images(rows),
        problem.labels[rows],
        classes=classes,
        seed=derived_seed("train", seed),
    )

    def answer(at: np.ndarray) -> ModelOutput:
        return outputs(trained, problem.images(at), classes=classes, name=trainer.name)

    return answer


def do_round(
    problem: LabelingTask,
    trainer: Trainer,
    strategy: Strategy,
    labelled: np.ndarray,
    *,
    budget: int,
    seed: int,
    number: int,
) -> Round:
    """Train on the rows ``labelled``, evaluate on the test images, choose ``budget`` more.

    The order of ``labelled`` makes no difference. ``number`` counts rounds from 0.
    """
    rows, domains = np.sort(labelled), len(problem.domain_names)
    answer = trained_on(problem, trainer, rows, seed=seed)
    test = problem.rows(TEST)
    logits = answer(test).logits
    chosen = np.zeros(0, np.int64)
    if budget:
        train, validation = problem.rows(TRAIN), problem.rows(VALIDATION)
        chosen, _, _ = choose_next(
            problem,
            strategy,
            budget,
            candidates=train[~np.isin(train, rows)],
            labelled=rows,
            answer=answer,
            held_out=(validation, answer(validation).logits) if len(validation) else None,
            sizes=problem.domain_sizes,
            seed=derived_seed(f"active round {number}", seed),
        )
    return Round(
        labels=len(rows),
        **vars(count_cells(logits, problem.labels[test], problem.domains[test], count=domains)),
        correct=logits.argmax(axis=1) == problem.labels[test],
        chosen=chosen,
        quota=np.bincount(problem.domains[chosen], minlength=domains),
    )


def choose_next(
    problem: LabelingTask,
    strategy: Strategy,
    budget: int,
    *,
    candidates: np.ndarray,
    labelled: np.ndarray,
    answer: Answer | None,
    held_out: tuple[np.ndarray, np.ndarray] | None,
    sizes: np.ndarray,
    seed: int,
) -> tuple[np.ndarray, DomainStatus, np.ndarray | None]:
    """The rows to label next, best first; how the domains stand; logits of the candidates.

    ``candidates``, ``labelled``  rows
    ``answer``    the classifier; None where there are no labels for one yet
    ``held_out``  labelled rows that were not trained on, and their logits
    ``sizes``     (domains,): the natural mix
    """
    logits = features = known = None
    if answer is not None:
        found = answer(candidates)
        logits, features = found.logits, found.features
        known = None if features is None else answer(labelled).features
    elif problem.features is not None:
        features, known = problem.features[candidates], problem.features[labelled]
    groups, count = problem.domains[candidates], len(problem.domain_names)
    rows, held_logits = held_out or (None, None)
    view = SelectorInput(
        ids=problem.id_column.take(candidates),
        groups=groups,
        domains=count,
        seed=seed,
        logits=logits,
        features=features,
        labelled=known,
        validation_logits=held_logits,
        validation_labels=None if rows is None else problem.labels[rows],
        validation_groups=None if rows is None else problem.domains[rows],
    )
    unknown = np.full(count, np.nan)
    errors = losses = sure = expected = confidences = unknown
    if logits is not None:
        confidences = _means(confidence(logits), groups, count)
    if rows is not None and held_logits is not None:
        held, labels = problem.domains[rows], problem.labels[rows]
        cells = count_cells(held_logits, labels, held, count=count)
        errors, losses = 1.0 - domain_accuracy(cells), domain_loss(cells)
        scores = confidence(held_logits)
        sure = _means(scores, held, count)
        if logits is not None:
            limit = atc_threshold(scores, held_logits.argmax(axis=1) == labels)
            expected = _means((confidence(logits) < limit).astype(np.float64), groups, count)
    standing = DomainStatus(
        sizes=sizes,
        labelled=np.bincount(problem.domains[labelled], minlength=count),
        capacities=np.bincount(groups, minlength=count),
        errors=errors,
        losses=losses,
        confidences=confidences,
        validation_confidences=sure,
        estimated_errors=expected,
    )
    quota = strategy.allocator(standing, budget)
    return candidates[strategy.selector(view, budget, quota)], standing, logits


def _means(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    sums = np.bincount(groups, weights=values, minlength=count)
    return _share(sums, np.bincount(groups, minlength=count))


def pack_round(made: Round) -> bytes:
    """A round as bytes; equal rounds, equal bytes."""
    handle = io.BytesIO()
    np.savez(handle, **vars(made))
    return handle.getvalue()


def unpack_round(data: bytes) -> Round:
    """What :func:`pack_round` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return Round(**{**arrays, "labels": int(arrays["labels"])})


WORK = "active-round-2"
"""Name and version of the work: part of every round's key, raised when results would change."""


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """How labels are spent: ``initial`` first, then ``budget`` more in each of ``rounds``."""

    initial: int
    budget: int
    rounds: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """The rounds of a study: ``rounds[strategy name][seed]``, from the first labels to the last."""

    problem: LabelingTask
    plan: LabelPlan
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
                [list(measure(made, sizes).values()) for made in by_seed[seed]]
                for seed in self.seeds
            ]
            found[name] = np.moveaxis(np.array(numbers), 2, 0)
        return found

    def curves(self, metric: str) -> dict[str, np.ndarray]:
        """By strategy: a metric, float64 (seeds, points); NaN is null."""
        place = METRICS.index(metric)
        return {name: numbers[place] for name, numbers in self._measured.items()}


@dataclass(frozen=True, eq=False)
class StudyWork:
    """The work of a study: ``work((strategy, seed)) -> bytes``, the keys of all its rounds, by line.

    Each round is stored in ``rounds`` when it is done, and read from there by whoever comes back.
    """

    problem: LabelingTask
    trainer: Trainer
    plan: LabelPlan
    rounds: JobResults

    def __call__(self, payload: tuple[Strategy, int]) -> bytes:
        """Follow one strategy from one seed."""
        strategy, seed = payload
        labelled = first_labels(self.problem, self.plan.initial, seed=seed)
        keys: list[str] = []
        for number in range(self.plan.rounds + 1):
            budget = self.plan.budget if number < self.plan.rounds else 0
            key = unit_key(
                WORK,
                problem=self.problem.digest,
                trainer=dict(self.trainer.identity),
                strategy=strategy.name,
                seed=seed,
                number=number,
                budget=budget,
                labelled=sha256_text(canonical_json(labelled.tolist())),
            )
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
            keys.append(key)
            labelled = np.concatenate([labelled, unpack_round(self.rounds.read(key)).chosen])
        return "\n".join(keys).encode()


def run_study(
    problem: LabelingTask,
    trainer: Trainer,
    strategies: Sequence[Strategy],
    *,
    plan: LabelPlan,
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
    check_study(problem, strategies, plan)
    stated = canonical_json({"problem": problem.digest, "trainer": dict(trainer.identity)})
    name = f"active-{sha256_text(stated)[:16]}"
    rounds = JobResults(runs / f"{name}-rounds")
    rounds.prepare(f"{name}-rounds")
    units = [
        Unit(
            unit_key(
                "active-run-2",
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
    results = map_units(
        StudyWork(problem, trainer, plan, rounds),
        units,
        name=name,
        what=f"runs of the study of {problem.name}",
        runs=runs,
        executor=executor,
        shard=shard,
        progress=progress,
    )
    made: dict[str, dict[int, list[Round]]] = {strategy.name: {} for strategy in strategies}
    for unit in units:
        strategy, seed = unit.payload
        keys = results.read(unit.key).decode().split("\n")
        made[strategy.name][seed] = [unpack_round(rounds.read(key)) for key in keys]
    return Outcome(problem, plan, tuple(strategies), tuple(seeds), made)


def check_study(problem: LabelingTask, strategies: Sequence[Strategy], plan: LabelPlan) -> None:
    """Refuse what cannot be run, before anything is trained."""
    candidates, tested = len(problem.rows(TRAIN)), len(problem.rows(TEST))
    asked = plan.initial + plan.budget * plan.rounds
    if asked > candidates:
        raise UserError(
            f"{asked:,} labels are asked for, {problem.name} has {candidates:,} candidates",
            fix="give fewer rounds or a smaller budget",
        )
    if not tested:
        raise UserError(
            f"{problem.name} has no test images", fix="name images for test in the split"
        )
    needing = next((s.name for s in strategies if s.needs_validation), None)
    if needing is not None and not len(problem.rows(VALIDATION)):
        raise UserError(
            f"strategy {needing} needs validation images",
            fix="name images for validation in the split",
        )
