"""The verb doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from heldout.core.arrays import load_array
from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAULT, UserError
from heldout.data.importing import read_classes
from heldout.data.testset import TestSet, find_testset
from heldout.measure.doctor.diagnose import diagnose, diagnose_array
from heldout.measure.doctor.findings import Finding
from heldout.measure.doctor.preprocessing import SAMPLE, Tried, check_preprocessing
from heldout.measure.doctor.requests import DoctorRequest
from heldout.models.adapters import PredictionFile, load_models, parse_model_args
from heldout.models.predictions import Predictions, PredictionStore
from heldout.models.predictions.import_arrays import outputs_from_logits
from heldout.models.predictions.ledger import stored_predictions


def doctor(request: DoctorRequest, context: Context) -> Result:
    """What is wrong with a test set, with models' outputs on it, or with a model's preprocessing."""
    testset = context.find(request.testset, find_testset)
    tried: list[Tried] = []
    if request.run:
        tried = _run(request, testset, context)
        findings = [finding for each in tried for finding in each.findings]
    elif request.files:
        findings = [found for path in request.files for found in _array(request, testset, path)]
    else:
        findings = diagnose(testset, _outputs(request, testset, context), truth=request.truth)
    trials = [trial for each in tried for trial in each.trials]
    lines = [f"{finding.severity}: {finding.line}" for finding in findings]
    return Result(
        records=[*trials, *findings],
        brief=trials,
        lines=lines or [f"{testset.name}: nothing found"],
        code=EXIT_FAULT if any(f.severity == "error" for f in findings) else EXIT_DONE,
    )


def _outputs(request: DoctorRequest, testset: TestSet, context: Context) -> Iterator[Predictions]:
    """Predictions in memory and stored ones; of all stored models where none is named."""
    named = [name for name in request.models if name not in context.bound]
    yield from (context.bound[name] for name in request.models if name in context.bound)
    store = PredictionStore(context.workspace.predictions)
    if named or (not request.models and store.runs(testset.card.images_hash)):
        yield from stored_predictions(testset, named, workspace=context.workspace)


def _array(request: DoctorRequest, testset: TestSet, path: Path) -> list[Finding]:
    space = None if request.classes is None else read_classes(request.classes)
    values = load_array(path)
    if values.ndim == 2 and values.dtype.kind == "f":
        size = len(space or testset.label_space)
        values = outputs_from_logits(values, path, classes=size).topk
    return diagnose_array(
        testset,
        values,
        model=path.stem,
        order=request.order or "testset",
        label_space=space,
        truth=request.truth,
    )


def _run(request: DoctorRequest, testset: TestSet, context: Context) -> list[Tried]:
    names = [name for name in request.run if name not in context.bound]
    models = [context.bound[name] for name in request.run if name in context.bound]
    models += load_models(names, model_args=parse_model_args(request.model_args))
    tried = []
    for model in models:
        if isinstance(model, PredictionFile):
            raise UserError(f"{model.path} cannot be run", fix="look at it with --file")
        with context.progress(model.name, what="images x preprocessings") as progress:
            tried.append(
                check_preprocessing(
                    model,
                    testset,
                    images=request.images,
                    sample=request.limit or SAMPLE,
                    truth=request.truth,
                    workers=request.workers,
                    progress=progress,
                )
            )
    return tried
