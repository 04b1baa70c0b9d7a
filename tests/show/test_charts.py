"""The six forms as they are drawn: what is more lies further, what comes first is on top.

Every test looks at the marks of the drawn picture, so that a turned axis, a reversed order or a
wrong sign anywhere between the records and the picture fails it.
"""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import heldout.show
from heldout.data.testset import ColumnType
from heldout.measure.score.records import Comparison, Record, Summary
from heldout.measure.score.slices import format_slice
from heldout.show import charts
from heldout.show.exports import figures
from heldout.show.mistakes import CATEGORY_COLOURS
from heldout.show.score_figures import all_figures, matrix_figure
from heldout.show.view import ReportData, ReportView

from .records import fits, score, tallies
from .test_learning import records as learning_records

Item = dict[str, Any]


class Picture:
    """The marks of a drawn figure, layer by layer, at their places in the whole picture."""

    def __init__(self, spec: Item) -> None:
        import vl_convert

        self.layers: dict[str, list[list[Item]]] = {}
        self.labels: dict[Any, Item] = {}
        self.legend: list[str] = []
        self.clipped: set[str] = set()
        root = vl_convert.vegalite_to_scenegraph(spec, vl_version=charts.VL_VERSION)["scenegraph"]
        self._walk(root, 0.0, 0.0)

    def _walk(self, node: Item, x: float, y: float) -> None:
        if node.get("clip"):
            self.clipped.add(str(node["marktype"]))
        for item in node.get("items", []):
            here = {"x": x + item.get("x", 0.0), "y": y + item.get("y", 0.0)}
            here |= {key: x + item[key] for key in ("x2",) if key in item}
            here |= {key: y + item[key] for key in ("y2",) if key in item}
            if node["marktype"] == "group":
                for child in item.get("items", []):
                    if node.get("role") == "legend":
                        self._read(child)
                    else:
                        self._walk(child, here["x"], here["y"])
            elif node.get("role") == "axis-label":
                text = item["text"] if isinstance(item["text"], str) else item["text"][-1]
                self.labels[text] = {**item, **here}
            elif node.get("role") == "mark":
                layer = self.layers.setdefault(str(node["marktype"]), [])
                if item is node["items"][0]:
                    layer.append([])
                layer[-1].append({**item, **here})

    def _read(self, node: Item) -> None:
        """The labels of a legend, in the order in which they are drawn."""
        for item in node.get("items", []):
            if node.get("role") == "legend-label":
                self.legend.append(item["text"])
            for child in item.get("items", []):
                self._read(child)

    def __getitem__(self, kind: str) -> list[list[Item]]:
        return self.layers[kind]


def drawn(name: str, records: list[Record], **options: Any) -> tuple[Picture, Item]:
    spec = figures(ReportData(title="", records=records, **options))[name]
    return Picture(spec), spec


