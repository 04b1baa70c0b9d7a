"""Any labelled matrix of numbers from −1 to 1 as a heat map of two hues: below zero, above zero."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, write_bytes, write_text
from heldout.show import theme
from heldout.show.figure import Figure, slug
from heldout.show.wording import signed

_MOST_NUMBERED = 200
_HUES = ("#8f3d00", theme.VERMILLION, "#f3b38a", "#f5f6f7", "#8fc1e0", theme.BLUE, "#003f66")
FORMATS = ("svg", "png", "json")


def matrix_figure(
    values: npt.ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    row_title: str = "",
    column_title: str = "",
    value_title: str = "value",
    caption: str = "",
) -> Figure:
    """The matrix ``values`` (rows, columns), each from −1 to 1 or NaN where it is not known.

    The scale always spans −1 to 1, so that two such figures can be laid side by side.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.shape != (len(rows), len(columns)) or not matrix.size:
        raise UserError(
            f"a matrix of shape {matrix.shape} with {len(rows)} row and {len(columns)} column names"
        )
    known = matrix[np.isfinite(matrix)]
    if (np.abs(known) > 1 + 1e-9).any():
        raise UserError("a matrix with values outside −1 to 1", fix="divide by its largest value")
    cells = [
        {
            "x": x,
            "y": y,
            "row": rows[y],
            "column": columns[x],
            "value": float(matrix[y, x]),
            "text": signed(float(matrix[y, x]), digits=2),
        }
        for y in range(len(rows))
        for x in range(len(columns))
        if np.isfinite(matrix[y, x])
    ]
    numbered = matrix.size <= _MOST_NUMBERED
    titles = {"row": row_title or "row", "column": column_title or "column", "text": value_title}
    layers: list[theme.Spec] = [
        {
            "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1},
            "encoding": {
                "color": {
                    "field": "value",
                    "type": "quantitative",
                    "scale": {"domain": [-1, 1], "range": list(_HUES), "interpolate": "lab"},
                    "legend": {
                        "title": None,
                        "orient": "right",
                        "direction": "vertical",
                        "gradientLength": 160,
                        "gradientThickness": 10,
                        "values": [-1, -0.5, 0, 0.5, 1],
                        "format": "+.1f",
                    },
                },
                "tooltip": theme.tooltip(titles),
            },
        }
    ]
    if numbered:
        dark = {"test": "abs(datum.value) > 0.62", "value": "white"}
        layers.append(
            {
                "mark": {"type": "text", "fontSize": 10.5},
                "encoding": {
                    "text": {"field": "text", "type": "nominal"},
                    "color": {"condition": dark, "value": theme.INK},
                },
            }
        )
    least = min(cells, key=lambda cell: float(str(cell["value"])), default=None)
    said = (
        "" if least is None else f" Lowest: {least['text']} at {least['row']}, {least['column']}."
    )
    return Figure(
        name=slug("matrix", title),
        section="slices",
        title=title,
        caption=caption,
        spec=theme.base(
            width=max(360, min(900, 46 * len(columns) + 190)),
            height=max(180, min(900, 28 * len(rows) + 130)),
            description=f"Heat map: {title}. {len(rows)} rows, {len(columns)} columns.{said}",
            titles=titles,
            params=[
                {"name": "across", "value": list(columns)},
                {"name": "down", "value": list(rows)},
            ],
            data=theme.values(cells),
            encoding={
                "x": _axis("x", "across[datum.value]", len(columns), column_title, angle=-40),
                "y": _axis("y", "down[datum.value]", len(rows), row_title, angle=0),
            },
            layer=layers,
        ),
    )


def write_matrix(figure: Figure, path: Path) -> None:
    """Write one figure as SVG, PNG or its Vega-Lite specification, by the ending of ``path``."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UserError(f"no figure format {path.name!r}", fix=f"use one of {', '.join(FORMATS)}")
    spec = {"title": figure.title, **figure.spec}
    if form == "json":
        write_text(path, canonical_json(spec) + "\n")
        return
    vl = require("vl_convert", extra="figures", purpose="drawing figures as files")
    if form == "svg":
        write_text(path, str(vl.vegalite_to_svg(spec, vl_version=theme.VL_VERSION)))
    else:
        write_bytes(path, bytes(vl.vegalite_to_png(spec, vl_version=theme.VL_VERSION, scale=2)))


def _axis(field: str, label: str, count: int, title: str, *, angle: int) -> theme.Spec:
    return {
        "field": field,
        "type": "ordinal",
        "scale": {"domain": list(range(count)), "padding": 0},
        "axis": {
            "labelExpr": label,
            "title": title or None,
            "domain": False,
            "labelAngle": angle,
            "labelOverlap": True,
        },
    }
