"""``heldout active``: where to spend the next labels, across domains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import (
    ImagesOption,
    JsonOption,
    LevelOption,
    ReplicatesOption,
    SaveOption,
    SeedOption,
    ShardOption,
    TruthOption,
    WorkersOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.engine import Executor
    from heldout.core.workspace import Workspace
    from heldout.curate.active.classifier import Trainer
    from heldout.data.testset.testset import TestSet
    from heldout.models.embeddings import Embeddings

app = typer.Typer(help="Choose images to label, across domains.", no_args_is_help=True)

ImagesArgument = Annotated[
    str, typer.Argument(help="Pool, test set or folder of images.", metavar="images")
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        "--features",
        "-f",
        help="Frozen features: vectors (a folder, .npy or .npz), conse, or a model such as lite0.",
    ),
]
DomainOption = Annotated[
    str,
    typer.Option(
        "--domain", "-d", help="Column of domains; folder:1 is the first folder of the path."
    ),
]
ClassOption = Annotated[
    str | None, typer.Option("--class", help="Column with classes, in the place of a truth.")
]
TrainerOption = Annotated[
    str, typer.Option(help="logistic, logistic:STRENGTH, or file.py:object (docs/active.md).")
]


@app.callback()
def _active() -> None:
    pass


@app.command("run")
def run(
    images: ImagesArgument,
    features: FeaturesOption = None,
    domain: DomainOption = "domain",
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            "-s",
            help="SELECTOR or SELECTOR+ALLOCATOR, several with commas; all for every one; repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Strategy to compare with; the first by default.")
    ] = None,
    initial: Annotated[int, typer.Option(help="First labels, drawn evenly.")] = 60,
    budget: Annotated[int, typer.Option(help="Labels of each round.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds after the first labels.")] = 10,
    seeds: Annotated[int, typer.Option(help="Runs of each strategy.")] = 5,
    seed: SeedOption = 0,
    trainer: TrainerOption = "logistic",
    truth: TruthOption = None,
    class_column: ClassOption = None,
    split: Annotated[
        str | None, typer.Option(help="Column with train, validation, test; drawn by default.")
    ] = None,
    shares: Annotated[
        str, typer.Option(help="Shares of train, validation and test, where they are drawn.")
    ] = "0.5,0.2,0.3",
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    images_at: ImagesOption = None,
    workers: WorkersOption = None,
    shard: ShardOption = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Try strategies on labelled images: accuracy over labels, by domain, with intervals."""
    from heldout.cli.tables import show_learning
    from heldout.core.engine import Shard
    from heldout.core.engine.jobs import ShardsMissing
    from heldout.core.errors import UserError
    from heldout.core.progress import image_progress
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.curate.active.classifier import load_trainer
    from heldout.curate.active.learning_curves import check_baseline, study_records
    from heldout.curate.active.strategies import parse_strategies
    from heldout.curate.active.study import LabelPlan, run_study
    from heldout.curate.active.task import PARTS, pool_problem

    strategies = parse_strategies(strategy or ["random,margin,margin+error"])
    chosen = load_trainer(trainer)
    if seeds < 1:
        raise UserError(f"{seeds} seeds", fix="give 1 or more")
    check_baseline(baseline, [each.name for each in strategies])
    place = Workspace.find(workspace)
    pool, vectors = _inputs(place, images, features, images_at, workers)
    problem, left = pool_problem(
        pool,
        vectors,
        domain=domain,
        truth=truth,
        class_column=class_column,
        split=split,
        shares=_shares(shares),
        split_seed=seed,
    )
    for count, what in (
        (left.without_class, "a single class"),
        (left.without_domain, "a domain"),
        (left.without_features, "features"),
    ):
        if count:
            note(f"{count:,} images without {what} are left out")
    sizes = ", ".join(f"{int((problem.parts == n).sum()):,} {p}" for n, p in enumerate(PARTS))
    say(f"{problem.name}: {len(problem):,} images ({sizes}), {len(problem.domain_names)} domains")
    share = None if shard is None else Shard.parse(shard)
    try:
        with (
            image_progress("active", what="runs") as progress,
            _executor(chosen, workers) as executor,
        ):
            outcome = run_study(
                problem,
                chosen,
                strategies,
                plan=LabelPlan(initial=initial, budget=budget, rounds=rounds),
                seeds=range(seed, seed + seeds),
                runs=place.runs,
                executor=executor,
                shard=share,
                progress=progress,
            )
    except ShardsMissing as missing:
        if share is None:
            raise
        counts = {"runs": missing.total, "runs_done": missing.done}
        emit([Count(name=key, value=value) for key, value in counts.items()], as_json=as_json)
        say(f"shard {shard} is done: {missing.message}; {missing.fix}")
        return
    records = study_records(
        outcome,
        baseline=baseline,
        domain=_column(domain),
        level=level,
        replicates=replicates,
        seed=seed,
        testset_hash=pool.content_hash,
    )
    emit(records, as_json=as_json, save=save, show=show_learning)


