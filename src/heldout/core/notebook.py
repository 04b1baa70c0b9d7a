"""Records in a notebook and in a paper: HTML with a chart, Markdown, LaTeX, from their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import floor, log10
from typing import Any

from heldout.core.records import Column, Grid, formatted, grids

_DOTS = 24
"""Rows of a chart, at most."""
_WIDTH, _ROW, _LETTER = 640, 20, 6.6
_LATEX = {char: f"\\{char}" for char in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def markdown(records: Iterable[Any]) -> str:
    """A table for each kind and title.

    >>> from heldout.core.records import Count
    >>> print(markdown([Count(name="images", value=1200)]))
    **counts**
    <BLANKLINE>
    | name | value |
    |:---|---:|
    | images | 1,200 |
    """
    return "\n\n".join(_markdown(grid) for grid in grids(records))


def _markdown(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join(":---" if left else "---:" for left in grid.left) + "|"
    title = [f"**{grid.title}**", ""] if grid.title else []
    return "\n".join([*title, line(grid.heads), rule, *map(line, grid.rows)])


def latex(records: Iterable[Any]) -> str:
    """A tabular for each kind and title, with the rules of booktabs."""
    return "\n\n".join(_latex(grid) for grid in grids(records))


def _latex(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        escaped = ("".join(_LATEX.get(char, char) for char in cell) for cell in cells)
        return "  " + " & ".join(escaped) + r" \\"

    places = "".join("l" if left else "r" for left in grid.left)
    return "\n".join(
        [
            *([f"% {grid.title}"] if grid.title else []),
            rf"\begin{{tabular}}{{{places}}}",
            r"  \toprule",
            line(grid.heads),
            r"  \midrule",
            *map(line, grid.rows),
            r"  \bottomrule",
            r"\end{tabular}",
        ]
    )


def html(records: Iterable[Any]) -> str:
    """The tables, and above the first one whose numbers have intervals a dot plot of it."""
    found = grids(records)
    charts = (chart for grid in found if (chart := dot_plot(grid)))
    return next(charts, "") + "".join(_html(grid) for grid in found)


def _html(grid: Grid) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        sides = ("left" if left else "right" for left in grid.left)
        made = (
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(row(cells, "td") for cells in grid.rows[: grid.shown])
    more = len(grid.rows) - grid.shown
    last = f"<p>… {more:,} more rows</p>" if more else ""
    caption = f'<caption style="text-align:left">{escape(grid.title)}</caption>'
    return (
        f"<table>{caption}<thead>{row(grid.heads, 'th')}</thead><tbody>{body}</tbody></table>{last}"
    )


def dot_plot(grid: Grid) -> str:
    """Values with their intervals as an SVG image, in the colour of the text around it.

    Of a table whose numbers stand beside each other, those of the first column of numbers. Nothing
    where no column has intervals.
    """
    table = grid.records[0].table
    columns = [Column.parse(text) for text in table.columns]
    drawn = next((column for column in columns if column.form.endswith("[]")), None)
    if drawn is None:
        return ""
    across = getattr(grid.records[0], table.across) if table.across else None
    records = [
        record
        for record in grid.records
        if getattr(record, drawn.field) is not None
        and (not table.across or getattr(record, table.across) == across)
    ][:_DOTS]
    if not any(record.low is not None and record.high is not None for record in records):
        return ""
    names = [column for column in columns if not column.form]
    labels = [" · ".join(filter(None, (name.cell(r) for name in names))) for r in records]
    left = min(260.0, 12 + _LETTER * max(map(len, labels)))
    form = drawn.form.removesuffix("[]")
    spans = [(record.low, getattr(record, drawn.field), record.high) for record in records]
    known = [value for span in spans for value in span if value is not None]
    ticks = _ticks(min(known), max(known), 100.0 if "%" in form else 1.0)

    def x(value: float) -> float:
        low, high = ticks[0], ticks[-1]
        return round(left + (value - low) / (high - low) * (_WIDTH - left - 24), 1)

    bottom = 22 + _ROW * len(records)
    parts = [
        f'<line x1="{x(tick)}" x2="{x(tick)}" y1="18" y2="{bottom}" opacity=".15"/>'
        f'<text x="{x(tick)}" y="{bottom + 14}" text-anchor="middle" stroke="none">'
        f"{formatted(tick, form)}</text>"
        for tick in ticks
    ]
    for place, (label, (low, value, high)) in enumerate(zip(labels, spans, strict=True)):
        y = 28 + _ROW * place
        if low is not None and high is not None:
            parts.append(f'<line x1="{x(low)}" x2="{x(high)}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<circle cx="{x(value)}" cy="{y}" r="3.5" stroke="none"/>'
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" stroke="none">{escape(label)}</text>'
        )
    said = ", ".join(filter(None, [grid.title, str(across or drawn.head).replace("_", " ")]))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{bottom + 20}" '
        f'viewBox="0 0 {_WIDTH} {bottom + 20}" font-family="sans-serif" font-size="12" '
        f'fill="currentColor" stroke="currentColor"><title>{escape(said)}</title>'
        f'<text x="0" y="12" stroke="none">{escape(said)}</text>{"".join(parts)}</svg>'
    )


def _ticks(low: float, high: float, scale: float) -> list[float]:
    """Three to seven round values that enclose a range."""
    span = (high - low) * scale or 1.0
    power = 10.0 ** floor(log10(span / 4))
    step = power * next(n for n in (1, 2, 5, 10) if span / (n * power) <= 5)
    # Rounded: 0.65 * 100 is a little below 65, which is a tick of its own.
    first, last = floor(round(low * scale / step, 9)), -floor(round(-high * scale / step, 9))
    last = max(last, first + 1)
    return [place * step / scale for place in range(first, last + 1)]
