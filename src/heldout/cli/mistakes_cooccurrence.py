"""``heldout mistakes cooccurrence``: classes that are seen together in one image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import note, print_table
from heldout.cli.mistakes_inputs import read_inputs
from heldout.cli.mistakes_records import SHOWN, SaveOption, TopOption, hand_over
from heldout.cli.options import JsonOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.measure.score.records import Record


def cooccurrence(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set with a truth of several labels.")
    ],
    truth: Annotated[
        str | None,
        typer.Option(
            help="Truth whose labels are counted, or a file of one; real or multilabel by default."
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            help="Leave out the images of this truth: those on which mistakes are judged."
        ),
    ] = None,
    original: Annotated[
        bool, typer.Option(help="An image's own class joins the labels of the truth.")
    ] = True,
    minimum: Annotated[
        int, typer.Option(min=1, help="Images that a pair must have to be listed.")
    ] = 2,
    superclasses: Annotated[
        Path | None,
        typer.Option(help="File of superclasses: pairs inside one are not listed."),
    ] = None,
    top: TopOption = None,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Pairs of classes that are labels of one image, with how many images have both."""
    from heldout.measure.mistakes.class_similarity import cooccurrence as count_pairs
    from heldout.measure.score.records import Count

    inputs = read_inputs(testset, truths=[truth] if truth else None, workspace=workspace)
    chosen = inputs.truths[0] if truth else _several(inputs.testset)
    found = count_pairs(inputs.testset, truth=chosen, without=without, original=original)
    apart: list[frozenset[str]] = []
    if superclasses is not None:
        from heldout.data.labels.superclasses import read_superclasses

        groups = read_superclasses(superclasses, label_space=found.space)
        apart = [frozenset(ids) for ids in groups.groups.values()]
    if not len(found):
        note(f"no image has two labels in truth {found.truth}: name a truth of several labels")
    pairs = found.pairs(minimum, apart=apart)
    counts = {
        "images": found.images,
        "images_without_label": found.empty,
        "images_with_one_label": found.single,
        "images_with_several_labels": found.several,
        "cooccurrences": found.total,
        "cooccurring_pairs": len(found),
        f"cooccurring_pairs_of_{minimum}_images": len(pairs),
    }
    records: list[Record] = [
        Count(name=name, value=value, testset=found.testset) for name, value in counts.items()
    ]
    rows: list[dict[str, Any]] = [
        {
            "record": "cooccurrence",
            "testset": found.testset,
            "truth": found.truth,
            "first_id": a,
            "first_name": found.space.get(a).name,
            "second_id": b,
            "second_name": found.space.get(b).name,
            "n": n,
        }
        for (a, b), n in list(pairs.items())[:top]
    ]

    def show() -> None:
        print_table(
            f"{found.testset}, truth {found.truth}"
            + (f", without the images of {without}" if without else ""),
            ["", "n"],
            [[name.replace("_", " "), f"{value:,}"] for name, value in counts.items()],
        )
        if not rows:
            return
        print_table(
            f"classes seen together most often: {min(top or SHOWN, len(rows)):,} of {len(rows):,} pairs",
            ["class", "and class", "ids", "images"],
            [
                [
                    row["first_name"],
                    row["second_name"],
                    f"{row['first_id']} {row['second_id']}",
                    f"{row['n']:,}",
                ]
                for row in rows[: top or SHOWN]
            ],
            left=3,
        )

    hand_over(records, rows, as_json=as_json, save=save, show=show)


def _several(testset: Any) -> str:
    """The truth with the most labels: ReaL's, else a multi-label one, else the default."""
    kinds = {name: where.get("kind") for name, where in testset.card.truths.items()}
    for kind in ("real", "multilabel"):
        for name, known in kinds.items():
            if known == kind:
                return str(name)
    return str(testset.card.default_truth)
