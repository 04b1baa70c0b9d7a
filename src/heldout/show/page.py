"""The report as one HTML file that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from heldout.core.files import canonical_json, write_text
from heldout.show import wording
from heldout.show.active_parts import NAMES, LearningPart, learning_parts
from heldout.show.data import Headline, ReportData
from heldout.show.discoveries import discoveries
from heldout.show.embed import compact, environment, script_hash, script_json, static
from heldout.show.figure import Figure
from heldout.show.figures import all_figures
from heldout.show.findings import findings, worst_slices
from heldout.show.leaderboard import leaderboard
from heldout.show.mistake_cards import MistakeCard
from heldout.show.mistake_parts import category_colour, figure_group
from heldout.show.mistakes import MistakePart, mistake_parts
from heldout.show.readings import panel_readings

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
    headline = Headline(data)
    scripts = [static(name) for name in _SCRIPTS]
    drawn = all_figures(headline)
    worst = worst_slices(headline)
    sections = {
        name: list(group) for name, group in groupby(drawn, key=lambda figure: figure.section)
    }
    policy = (
        "default-src 'none'; "
        f"script-src {' '.join(script_hash(script) for script in scripts)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    page: str = _template().render(
        data=data,
        headline=headline,
        policy=policy,
        style=_markup(static("report.css")),
        scripts=[_markup(script) for script in scripts],
        findings=findings(headline),
        board=leaderboard(headline),
        accuracy=_groups(sections.get("accuracy", [])),
        choices=list(dict.fromkeys(f.choice for f in sections.get("accuracy", []) if f.choice)),
        changes=sections.get("changes", []),
        slices=_by_columns(sections.get("slices", [])),
        readings=panel_readings(headline),
        worst=worst,
        learning=_learning(headline, sections.get("learning", [])),
        mistakes=_mistakes(headline, sections.get("mistakes", [])),
        discovered=discoveries(headline),
        comparison_figures=sections.get("comparisons", []),
        records_json=script_json(compact(data.records)),
        plain_json=script_json(
            {m: wording.plain_digits(m) for m in headline.metrics if not wording.is_share(m)}
        ),
        provenance=_provenance(data.provenance),
        contents=_contents(headline, sections, worst),
    )
    return page


@cache
def _template() -> Any:
    found = environment().get_template("report.html.j2")
    found.globals.update(
        percent=wording.percent,
        points=wording.points,
        difference_text=wording.difference_text,
        count=wording.count,
        plural=wording.plural,
        metric_name=wording.metric_name,
        value_text=wording.value_text,
        range_text=wording.range_text,
        p_text=wording.p_text,
        script_json=script_json,
        is_share=wording.is_share,
        higher_is_better=wording.higher_is_better,
        category_colour=category_colour,
        learning_name=NAMES.__getitem__,
    )
    return found


def _markup(text: str) -> Any:
    """Our own packaged scripts and styles, which go into the page as they are."""
    from markupsafe import Markup

    return Markup(text)  # never text from the data


def _groups(figures: Sequence[Figure]) -> list[tuple[str, list[list[Figure]]]]:
    """Figures by group, and in a group the alternatives of one place together."""
    found: dict[str, list[list[Figure]]] = {}
    for figure in figures:
        places = found.setdefault(figure.group, [])
        if figure.choice and places and places[-1][0].choice:
            places[-1].append(figure)
        else:
            places.append([figure])
    return list(found.items())


def _by_columns(figures: Sequence[Figure]) -> list[tuple[str, list[list[Figure]]]]:
    """Figures by test set, and in each those of the same columns together."""
    found: dict[str, dict[tuple[str, ...], list[Figure]]] = {}
    for figure in figures:
        found.setdefault(figure.group, {}).setdefault(figure.columns, []).append(figure)
    return [(testset, list(places.values())) for testset, places in found.items()]


def _mistakes(
    headline: Headline, figures: Sequence[Figure]
) -> list[tuple[MistakePart, list[Figure], list[MistakeCard]]]:
    """By test set: its tallies, their figures, and single mistakes to look at."""
    return [
        (
            part,
            [figure for figure in figures if figure.group == figure_group(part)],
            [card for card in headline.data.mistakes if card.testset == part.testset],
        )
        for part in mistake_parts(headline)
    ]


def _learning(
    headline: Headline, figures: Sequence[Figure]
) -> list[tuple[LearningPart, list[Figure]]]:
    """By test set: what strategies for spending labels reached, and the figures of it."""
    return [
        (part, [f for f in figures if f.group == f"{part.testset} {part.truth}"])
        for part in learning_parts(headline)
    ]


def _contents(
    headline: Headline,
    sections: Mapping[str, Sequence[Figure]],
    worst: Mapping[str, object],
) -> list[tuple[str, str]]:
    """The sections that the page has: id and name."""
    offered = [
        ("accuracy", "Accuracy", "accuracy" in sections),
        ("models", "Models", bool(headline.models)),
        ("changes", "Changes and ranks", "changes" in sections),
        (
            "slices",
            "Slices",
            "slices" in sections or bool(worst or headline.worst or headline.discovered),
        ),
        ("learning", "Spending labels", bool(learning_parts(headline))),
        ("mistakes", "Mistakes", "mistakes" in sections),
        ("comparisons", "Comparisons", bool(headline.comparisons)),
        ("fits", "Fits", bool(headline.fits)),
        ("counts", "Counts", bool(headline.counts)),
        ("scores", "All scores", bool(headline.scores)),
        ("provenance", "Provenance", bool(headline.data.provenance or headline.data.settings)),
    ]
    return [(name, title) for name, title, there in offered if there]


def _provenance(entries: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
    """Two tables, of test sets and of predictions, with whatever keys their entries have."""
    tables = []
    for title, chosen in (
        ("Test sets", [entry for entry in entries if "model" not in entry]),
        ("Predictions", [entry for entry in entries if "model" in entry]),
    ):
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
        return wording.count(value)
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return canonical_json(value)
