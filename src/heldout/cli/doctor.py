"""``heldout doctor``: what is wrong, with the evidence and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit_json, out
from heldout.cli.options import ClassesOption, JsonOption, TruthOption, WorkspaceOption


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
    classes: ClassesOption = None,
    truth: TruthOption = None,
    cheap: Annotated[bool, typer.Option("--cheap", help="Leave out what takes long.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Look for permuted labels, sorted folders, off-by-one ids, reversed columns, wrong label spaces."""
    from heldout.arrays import load_array
    from heldout.doctor import diagnose, diagnose_array
    from heldout.errors import EXIT_FAULT
    from heldout.evaluation.flow import stored_predictions
    from heldout.predictions import PredictionStore
    from heldout.testset import find_testset
    from heldout.testset.importers import read_classes
    from heldout.workspace import Workspace

    place = Workspace.find(workspace)
    found_set = find_testset(place, testset)
    space = None if classes is None else read_classes(classes)
    findings = []
    if file:
        for path in file:
            findings += diagnose_array(
                found_set,
                load_array(path),
                model=path.stem,
                order=order,
                label_space=space,
                truth=truth,
                cheap=cheap,
            )
    else:
        runs = PredictionStore(place.predictions).runs(found_set.card.images_hash)
        outputs = stored_predictions(found_set, model or [], workspace=place) if runs else ()
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
