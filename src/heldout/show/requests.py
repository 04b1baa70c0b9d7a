"""What the verb that writes reports is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from heldout.core.request import Request, argument, option


class Report(Request, frozen=True, kw_only=True):
    """Write a report from records: one HTML file, and other forms."""

    records: Annotated[
        tuple[Path, ...], argument("JSON files of records, as --save or --json wrote them.")
    ]
    out: Annotated[Path, option("Where to write; report.html by default.", "-o")] | None = None
    title: Annotated[str, option("The report's title.")] = "Evaluation"
    baseline: Annotated[str, option("The test set that the others are compared with.")] | None = (
        None
    )
    notes: Annotated[
        tuple[str, ...], option("Something a reader should know; repeatable.", flag="note")
    ] = ()
    also: (
        Annotated[
            Mapping[Literal["figures", "timm", "clip-benchmark"], Path],
            option(
                "Also write: figures=FOLDER (SVG and PNG), timm=FILE.csv (timm's columns, one file a "
                "test set), clip-benchmark=FOLDER (its JSON files); repeatable."
            ),
        ]
        | None
    ) = None
    open: Annotated[bool, option("Open the report in a browser.")] = False