def rising(values: list[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


BASE = {"truth": "original", "n": 100, "testset": "s", "metric": "top1"}


def test_dots_lie_at_their_values_the_best_on_top() -> None:
    found = {"mid": 70, "low": 50, "top": 90}
    picture, _ = drawn("scores-s", [score(m, "s", k, 100) for m, k in found.items()])
    dots = dict(zip(found, picture["symbol"][0], strict=True))
    bars = dict(zip(found, picture["rule"][0], strict=True))
    assert rising([dots[m]["x"] for m in ("low", "mid", "top")])
    assert rising([dots[m]["y"] for m in ("top", "mid", "low")])
    for model, dot in dots.items():
        assert picture.labels[model]["y"] == pytest.approx(dot["y"], abs=1)
        assert bars[model]["x"] < dot["x"] < bars[model]["x2"]
        assert bars[model]["y"] == dot["y"]
    assert rising([picture.labels[f"{k} %"]["x"] for k in (40, 60, 80)])
    assert picture.labels["70 %"]["x"] == pytest.approx(dots["mid"]["x"], abs=1)


def test_a_legend_names_series_where_there_are_several() -> None:
    one = [score("m", "s", 70, 100)]
    assert drawn("scores-s", one)[0].legend == []
    two = [*one, score("m", "s", 90, 100, metric="top5")]
    assert drawn("scores-s", two)[0].legend == ["top-1 accuracy", "top-5 accuracy"]
    changes = [score("m", t, k, 100) for t, k in (("a", 70), ("b", 60), ("c", 50))]
    assert drawn("changes", changes, baseline="a")[0].legend == ["b", "c"]
    bars = [score(m, "s", k, 100, slice=f"k={v}") for m, k in (("p", 60), ("q", 50)) for v in "xy"]
    assert drawn("slices-s-k", bars)[0].legend == ["p", "q"]
    assert drawn("slices-s-k", bars[:2])[0].legend == []


def test_changes_lie_on_their_side_of_zero_the_largest_gain_on_top() -> None:
    hits = {"falls": (90, 60), "rises": (40, 60), "stays": (70, 69)}
    records = [
        score(m, t, k, 100) for m, pair in hits.items() for t, k in zip("ab", pair, strict=True)
    ]
    picture, _ = drawn("changes", records, baseline="a")
    (zero,), dots = picture["rule"][0], picture["symbol"][0]
    at = {m: dot for m in hits for dot in dots if abs(picture.labels[m]["y"] - dot["y"]) < 5}
    assert at["falls"]["x"] < at["stays"]["x"] < zero["x"] < at["rises"]["x"]
    assert rising([at[m]["y"] for m in ("rises", "stays", "falls")])
    assert zero["x"] == pytest.approx(picture.labels["0"]["x"], abs=1)


def test_a_difference_is_the_first_model_minus_the_second_and_blue_if_sure() -> None:
    records: list[Record] = [score(m, "s", 50, 100) for m in "abc"]
    records += [
        Comparison(model="a", other="b", difference=0.1, low=0.05, high=0.15, p=0.001, **BASE),
        Comparison(model="a", other="c", difference=-0.2, low=-0.3, high=0.1, p=0.2, **BASE),
    ]
    picture, _ = drawn("comparisons-s-top1", records)
    (zero,), (more, less) = picture["rule"][0], picture["symbol"][0]
    assert less["x"] < zero["x"] < more["x"] and more["y"] < less["y"]
    assert more["fill"] == charts.BLUE != less["fill"]
    assert picture.labels["a − b"]["y"] == pytest.approx(more["y"], abs=1)


def test_pieces_of_a_bar_follow_each_other_and_are_as_long_as_their_counts() -> None:
    records = [score("m", "new", 5, 10), *tallies(["m"], "new", slices=[{"k": "x"}, {"k": "y"}])]
    picture, spec = drawn("mistakes-new-original-categories", records)
    rows = spec["layer"][0]["data"]["values"]
    unit = picture.labels["2 %"]["x"] - picture.labels["0 %"]["x"]
    for row, bar in zip(rows, picture["rect"][0], strict=True):
        assert bar["x"] == pytest.approx(row["start"] / 0.02 * unit, abs=1)
        assert bar["width"] == pytest.approx((row["end"] - row["start"]) / 0.02 * unit, abs=1)
        assert bar["fill"] == {"Major": charts.VERMILLION, "unjudged": "#c3cad1"}[row["severity"]]
    order = ["Fine-grained error", "Spurious Correlation", "Other"]
    assert rising([picture.labels[name]["y"] for name in order])
    for end, bar in zip(picture["rule"][0], picture["text"][0], strict=True):
        assert end["x"] < end["x2"] == bar["x"]
    sliced, _ = drawn("mistakes-new-original-by-k", records)
    assert rising([sliced.labels[value]["y"] for value in "xy"])
    pieces = sliced["rect"][0][:3]
    assert rising([bar["x"] for bar in pieces])
    assert [bar["fill"] for bar in pieces] == [CATEGORY_COLOURS[name] for name in order]


def test_bars_of_slices_are_as_long_as_their_scores_the_worst_on_top() -> None:
    hits = {"x": 90, "y": 30, "z": 60}
    records = [score("m", "s", 60, 100)]
    records += [score("m", "s", k, 100, slice=f"k={v}") for v, k in hits.items()]
    picture, spec = drawn("slices-s-k", records)
    values = [row["at"] for row in spec["data"]["values"]]
    wide = dict(zip(values, picture["rect"][0], strict=True))
    assert [round(bar["width"] / wide["x"]["width"], 3) for bar in wide.values()] == [
        round(hits[value] / 90, 3) for value in values
    ]
    assert rising([picture.labels[value]["y"] for value in ("y", "z", "x")])
    (whole,) = picture["rule"][-1]
    assert whole["x"] == pytest.approx(wide["z"]["width"], abs=1)


def test_curves_rise_with_their_values_and_run_along_the_column() -> None:
    kinds = {"s": {"k": ColumnType(kind="ordered")}}
    records = [score("m", "s", 60, 100)]
    records += [score("m", "s", k, 100, slice=f"k={v}") for v, k in ((10, 50), (2, 30), (30, 80))]
    picture, _ = drawn("slices-s-k", records, columns=kinds)
    (line,), (band,) = picture["line"], picture["area"]
    assert rising([point["x"] for point in line]) and rising([-point["y"] for point in line])
    assert [point["x"] for point in line] == [point["x"] for point in picture["symbol"][0]]
    for at, edge in zip(line, band, strict=True):
        assert edge["y"] > at["y"] > edge["y2"]  # from the low end up to the high one
    assert rising([picture.labels[text]["x"] for text in ("2", "10", "30")])
    assert picture.labels["60 %"]["y"] == pytest.approx(picture["rule"][0][0]["y"], abs=1)
    assert band[0]["opacity"] < 0.5  # what lies behind a band is seen


def test_of_many_models_the_best_a_middle_and_the_worst_are_drawn() -> None:
    hits = {"a": 60, "b": 80, "c": 50, "d": 90, "e": 70}
    records = [score(m, "s", k, 100) for m, k in hits.items()]
    records += [score(m, "s", k, 100, slice=f"k={v}") for m, k in hits.items() for v in "xy"]
    picture, spec = drawn("slices-s-k", records)
    assert len(picture["rect"][0]) == 6 and picture.legend == ["d", "e", "c"]
    unit = picture.labels["20 %"]["x"] - picture.labels["0 %"]["x"]
    whole = sorted(round(line["x"] / unit * 20) for line in picture["rule"][-1])
    assert whole == [50, 70, 90] and "d, e, c" in spec["description"]


def test_bars_of_several_models_have_room_beside_each_other() -> None:
    records = [
        score(m, "s", k, 100, slice=f"k={v}")
        for k, m in ((80, "a"), (70, "b"), (60, "c"))
        for v in "wxyz"
    ]
    picture, _ = drawn("slices-s-k", records)
    bars = sorted(picture["rect"][0], key=lambda bar: bar["y"])
    assert len(bars) == 12 and min(bar["height"] for bar in bars) > 5
    for above, below in pairwise(bars):
        assert above["y"] + above["height"] <= below["y"] + 0.01
    for k in range(0, 12, 3):  # the three of one value, the best on top
        assert rising([-bar["width"] for bar in bars[k : k + 3]])


def test_images_are_bars_at_the_foot_of_a_curve_and_stay_below_it() -> None:
    kinds = {"s": {"k": ColumnType(kind="ordered")}}
    sizes = {1: (90, 100), 2: (320, 400), 3: (170, 200)}
    records: list[Record] = [score("m", "s", 580, 700)]
    records += [score("m", "s", k, n, slice=f"k={v}") for v, (k, n) in sizes.items()]
    records.append(
        Summary(model="m", columns="k", name="image_mean", value=0.8, **BASE | {"n": 700})
    )
    picture, _ = drawn("slices-s-k", records, columns=kinds)
    bars = sorted(picture["rect"][0], key=lambda bar: bar["x"])
    feet = [bar["y"] + bar["height"] for bar in bars]
    assert feet == [feet[0]] * 3
    assert [bar["height"] / bars[1]["height"] for bar in bars] == pytest.approx([0.25, 1, 0.5])
    lowest = max(edge["y"] for edge in picture["area"][0])
    highest = min(edge["y2"] for edge in picture["area"][0])
    whole = feet[0] - highest
    assert feet[0] - bars[1]["height"] > lowest  # higher up is less
    assert 0.1 < bars[1]["height"] / whole < (feet[0] - lowest) / whole < 0.2
    assert min(float(text.split()[0]) for text in picture.labels if str(text).endswith("%")) > 70
    view = ReportView(ReportData(title="", records=records, columns=kinds))
    (figure,) = [figure for figure in all_figures(view) if figure.name == "slices-s-k"]
    assert figure.caption.endswith("Grey bars: images at each value, 400 at most.")


def test_the_curve_of_units_that_are_everywhere_is_dashed_and_has_no_points() -> None:
    kinds = {"s": {"k": ColumnType(kind="ordered")}}
    records = [score("m", "s", 60, 100)]
    for metric, more in (("top1", 0), ("top1_balanced", 10)):
        records += [
            score("m", "s", 50 + 10 * k + more, 100, metric=metric, slice=f"k={k}")
            for k in (1, 2, 3)
        ]
    picture, _ = drawn("slices-s-k", records, columns=kinds)
    whole, balanced = picture["line"]
    assert "strokeDash" not in whole[0] and "strokeDash" in balanced[0]
    assert all(b["y"] < a["y"] for a, b in zip(whole, balanced, strict=True))
    assert [points[0]["opacity"] for points in picture["symbol"]] == [1, 0]


def test_learning_curves_rise_with_labels() -> None:
    picture, _ = drawn("learning-set-original-accuracy", learning_records(("random", "best")))
    for line in picture["line"]:
        assert rising([point["x"] for point in line]) and rising([-point["y"] for point in line])
    assert picture.labels["10"]["x"] < picture.labels["30"]["x"]
    last = {line[-1]["stroke"]: line[-1]["y"] for line in picture["line"]}
    assert last[charts.CATEGORIES[1]] < last[charts.CATEGORIES[0]]  # the second strategy is better


def light(item: Item) -> float:
    """How light a cell is: the sum of its three channels."""
    return float(sum(map(int, item["fill"].removeprefix("rgb(").removesuffix(")").split(","))))


def test_cells_are_deeper_where_scores_are_higher_and_rows_run_downwards() -> None:
    grid = {c: ColumnType(kind="grid", grid="place", axis=c) for c in ("x", "y")}  # type: ignore[arg-type]
    records = [score("m", "s", 50, 100)]
    for x in range(3):
        for y in range(2):
            at = format_slice({"x": x, "y": y})
            records.append(score("m", "s", 20 + 10 * x + 30 * y, 100, slice=at))
    picture, spec = drawn("slices-s-x-y", records, columns={"s": grid})
    cells = {
        (row["at"], row["row"]): cell
        for row, cell in zip(spec["data"]["values"], picture["rect"][0], strict=True)
    }
    for (x, y), cell in cells.items():
        assert cell["x"] == pytest.approx(int(x) * cells["1", "0"]["x"], abs=1)
        assert cell["y"] == pytest.approx(int(y) * cells["0", "1"]["y"], abs=1)
    order = [("0", "0"), ("1", "0"), ("2", "0"), ("0", "1"), ("1", "1"), ("2", "1")]
    assert rising([-light(cells[at]) for at in order])
    texts = {(t["x"], t["y"]): t["text"] for t in picture["text"][0]}
    top = min(texts)
    assert texts[top] == "20" and texts[max(texts)] == "70"


def test_many_rows_keep_their_height_and_many_cells_have_no_numbers() -> None:
    def grid(columns: list[str], rows: int) -> Picture:
        records = [
            score("m", "s", 20 + 2 * y, 100, slice=format_slice({"a": x, "b": f"row {y:02d}"}))
            for x in columns
            for y in range(rows)
        ]
        return drawn("slices-s-a-b", records)[0]

    small = grid(["p", "q"], 30)
    assert min(cell["height"] for cell in small["rect"][0]) >= 12
    assert len(small["text"][0]) == 60
    assert all(text.endswith(" %") for text in small.legend)
    assert small.labels["p"].get("angle", 0) == 0
    wide = grid([f"column {k}" for k in range(5)], 30)
    assert "text" not in wide.layers
    assert wide.labels["column 1"]["angle"] % 360 == 320


def test_a_matrix_has_two_hues_and_its_first_row_on_top() -> None:
    figure = matrix_figure([[-1.0, 0.0], [0.1, 1.0]], ["a", "b"], ["p", "q"], title="t")
    picture = Picture(figure.spec)
    worst, none, _, best = picture["rect"][0]
    assert worst["x"] < none["x"] and worst["y"] < best["y"]
    assert (worst["fill"], best["fill"]) == ("rgb(143, 61, 0)", "rgb(0, 63, 102)")
    assert light(none) > max(light(worst), light(best))
    assert picture.labels["a"]["y"] < picture.labels["b"]["y"]
    assert picture.labels["p"]["x"] < picture.labels["q"]["x"]
    assert not any("%" in text for text in picture.legend)


def test_points_lie_to_the_right_with_the_baseline_and_up_with_the_new_set() -> None:
    hits = {"a": (60, 50), "b": (80, 60), "c": (90, 85)}
    records: list[Record] = [
        score(m, t, k, 100)
        for m, pair in hits.items()
        for t, k in zip(("old", "new"), pair, strict=True)
    ]
    records += fits(records, "old")  # type: ignore[arg-type]
    picture, spec = drawn("accuracy-new-linear", records, baseline="old")
    models = [row["model"] for row in spec["layer"][-1]["data"]["values"]]
    at = dict(zip(models, picture["symbol"][0], strict=True))
    assert rising([at[m]["x"] for m in "abc"]) and rising([-at[m]["y"] for m in "abc"])
    equal, fitted = picture["line"]
    for line in (equal, fitted):
        assert line[0]["x"] < line[1]["x"] and line[0]["y"] > line[1]["y"]
    assert "strokeDash" in equal[0] and "strokeDash" not in fitted[0]
    assert fitted[0]["stroke"] == charts.VERMILLION != equal[0]["stroke"]
    slope = (equal[1]["y"] - equal[0]["y"]) / (equal[1]["x"] - equal[0]["x"])
    for dot in at.values():  # every model falls: all are below the line of equal accuracy
        assert dot["y"] > equal[0]["y"] + slope * (dot["x"] - equal[0]["x"])
    upright, level = picture["rule"]
    for model, up, beside in zip(models, upright, level, strict=True):
        assert up["y"] > at[model]["y"] > up["y2"]
        assert beside["x"] < at[model]["x"] < beside["x2"]
    assert picture["area"][0][0]["y"] > picture["area"][0][0]["y2"]
    assert {"area", "line"} <= picture.clipped  # a line that leaves the plot ends at its edge
    assert {"60 %", "80 %"} <= picture.labels.keys()


EXPRESSIONS = {"expr", "labelExpr", "calculate", "filter", "test", "signal", "update"}


def test_expressions_are_written_in_one_place_and_never_put_together() -> None:
    """Only charts.py and axes.py write expressions, and none with a text inside another."""
    for path in sorted(Path(heldout.show.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in EXPRESSIONS:
                        assert path.name in ("charts.py", "axes.py"), (path.name, key.lineno)
                        assert not isinstance(value, ast.JoinedStr | ast.BinOp), key.lineno
            if isinstance(node, ast.keyword) and node.arg in EXPRESSIONS:
                pytest.fail(f"{path.name} passes {node.arg} by keyword")
