"""Records, slices and the room's public names."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import json
import math
import pkgutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heldout.measure.score
from heldout.core.errors import UserError
from heldout.core.records import Count, grids, to_dict, to_json
from heldout.measure.score.records import (
    Comparison,
    Fit,
    Learning,
    Record,
    Score,
    Summary,
    Tally,
    from_dict,
)
from heldout.measure.score.slices import format_slice, parse_slice

MODULES = sorted(module.name for module in pkgutil.iter_modules(heldout.measure.score.__path__))
RECORDS: list[Record] = [
    Score(
        model="m", testset="t", truth="original", metric="top1", n=3, value=1 / 3, low=0.1, high=0.6
    ),
    Comparison(model="m", other="o", testset="t", truth="real", metric="nll", n=1, difference=-0.5),
    Fit(
        testset="t",
        baseline="b",
        metric="top1",
        axes="logit",
        models=3,
        slope=1,
        intercept=0,
        r2=0.9,
    ),
    Count(name="n_failed", value=2, model="m", testset="t"),
    Summary(
        model=None, testset="t", truth="o", metric="top1", columns="x&y", name="mix", n=3, value=0.5
    ),
    Summary(
        model="m",
        testset="t",
        truth="original",
        metric="top1",
        columns="size",
        name="critical_value",
        n=3,
        value=None,
        reason="nothing is right at any value",
    ),
    Tally(
        model="m",
        testset="t",
        truth="multilabel",
        category="Fine-grained error",
        severity="Major",
        basis="judged",
        n=3,
        of=8,
        value=0.375,
        slice="size=0.5",
    ),
    Learning(
        strategy="margin+error",
        testset="t",
        truth="original",
        metric="worst_domain",
        n=300,
        seeds=5,
        value=0.02,
        labels=260,
        other="random",
        low=-0.01,
        high=0.05,
        interval="t over seeds",
        level=0.95,
        p=0.15,
        adjusted_p=0.6,
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.record)
def test_records_survive_json(record: Record) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(record)))) == record
    assert next(iter(to_dict(record))) == "record"


def test_one_array_a_record_a_line() -> None:
    text = to_json(RECORDS)
    assert [from_dict(value) for value in json.loads(text)] == RECORDS
    assert len(text.splitlines()) == len(RECORDS) + 2
    assert to_json([]) == "[]"


def test_no_record_holds_what_json_lacks() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError):
            to_json([Score(model="m", testset="t", truth="o", metric="nll", n=1, value=value)])


texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(st.dictionaries(texts, texts, min_size=1, max_size=3))
def test_slices_are_read_back(values: dict[str, str]) -> None:
    name = format_slice(values)
    assert parse_slice(name) == values
    assert name == format_slice(dict(reversed(values.items())))
    assert " " not in name


def test_the_whole_set_is_a_slice_without_columns() -> None:
    assert parse_slice("all") == {} and format_slice({}) == "all"


@pytest.mark.parametrize("text", ["x", "=y", "x&y=1", ""])
def test_texts_that_are_no_slice(text: str) -> None:
    with pytest.raises(UserError, match="is not a slice"):
        parse_slice(text)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"heldout.measure.score.{name}"))
    assert outcome.failed == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"value": math.nan},
        {"value": "0.5"},
        {"value": None},
        {"n": 1.5},
        {"n": True},
        {"model": 3},
        {"low": "0.1"},
        {"colour": "red"},
    ],
)
def test_what_is_no_record_is_refused(fields: dict[str, object]) -> None:
    good = to_dict(Score(model="m", testset="t", truth="o", metric="top1", n=1, value=1.0))
    assert from_dict(good) == from_dict(good | {"value": 1})
    with pytest.raises(TypeError):
        from_dict(good | fields)


def test_what_a_person_sees_of_a_record() -> None:
    score = Score(model="m", testset="t", truth="o", metric="top1", n=4, value=0.5)
    assert (score.shown_slice, score.shown) == ("", "50.00")
    part = dataclasses.replace(score, slice="light=very%20dim&x=0.5", low=0.25, high=0.75)
    assert part.shown_slice == "light=very dim&x=0.5" and part.shown.startswith("50.00 [25.00")
    comparison = Comparison(
        model="m", other="o", testset="t", truth="o", metric="top1", n=4, difference=0.25
    )
    assert comparison.shown == "+25.00"
    place = Summary(
        model="m",
        testset="t",
        truth="o",
        metric="top1",
        columns="size",
        name="critical_value",
        n=4,
        value=0.25,
    )
    assert (place.shown_name, place.shown) == ("critical value", "0.25")
    share = dataclasses.replace(place, name="worst_value", at="size=0.1")
    assert (share.shown_name, share.shown) == ("lowest value", "25.0 at 0.1")


def test_a_tally_says_what_it_counts() -> None:
    (record,) = [record for record in RECORDS if isinstance(record, Tally)]
    assert record.shown_category == "Fine-grained error, Major, judged"
    every = dataclasses.replace(record, category="all", severity="all", basis="all")
    assert every.shown_category == "all mistakes"


def test_a_table_of_learning_says_where_on_the_curve_it_is() -> None:
    (record,) = [record for record in RECORDS if isinstance(record, Learning)]
    there = dataclasses.replace(record, labels=1260)
    (mean, at) = (grids([r])[0].title for r in (dataclasses.replace(record, labels=None), there))
    assert "mean of the curve minus that of random" in mean
    assert "at 1,260 labels minus that of random" in at


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.record)
def test_a_table_shows_what_its_records_have(record: Record) -> None:
    (grid,) = grids([record])
    assert len(grid.title) > 3 and len(grid.heads) == len(grid.rows[0]) > 1
    assert len(grid.title) < 100


def test_scores_written_before_had_their_statistic_in_the_metric() -> None:
    written = {"record": "score", "model": "m", "testset": "t", "truth": "o", "n": 4, "value": 2.0}
    old = from_dict({**written, "metric": "mean_per_class_rank"})
    assert (old.metric, old.statistic) == ("mean_per_class", "rank")
    new = from_dict({**written, "metric": "my_rank", "statistic": "value"})
    assert (new.metric, new.statistic) == ("my_rank", "value")


def test_a_fit_written_before_opens_and_a_new_one_comes_back() -> None:
    old = {
        "record": "fit",
        "testset": "new",
        "baseline": "old",
        "metric": "top1",
        "axes": "linear",
        "models": 9,
        "slope": 1.1,
        "intercept": -0.2,
        "r2": 0.99,
        "slope_low": 1.0,
        "slope_high": 1.2,
        "intercept_low": -0.3,
        "intercept_high": -0.1,
        "r2_low": 0.98,
        "r2_high": 0.999,
    }
    read = from_dict(old)
    assert isinstance(read, Fit) and read.line == (1.1, -0.2)
    assert read.shown_slope == "1.100 [1.000, 1.200]"
    new = replace(read, corrected_slope=1.15, corrected_intercept=-0.25, covariance=(0.1, 0.0, 0.1))
    assert from_dict(json.loads(json.dumps(to_dict(new)))) == new and new.line == (1.15, -0.25)
