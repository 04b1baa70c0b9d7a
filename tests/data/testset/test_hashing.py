from __future__ import annotations

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.data.testset.hashing import combine, hash_rows, hash_table, images_hash
from heldout.data.testset.tables import image_table

ROWS = st.lists(
    st.tuples(
        st.text(min_size=1, max_size=8),
        st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
        st.lists(st.text(max_size=3), max_size=3),
    ),
    min_size=1,
    max_size=8,
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    names, kinds = ("id", "n", "x", "tags"), (pa.string(), pa.int64(), pa.float64(), None)
    columns = list(zip(*rows, strict=True))
    tags = pa.array(columns[3], pa.list_(pa.string()))
    arrays = [pa.array(columns[i], kinds[i]) for i in range(3)]
    return pa.table([*arrays, tags], names=list(names))


def slow_hash(table: pa.Table) -> str:
    """The definition, row by row: named values of columns that are not all null, sorted lines."""
    names = [
        n for n in sorted(table.column_names) if any(v is not None for v in table[n].to_pylist())
    ]
    lines = []
    for row in table.to_pylist():
        values = []
        for name in names:
            value = row[name]
            if isinstance(value, float) and (
                value != value or value in (float("inf"), -float("inf"))
            ):
                value = repr(value)
            values.append(value)
        lines.append(json.dumps(values, ensure_ascii=False, separators=(",", ":")))
    inner = hashlib.sha256("".join(line + "\n" for line in sorted(lines)).encode()).hexdigest()
    head = json.dumps(names, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(f"{head}\n{inner}".encode()).hexdigest()


@settings(deadline=None)
@given(ROWS)
def test_hash_follows_its_definition(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    assert hash_table(table) == slow_hash(table)


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_order_of_rows_and_columns_does_not_matter(rows: list[tuple[Any, ...]], rng: Any) -> None:
    table = table_of(rows)
    order = list(range(len(rows)))
    rng.shuffle(order)
    names = list(table.column_names)
    rng.shuffle(names)
    assert hash_table(table.take(order).select(names)) == hash_table(table)


@settings(deadline=None)
@given(ROWS)
def test_null_columns_do_not_matter(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    wider = table.append_column("empty", pa.nulls(len(rows), pa.string()))
    assert hash_table(wider) == hash_table(table)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["1.0", "2.6"])
def test_parquet_settings_do_not_matter(tmp_path: Path, compression: str, version: str) -> None:
    table = table_of(
        [("a", 1, 0.1, ["x"]), ("ü", None, float("nan"), []), ("b", 3, 1e300, ["y|z"])]
    )
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, compression=compression, version=version, row_group_size=1)
    assert hash_table(pq.read_table(path)) == hash_table(table)


def test_widths_and_encodings_do_not_matter() -> None:
    plain = pa.table({"id": pa.array(["a", "b", "a"]), "n": pa.array([1, 2, 3], pa.int64())})
    other = pa.table({"id": plain["id"].dictionary_encode(), "n": plain["n"].cast(pa.int16())})
    assert hash_table(other) == hash_table(plain)
    assert hash_table(plain.cast(pa.schema([("id", pa.large_string()), ("n", pa.int32())]))) == (
        hash_table(plain)
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"id": ["a", "c"], "n": [1, 2]},
        {"id": ["a", "b"], "n": [2, 1]},
        {"id": ["a", "b"], "m": [1, 2]},
        {"id": ["a", "b"], "n": [1, None]},
        {"id": ["a", "b"], "n": ["1", "2"]},
        {"id": ["a", "b"], "n": [1.0, 2.0]},
        {"id": ["a", "b", "b"], "n": [1, 2, 2]},
    ],
)
def test_any_change_of_content_changes_the_hash(changed: dict[str, Any]) -> None:
    assert hash_table(pa.table(changed)) != hash_table(pa.table({"id": ["a", "b"], "n": [1, 2]}))


def test_lists_are_told_apart_whatever_characters_their_texts_hold() -> None:
    lists = [["a\0b", "c"], ["a", "b\0c"]]
    both, twice = (pa.table({"tags": rows}) for rows in (lists, [lists[0]] * 2))
    assert hash_table(both) == slow_hash(both) != slow_hash(twice) == hash_table(twice)


