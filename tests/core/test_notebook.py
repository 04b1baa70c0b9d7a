from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import ClassVar

from heldout.core.context import Result
from heldout.core.records import Count, Table


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
    assert repr(RESULT) == "<Result: 4 mark, 1 count records; notes: 1>"
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
