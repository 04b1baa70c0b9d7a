"""``heldout mistakes consensus``: images that many or all models miss, and labels to doubt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import note, print_table, say
from heldout.cli.mistakes_inputs import (
    CollapseOption,
    MistakesOption,
    SetOption,
    TruthsOption,
    read_inputs,
)
from heldout.cli.mistakes_records import SHOWN, SaveOption, TopOption, hand_over
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.mistakes.between_models import ModelConsensus, Suspect
    from heldout.measure.score.records import Record


def consensus(
    testset: SetOption = None,
    model: ModelOption = None,
    truth: TruthsOption = None,
    mistakes: MistakesOption = None,
    at_least: Annotated[
        int | None,
        typer.Option(min=1, help="List images that at least so many models miss; all by default."),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="List the images, those with one common answer first.")
    ] = False,
    queue: Annotated[
        Path | None,
        typer.Option(
            help="Write these images as a queue about their labels, .csv or .jsonl, to fill in and "
            "import; of one --truth."
        ),
    ] = None,
    top: TopOption = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    level: LevelOption = 0.95,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """How many models miss each image, under every truth of the set; labels to doubt."""
    from heldout.core.errors import UserError
    from heldout.measure.mistakes.between_models import model_consensus, suspects
    from heldout.measure.score.records import Count

    inputs = read_inputs(
        testset,
        truths=truth,
        every_truth=queue is None,
        models=model,
        exclude=exclude,
        mistakes=mistakes,
        workspace=workspace,
    )
    if queue is not None and len(inputs.truths) > 1:
        raise UserError("--queue asks about one truth", fix="name one --truth")
    found = [model_consensus(v) for v in inputs.verdicts(collapse=collapse, label_map=label_map)]
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    lists: list[list[Suspect]] = []
    for item in found:
        name, where = item.verdicts.truth.name, item.verdicts.testset.name
        for text, value in (
            ("missed_by_all", item.missed_by_all),
            ("right_by_all", item.right_by_all),
        ):
            records.append(Count(name=f"{text}_{name}", value=value, testset=where))
        rows.append(_row(item, level))
        if images or queue is not None or at_least is not None:
            lists.append(suspects(item, at_least=at_least))
            rows += [
                {"record": "suspect", "testset": where, "truth": name, **_named(suspect, item)}
                for suspect in lists[-1][:top]
            ]
    if queue is not None:
        from heldout.data.judgements.for_testset import judgements_about
        from heldout.measure.mistakes.panel import panel_answers
        from heldout.measure.mistakes.review_queue import label_queue, queue_rows, write_queue

        panel = panel_answers(judgements_about(inputs.testset, inputs.workspace.judgements))
        made, evidence = label_queue(found[0], panel, at_least=at_least)
        write_queue(queue, queue_rows(made, evidence))
        say(
            f"{queue}: {len(made.entries):,} labels of {len(lists[0]):,} images to look at, "
            f"{made.judged:,} are judged already"
        )
        note("answer: correct, unclear or wrong; who: your name; then heldout import judgements")

    def show() -> None:
        _show(found, level)
        for item, suspected in zip(found, lists, strict=False):
            _show_suspects(item, suspected, top or SHOWN)

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _row(item: ModelConsensus, level: float) -> dict[str, Any]:
    share, low, high = item.share_missed_by_all(level=level)
    return {
        "record": "consensus",
        "testset": item.verdicts.testset.name,
        "truth": item.verdicts.truth.name,
        "models": item.models,
        "n": len(item.misses),
        "left_out": item.verdicts.left_out,
        "missed_by_all": item.missed_by_all,
        "share": share,
        "low": low,
        "high": high,
        "interval": "wilson",
        "level": level,
        "right_by_all": item.right_by_all,
        "missed_by": item.histogram.tolist(),
    }


def _named(suspect: Suspect, item: ModelConsensus) -> dict[str, Any]:
    space = item.verdicts.truth.space

    def name(class_id: str | None) -> str | None:
        return None if class_id is None else space.get(class_id).name

    return {
        "image_id": suspect.image_id,
        "original": suspect.original,
        "original_name": name(suspect.original),
        "acceptable": list(suspect.acceptable),
        "majority": suspect.majority,
        "majority_name": name(suspect.majority),
        "votes": suspect.votes,
        "missed_by": suspect.missed_by,
        "models": suspect.models,
        "classes": suspect.classes,
    }


def _show(found: Sequence[ModelConsensus], level: float) -> None:
    rows = []
    for item in found:
        share, low, high = item.share_missed_by_all(level=level)
        rows.append(
            [
                item.verdicts.truth.name,
                str(item.models),
                f"{len(item.misses):,}",
                f"{item.verdicts.left_out:,}",
                f"{item.missed_by_all:,}",
                f"{100 * share:.2f} [{100 * low:.2f}, {100 * high:.2f}]",
                f"{item.right_by_all:,}",
            ]
        )
    print_table(
        f"{found[0].verdicts.testset.name}: what models miss together",
        ["truth", "models", "images", "left out", "missed by all", "percent", "right by all"],
        rows,
    )


def _show_suspects(item: ModelConsensus, found: Sequence[Suspect], top: int) -> None:
    rows = [_named(suspect, item) for suspect in found[:top]]
    print_table(
        f"{item.verdicts.testset.name}, truth {item.verdicts.truth.name}: {len(found):,} images to doubt",
        ["image", "label", "most models say", "say so", "wrong", "answers"],
        [
            [
                row["image_id"],
                row["original_name"] or "",
                row["majority_name"] or "",
                f"{row['votes']} of {row['models']}",
                str(row["missed_by"]),
                str(row["classes"]),
            ]
            for row in rows
        ],
        left=3,
    )