def test_values_that_json_lacks_are_hashed() -> None:
    day = pa.table({"id": ["a"], "day": [datetime.date(2018, 12, 13)], "raw": [b"\x00\xff"]})
    next_day = pa.table({"id": ["a"], "day": [datetime.date(2018, 12, 14)], "raw": [b"\x00\xff"]})
    assert hash_table(day) != hash_table(next_day)


def test_images_hash_is_of_ids_and_files_only() -> None:
    one = image_table({"image_id": ["b", "a"], "sha256": [None, "ff"], "domain": ["x", "y"]})
    two = image_table({"image_id": ["a", "b"], "sha256": ["ff", None], "width": [1, 2]})
    three = image_table({"image_id": ["a", "b"], "sha256": ["fe", None]})
    assert images_hash(one) == images_hash(two) != images_hash(three)
    lines = '["a","ff"]\n["b",null]\n'
    assert images_hash(one) == hashlib.sha256(lines.encode()).hexdigest()
    owned = '["a","ff"]\n["b","mine"]\n'
    assert images_hash(one, "mine") == hashlib.sha256(owned.encode()).hexdigest()
    whole = image_table({"image_id": ["a", "b"], "sha256": ["ff", "fe"]})
    assert images_hash(whole, "mine") == images_hash(whole)


def test_combine_ignores_order_and_keeps_names() -> None:
    assert combine({"a": "1", "b": "2"}) == combine({"b": "2", "a": "1"})
    assert combine({"a": "1", "b": "2"}) != combine({"a": "2", "b": "1"})


_texts = st.text(alphabet='ab!"\\,]\n\té\U0001f600', max_size=4)


@given(
    rows=st.lists(st.tuples(_texts, st.none() | _texts, _texts), max_size=12),
    chunks=st.integers(1, 3),
)
def test_tables_of_texts_hash_as_their_lines_do(
    rows: list[tuple[str, str | None, str]], chunks: int
) -> None:
    names = ["b", "a", "c"]
    parts = [rows[i::chunks] for i in range(chunks)]
    table = pa.concat_tables(
        [
            pa.table(
                {n: pa.array([row[k] for row in part], pa.string()) for k, n in enumerate(names)}
            )
            for part in parts
        ]
    )
    used = sorted(n for n in names if table[n].null_count < len(table))
    order = [names.index(name) for name in used]
    lines = [
        json.dumps([row[k] for k in order], ensure_ascii=False, separators=(",", ":"))
        for row in rows
    ]
    head = json.dumps(used, separators=(",", ":"))
    expected = hashlib.sha256(f"{head}\n{hash_rows(lines if used else [])}".encode()).hexdigest()
    assert hash_table(table) == expected


_cells: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "a": (pa.int16(), st.integers(-20, 200)),
    "b": (pa.float64(), st.sampled_from([0.0, -0.0, 1.0, 12.5, 1e300, -3.25])),
    "c": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "d": (pa.list_(pa.string()), st.lists(st.sampled_from(["", "x", "x\0", "xy"]), max_size=3)),
    "e": (pa.list_(pa.int8()), st.lists(st.integers(0, 12), max_size=2)),
    "f": (pa.bool_(), st.booleans()),
    "g": (pa.string(), _texts),
    "h": (pa.date32(), st.dates(datetime.date(1999, 1, 1), datetime.date(1999, 1, 20))),
}


@given(
    rows=st.lists(
        st.fixed_dictionaries({n: st.none() | values for n, (_, values) in _cells.items()}),
        min_size=1,
        max_size=10,
    ),
    names=st.sets(st.sampled_from(sorted(_cells)), min_size=1),
)
def test_tables_of_any_types_hash_as_their_lines_do(
    rows: list[dict[str, object]], names: set[str]
) -> None:
    table = pa.table({n: pa.array([row[n] for row in rows], _cells[n][0]) for n in sorted(names)})
    used = [n for n in table.column_names if table[n].null_count < len(table)]
    columns = [table[n].to_pylist() for n in used]
    lines = [
        json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str)
        for row in zip(*columns, strict=True)
    ]
    head = json.dumps(used, separators=(",", ":"))
    expected = hashlib.sha256(f"{head}\n{hash_rows(lines if used else [])}".encode()).hexdigest()
    assert hash_table(table) == expected
    assert hash_table(table.take(list(range(len(rows)))[::-1])) == expected
