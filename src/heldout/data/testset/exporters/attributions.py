"""Attributions: whose images these are and on what terms, as a page and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heldout.core.files import csv_text, write_text
from heldout.data.testset.exporters.export import Export, Written, write_export
from heldout.data.testset.exporters.licences import licence_rule
from heldout.data.testset.exporters.rows import Row, export_rows
from heldout.data.testset.testset import TestSet

FIELDS = ("image_id", "attribution", "source", "uri", "licence", "may_copy", "note")


def export_attributions(
    testset: TestSet, folder: Path, *, truth: str | None = None, replace: bool = False
) -> Export:
    """Write ``ATTRIBUTIONS.md`` and ``attributions.csv`` of a test set, and nothing else."""

    def build(temporary: Path) -> Written:
        rows, failures = export_rows(testset, truth)
        write_attributions(testset, rows, temporary)
        return Written(rows=len(rows), failures=tuple(failures))

    name = truth or testset.card.default_truth
    return write_export(
        testset, folder, build, form="attributions", truth=name, options={}, replace=replace
    )


def write_attributions(testset: TestSet, rows: Sequence[Row], folder: Path) -> None:
    """Write the two files of attributions for the images of ``rows`` into ``folder``."""
    images = list({row.image_id: row for row in rows}.values())
    records = [(r.image_id, r.attribution, r.source, r.uri, *_terms(r)) for r in images]
    write_text(folder / "attributions.csv", csv_text(FIELDS, records))
    write_text(folder / "ATTRIBUTIONS.md", _page(testset, images))


def _terms(row: Row) -> tuple[str, str, str]:
    rule = licence_rule(row.licence)
    return rule.licence, "yes" if rule.may_copy else "no", rule.note


def _page(testset: TestSet, images: Sequence[Row]) -> str:
    counts = Counter(licence_rule(row.licence) for row in images)
    lines = [f"# Attributions of {testset.name}", ""]
    if testset.card.citation:
        lines += [_cell(testset.card.citation), ""]
    lines += ["| licence | images | may be copied | conditions |", "|---|---|---|---|"]
    for rule, n in sorted(counts.items(), key=lambda item: item[0].licence):
        may = "yes" if rule.may_copy else "no"
        lines.append(f"| {_cell(rule.licence)} | {n} | {may} | {_cell(rule.note)} |")
    lines += ["", "| image | author | source | licence |", "|---|---|---|---|"]
    for row in images:
        cells = (row.image_id, row.attribution, row.uri or row.source, row.licence or "unknown")
        lines.append("| " + " | ".join(_cell(cell or "") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text inside a Markdown table: on one line, and read as text by any renderer."""
    text = " ".join(text.split())
    for character in "\\`*_[]<>|":
        text = text.replace(character, f"\\{character}" if character != "<" else "&lt;")
    return text
