"""All figures of a report, as specifications and as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, write_bytes, write_text
from heldout.show.active_figures import learning_figures
from heldout.show.active_parts import learning_parts
from heldout.show.changes import change_figure, changes
from heldout.show.comparison_curves import comparison_curves
from heldout.show.comparisons import comparison_figures
from heldout.show.data import Headline, ReportData
from heldout.show.figure import Figure, with_unique_names
from heldout.show.mistake_figures import mistake_figures
from heldout.show.mistakes import mistake_parts
from heldout.show.overview import overview_figures
from heldout.show.property_figures import property_figures
from heldout.show.ranks import rank_figure
from heldout.show.scatter import scatter_figures
from heldout.show.slice_figures import slice_figures
from heldout.show.theme import VL_VERSION
from heldout.show.wording import is_share

FORMATS = ("svg", "png", "pdf", "json")
_SETS_A_FIGURE = 4


def all_figures(headline: Headline) -> list[Figure]:
    """Every figure that the records support, in the order of the page."""
    found = [*scatter_figures(headline), *overview_figures(headline)]
    if is_share(headline.metric):
        by_set = {testset: changes(headline, testset) for testset in headline.new_testsets}
        names = list(by_set)
        for number, start in enumerate(range(0, len(names), _SETS_A_FIGURE), start=1):
            chosen = {name: by_set[name] for name in names[start : start + _SETS_A_FIGURE]}
            found.append(change_figure(headline, chosen, number=number))
        if by_set and min(map(len, by_set.values())) >= 3:
            found.append(rank_figure(headline, names))
    found += [
        *slice_figures(headline),
        *property_figures(headline),
        *learning_figures(learning_parts(headline)),
        *mistake_figures(headline, mistake_parts(headline)),
        *comparison_figures(headline),
        *comparison_curves(headline),
    ]
    return with_unique_names(found)


def figures(data: ReportData) -> dict[str, dict[str, Any]]:
    """By name: every figure as a Vega-Lite specification that stands alone, data included."""
    return {
        figure.name: {"title": figure.title, **figure.spec}
        for figure in all_figures(Headline(data))
    }


def write_figures(
    data: ReportData, folder: Path, formats: Sequence[str] = ("svg", "png")
) -> list[Path]:
    """Write every figure into ``folder`` as ``<name>.<format>``; the paths written.

    ``svg``, ``png`` (two pixels a unit) and ``pdf`` are drawn by vl-convert; ``json`` is the
    Vega-Lite specification itself.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise UserError(
            f"no figure format {', '.join(unknown)}", fix=f"use one of {', '.join(FORMATS)}"
        )
    written: list[Path] = []
    specs = figures(data)
    for name, spec in specs.items():
        for form in formats:
            path = folder / f"{name}.{form}"
            if form == "json":
                write_text(path, canonical_json(spec) + "\n")
            else:
                write_bytes(path, _draw(spec, form))
            written.append(path)
    return written


def _draw(spec: dict[str, Any], form: str) -> bytes:
    vl = require("vl_convert", extra="figures", purpose="drawing figures as files")
    if form == "svg":
        return str(vl.vegalite_to_svg(spec, vl_version=VL_VERSION)).encode("utf-8")
    if form == "pdf":
        return bytes(vl.vegalite_to_pdf(spec, vl_version=VL_VERSION))
    return bytes(vl.vegalite_to_png(spec, vl_version=VL_VERSION, scale=2))
