"""The verbs that spend labels: active run, active next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heldout.core.context import Context, Result
from heldout.core.engine import Executor, Processes, Serial, Shard
from heldout.core.engine.jobs import ShardsMissing
from heldout.core.errors import UserError
from heldout.core.records import counts
from heldout.core.request import unused
from heldout.curate.active.classifier import Logistic, Trainer, load_trainer
from heldout.curate.active.learning_curves import study_records
from heldout.curate.active.next_batch import check_batch, next_batch, read_labels, write_batch
from heldout.curate.active.requests import PARTS, Labelling, NextRequest, StudyRequest
from heldout.curate.active.strategies import parse_strategies, parse_strategy
from heldout.curate.active.study import METRICS, LabelPlan, check_study, run_study
from heldout.curate.active.task import LabelingTask, Left, pool_features, pool_problem
from heldout.curate.active.transfer import check_transfer, transfer_records
from heldout.curate.pool_images import find_images, note_failures
from heldout.data.testset.testset import TestSet
from heldout.measure.score.records import EFFICIENCY, Learning, Predicted, Record
from heldout.models.embeddings import is_embeddings

STRATEGIES = ("random", "margin", "margin+error")
"""What is tried where nothing is named."""
_LEVELS = METRICS[:-1]  # not the loss
_DIFFERENCES = ("accuracy", "mean_of_domains", "worst_domain")


def run(request: StudyRequest, context: Context) -> Result:
    """Follow every strategy from every seed: curves, and differences to one of them."""
    strategies = parse_strategies(request.strategies or STRATEGIES)
    trainer = load_trainer(request.trainer)
    plan = LabelPlan(initial=request.initial, budget=request.budget, rounds=request.rounds)

    def check(problem: LabelingTask) -> None:
        check_study(problem, strategies, plan)
        if request.transfer is not None:
            check_transfer(problem, request.transfer)

    pool, problem, left = _problem(
        request,
        context,
        check,
        truth=request.truth,
        class_column=request.class_column,
        split=request.split_column,
        split_seed=request.seed,
    )
    for count, what in (
        (left.without_class, "a single class"),
        (left.without_domain, "a domain"),
        (left.without_features, "features"),
    ):
        if count:
            context.note(f"{count:,} images without {what} are left out")
    sizes = ", ".join(f"{int((problem.parts == n).sum()):,} {p}" for n, p in enumerate(PARTS))
    context.say(
        f"{problem.name}: {len(problem):,} images ({sizes}), {len(problem.domain_names)} domains"
    )
    share = Shard.parse(request.shard) if request.shard else None
    try:
        with (
            context.progress("active", what="runs") as progress,
            _executor(trainer, request.workers) as executor,
        ):
            outcome = run_study(
                problem,
                trainer,
                strategies,
                plan=plan,
                seeds=range(request.seed, request.seed + request.seeds),
                runs=context.workspace.runs,
                executor=executor,
                shard=share,
                progress=progress,
            )
    except ShardsMissing as missing:
        if share is None:
            raise
        context.say(f"shard {request.shard} is done: {missing.message}; {missing.fix}")
        return Result(records=counts({"runs": missing.total, "runs_done": missing.done}))
    records = study_records(
        outcome,
        domain="folder" if request.domain.startswith("folder:") else request.domain,
        replicates=request.replicates,
        seed=request.seed,
        testset_hash=pool.content_hash,
    )
    more: list[Predicted] = []
    if request.transfer is not None:
        efficiencies = {
            record.strategy: record.value
            for record in records
            if isinstance(record, Learning) and record.metric == f"{EFFICIENCY}_accuracy"
        }
        more = transfer_records(outcome, trainer, request.transfer, efficiencies=efficiencies)
    return Result(records=[*records, *more], brief=[*headlines(records), *more])


def headlines(records: Sequence[Record]) -> list[Learning]:
    """Last points and means of the curves, and the differences of these means: over all images."""
    whole = [r for r in records if isinstance(r, Learning) and r.slice == "all"]
    last = max((r.labels or 0 for r in whole), default=0)
    levels = [
        r for r in whole if r.other is None and r.metric in _LEVELS and r.labels in (last, None)
    ]
    levels.sort(key=lambda r: (r.labels is None, _LEVELS.index(r.metric)))
    gaps = [r for r in whole if r.other and r.metric in _DIFFERENCES and r.labels is None]
    crossed = [r for r in gaps if r.interval is not None and "images" in r.interval]
    return [*levels, *(crossed or gaps)]


def choose(request: NextRequest, context: Context) -> Result:
    """The next images to label, and how the domains stand."""
    trainer, strategy = load_trainer(request.trainer), parse_strategy(request.strategy)
    known = read_labels(*request.labelled)
    pool, problem, left = _problem(
        request,
        context,
        lambda problem: check_batch(problem, strategy, request.budget),
        labels=known,
    )
    if left.unknown:
        context.note(f"{left.unknown:,} labels are of images that are not in {pool.name}")
    if left.without_domain or left.without_features:
        context.note(
            f"{left.without_domain:,} images without a domain and {left.without_features:,} without "
            "features cannot be chosen"
        )
    images = pool.images
    rows, standing = next_batch(
        problem,
        trainer,
        strategy,
        budget=request.budget,
        seed=request.seed,
        folds=request.folds,
        paths=dict(zip(images["image_id"].to_pylist(), images["path"].to_pylist(), strict=True)),
    )
    write_batch(rows, request.out)
    context.say(f"wrote {request.out}")
    return Result(records=standing)


def _problem(
    request: Labelling, context: Context, check: Callable[[LabelingTask], object], **columns: Any
) -> tuple[TestSet, LabelingTask, Left]:
    """The pool and its task; what cannot work is refused before features are made."""
    found = find_images(context, request.pool)
    if found.pool is None:
        raise UserError(
            f"{request.pool} holds vectors alone",
            fix="name the pool or test set, and these as --features",
        )
    bare = pool_problem(found.pool, None, domain=request.domain, **columns)
    check(bare[0])
    if request.features is None:
        return found.pool, *bare
    if is_embeddings(Path(request.features.removeprefix("embeddings:"))):
        unused(request, "vectors as {features}", "images")
    with context.progress("features") as progress:
        vectors = pool_features(
            found.pool,
            request.features,
            workspace=context.workspace,
            images=request.images or found.pool.source,
            workers=request.workers,
            progress=progress,
        )
    note_failures(vectors, context)
    return found.pool, *pool_problem(found.pool, vectors, domain=request.domain, **columns)


@contextmanager
def _executor(trainer: Trainer, workers: int | None) -> Iterator[Executor]:
    """Processes for the built-in trainer, each with one thread of linear algebra; else this one.

    Equal numbers of threads give equal bits, whatever the number of workers. A trainer of the
    user's own may hold a device, or what cannot be sent to another process.
    """
    if not isinstance(trainer, Logistic):
        yield Serial()
        return
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield Processes(workers)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
