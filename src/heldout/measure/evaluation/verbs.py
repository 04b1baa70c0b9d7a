"""The verbs that evaluate: eval, predict, score, compare, fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from heldout.core.context import Context, Result
from heldout.core.engine import Shard
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES, EXIT_GATE, UserError
from heldout.core.files import check_writable, csv_text, write_text
from heldout.data.testset import TestSet, find_testset
from heldout.measure.evaluation.flow import (
    Results,
    against,
    measure_outputs,
    read_output,
    read_outputs,
    score_pooled,
)
from heldout.measure.evaluation.headlines import planning_lines
from heldout.measure.evaluation.prediction import (
    FailedImage,
    FailedRows,
    Forecast,
    choose,
    distinct,
    failed_images,
    forecast,
    limited,
    note_failures,
)
from heldout.measure.evaluation.requests import (
    CompareRequest,
    EvaluateRequest,
    FitRequest,
    PredictRequest,
    ScoreRequest,
)
from heldout.measure.evaluation.resolve import Evaluation, drawn, image_source, misses, resolve
from heldout.measure.score.compare import (
    Contrasts,
    consistency_records,
    contrasts,
    simultaneous,
)
from heldout.measure.score.fits import AXES, fit_lines, fit_points, read_population
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.records import Comparison
from heldout.measure.score.selection_adjusted import adjusted_scores, held_out_record, voted_sets
from heldout.models.adapters import Model, parse_model_args
from heldout.models.adapters.user_code import check_models
from heldout.models.predictions import PredictionStore, StoredRun
from heldout.models.predictions.import_arrays import write_published
from heldout.models.predictions.run_models import predict as run_models

_SHOWN_FAILURES = 10


def evaluate(request: EvaluateRequest, context: Context) -> Result:
    """Predict what is missing, then measure, score, compare and fit."""
    check_writable(request.out)
    job = resolve(request, context)
    how = _how(request, context)
    models = job.chosen.models
    if request.rerun and not models:
        raise UserError(
            "no model is named that can run again",
            fix="name it as what runs, such as timm:NAME or file.py:object",
        )
    plans = list(_plans(job.testsets, models, how, context)) if models else []
    if request.plan:
        if not plans:
            context.say("nothing to run: all outputs are stored or in files")
        return Result(records=plans)
    results = measure_outputs(job, _predicted(plans, models, how, context))
    page = report_path(request, context)
    _list_failures(results.failures, page.with_name(f"{page.stem}-failed.csv"), context)
    missed = misses(results.records, job.gates)
    for line in missed:
        context.say(f"gate not met: {line}")
    results.code = EXIT_GATE if missed else EXIT_FAILED_IMAGES if results.failures else EXIT_DONE
    return results


def report_path(request: EvaluateRequest, context: Context) -> Path:
    """Where the report goes."""
    return request.out or context.workspace.runs / "eval" / "report.html"


def _how(request: EvaluateRequest | PredictRequest, context: Context) -> dict[str, Any]:
    """How models are run."""
    return {
        "workspace": context.workspace,
        "images": image_source(request, context),
        "keep": request.keep,
        "workers": request.workers,
        "rerun": request.rerun,
    }


def _plans(
    testsets: Sequence[TestSet], models: Sequence[Model], how: dict[str, Any], context: Context
) -> Iterator[Forecast]:
    """What will run on each test set, said before anything runs."""
    for testset in testsets:
        plan = forecast(testset, models, **how)
        for line in plan.lines:
            context.say(line)
        check_models(entry.model for entry in plan.plan.pending)
        yield plan


def _predicted(
    plans: Sequence[Forecast],
    models: Sequence[Model],
    how: dict[str, Any],
    context: Context,
    shard: Shard | None = None,
) -> list[list[StoredRun]]:
    """Run what is planned; the stored runs of each plan, in the order of the models."""
    found = []
    for plan in (item.plan for item in plans):
        runs = list(plan.stored)
        if plan.pending:
            with context.progress(f"{plan.testset.name} × {len(plan.pending)}") as progress:
                runs = run_models(
                    plan.testset, models, plan=plan, shard=shard, progress=progress, **how
                )
        found.append(runs)
    return found


def _list_failures(failures: Sequence[FailedImage], to: Path, context: Context) -> None:
    """Images without an output: the first ones are said, all of them go to a CSV file."""
    if not failures:
        to.unlink(missing_ok=True)
        return
    for failure in failures[:_SHOWN_FAILURES]:
        context.say(f"failed: {failure.line}")
    rows = [[f.testset, f.image_id, f.reason, ", ".join(f.models)] for f in failures]
    write_text(to, csv_text(["testset", "image_id", "reason", "models"], rows))
    more = len(failures) - _SHOWN_FAILURES
    context.say(
        f"{f'{more:,} more' if more > 0 else 'all of them'} in {to}; once they are fixed, heldout "
        "prune -t SET -m MODEL --delete lets a model run again"
    )


def predict(request: PredictRequest, context: Context) -> Result:
    """Run models on test sets into the store."""
    whole = distinct([context.find(name, find_testset) for name in request.testsets])
    chosen = choose(
        [context.bound.get(name, name) for name in request.models],
        whole,
        model_args=parse_model_args(request.model_args),
        workspace=context.workspace,
    )
    if chosen.files:
        raise UserError(
            f"{chosen.files[0].path} holds predictions already",
            fix="use heldout import predictions",
        )
    models = chosen.models
    names = chosen.names if request.out else ()
    if not models and not names:
        raise UserError("no model is named", fix="name one with -m, such as -m lite0")
    testsets = [limited(item, request.limit) for item in whole]
    how = _how(request, context)
    plans = list(_plans(testsets, models, how, context)) if models else []
    if request.plan:
        return Result(records=plans)
    shard = None if request.shard is None else Shard.parse(request.shard)
    failures: list[FailedImage] = []
    records: list[StoredRun] = []
    made = _predicted(plans, models, how, context, shard) if models else [[] for _ in testsets]
    store = PredictionStore(context.workspace.predictions)
    for testset, ran in zip(testsets, made, strict=True):
        named = store.select(testset.card.images_hash, names, testset=testset.name) if names else []
        runs = list({run.folder: run for run in (*ran, *named)}.values())
        if request.out is not None:
            for run in runs:
                write_published(store.read(run, values=False), testset, request.out)
        records += runs
        failed: FailedRows = {}
        for run in runs:
            if run.run["failed"]:
                note_failures(read_output(run), testset, failed)
        failures += failed_images(testset, failed)
        done = f"{len(runs)} of {len(models) + len(runs) - len(ran)} models are complete"
        worst = max((run.run["failed"] for run in runs), default=0)
        context.say(f"{testset.name}: {done}, {worst} images failed")
    _list_failures(failures, context.workspace.runs / "predict-failed.csv", context)
    return Result(records=records, code=EXIT_FAILED_IMAGES if failures else EXIT_DONE)


def score(request: ScoreRequest, context: Context) -> Result:
    """The same evaluation, of what is stored."""
    if request.pooled:
        return score_pooled(request, context)
    job = resolve(request, context)
    if request.adjust_to is None:
        return measure_outputs(job)
    return _adjusted(job, request.adjust_to)


def _adjusted(job: Evaluation, to: str) -> Result:
    """The scores, and on each other set the accuracy at the true selection frequencies of one."""
    context = job.context
    original = context.find(to, find_testset)
    pools = [one for one in job.testsets if one.card.content_hash != original.card.content_hash]
    if not pools:
        raise UserError(
            f"there is no pool beside {original.name} to adjust", fix="name one with -t"
        )
    voted = [
        voted_sets(pool, original, context.workspace.judgements, cluster=job.cluster(pool))
        for pool in pools
    ]
    results = measure_outputs(job)
    found: list[Any] = []
    for sets in voted:
        measured = [item for item in results.measured if item.testset is sets.pool]
        found += adjusted_scores(measured, sets, level=job.request.level)
        found.append(held_out_record(sets, level=job.request.level))
        for line in sets.lines:
            context.note(line)
    results.records = (*results.records, *found)
    results.brief = [*(results.brief or ()), *found]
    return results


def _measured(job: Evaluation) -> Iterator[Measured]:
    """One metric on every test set."""
    for testset in job.testsets:
        (found,) = measure(
            testset,
            read_outputs(job, testset),
            metrics=job.request.metrics,
            truth=job.request.truth,
        )
        yield found


def _stored(request: CompareRequest | FitRequest, context: Context, **given: Any) -> Evaluation:
    """The evaluation behind a comparison or a fit."""
    return resolve(ScoreRequest(models=request.models, metrics=(request.metric,), **given), context)


def compare(request: CompareRequest, context: Context) -> Result:
    """Each model against the first one, or all pairs, on every test set, all corrected together."""
    job = _stored(
        request,
        context,
        testsets=request.testsets,
        truth=request.truth,
        cluster=request.cluster,
        **drawn(request),
    )
    records: list[Comparison] = []
    compared: list[Contrasts] = []
    measured: list[Measured] = []
    for found in _measured(job):
        name = found.testset.name
        if len(found.models) < 2:
            listed = ", ".join(request.models)
            raise UserError(f"{listed} is one model on {name}", fix="name at least two")
        first = request.models[0] if request.models[0] in found.models else found.models[0]
        pairs = [(model, first) for model in found.models if model != first]
        if request.all_pairs:
            pairs = list(combinations(found.models, 2))
        cluster = job.cluster(found.testset)
        if request.consistency:
            records += consistency_records(found, pairs, cluster=cluster, level=request.level)
        else:
            compared += contrasts(found, pairs, by=request.by, cluster=cluster, **job.drawn)
        measured.append(found)
    records += simultaneous(compared, level=request.level)
    lines = list(planning_lines(records, measured, request.level))
    return Results(records=tuple(records), lines=lines, measured=tuple(measured))


def fit(request: FitRequest, context: Context) -> Result:
    """A line of new on original accuracy."""
    if request.population:
        population = read_population(
            request.population, x=str(request.x), y=str(request.y), exclude=request.exclude
        )
        if population.dropped:
            context.note(
                f"{population.dropped} models are left out: excluded, without both accuracies, or "
                "at 0 or 100 %"
            )
        names: dict[str, Any] = {"testset": population.y_name, "baseline": population.x_name}
        records = [
            fit_points(population.x, population.y, axes=axes, **names, level=request.level)
            for axes in AXES
        ]
        return Results(records=tuple(records))
    testsets = dict.fromkeys((str(request.baseline), *request.testsets))
    job = _stored(
        request,
        context,
        testsets=tuple(testsets),
        baseline=request.baseline,
        exclude=request.exclude,
    )
    measured = tuple(_measured(job))
    new, base = against(measured, str(job.baseline))
    records = fit_lines(new, base, level=request.level)
    missing = len({name for m in measured for name in m.models}) - min(r.models for r in records)
    if missing:
        context.note(f"{missing} models are not on every set")
    return Results(records=tuple(records), measured=measured)
