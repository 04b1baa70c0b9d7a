"""``heldout mistakes queue``: what a person should judge next, as a file to fill in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, note, out, print_table, say
from heldout.cli.mistakes_inputs import CollapseOption, TruthsOption, read_inputs
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    ModelOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.cli.mistakes_inputs import Inputs
    from heldout.data.labels.label_map import LabelMap
    from heldout.measure.mistakes.categories import Proposal
    from heldout.measure.mistakes.verdicts import Mistake, Verdicts

_SHOWN = 10

PeopleOption = Annotated[
    int, typer.Option(min=1, help="People that must have judged a pair for it to be settled.")
]
AverageOption = Annotated[
    str | None,
    typer.Option(
        help="Accuracy over classes or over images; classes under a multi-label truth by default."
    ),
]


def queue(
    to: Annotated[
        Path | None, typer.Argument(help="A .csv or .jsonl file to write; without it, a look.")
    ] = None,
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set whose predictions are to be judged.")
    ] = "",
    model: ModelOption = None,
    truth: TruthsOption = None,
    aim: Annotated[
        str,
        typer.Option(
            help="accuracy: what narrows the estimate of accuracy fastest; hard: mistakes on images "
            "that many models miss, for build hard."
        ),
    ] = "accuracy",
    wrong: Annotated[
        int | None,
        typer.Option(
            "--wrong", help="hard: images that at least so many models miss; all by default."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many rows.")] = None,
    people: PeopleOption = 1,
    who: Annotated[
        str | None, typer.Option(help="Leave out what this reviewer has judged.")
    ] = None,
    average: AverageOption = None,
    proposals: Annotated[
        Path | None,
        typer.Option(help="JSONL of heldout mistakes propose; by rules, made anew, by default."),
    ] = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the order.")] = 0,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write the (image, prediction) pairs to judge, most informative first.

    Fill in answer, category, severity and who; heldout import judgements reads the file back. What
    is judged is not asked again.
    """
    from heldout.core.errors import UserError
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.measure.evaluation.arguments import label_map_argument
    from heldout.measure.mistakes.panel import panel_answers
    from heldout.measure.mistakes.review_queue import (
        AIMS,
        accuracy_queue,
        hard_queue,
        how_to_answer,
        open_pairs,
        queue_rows,
        write_queue,
    )
    from heldout.measure.score.records import Count

    if aim not in AIMS:
        raise UserError(f"--aim {aim!r}", fix=f"use {' or '.join(AIMS)}")
    if aim == "accuracy" and wrong is not None:
        raise UserError("--wrong is for --aim hard", fix="leave it out, or add --aim hard")
    inputs, verdicts = read_one(
        testset, truth, model, exclude, collapse, label_map, workspace=workspace
    )
    panel = panel_answers(judgements_about(inputs.testset, inputs.workspace.judgements))
    mapped = label_map_argument(
        label_map, [inputs.testset.name], inputs.models, workspace=inputs.workspace
    )
    if aim == "accuracy":
        pairs = open_pairs(verdicts, average=average_of(verdicts, average), seed=seed)
        made = accuracy_queue(pairs, panel, people=people, who=who).head(limit)
        proposed = _proposals(proposals, made.entries, inputs, verdicts, mapped)
    else:
        from heldout.measure.mistakes.verdicts import mistakes_of

        proposed = _proposals(proposals, mistakes_of(verdicts), inputs, verdicts, mapped)
        made = hard_queue(
            verdicts, panel, wrong=wrong, people=people, who=who, proposals=proposed
        ).head(limit)
    rows = queue_rows(made, proposed)
    if to is not None:
        write_queue(to, rows)
        say(f"{to}: {len(rows):,} pairs to judge, {made.judged:,} are judged already")
        note(how_to_answer())
    if as_json:
        records = [
            Count(name="n_queue", value=len(rows), testset=inputs.testset.name),
            Count(name="n_judged", value=made.judged, testset=inputs.testset.name),
        ]
        emit(records, as_json=True)
    elif to is None:
        print_table(
            f"{len(rows):,} pairs to judge, {made.judged:,} are judged already",
            ["rank", "image", "prediction", "labels", "models", "proposed"],
            [
                [
                    str(row["rank"]),
                    row["image_id"],
                    row["prediction_name"],
                    "; ".join(row["label_names"]),
                    str(len(row["models"])),
                    row["proposed_category"],
                ]
                for row in rows[:_SHOWN]
            ],
            left=6,
        )
        if len(rows) > _SHOWN:
            out(f"and {len(rows) - _SHOWN:,} more; name a file to write them all")


def read_one(
    testset: str,
    truth: Sequence[str] | None,
    model: Sequence[str] | None,
    exclude: Sequence[str] | None,
    collapse: str | None,
    label_map: str | None,
    *,
    workspace: Path | None,
) -> tuple[Inputs, Verdicts]:
    """The verdicts of one truth of one test set; the multi-label one where it is not named."""
    from heldout.core.errors import UserError
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset

    if not testset:
        raise UserError("no test set is named", fix="name it with -t")
    chosen = list(truth or ())
    if not chosen:
        card = find_testset(Workspace.find(workspace), testset).card
        kinds = [name for name, where in card.truths.items() if where.get("kind") == "multilabel"]
        chosen = kinds[:1]
    if len(chosen) > 1:
        raise UserError("several truths are named", fix="judge by one of them")
    inputs = read_inputs(testset, truths=chosen, models=model, exclude=exclude, workspace=workspace)
    (verdicts,) = inputs.verdicts(collapse=collapse, label_map=label_map)
    return inputs, verdicts


def average_of(verdicts: Verdicts, average: str | None) -> str:
    """The average that was asked for, or that fits the truth."""
    if average is not None:
        return average
    kind = verdicts.testset.card.truths[verdicts.truth.name].get("kind", "single")
    return "classes" if kind == "multilabel" else "images"


def _proposals(
    path: Path | None,
    mistakes: Sequence[Mistake],
    inputs: Inputs,
    verdicts: Verdicts,
    label_map: LabelMap | None,
) -> tuple[Proposal, ...]:
    if path is not None:
        from heldout.measure.mistakes.categories import read_proposals

        return read_proposals(path)
    from heldout.measure.mistakes.categories import propose
    from heldout.measure.mistakes.evidence import gather_knowledge

    if not mistakes:
        return ()
    name = verdicts.truth.name
    knowledge = gather_knowledge(
        inputs.testset,
        truth=name,
        predictions=inputs.predictions(name),
        label_map=label_map,
    )
    return propose(mistakes, knowledge)
