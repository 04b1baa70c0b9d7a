"""Figures of numbers that slices have, and of labelled matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import UserError
from heldout.measure.score.records import Record, Summary
from heldout.measure.score.slices import format_slice
from heldout.show.exports import figures, write_figure
from heldout.show.page import render_report
from heldout.show.score_figures import matrix_figure
from heldout.show.view import ReportData

from .records import HOSTILE, score


def against_distance(names: tuple[str, ...] = ("a", "b", "c", "d")) -> ReportData:
    """Two models on slices whose accuracy falls with distance."""
    records: list[Record] = []
    for model, fall in (("ant", 40), ("bee", 10)):
        records.append(score(model, "pets", 70, 100))
        for place, name in enumerate(names):
            hits = 90 - fall * place // len(names)
            records.append(score(model, "pets", hits, 100, slice=format_slice({"subset": name})))
        records.append(summary(model, "slope", -fall / 100, low=-0.6, high=0.1))
        records.append(summary(model, "rank_correlation", -0.9, low=-1.0, high=-0.2))
        records.append(summary(model, "image_mean", 0.7, low=0.6, high=0.8))
        records.append(summary(model, "spread", 0.05, low=0.0, high=0.1))
    records += [summary(None, "distance", 0.2 * place, at=name) for place, name in enumerate(names)]
    return ReportData(title="pets", records=records)


def summary(
    model: str | None, name: str, value: float, *, at: str | None = "distance", low: float | None = None,
    high: float | None = None,
) -> Summary:  # fmt: skip
    return Summary(
        model=model, testset="pets", truth="original", metric="top1", columns="subset", name=name,
        n=100, value=value, at=at, low=low, high=high,
    )  # fmt: skip


def test_a_number_of_slices_is_drawn_against_accuracy() -> None:
    spec = figures(against_distance())["slices-pets-subset-against-distance"]
    points = spec["data"]["values"]
    assert len(points) == 8
    assert {(p["model"], p["at"], p["x"]) for p in points} >= {("ant", "a", 0.0), ("bee", "d", 0.6)}
    lines = spec["layer"][1]["data"]["values"]
    ends = [row for row in lines if row["model"] == "ant"]
    assert [row["x"] for row in ends] == [0.0, 0.6] and ends[0]["value"] > ends[1]["value"]


def test_two_slices_have_no_line_through_them() -> None:
    spec = figures(against_distance(("a", "b")))["slices-pets-subset-against-distance"]
    assert len(spec["data"]["values"]) == 4
    assert spec["layer"][1]["data"]["values"] == []


def test_the_report_says_slopes_and_reads_the_membership() -> None:
    page = render_report(against_distance())
    assert "Points of accuracy per unit of distance: ant −40.0 (−60.0 to +10.0), bee −10.0" in page
    assert "rank correlation" in page and "spread" in page and "−0.90" in page


def test_hostile_values_are_drawn(tmp_path: Path) -> None:
    from heldout.show.exports import write_figures

    data = against_distance(HOSTILE[:5])
    written = write_figures(data, tmp_path, formats=("svg",))
    assert any("against-distance" in path.name for path in written)


def test_a_matrix_is_drawn_on_one_scale(tmp_path: Path) -> None:
    values = np.array([[1.0, -0.5], [np.nan, 0.25], [0.0, -1.0]])
    figure = matrix_figure(values, ["x", "y", "z"], ["p", "q"], title="Conflicts")
    cells = figure.spec["data"]["values"]
    assert len(cells) == 5  # what is not known is left blank
    assert {"x": 1, "y": 2, "row": "z", "column": "q", "value": -1.0, "text": "−1.00"} in cells
    assert figure.spec["layer"][0]["encoding"]["color"]["scale"]["domain"] == [-1, 1]
    assert "Lowest: −1.00 at z, q" in figure.alt
    for form in ("svg", "png", "json"):
        write_figure(figure, tmp_path / f"m.{form}")
        assert (tmp_path / f"m.{form}").stat().st_size > 500
    assert "−1.00" in (tmp_path / "m.svg").read_text(encoding="utf-8")


def test_names_in_a_matrix_never_become_expressions() -> None:
    names = list(HOSTILE)
    figure = matrix_figure(np.eye(len(names)), names, names, title=HOSTILE[0])
    said = repr(figure.spec["encoding"]) + repr(figure.spec["layer"])
    assert not any(name in said for name in names)


def test_what_is_no_such_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="outside"):
        matrix_figure([[2.0]], ["a"], ["b"], title="t")
    with pytest.raises(UserError, match="no figure format"):
        write_figure(matrix_figure([[1.0]], ["a"], ["b"], title="t"), tmp_path / "m.bmp")
