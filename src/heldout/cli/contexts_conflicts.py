"""``heldout contexts conflicts``: which training subsets help or hurt which evaluation subsets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit_json, note, print_table, say
from heldout.cli.options import JsonOption, SeedOption


def conflicts(
    log: Annotated[
        Path,
        typer.Argument(
            help="CSV, JSON lines or Parquet: step, subset, trained (images since the step before), score."
        ),
    ],
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write the matrix to this CSV file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the matrix: FILE.svg, .png or .json (Vega-Lite).")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=1, help="Resamples of the intervals, for the agreement of signs.")
    ] = 200,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """The training-conflict matrix of a log: contributions from -1 (hurts most) to 1 (helps most)."""
    from heldout.core.files import write_text
    from heldout.curate.contexts.training_conflicts import conflict_matrix, read_training_log

    found = conflict_matrix(read_training_log(log), resamples=resamples, seed=seed)
    for text in found.notes:
        note(text)
    if save is not None:
        write_text(save, found.table())
        say(f"{save}: {len(found.trained)} training by {len(found.evaluated)} evaluation subsets")
    if figure is not None:
        from heldout.show.exports import write_figure
        from heldout.show.score_figures import matrix_figure

        drawn = matrix_figure(
            found.contribution,
            found.trained,
            found.evaluated,
            title="Contribution of training to evaluation subsets",
            row_title="trained on",
            column_title="evaluated on",
            value_title="contribution",
        )
        write_figure(drawn, figure)
        say(f"wrote {figure}")
    if as_json:
        emit_json(found.records())
        return
    print_table(
        f"contribution of training (rows) to evaluation subsets, {found.intervals} intervals",
        ["trained on", *found.evaluated],
        [
            [name, *(f"{value:+.2f}" for value in found.contribution[place].tolist())]
            for place, name in enumerate(found.trained)
        ],
    )
