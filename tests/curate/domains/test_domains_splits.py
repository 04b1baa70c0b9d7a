"""Parts of a set: nobody in two of them, and the same row always in the same one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotFound, UserError
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.domains.splits import read_parts, split_rows
from tests.curate.domains.domains_examples import as_table, make_rows

PARTS = ("train=0.6", "val=0.1", "test=0.3")


def split(table: pa.Table, how: str, *, seed: int = 0, **more: Any) -> list[str]:
    parameters = DomainsParameters(split=how, **more)
    found: list[str] = split_rows(table, parameters, seed=seed).to_pylist()
    return found


@given(seed=st.integers(0, 1000), n=st.integers(5, 200))
@settings(max_examples=40)
def test_no_photographer_is_in_two_parts(seed: int, n: int) -> None:
    rows = make_rows(seed, n)
    for row in rows[::9]:
        row["uid"] = None
    parts = split(as_table(rows), "group:uid", seed=seed, parts=PARTS)
    places: dict[str, set[str]] = {}
    for row, part in zip(rows, parts, strict=True):
        assert part in ("train", "val", "test")
        if row["uid"] is not None:
            places.setdefault(row["uid"], set()).add(part)
    assert all(len(found) == 1 for found in places.values())


@pytest.mark.parametrize("how", ["rows", "group:uid", "flag:is_train", "values:domain=Asia,Europe"])
def test_a_part_follows_from_the_row_alone(how: str) -> None:
    table = as_table(make_rows(1, 400))
    whole = dict(zip(table["image_id"].to_pylist(), split(table, how), strict=True))
    some = table.take(list(range(399, 100, -2)))
    again = dict(zip(some["image_id"].to_pylist(), split(some, how), strict=True))
    assert again.items() <= whole.items()


def test_shares_are_met_on_average() -> None:
    table = as_table(make_rows(1, 8000))
    for how, slack in (("rows", 0.03), ("group:uid", 0.05)):
        parts = split(table, how, parts=PARTS)
        for text in PARTS:
            name, _, share = text.partition("=")
            assert abs(parts.count(name) / len(parts) - float(share)) < slack
    assert split(table, "rows") != split(table, "rows", seed=1)


def test_rows_without_a_photographer_are_drawn_one_by_one() -> None:
    rows = [{**row, "uid": None} for row in make_rows(1, 400)]
    parts = split(as_table(rows), "group:uid")
    assert 0.7 < parts.count("train") / len(parts) < 0.9


def test_values_are_held_out() -> None:
    table = as_table(make_rows(1, 100))
    by_domain = split(table, "values:domain=Asia")
    assert by_domain == ["test" if d == "Asia" else "train" for d in table["domain"].to_pylist()]
    by_country = split(table, "values:country=land-1,land-2")
    assert by_country == [
        "test" if c in ("land-1", "land-2") else "train" for c in table["country"].to_pylist()
    ]
    with pytest.raises(NotFound, match="no row has 'Mars'"):
        split(table, "values:domain=Mars")


def test_flags() -> None:
    table = pa.table({"image_id": ["a", "b", "c"], "flag": [1, 0, None], "part": ["x", "y", "x"]})
    assert split(table, "flag:flag") == ["train", "test", None]
    assert split(table, "flag:part") == ["x", "y", "x"]
    flags = pa.table({"image_id": ["a", "b"], "flag": ["true", "false"]})
    assert split(flags, "flag:flag") == ["train", "test"]


@pytest.mark.parametrize(
    "how", ["random", "group:", "flag:", "rows:uid", "values:country", "domain:Asia"]
)
def test_what_is_no_split_is_refused(how: str) -> None:
    with pytest.raises(UserError, match="no split"):
        split(as_table(make_rows(1, 20)), how)


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(NotFound, match="no column 'owner' to split by"):
        split(as_table(make_rows(1, 20)), "group:owner")


@pytest.mark.parametrize("parts", [["a=0.5", "a=0.5"], ["a=0.5", "b=0.4"], ["a"], ["a=2"], []])
def test_parts_must_be_shares_of_one(parts: list[str]) -> None:
    with pytest.raises(UserError):
        read_parts(parts)
