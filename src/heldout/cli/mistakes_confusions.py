"""``heldout mistakes confusions``: which classes are taken for which."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import print_table, say
from heldout.cli.mistakes_inputs import (
    CollapseOption,
    MistakesOption,
    SetOption,
    TruthsOption,
    read_inputs,
)
from heldout.cli.mistakes_records import SHOWN, SaveOption, TopOption, hand_over
from heldout.cli.options import (
    ClassesOption,
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.mistakes.confusions import Confusions
    from heldout.measure.score.records import Record


def confusions(
    testset: SetOption = None,
    model: ModelOption = None,
    truth: TruthsOption = None,
    mistakes: MistakesOption = None,
    directed: Annotated[
        bool,
        typer.Option("--directed/--unordered", help="Tell what is right from what was said."),
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="The confusions of each model, not of all together.")
    ] = False,
    names: Annotated[
        bool, typer.Option("--names", help="With --to FILE.json: names in place of ids.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(help="A published file [first, second, n]: name the pairs that differ."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Also write the pairs: .json as published, or .csv; of one list."),
    ] = None,
    top: TopOption = None,
    collapse: CollapseOption = None,
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    exclude: ExcludeOption = None,
    level: LevelOption = 0.95,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Which classes are taken for which: pairs with counts, under any truth."""
    from heldout.core.errors import UserError
    from heldout.measure.mistakes.confusions import (
        compare_with_file,
        read_confusion_file,
        write_confusion_file,
    )
    from heldout.measure.mistakes.confusions import confusions as confusions_of
    from heldout.measure.score.records import Count

    inputs = read_inputs(
        testset,
        truths=truth,
        models=model,
        exclude=exclude,
        mistakes=mistakes,
        classes=classes,
        workspace=workspace,
    )
    found: list[Confusions] = []
    for verdicts in inputs.verdicts(collapse=collapse, label_map=label_map):
        chosen = verdicts.models if each else (None,)
        found += [confusions_of(verdicts, name, directed=directed) for name in chosen]
    if (to or against) and len(found) > 1:
        raise UserError(
            f"--to and --against take one list of pairs, there are {len(found)}",
            fix="name one --truth, and leave --each away or name one --model",
        )
    records: list[Record] = []
    rows: list[dict[str, Any]] = []
    for item in found:
        where = _where(item)
        counts = {"n_errors": item.errors, "n_pairs": len(item), "n_confusions": item.total}
        records += [
            Count(
                name=f"{name}_{item.verdicts.truth.name}",
                value=value,
                model=where["model"],
                testset=where["testset"],
            )
            for name, value in counts.items()
        ]
        rows.append(
            {
                "record": "confusions",
                **where,
                "directed": directed,
                "errors": item.errors,
                "pairs": len(item),
                "sum": item.total,
            }
        )
        rows += [
            {"record": "confusion", **where, **asdict(pair)} for pair in item.top(top, level=level)
        ]
    differences = []
    if against is not None:
        file = read_confusion_file(against, label_space=found[0].space)
        differences = compare_with_file(found[0], file)
        rows.append(
            {
                "record": "against",
                "file": against.name,
                "form": file.form,
                "pairs": len(file.pairs),
                "sum": file.total,
                "differences": len(differences),
            }
        )
        rows += [{"record": "difference", **asdict(item)} for item in differences]
    if to is not None:
        write_confusion_file(found[0], to, form="names" if names else "ids")
        say(f"{to}: {len(found[0]):,} pairs")

    def show() -> None:
        for item in found:
            _show_pairs(item, top or SHOWN)
        if against is not None:
            print_table(
                f"{against.name}: pairs with another count: {len(differences)}",
                ["first", "second", "ours", "theirs", "images"],
                [
                    [d.first, d.second, str(d.ours), str(d.theirs), ", ".join(d.images[:3])]
                    for d in differences
                ],
                left=2,
            )

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _where(item: Confusions) -> dict[str, Any]:
    verdicts = item.verdicts
    return {
        "model": verdicts.models[0] if len(verdicts.models) == 1 else None,
        "models": len(verdicts.models),
        "testset": verdicts.testset.name,
        "truth": verdicts.truth.name,
    }


def _show_pairs(item: Confusions, top: int) -> None:
    who = item.models[0] if len(item.models) == 1 else f"{len(item.models)} models"
    arrow = " taken for" if item.directed else " and"
    columns = [f"class{arrow}", "class", "ids", "n", *(["share"] if item.directed else [])]
    cells = []
    for pair in item.top(top):
        share = ""
        if pair.share is not None:
            share = f"{100 * pair.share:.1f}"
        if pair.low is not None and pair.high is not None:
            share += f" [{100 * pair.low:.1f}, {100 * pair.high:.1f}]"
        cells.append(
            [
                pair.first_name,
                pair.second_name,
                f"{pair.first_id} {pair.second_id}",
                f"{pair.n:,}",
                *([share] if item.directed else []),
            ]
        )
    print_table(
        f"{who} on {item.verdicts.testset.name}, truth {item.verdicts.truth.name}: "
        f"{item.errors:,} errors, {len(item):,} pairs, sum {item.total:,}",
        columns,
        cells,
        left=3,
    )
