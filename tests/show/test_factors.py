"""Factors in the page: curves with their support, tables, warnings, example images."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.testset import ColumnType
from heldout.measure.score.records import Claim, Summary
from heldout.measure.score.slices import format_slice
from heldout.show.axes import CurveAxis
from heldout.show.charts import VL_VERSION
from heldout.show.exports import figures
from heldout.show.page import render_report
from heldout.show.report import report_data
from heldout.show.tables import curve_notes
from heldout.show.thumbnails import MOST, chosen_images, examples
from heldout.show.view import ReportData, ReportView
from tests.measure.score.factor_worlds import factor_world, size_world

from .factor_data import MODELS, drawn, factor_report, factor_worlds
from .records import score
from .test_page import Page
from .test_slices import marks


@cache
def report() -> ReportData:
    return factor_report(replicates=40)


def test_every_figure_compiles_and_is_described() -> None:
    import vl_convert

    found = figures(report())
    assert {
        "slices-factors-size-size",
        "slices-factors-angle-angle",
        "slices-factors-angle-angle-relative",
        "slices-factors-angle-angle-size",
        "slices-factors-place-x-y",
    } <= set(found)
    for spec in found.values():
        assert vl_convert.vegalite_to_vega(spec, vl_version=VL_VERSION)["marks"]
        assert len(spec["description"]) > 40


def layers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    inside = [part for layer in spec.get("layer", []) for part in layers(layer)]
    return [spec, *inside]


def test_a_curve_shows_its_images_its_balanced_support_and_where_it_is_half() -> None:
    spec = figures(report())["slices-factors-size-size"]
    assert {"bar", "line", "area", "point", "rule"} <= marks(spec)
    (bars,) = [part for part in layers(spec) if part.get("mark", {}).get("type") == "bar"]
    world = factor_worlds()["sizes"]
    for row in bars["data"]["values"]:
        assert row["images"] == len(world.rows("oak", size=float(row["value_text"])))
        assert row["at"] < float(row["value_text"]) < row["to"]
    dashed = [part for part in layers(spec) if "strokeDash" in str(part.get("mark", ""))]
    assert len(dashed) == 1
    top = max(row["high"] for row in spec["data"]["values"])
    scale = next(
        part["encoding"]["y"]["scale"]["domain"]
        for part in layers(spec)
        if part.get("mark", {}).get("type") == "line"
    )
    assert scale[0] < 0 < top <= scale[1]  # the bars have room of their own below zero
    ticks = next(
        part["encoding"]["y"]["axis"]["values"]
        for part in layers(spec)
        if part.get("mark", {}).get("type") == "line"
    )
    assert min(ticks) == 0


def test_readings_stand_with_their_figures() -> None:
    found = curve_notes(ReportView(report()))
    sizes = found["factors-size", ("size",)]
    assert any("mix of classes changes" in text for text in sizes.warnings)
    assert any("8 of 48 units" in text for text in sizes.warnings)
    assert sizes.table is not None
    assert [(model, support) for model, support, _ in sizes.table.rows] == [
        (model, support) for model in MODELS for support in ("all", "balanced")
    ]
    heads = [head for head, _ in sizes.table.heads]
    assert heads[:2] == ["mean over images", "mean over values"] and "flips" in heads
    place = found["factors-place", ("x", "y")]
    assert {"centre over edge"} <= {head for head, _ in place.table.heads}
    assert place.warnings == ()


def test_the_table_says_what_the_records_say() -> None:
    records = [r for r in report().records if isinstance(r, Summary) and r.model == "oak"]
    table = curve_notes(ReportView(report()))["factors-size", ("size",)].table
    assert table is not None
    cells = dict(zip([head for head, _ in table.heads], table.rows[0][2], strict=True))
    (area,) = [
        r
        for r in records
        if (r.columns, r.name, r.support) == ("size", "area", "all") and r.testset == "factors-size"
    ]
    assert cells["area"].text.replace("\N{NO-BREAK SPACE}", " ") == f"{100 * area.value:.1f} %"
    assert cells["area"].ends == f"{100 * area.low:.1f}–{100 * area.high:.1f}"
    (worst,) = [
        r
        for r in records
        if (r.columns, r.name, r.support) == ("size", "worst_value", "all")
        and r.testset == "factors-size"
    ]
    assert " at " not in cells["lowest"].text
    hard = Claim(
        kind="slice", testset=worst.testset, truth=worst.truth, metric=worst.metric, stated=True,
        n=worst.n, family=60, level=0.95, model="oak", slice=f"size={worst.at}",
    )  # fmt: skip
    told = replace(report(), records=[*report().records, hard])
    table = curve_notes(ReportView(told))["factors-size", ("size",)].table
    assert table is not None
    cells = dict(zip([head for head, _ in table.heads], table.rows[0][2], strict=True))
    assert cells["lowest"].text.endswith(f"at {worst.at}")


@pytest.mark.parametrize(("models", "rows"), [(12, 12), (13, 3)])
def test_a_table_of_many_models_shows_the_best_a_middle_and_the_worst(
    models: int, rows: int
) -> None:
    records: list[Any] = []
    for m in range(models):
        name = f"m{m:02d}"
        records.append(score(name, "s", 80 - m, 100))
        records += [score(name, "s", 40 + k, 50, slice=f"k={k}") for k in (1, 2)]
        records.append(
            Summary(
                model=name, testset="s", truth="original", metric="top1", columns="k",
                name="area", n=100, value=0.5,
            )
        )  # fmt: skip
    data = ReportData(title="", records=records, columns={"s": {"k": ColumnType(kind="ordered")}})
    table = curve_notes(ReportView(data))["s", ("k",)].table
    assert table is not None
    assert (len(table.rows), table.left_out) == (rows, models - rows)
    assert (table.rows[0][0], table.rows[-1][0]) == ("m00", f"m{models - 1:02d}")


def test_a_curve_that_starts_high_is_marked_so() -> None:
    found = curve_notes(ReportView(report()))["factors-angle", ("size",)]
    heads = [head for head, _ in found.table.heads]
    for _, _, cells in found.table.rows:
        assert cells[heads.index("half of maximum from")].text == "≤0.2"


def test_the_page_holds_images_tables_and_warnings() -> None:
    page = Page(render_report(report()))
    images = [attrs for tag, attrs in page.elements if tag == "img"]
    assert len(images) == len(report().examples)
    for attrs in images:
        assert attrs["src"].startswith("data:image/jpeg;base64,") and attrs["alt"]
    text = " ".join(page.texts)
    assert "mean over values" in text and "The mix of classes changes over size" in text


def test_missing_cells_are_crossed_out_and_said() -> None:
    spec = figures(report())["slices-factors-place-x-y"]
    holes = [
        row
        for part in layers(spec)
        if "data" in part and part is not spec
        for row in part["data"]["values"]
    ]
    assert sorted((row["x"], row["y"]) for row in holes) == [(9, 0), (9, 1), (10, 0), (10, 1)]


# ---- example images ----------------------------------------------------------------------------


def test_examples_follow_one_unit_over_its_values() -> None:
    world = factor_worlds()["sizes"]
    chosen = chosen_images(world.testset, "size")
    assert len(chosen) == MOST
    by_id = {image["image_id"]: image for image in world.images}
    images = [by_id[image_id] for image_id in chosen.values()]
    assert len({(image["object"], image["background"]) for image in images}) == 1
    sizes = [image["size"] for image in images]
    assert sizes == sorted(sizes) and sizes[0] == 0.04 and sizes[-1] == 1.0
    assert [float(size) for size in chosen] == sizes


def test_examples_are_small() -> None:
    testset = drawn(factor_worlds()["places"], "places")
    found = examples(testset, "x")
    assert len({example.value for example in found}) == len(found) == MOST
    from PIL import Image

    data = base64.b64decode(found[0].image.partition(",")[2])
    assert max(Image.open(io.BytesIO(data)).size) <= 120


def test_a_report_shows_images_along_the_columns_that_were_read(tmp_path: Path) -> None:
    worlds = factor_worlds()
    made = [drawn(worlds[name], name) for name in ("places", "sizes")]
    sets = {testset.name: testset for testset in made}
    records: list[Any] = [score("m", name, 50, 100) for name in sets]
    records.append(
        Summary(
            model="m", testset="factors-place", truth="original", metric="top1", columns="x",
            name="area", n=100, value=0.5,
        )
    )  # fmt: skip
    data = report_data(records, workspace=Workspace(tmp_path), title="t", sets=sets)
    assert {(example.testset, example.column) for example in data.examples} == {
        ("factors-place", "x")
    }


def test_no_images_no_examples() -> None:
    assert examples(size_world().testset, "size") == []
    testset = drawn(factor_worlds()["sizes"], "sizes")
    assert examples(testset, "nothing") == []


def test_an_unreadable_image_is_left_out() -> None:
    from heldout.data.images import MemorySource

    world = size_world()
    broken = MemorySource({image["image_id"]: b"no image" for image in world.images})
    assert examples(replace(world.testset, source=broken), "size") == []


# ---- the axis ----------------------------------------------------------------------------------


def test_bars_never_meet() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        places = np.unique(rng.integers(-50, 50, 9))
        axis = CurveAxis(tuple(map(str, places)), ColumnType(kind="ordered"), "k")
        ends = [axis.bar(float(place)) for place in places]
        assert all(a[1] < b[0] for a, b in pairwise(ends))
        assert axis.ends[0] <= ends[0][0] and axis.ends[1] >= ends[-1][1]


def test_one_value_has_an_axis() -> None:
    axis = CurveAxis(("3",), ColumnType(kind="ordered"), "k")
    low, high = axis.ends
    assert low < 3 < high


@pytest.mark.parametrize("replicates", [40])
def test_few_objects_are_said_in_the_caption(replicates: int) -> None:
    from heldout.measure.score.curve_summaries import curve_records
    from heldout.measure.score.estimate import scores
    from heldout.show.score_figures import all_figures

    world = factor_world(
        {"size": [0.1, 0.2, 0.3]},
        lambda image, ease: 0.5,
        types={"size": ColumnType(kind="ordered")},
        objects=5,
    )
    measured = world.measured()
    records = [
        *scores(measured, by=["size"], cluster="object", replicates=replicates),
        *curve_records(measured, ["size"], cluster="object", replicates=replicates),
    ]
    data = ReportData(
        title="", records=records, columns={measured.testset.name: measured.testset.card.columns}
    )
    (figure,) = [f for f in all_figures(ReportView(data)) if f.section == "slices"]
    assert "No intervals: 5 clusters (object) are too few" in figure.caption


def test_a_value_with_an_equals_sign_is_told_whole() -> None:
    kinds = {"note": ColumnType(kind="categorical")}
    hostile = "<img src=x>"
    records = [
        score("m", "s", 80, 100),
        *(
            score("m", "s", k, 50, slice=format_slice({"note": v}))
            for v, k in ((hostile, 30), ("a-b", 50))
        ),
        *(
            Summary(
                model="m",
                testset="s",
                truth="original",
                metric="top1",
                columns="note",
                name=name,
                n=50,
                value=value,
                at=at,
            )
            for name, value, at in (("worst_value", 0.6, hostile), ("best_value", 1.0, "a-b"))
        ),
        Claim(
            kind="slice", testset="s", truth="original", metric="top1", stated=True, n=50, family=2,
            level=0.95, model="m", slice=format_slice({"note": hostile}),
        ),
    ]  # fmt: skip
    data = ReportData(title="", records=records, columns={"s": kinds})
    table = curve_notes(ReportView(data))["s", ("note",)].table
    assert table is not None
    assert [cell.text.partition(" at ")[2] for cell in table.rows[0][2]] == [hostile, "a-b"]
