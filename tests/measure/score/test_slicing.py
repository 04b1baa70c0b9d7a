"""Slices of every column type against loops over rows."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotFound, UserError
from heldout.data.testset import ColumnType
from heldout.measure.score.estimate import cluster_codes, scores
from heldout.measure.score.measure import measure
from heldout.measure.score.slices import (
    format_slice,
    format_value,
    has_columns,
    parse_slice,
    partitions,
    range_start,
)
from tests.measure.score.worlds import Image, World, single_label, world_testset


def made(n: int = 12, *, classes: int = 3, **columns: Any) -> Any:
    """A measurement of one model that is right on even images."""
    types = columns.pop("types", None)
    members = columns.pop("members", ())
    labels = [i % classes for i in range(n)]
    logits = [
        [float(c == (label if i % 2 == 0 else (label + 1) % classes)) for c in range(classes)]
        for i, label in enumerate(labels)
    ]
    world = single_label(labels, classes, {"m": logits})
    testset = world_testset(world, types=types, members=members, **columns)
    return measure(testset, world.predictions())[0]


def slices(measured: Any, entry: str) -> dict[str, list[int]]:
    (partition,) = partitions(measured, [entry])
    return {name: positions.tolist() for name, positions in partition.slices().items()}


VALUES = {
    "categorical": st.sampled_from(["a", "b c", "d&e", "f=g", "é", "%"]),
    "ordered": st.one_of(st.integers(-3, 3), st.floats(-2, 2), st.just(math.nan)),
    "whole": st.integers(-3, 3),
    "flag": st.booleans(),
}


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_single_columns(data: st.DataObject, kind: str) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=6, max_size=12))
    if kind == "ordered":
        values = [None if v is None else float(v) for v in values]
    if all(v is None for v in values):
        values[0] = {"categorical": "a", "ordered": 0.0, "whole": 1, "flag": True}[kind]
    column_type = ColumnType(kind="ordered" if kind == "ordered" else "categorical")
    measured = made(len(values), col=values, types={"col": column_type})
    expected = defaultdict(list)
    for row, value in enumerate(values):
        if value is not None and value == value:
            expected[format_slice({"col": value})].append(row)
    found = slices(measured, "col")
    assert found == dict(expected)
    if kind in ("ordered", "whole", "flag"):
        first = [
            next(v for v in values if v is not None and format_slice({"col": v}) == name)
            for name in found
        ]
        assert first == sorted(first)
    assert all(parse_slice(name) for name in found)


def test_values_that_look_alike_share_a_slice() -> None:
    measured = made(6, col=[0.1 + 0.2, 0.3, 0.3000000001, 1.0, -0.0, 0.0])
    assert slices(measured, "col") == {"col=0": [4, 5], "col=0.3": [0, 1, 2], "col=1": [3]}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_conjunctions(data: st.DataObject) -> None:
    n = data.draw(st.integers(4, 12))
    one_of = st.one_of(st.none(), st.sampled_from(["p", "q"]))
    x = data.draw(st.lists(one_of, min_size=n, max_size=n))
    y = data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=n, max_size=n))
    contexts = [data.draw(st.sets(st.sampled_from(["in", "out", "sea"]))) for _ in range(n)]
    members = [(f"i{i:03d}", "context", c) for i, row in enumerate(contexts) for c in row]
    if not members or all(v is None for v in x):
        return
    types = {
        "x": ColumnType(kind="categorical"),
        "context": ColumnType(kind="categorical", multi=True),
    }
    measured = made(n, x=x, y=y, members=members, types=types)
    expected: dict[str, list[int]] = defaultdict(list)
    for row in range(n):
        for context in contexts[row]:
            if x[row] is not None:
                expected[format_slice({"x": x[row], "context": context})].append(row)
    assert slices(measured, "x&context") == slices(measured, " context & x ") == dict(expected)
    three = defaultdict(list)
    for row in range(n):
        if x[row] is not None:
            three[format_slice({"class": f"c{row % 3}", "x": x[row], "y": y[row]})].append(row)
    assert slices(measured, "y&class&x") == dict(three)


def test_class_is_the_class_of_the_truth_that_was_measured() -> None:
    """One image may have two rows in a truth; each row is sliced by its own class."""
    from heldout.data.testset import Card, image_table, make_testset, truth_table
    from tests.measure.score.worlds import space_of

    space = space_of(3)
    testset = make_testset(
        Card(name="made", label_space="made"),
        images=image_table({"image_id": ["a", "b"]}),
        truths={
            "original": truth_table(["a", "b"], ["c0", "c0"]),
            "objects": truth_table(["a", "a", "b"], ["c1", "c2", "c2"]),
        },
        label_space=space,
    )
    world = World(3, (Image("a", 0), Image("b", 0)), {"m": ((0, 0, 1), (0, 0, 1))})
    (measured,) = measure(testset, world.predictions(), truth="objects")
    assert slices(measured, "class") == {"class=c1": [0], "class=c2": [1, 2]}
    found = {r.slice: (r.n, r.value) for r in scores(measured, by=["class"], minimum_n=99)}
    assert found == {"all": (2, 0.75), "class=c1": (1, 0.0), "class=c2": (2, 1.0)}


def test_bins_of_an_ordered_column() -> None:
    frequency = [0.0, 0.1, 0.2, 0.39, 0.4, 0.7, 0.8, 1.0, None, 0.6]
    measured = made(10, frequency=frequency)
    entry = "frequency@0.2,0.4,0.6,0.8"
    assert slices(measured, entry) == {
        "frequency=:0.2": [0, 1],
        "frequency=0.2:0.4": [2, 3],
        "frequency=0.4:0.6": [4],
        "frequency=0.6:0.8": [5, 9],
        "frequency=0.8:": [6, 7],
    }
    assert has_columns(measured.testset, entry) and has_columns(
        measured.testset, "class&frequency@0.5"
    )
    assert not has_columns(measured.testset, "other@1")
    joined = slices(measured, "class&frequency@0.5")
    assert joined["class=c0&frequency=:0.5"] == [0, 3]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-5, 5), min_size=3, max_size=12),
    st.lists(st.integers(-4, 4), min_size=1, max_size=4, unique=True).map(sorted),
)
def test_bins_partition(values: list[float], edges: list[int]) -> None:
    measured = made(len(values), col=values)
    found = slices(measured, f"col@{','.join(map(str, edges))}")
    assert sorted(row for rows in found.values() for row in rows) == list(range(len(values)))
    for name, rows in found.items():
        low, _, high = parse_slice(name)["col"].partition(":")
        for row in rows:
            assert not low or values[row] >= float(low)
            assert not high or values[row] < float(high)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("frequency@a", "edges that are not numbers"),
        ("frequency@", "edges that are not numbers"),
        ("frequency@0.5,0.2", "edges that do not rise"),
        ("frequency@nan", "edges that do not rise"),
        ("light@1", "does not hold numbers"),
        ("note", "is text"),
        ("light&light", "not a column to slice by"),
        ("light&", "not a column to slice by"),
    ],
)
def test_entries_that_are_wrong(entry: str, text: str) -> None:
    types = {"note": ColumnType(kind="text"), "light": ColumnType(kind="categorical")}
    measured = made(
        4, frequency=[0.1, 0.2, 0.3, 0.4], light=list("abab"), note=list("wxyz"), types=types
    )
    with pytest.raises(UserError, match=text):
        partitions(measured, [entry])
    with pytest.raises(NotFound, match="it has class, note, light, frequency"):
        partitions(measured, ["nope"])


def test_a_column_named_like_an_entry() -> None:
    measured = made(4, **{"a&b": list("xxyy"), "c@1": list("pqpq")})
    assert slices(measured, "a&b") == {"a%26b=x": [0, 1], "a%26b=y": [2, 3]}
    assert slices(measured, "c@1") == {"c%401=p": [0, 2], "c%401=q": [1, 3]}


def test_dates_and_dictionaries() -> None:
    import datetime

    import pyarrow as pa

    day = datetime.date(2020, 1, 2)
    measured = made(
        4,
        taken=[day, None, day, datetime.date(2021, 1, 1)],
        types={"taken": ColumnType(kind="categorical")},
    )
    assert slices(measured, "taken") == {"taken=2020-01-02": [0, 2], "taken=2021-01-01": [3]}
    assert format_value(True) == "true"
    encoded = pa.chunked_array([pa.array(["u", "v", None, "u"]).dictionary_encode()])
    world = single_label([0, 1, 0, 1], 2, {"m": [(1, 0)] * 4})
    testset = world_testset(world)
    from dataclasses import replace

    grown = replace(
        testset,
        images=testset.images.append_column("col", encoded),
        card=testset.card.updated(columns={"col": ColumnType(kind="categorical")}),
    )
    (measured,) = measure(grown, world.predictions())
    assert slices(measured, "col") == {"col=u": [0, 3], "col=v": [1]}


def test_an_image_without_a_cluster_stands_alone() -> None:
    measured = made(6, photographer=["a", None, "a", "b", None, "b"])
    codes = cluster_codes(measured, "photographer").tolist()
    assert codes[0] == codes[2] and codes[3] == codes[5]
    assert len(set(codes)) == 4


@pytest.mark.parametrize(
    ("kind", "values", "order"),
    [
        ({"kind": "ordered"}, ["90", "180", "0"], ["0", "90", "180"]),
        ({"kind": "circular", "period": 360.0}, ["90", "180", "0"], ["0", "90", "180"]),
        ({"kind": "grid", "grid": "g", "axis": "x"}, ["90", "180", "0"], ["0", "90", "180"]),
        ({"kind": "categorical"}, ["9", "10", "1"], ["1", "9", "10"]),
        ({"kind": "ordered"}, ["9", "10", "large"], ["9", "10", "large"]),
        ({"kind": "ordered", "order": (2.0, 1.0)}, [1, 2, 3], ["2", "1", "3"]),
        (
            {"kind": "categorical", "order": ("night", "day")},
            ["day", "fog", "night", "dusk"],
            ["night", "day", "dusk", "fog"],
        ),
    ],
)
def test_values_are_in_the_order_of_their_column(
    kind: dict[str, Any], values: list[Any], order: list[str]
) -> None:
    measured = made(12, col=values * (12 // len(values)), types={"col": ColumnType(**kind)})
    assert list(slices(measured, "col")) == [f"col={value}" for value in order]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("0.5:0.7", 0.5),
        (":0.5", float("-inf")),
        ("0.7:", 0.7),
        ("0.5", None),
        (":", None),
        ("", None),
    ]
    + [(text, None) for text in ("16:9 wide", "a:3", "noon: 3", "x")],
)
def test_what_is_no_range_has_no_start(text: str, start: float | None) -> None:
    assert range_start(text) == start
