"""Records in a notebook and in a paper: HTML, Markdown, LaTeX, from their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from heldout.core.records import Grid, grids

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
    """A table for each kind and title, of as many rows as the command line shows."""
    return "".join(_html(grid) for grid in grids(records))


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
