"""Figures as files: Vega-Lite, SVG, PNG, PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, write_bytes, write_text
from heldout.show.charts import VL_VERSION, Figure, Spec
from heldout.show.score_figures import all_figures
from heldout.show.view import ReportData, ReportView

FORMATS = ("svg", "png", "pdf", "json")


def figures(data: ReportData) -> dict[str, Spec]:
    """By name: every figure as a Vega-Lite specification that is complete, data included."""
    return {figure.name: _complete(figure) for figure in all_figures(ReportView(data))}


def write_figures(
    data: ReportData, folder: Path, formats: Sequence[str] = ("svg", "png")
) -> list[Path]:
    """Write every figure into ``folder`` as ``<name>.<format>``; the paths written.

    ``svg``, ``png`` (two pixels per unit) and ``pdf`` are drawn by vl-convert; ``json`` is the
    Vega-Lite specification itself.
    """
    for form in formats:
        _check_format(form, form)
    drawn = all_figures(ReportView(data))
    written = {folder / f"{figure.name}.{form}": figure for figure in drawn for form in formats}
    for path, figure in written.items():
        write_figure(figure, path)
    return list(written)


def write_figure(figure: Figure, path: Path) -> None:
    """Write one figure as SVG, PNG, PDF or its specification, by the ending of ``path``."""
    form = path.suffix.removeprefix(".").lower()
    _check_format(form, path.name)
    spec = _complete(figure)
    if form == "json":
        write_text(path, canonical_json(spec) + "\n")
        return
    vl = require("vl_convert", extra="figures", purpose="drawing figures as files")
    if form == "svg":
        write_text(path, vl.vegalite_to_svg(spec, vl_version=VL_VERSION))
    elif form == "pdf":
        write_bytes(path, vl.vegalite_to_pdf(spec, vl_version=VL_VERSION))
    else:
        write_bytes(path, vl.vegalite_to_png(spec, vl_version=VL_VERSION, scale=2))


def _complete(figure: Figure) -> Spec:
    return {"title": figure.title, **figure.spec}


def _check_format(form: str, given: str) -> None:
    if form not in FORMATS:
        raise UserError(f"no figure format {given!r}", fix=f"use one of {', '.join(FORMATS)}")
