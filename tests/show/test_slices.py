from __future__ import annotations

from typing import Any

import pytest

from heldout.data.testset.columns import ColumnType
from heldout.measure.score.records import Score
from heldout.measure.score.slices import format_slice
from heldout.show.charts import Figure
from heldout.show.exports import figures
from heldout.show.page import render_report
from heldout.show.score_figures import MOST_BARS, all_figures
from heldout.show.view import ReportData, ReportView

from .records import COLUMNS, everything, score


def marks(spec: dict[str, Any]) -> set[str]:
    """The types of all marks, however deeply layered."""
    own = {spec["mark"]["type"]} if "mark" in spec else set()
    return own.union(*map(marks, spec.get("layer", [])))


def one(slices: list[dict[str, object]], types: dict[str, ColumnType], **names: Any) -> dict:
    records = [score("m", "s", 90, 100)]
    records += [score("m", "s", 50 + k, 100, slice=format_slice(v)) for k, v in enumerate(slices)]
    data = ReportData(title="", records=records, columns={"s": types})
    (spec,) = [spec for name, spec in figures(data).items() if name.startswith("slices")]
    return spec


def test_every_column_type_has_its_form() -> None:
    found = figures(everything())
    forms = {name.removeprefix("slices-new-"): marks(spec) for name, spec in found.items()}
    assert "bar" in forms["region"] and "line" not in forms["region"]
    for curve in ("size", "quality", "angle"):
        assert {"line", "area", "point"} <= forms[curve]
    for pair in ("left-top", "quality-region"):
        assert "rect" in forms[pair]
    assert "remark" not in forms and "quality-region-size" not in forms


@pytest.mark.parametrize(
    ("kind", "order", "values", "way", "domain"),
    [
        ("ordered", ("poor", "fair", "fine"), ("fine", "poor", "fair"), "x", "poor fair fine"),
        ("categorical", (0.5, 0.25, 1.0), (0.25, 0.5, 1.0), "y", "0.5 0.25 1"),
    ],
)
def test_the_order_of_a_column_type_is_kept(
    kind: Any, order: Any, values: Any, way: str, domain: str
) -> None:
    types = {"k": ColumnType(kind=kind, order=order)}
    spec = one([{"k": value} for value in values], types)
    assert spec["encoding"][way]["scale"]["domain"] == domain.split()


def test_numbers_are_ordered_by_size_not_by_letters() -> None:
    spec = one([{"k": v} for v in (10, 9, 100)], {"k": ColumnType(kind="ordered")})
    assert [row["at"] for row in spec["data"]["values"]] == [9, 10, 100]
    assert spec["encoding"]["x"]["type"] == "quantitative"


CIRCLES = [
    ((0, 90, 180, 270), [-180, 180]),
    ((0, 90, 180, 270, 360), [0, 360]),  # names both ends itself
    ((-180, -90, 0, 90), [-180, 180]),
    (tuple(range(1, 360, 20)), [-179, 181]),
]


@pytest.mark.parametrize("values, ends", CIRCLES, ids=lambda value: str(len(value)))
def test_a_circular_curve_comes_round_once(values: tuple[int, ...], ends: list[int]) -> None:
    records = [score("m", "s", 50 + k, 100, slice=f"k={v}") for k, v in enumerate(values)]
    types = {"s": {"k": ColumnType(kind="circular", period=360)}}
    found = figures(ReportData(title="", records=records, columns=types))
    assert list(found) == ["slices-s-k", "slices-s-k-relative"]
    spec = found["slices-s-k"]
    rows = sorted(spec["data"]["values"], key=lambda row: row["at"])
    assert spec["encoding"]["x"]["scale"]["domain"] == ends
    assert [rows[0]["at"], rows[-1]["at"]] == ends
    assert len(rows) == len({v % 360 for v in values}) + 1
    by_place = {row["at"]: row["value"] for row in rows}
    for place, value in enumerate(values):
        turned = value if 360 in values else (value + 180) % 360 - 180
        assert by_place[turned] == pytest.approx(0.5 + place / 100)
    if 360 not in values:
        assert rows[-1]["value"] == rows[0]["value"]
    relative = found["slices-s-k-relative"]["data"]["values"]
    assert max(row["value"] for row in relative) == 1
    scale = max(by_place.values())
    for row in relative:
        assert row["value"] == pytest.approx(by_place[row["at"]] / scale, abs=1e-6)


