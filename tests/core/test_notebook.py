from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import ClassVar

import pytest

from heldout.core.context import Result
from heldout.core.notebook import dot_plot, html
from heldout.core.records import Count, Table, grids


@dataclass(frozen=True, kw_only=True)
class Mark:
    record: ClassVar[str] = "mark"
    table: ClassVar[Table] = Table("{testset}", ("model", "value:%[]"), across="metric")
    testset: str
    model: str
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None


MARKS = [
    Mark(testset="a|b", model=model, metric=metric, value=value, low=value - 0.05, high=value + 0.1)
    for model, value in (("x_1", 0.7), ("<y>", 0.75))
    for metric in ("top1", "top5")
]
RESULT = Result(records=[*MARKS, Count(name="images", value=1200)], notes=["one"])


def test_a_result_is_one_line() -> None:
    assert repr(RESULT) == "<Result: 4 mark, 1 count records; 1 notes>"
    assert repr(Result()) == "<Result: no records>"


def test_markdown_and_latex_have_the_cells_of_the_table() -> None:
    text = RESULT.to_markdown()
    assert "| model | top1 | top5 |\n|:---|---:|---:|\n| x_1 | 70.00 [65.00, 80.00] |" in text
    assert text.endswith("| images | 1,200 |")
    paper = RESULT.to_latex()
    assert r"  x\_1 & 70.00 [65.00, 80.00] & 70.00 [65.00, 80.00] \\" in paper
    assert paper.count(r"\toprule") == paper.count(r"\bottomrule") == 2


def test_what_is_brief_is_shown_and_all_of_it_when_asked_for() -> None:
    result = Result(records=RESULT.records, brief=RESULT.records[-1:])
    assert "x_1" not in result.to_markdown() and "x_1" in result.to_markdown(full=True)
    assert "x_1" not in result._repr_html_()


def test_a_data_frame_has_every_field_of_one_kind() -> None:
    frame = RESULT.to_pandas()
    assert frame["metric"].tolist() == ["top1", "top5"] * 2
    assert frame["low"].tolist() == [mark.low for mark in MARKS]
    assert RESULT.to_pandas("count")["value"].tolist() == [1200]
    assert Result().to_pandas().empty


def test_html_is_well_formed_and_escaped() -> None:
    page = RESULT._repr_html_()
    ET.fromstring(f"<div>{page}</div>")
    assert "&lt;y&gt;" in page and "<y>" not in page and "<script" not in page


def test_the_chart_has_a_dot_and_an_interval_a_row_in_their_places() -> None:
    (grid, _) = grids(RESULT.records)
    chart = ET.fromstring(dot_plot(grid))
    space = "{http://www.w3.org/2000/svg}"
    dots = [float(dot.get("cx", "")) for dot in chart.iter(f"{space}circle")]
    lines = [
        (float(line.get("x1", "")), float(line.get("x2", "")))
        for line in chart.iter(f"{space}line")
        if line.get("opacity") is None
    ]
    assert len(dots) == len(lines) == 2, "the first metric alone"
    assert dots[0] < dots[1] and all(
        low < dot < high for dot, (low, high) in zip(dots, lines, strict=True)
    )
    for dot, (low, high) in zip(dots, lines, strict=True):
        assert (high - dot) / (dot - low) == pytest.approx(2, rel=0.02), "the scale is linear"
    title = chart.find(f"{space}title")
    assert title is not None and title.text == "a|b, top1"
    ticks = [
        text.text for text in chart.iter(f"{space}text") if text.get("text-anchor") == "middle"
    ]
    assert ticks == ["65.00", "70.00", "75.00", "80.00", "85.00"]


@pytest.mark.parametrize("value", [0.0, 0.5, 1e-9, 12345.0, -3.0])
def test_one_value_has_a_chart_too(value: float) -> None:
    mark = Mark(testset="t", model="m", metric="x", value=value, low=value, high=value)
    chart = html([mark])
    assert "nan" not in chart and re.search(r'cx="[\d.]+"', chart)


def test_without_intervals_there_is_no_chart() -> None:
    assert "<svg" not in html([Count(name="images", value=3)])
    assert "<svg" not in html([Mark(testset="t", model="m", metric="x", value=0.5)])
    assert "<svg" not in html([Mark(testset="t", model="m", metric="x", value=None)])
