"""``heldout mistakes accuracy``: accuracy with bounds and an estimate for what nobody has reviewed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, note, print_table
from heldout.cli.mistakes_inputs import CollapseOption, TruthsOption
from heldout.cli.mistakes_panel import FoldOption, RuleOption, ShareOption, check_rule
from heldout.cli.mistakes_queue import AverageOption, PeopleOption, average_of, read_one
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    ReplicatesOption,
    SaveOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.mistakes.reviewed_accuracy import ReviewedAccuracy
    from heldout.stats.intervals import Interval


def accuracy(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set whose predictions were judged.")
    ] = "",
    model: ModelOption = None,
    truth: TruthsOption = None,
    average: AverageOption = None,
    absent_classes: Annotated[
        str,
        typer.Option(help="Classes without images under an average over classes: error or skip."),
    ] = "error",
    rule: RuleOption = "majority",
    share: ShareOption = None,
    people: PeopleOption = 1,
    fold: FoldOption = True,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    exclude: ExcludeOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the queue's order, as it was written.")] = 0,
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Accuracy if all that is open were wrong, or right, and what answers so far say of it."""
    from heldout.core.errors import NotApplicable
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.measure.evaluation.arguments import check_absent_classes
    from heldout.measure.mistakes.panel import rulings
    from heldout.measure.mistakes.review_queue import empty_classes, open_pairs
    from heldout.measure.mistakes.reviewed_accuracy import accuracy_records, reviewed_accuracies

    chosen = check_rule(rule)
    inputs, verdicts = read_one(
        testset, truth, model, exclude, collapse, label_map, workspace=workspace
    )
    kind = average_of(verdicts, average)
    if kind == "classes" and check_absent_classes(absent_classes) == "error":
        empty = empty_classes(verdicts)
        if empty:
            name = verdicts.truth.space.get(empty[0]).name
            raise NotApplicable(
                f"{len(empty)} of {len(verdicts.truth.space)} classes have no image in truth "
                f"{verdicts.truth.name} of {inputs.testset.name}, such as {empty[0]} ({name})",
                fix="--absent-classes skip averages over the classes that are there, --average "
                "images over images",
            )
    answers = judgements_about(inputs.testset, inputs.workspace.judgements)
    made = rulings(answers, rule=chosen, share=share, people=people, fold=fold)
    pairs = open_pairs(verdicts, average=kind, seed=seed)
    found = reviewed_accuracies(pairs, made, level=level, seed=seed, replicates=replicates)
    reviewed = verdicts.reviewed
    metric = ("mla" if kind == "classes" else "mla_micro") if reviewed else "reviewed"
    for reason in dict.fromkeys(item.reason for item in found if item.reason):
        note(reason)
    emit(
        accuracy_records(pairs, found, metric=metric, level=level),
        as_json=as_json,
        save=save,
        show=lambda _: _show(found, f"{inputs.testset.name}, truth {verdicts.truth.name}"),
    )


def _show(found: Sequence[ReviewedAccuracy], where: str) -> None:
    print_table(
        f"{where}: accuracy in percent",
        [
            "model",
            "n",
            "open",
            "answered",
            "at least",
            "at most",
            "estimate",
            "once all is reviewed",
        ],
        [
            [
                item.model,
                f"{item.n:,}",
                f"{item.open:,}",
                f"{item.answered:,}",
                f"{100 * item.lower:.3f}",
                f"{100 * item.upper:.3f}",
                _shown(item.value, item.interval),
                _shown(item.value, item.review),
            ]
            for item in sorted(found, key=lambda item: (-item.lower, item.model))
        ],
    )


def _shown(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return ""
    return f"{100 * value:.3f} [{100 * interval.low:.3f}, {100 * interval.high:.3f}]"
