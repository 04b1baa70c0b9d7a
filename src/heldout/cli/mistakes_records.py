"""How the sub-commands of ``heldout mistakes`` hand over what they found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, emit_json

if TYPE_CHECKING:
    from heldout.measure.score.records import Record

SHOWN = 20
"""Rows of a list that a table shows unless told otherwise."""

TopOption = Annotated[
    int | None,
    typer.Option(min=1, help=f"At most so many rows; {SHOWN} in tables, all with --json."),
]
SaveOption = Annotated[
    Path | None, typer.Option("--save", help="Also write what --json prints to this file.")
]


def hand_over(
    records: Sequence[Record],
    rows: Sequence[dict[str, Any]],
    *,
    as_json: bool,
    save: Path | None = None,
    show: Callable[[], None],
) -> None:
    """Records and further rows of a sub-command: gathered in a run, printed as JSON, or shown."""
    import json

    from heldout.core.files import write_text
    from heldout.measure.score.records import to_dict

    value = [*map(to_dict, records), *rows]
    if save is not None:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in value)
        write_text(save, f"[\n{lines}\n]\n")
    if as_json:
        emit_json(value)
    else:
        emit(records, as_json=False, show=lambda _: show())
