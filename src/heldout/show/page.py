"""The report as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heldout.core.files import canonical_json, write_text
from heldout.core.records import grids
from heldout.show.charts import SECTIONS, Figure
from heldout.show.embed import compact, render, script_json
from heldout.show.learning import NAMES
from heldout.show.mistakes import category_colour
from heldout.show.score_figures import all_figures
from heldout.show.tables import curve_notes, discoveries, findings, leaderboard
from heldout.show.view import ReportData, ReportView
from heldout.show.wording import count, is_share, plain_digits

_SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-interpreter.js", "dom.js", "report.js")


def write_report(data: ReportData, path: Path) -> None:
    """Write the report to ``path``: one HTML file, the same bytes for the same data.

    Nothing is fetched when it is opened: styles, scripts and records are inside, and the page's
    Content-Security-Policy forbids every load and every script but its own. Text from the data is
    escaped everywhere.
    """
    write_text(path, render_report(data))


def render_report(data: ReportData) -> str:
    """The report's HTML."""
    view = ReportView(data)
    drawn = all_figures(view)
    figures: dict[str, dict[str, dict[tuple[str, ...], list[Figure]]]] = {
        name: {} for name in SECTIONS
    }
    for figure in drawn:
        group = figures[figure.section].setdefault(figure.group, {})
        group.setdefault(figure.columns, []).append(figure)
    # Sections in the order of the page: id, name, and whether there is anything to show.
    sections = [
        ("accuracy", "Accuracy", figures["accuracy"]),
        ("models", "Models", view.models),
        ("changes", "Changes", figures["changes"]),
        ("slices", "Slices", figures["slices"] or view.worst or view.discovered),
        ("learning", "Spending labels", view.learning),
        ("mistakes", "Mistakes", view.mistakes),
        ("comparisons", "Comparisons", view.comparisons),
        ("fits", "Fits", view.fits),
        ("leaks", "Leaks", view.leaks),
        ("adjusted", "Selection frequencies", view.adjusted),
        ("counts", "Counts", view.counts),
        ("scores", "All scores", view.scores),
        ("provenance", "Provenance", data.provenance or data.settings),
    ]
    return render(
        "report.html.j2",
        "report.css",
        _SCRIPTS,
        data=data,
        view=view,
        figures=figures,
        choices=list(dict.fromkeys(figure.choice for figure in drawn if figure.choice)),
        contents=[(name, title) for name, title, there in sections if there],
        findings=findings(view),
        board=leaderboard(view),
        notes=curve_notes(view),
        leaks=grids(view.leaks),
        discovered=discoveries(view),
        told=view.stated("slice"),
        provenance=_provenance(data.provenance),
        category_colour=category_colour,
        learning_names=NAMES,
        script_json=script_json,
        records_json=script_json(compact(data.records)),
        plain_json=script_json({m: plain_digits(m) for m in view.metrics if not is_share(m)}),
    )


def _provenance(entries: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Two tables, of test sets and of predictions, with whatever keys their entries have."""
    tables = []
    for title, of_model in (("Test sets", False), ("Predictions", True)):
        chosen = [entry for entry in entries if ("model" in entry) == of_model]
        if chosen:
            keys = list(dict.fromkeys(key for entry in chosen for key in entry))
            rows = [[_plain(entry.get(key, "")) for key in keys] for entry in chosen]
            tables.append({"title": title, "keys": keys, "rows": rows})
    return tables


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return count(value)
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return canonical_json(value)
