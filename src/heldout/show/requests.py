"""What the verb that writes reports is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from heldout.core.request import Request, argument, option


class ReportRequest(Request, frozen=True, kw_only=True):
    """Write a report from records: one HTML file, and figures."""

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
    figures: (
        Annotated[Path, option("Also write every figure into this folder, as SVG and PNG.")] | None
    ) = None