def test_grid_axes_go_where_their_types_say() -> None:
    slices = [{"left": x, "top": y} for x in (0.0, 0.5) for y in (0.0, 1.0)]
    spec = one(slices, {key: COLUMNS[key] for key in ("left", "top")})
    assert spec["encoding"]["x"]["axis"]["title"] == "left"
    turned = {
        "left": ColumnType(kind="grid", grid="place", axis="y"),
        "top": ColumnType(kind="grid", grid="place", axis="x"),
    }
    assert one(slices, turned)["encoding"]["x"]["axis"]["title"] == "top"


def test_untyped_columns_are_guessed() -> None:
    assert "line" in marks(one([{"k": v} for v in (1, 2, 3)], {}))
    assert "bar" in marks(one([{"k": v} for v in ("x", "y")], {}))


def test_only_the_lowest_of_many_values_are_drawn_and_the_caption_says_so() -> None:
    records = [score("m", "s", 90, 1000)]
    records += [score("m", "s", 100 + k, 1000, slice=f"k=v{k:03d}") for k in range(60)]
    (figure,) = [
        f
        for f in all_figures(ReportView(ReportData(title="", records=records)))
        if f.section == "slices"
    ]
    drawn = [row["at"] for row in figure.spec["data"]["values"]]
    assert drawn == [f"v{k:03d}" for k in range(MOST_BARS)]
    assert f"{MOST_BARS} lowest of 60" in figure.caption


def test_the_lowest_of_many_ordered_values_stand_in_their_own_order() -> None:
    order = [f"v{k:03d}" for k in range(60)][::-1]
    records = [score("m", "s", 100 + k, 1000, slice=f"k=v{k:03d}") for k in range(60)]
    kinds = {"s": {"k": ColumnType(kind="categorical", order=tuple(order))}}
    spec = figures(ReportData(title="", records=records, columns=kinds))["slices-s-k"]
    assert spec["encoding"]["y"]["scale"]["domain"] == order[-MOST_BARS:]


def test_classes_are_named_and_those_of_a_few_images_have_no_bars() -> None:
    records = [score("m", "s", 90, 1000)]
    records += [score("m", "s", 6, 10, slice=f"class=n{k}") for k in range(3)]
    records += [score("m", "s", 1, 1, slice=f"class=n{k}") for k in range(3, 103)]
    classes = {"s": {f"n{k}": f"animal {k}" for k in range(103)}}
    (figure,) = drawn_slices(records, classes)
    assert [row["at"] for row in figure.spec["data"]["values"]] == [
        "animal 0",
        "animal 1",
        "animal 2",
    ]
    assert "Of 100 further values there are fewer than 8 images." in figure.caption
    assert drawn_slices([records[0], *records[4:]], classes) == []


def drawn_slices(records: list[Score], classes: dict[str, dict[str, str]]) -> list[Figure]:
    data = ReportData(title="", records=records, classes=classes)
    return [figure for figure in all_figures(ReportView(data)) if figure.section == "slices"]


def test_where_lower_is_better_the_highest_values_and_the_lowest_model_lead() -> None:
    records = [score(f"m{k}", "s", 10 + k, 1000, metric="nll") for k in range(5)]
    records += [
        score(f"m{m}", "s", 100 + k, 1000, metric="nll", slice=f"k=v{k:03d}")
        for m in range(5)
        for k in range(60)
    ]
    data = ReportData(title="", records=records)
    (figure,) = [f for f in all_figures(ReportView(data)) if f.section == "slices"]
    assert {"name": "shown", "value": ["m0", "m2", "m4"]} in figure.spec["params"]
    drawn = {row["at"] for row in figure.spec["data"]["values"]}
    assert drawn == {f"v{k:03d}" for k in range(60 - MOST_BARS, 60)}
    assert f"{MOST_BARS} highest of 60" in figure.caption
    assert 'aria-sort="ascending"' in render_report(data)