@app.command("next")
def next_images(
    images: ImagesArgument,
    budget: Annotated[int, typer.Option("--budget", "-n", help="How many images to choose.")],
    to: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write; NAME.csv and NAME.jsonl.")
    ],
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            "--labels", help="Labels so far: CSV or JSON lines of image_id, class_id; repeatable."
        ),
    ] = None,
    features: FeaturesOption = None,
    domain: DomainOption = "domain",
    strategy: Annotated[
        str, typer.Option("--strategy", "-s", help="SELECTOR or SELECTOR+ALLOCATOR.")
    ] = "margin",
    folds: Annotated[
        int, typer.Option(help="Folds of the labelled images, where held-out numbers are needed.")
    ] = 5,
    trainer: TrainerOption = "logistic",
    seed: SeedOption = 0,
    images_at: ImagesOption = None,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Choose the next images of a pool to label; a file that people and programs read."""
    from heldout.cli.tables import show_standing
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace
    from heldout.curate.active.classifier import load_trainer
    from heldout.curate.active.next_batch import batch_rows, next_batch, read_labels, write_batch
    from heldout.curate.active.strategies import parse_strategy
    from heldout.curate.active.task import unlabelled_problem
    from heldout.measure.score.slices import format_slice

    chosen, how = load_trainer(trainer), parse_strategy(strategy)
    known = read_labels(*(labels or ()))
    place = Workspace.find(workspace)
    pool, vectors = _inputs(place, images, features, images_at, workers)
    problem, left = unlabelled_problem(pool, vectors, domain=domain, labels=known)
    if left.unknown:
        note(f"{left.unknown:,} labels are of images that are not in {pool.name}")
    if left.without_domain or left.without_features:
        note(
            f"{left.without_domain:,} images without a domain and {left.without_features:,} without "
            "features cannot be chosen"
        )
    batch = next_batch(problem, chosen, how, budget=budget, seed=seed, folds=folds)
    paths = dict(
        zip(pool.images["image_id"].to_pylist(), pool.images["path"].to_pylist(), strict=True)
    )
    for path in write_batch(batch_rows(batch, paths), to):
        say(f"wrote {path}")
    counts = [
        Count(
            name=f"{name} {format_slice({_column(domain): row['domain']})}",
            value=row[name],
            testset=pool.name,
        )
        for row in batch.standing
        for name in ("candidates", "labelled", "chosen")
    ]
    emit(counts, as_json=as_json, show=lambda _: show_standing(batch.standing, how.name))


def _inputs(
    workspace: Workspace,
    images: str,
    features: str | None,
    images_at: str | None,
    workers: int | None,
) -> tuple[TestSet, Embeddings | None]:
    from heldout.core.errors import UserError
    from heldout.core.progress import image_progress
    from heldout.curate.active.task import pool_features
    from heldout.curate.zero_shot.label_pool import find_candidates

    found = find_candidates(workspace, images)
    if found.pool is None:
        raise UserError(
            f"{images} holds vectors alone",
            fix="name the pool or test set, and these as --features",
        )
    if features is None:
        return found.pool, None
    with image_progress("features") as progress:
        vectors = pool_features(
            found.pool,
            features,
            workspace=workspace,
            images=images_at or found.source,
            workers=workers,
            progress=progress,
        )
    for image, reason in list(vectors.facts.get("failures", {}).items())[:5]:
        note(f"{image}: {reason}")
    return found.pool, vectors


def _column(domain: str) -> str:
    """What the domains are called in records."""
    return "folder" if domain.startswith("folder:") else domain


def _shares(text: str) -> tuple[float, float, float]:
    from heldout.core.errors import UserError

    try:
        train, validation, test = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"{text!r} are no shares", fix="give three, such as 0.5,0.2,0.3") from None
    return train, validation, test


@contextmanager
def _executor(trainer: Trainer, workers: int | None) -> Iterator[Executor]:
    """Processes for the built-in trainer, each with one thread of linear algebra; else this one.

    Equal numbers of threads give equal bits, whatever the number of workers. A trainer of the
    user's own may hold a device, or what cannot be sent to another process.
    """
    from heldout.core.engine import Processes, Serial
    from heldout.curate.active.classifier import Logistic

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
