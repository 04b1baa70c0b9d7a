"""``heldout doctor``: what is wrong, with the evidence and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit_json, out
from heldout.cli.options import (
    ClassesOption,
    ImagesOption,
    JsonOption,
    ModelArgsOption,
    TruthOption,
    WorkersOption,
    WorkspaceOption,
)


def doctor(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="The test set: name, alias or path.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Stored models to look at; all by default; repeatable."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Array of class ids or logits that is not imported yet; repeatable."),
    ] = None,
    order: Annotated[
        str, typer.Option(help="Rows of --file: testset, name, class, or a list.")
    ] = "testset",
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            help="Run this model (as for eval -m) on a sample under the likely other preprocessings; "
            "repeatable.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option(help="Images of the sample for --run.")] = 128,
    images: ImagesOption = None,
    workers: WorkersOption = None,
    model_args: ModelArgsOption = None,
    classes: ClassesOption = None,
    truth: TruthOption = None,
    cheap: Annotated[bool, typer.Option("--cheap", help="Leave out what takes long.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Look for wrong labels, ids, orders, columns, label spaces; with --run for wrong preprocessing."""
    from heldout.cli.tables import show_tried
    from heldout.core.arrays import load_array
    from heldout.core.errors import EXIT_FAULT, UserError
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace
    from heldout.data.importing import read_classes
    from heldout.data.testset import find_testset
    from heldout.measure.doctor.diagnose import diagnose, diagnose_array
    from heldout.measure.doctor.preprocessing import check_preprocessing
    from heldout.measure.evaluation.flow import stored_predictions
    from heldout.models.adapters import PredictionFile, load_models, parse_model_args
    from heldout.models.predictions import PredictionStore
    from heldout.models.predictions.import_arrays import outputs_from_logits

    place = Workspace.find(workspace)
    found_set = find_testset(place, testset)
    space = None if classes is None else read_classes(classes)
    findings = []
    if run:
        for item in load_models(run, model_args=parse_model_args(model_args or [])):
            if isinstance(item, PredictionFile):
                raise UserError(f"{item.path} cannot be run", fix="look at it with --file")
            with image_progress(item.name, what="images x preprocessings") as progress:
                tried = check_preprocessing(
                    item,
                    found_set,
                    images=images or None,
                    sample=sample,
                    truth=truth,
                    workers=workers,
                    progress=progress,
                )
            if not as_json:
                show_tried(tried)
            findings += tried.findings
    elif file:
        for path in file:
            values = load_array(path)
            if values.ndim == 2 and values.dtype.kind == "f":
                size = len(space or found_set.label_space)
                values = outputs_from_logits(values, path, classes=size).topk
            findings += diagnose_array(
                found_set,
                values,
                model=path.stem,
                order=order,
                label_space=space,
                truth=truth,
                cheap=cheap,
            )
    else:
        runs = PredictionStore(place.predictions).runs(found_set.card.images_hash)
        named = model or []
        outputs = stored_predictions(found_set, named, workspace=place) if runs or named else ()
        findings = diagnose(found_set, outputs, truth=truth, cheap=cheap)
    if as_json:
        emit_json([finding.to_dict() for finding in findings])
    elif not findings:
        out(f"{found_set.name}: nothing found")
    else:
        for finding in findings:
            out(f"{finding.severity}: {finding.line}")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(EXIT_FAULT)
