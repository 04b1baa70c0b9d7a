"""``heldout build hard``: a test set of the images that models get plainly wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    ModelOption,
    ReplaceOption,
    WorkspaceOption,
)


def hard(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set to choose from: name, alias or path.")
    ] = "",
    model: ModelOption = None,
    wrong: Annotated[
        int | None, typer.Option(help="Models that must be wrong; all of them by default.")
    ] = None,
    major: Annotated[
        int | None,
        typer.Option(
            help="Models whose mistake the panel must call Major; as many as --wrong by default."
        ),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option(help="Severity that counts; repeatable; Major by default."),
    ] = None,
    truth: Annotated[
        str | None,
        typer.Option(help="Truth that says what is right; the multi-label one by default."),
    ] = None,
    rule: Annotated[
        str, typer.Option(help="majority, plurality, unanimous, threshold or dawid-skene.")
    ] = "majority",
    share: Annotated[
        float | None, typer.Option(help="Share of votes, for threshold and dawid-skene.")
    ] = None,
    people: Annotated[int, typer.Option(min=1, help="People that a ruling needs.")] = 1,
    every_label: Annotated[
        bool,
        typer.Option(
            "--every-label/--some-labels",
            help="Drop images with a prediction of these models that nobody has reviewed.",
        ),
    ] = True,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; in the workspace by default."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the set; TESTSET-hard by default.")
    ] = None,
    exclude: ExcludeOption = None,
    replace: ReplaceOption = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only count; write nothing.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Images that k of n models get wrong, plainly so for a panel, every label reviewed (ImageNet-M).

    Judgements come from the workspace: heldout mistakes queue --aim hard asks for them.
    """
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.curate.build import run_recipe
    from heldout.curate.hard import first_guesses, judged, recipe
    from heldout.curate.parameters import from_dict
    from heldout.curate.recipe import Source
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.data.testset import find_testset
    from heldout.data.testset.pool import pool_of
    from heldout.measure.evaluation.flow import stored_predictions
    from heldout.measure.score.records import Count

    if not testset:
        raise UserError("no test set is named", fix="name it with -t")
    place = Workspace.find(workspace)
    parent = find_testset(place, testset)
    kinds = [n for n, where in parent.card.truths.items() if where.get("kind") == "multilabel"]
    given: dict[str, Any] = {
        "wrong": wrong,
        "major": major,
        "severities": severity or None,
        "truth": truth or (kinds[0] if kinds else parent.card.default_truth),
        "rule": rule,
        "share": share,
        "people": people,
        "every_label": every_label,
    }
    parameters = from_dict(
        recipe.parameters, {key: value for key, value in given.items() if value is not None}
    )
    chosen = [text for text in model or [] if text != "all"]
    sources: dict[str, Source] = {
        "pool": pool_of(parent),
        "predictions": first_guesses(
            parent, stored_predictions(parent, chosen, workspace=place, exclude=exclude or ())
        ),
        "judgements": judged(
            judgements_about(parent, place.judgements), parent.image_ids.to_pylist()
        ),
    }
    if plan:
        found = recipe.plan(sources, parameters)
        counts = {"pool": len(parent), **found.counts, "images": len(found.images)}
        counts["waiting"] = len(found.waiting)
        emit(
            [Count(name=stage, value=n, testset=parent.name) for stage, n in counts.items()],
            as_json=as_json,
        )
        return
    folder = to or place.testsets / (name or f"{parent.name}-hard")
    made = run_recipe(
        recipe,
        sources,
        folder=folder,
        runs=place.runs,
        parameters=parameters,
        name=name,
        replace=replace,
    )
    for text in made.card.notes:
        note(text)
    emit(
        [Count(name=n, value=value, testset=made.name) for n, value in made.card.counts.items()],
        as_json=as_json,
    )
    say(
        f"{folder}: {len(made):,} images of {made.card.counts['classes']} classes, "
        f"{made.card.content_hash[:12]}"
    )
