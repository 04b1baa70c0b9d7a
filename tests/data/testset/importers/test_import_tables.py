"""Manifests: what is read, what is refused, and that export and import are inverse."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.tables import typed_text
from heldout.data.importing import read_table, read_testset
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    truth_table,
)
from heldout.data.testset.exporters.tables import export_tabular

PETS = LabelSpace(
    "pets",
    (
        Class("c0", ("cat", "house cat"), "n02121620"),
        Class("c1", ("dog",), "n02084071"),
        Class("c2", ("crane", "wading bird"), "n02012849"),
        Class("c3", ("crane",), "n03126707"),
    ),
)
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


def write(folder: Path, suffix: str, rows: Sequence[dict[str, Any]], *, name: str = "t") -> Path:
    """The same rows in any format; in CSV lists are joined by a semicolon."""
    path = folder / f"{name}{suffix}"
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if suffix == ".parquet":
        pq.write_table(pa.table({c: [row.get(c) for row in rows] for c in columns}), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as handle:
            writer = csv.writer(handle, delimiter="\t" if suffix == ".tsv" else ",")
            writer.writerow(columns)
            for row in rows:
                cells = [row.get(c) for c in columns]
                writer.writerow([";".join(c) if isinstance(c, list) else c for c in cells])
    return path


ROWS: list[dict[str, Any]] = [
    {"image_id": "007", "class_id": "c0", "angle": 10, "size": 0.5, "tags": ["a", "b"], "width": 4},
    {"image_id": "x/1.jpg", "class_id": "c3", "angle": 20, "size": 2.0, "tags": [], "width": 5},
    {"image_id": "NA", "class_id": "c1", "angle": None, "size": 1e-3, "tags": ["b"], "width": None},
]


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_set(tmp_path: Path, suffix: str) -> None:
    separators = {"tags": ";"} if suffix in (".csv", ".tsv") else {}
    types = {"angle": ColumnType(kind="circular", period=360)}
    testset = read_table(
        write(tmp_path, suffix, ROWS),
        name="t",
        label_space=PETS,
        separators=separators,
        types=types,
    )
    assert testset.image_ids.to_pylist() == ["007", "x/1.jpg", "NA"]  # text stays text
    assert testset.truth()["class_id"].to_pylist() == ["c0", "c3", "c1"]
    assert testset.images["angle"].to_pylist() == [10, 20, None]
    assert testset.images["size"].to_pylist() == [0.5, 2.0, 1e-3]
    assert testset.images["width"].to_pylist() == [4, 5, None]
    assert testset.memberships.to_pylist() == [
        {"image_id": "007", "column": "tags", "value": "a"},
        {"image_id": "007", "column": "tags", "value": "b"},
        {"image_id": "NA", "column": "tags", "value": "b"},
    ]
    columns = testset.card.columns
    assert columns["angle"].kind == "circular" and columns["size"].kind == "ordered"
    assert columns["tags"] == ColumnType(kind="categorical", multi=True)
    file = write(tmp_path, ".parquet", ROWS, name="p")
    parquet = read_table(file, name="t", label_space=PETS, types=types)
    assert testset.card.content_hash == parquet.card.content_hash
    untyped = read_table(file, name="t", label_space=PETS)
    assert testset.card.content_hash != untyped.card.content_hash


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("id", ["c0", "c3"]),
        ("wnid", ["n02121620", "n03126707"]),
        ("index", [0, 3]),
        ("index", ["0", "3"]),
        ("name", ["House_Cat", "dog"]),
        ("name", ["cat, house cat", "crane, wading bird"]),
    ],
)
def test_classes_by_every_kind(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    expected = {"House_Cat": "c0", "dog": "c1", "crane, wading bird": "c2"}
    rows = [{"image_id": str(n), "label": value} for n, value in enumerate(values)]
    for suffix in FORMATS:
        testset = read_table(
            write(tmp_path, suffix, rows),
            name="t",
            label_space=PETS,
            class_column="label",
            label_kind=kind,
        )
        found = testset.truth()["class_id"].to_pylist()
        assert found == ["c0", expected.get(values[1], "c3")]


@pytest.mark.parametrize(
    ("kind", "value", "pattern"),
    [
        ("id", "cat", "row 2: 'cat' is not a class of pets"),
        ("index", "4", "class index 4 is outside 0..3.*indices may start at 1"),
        ("index", "-1", "'-1' is not a class index"),
        ("index", "1.0", "'1.0' is not a class index"),
        ("index", "nan", "'nan' is not a class index"),
        ("name", "crane", "fits 2 classes of pets: c2 .* c3"),
        ("name", "zebra", "no class named 'zebra'"),
        ("wnid", "n1", "no classes of pets have the WordNet id 'n1'"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_unknown_classes(tmp_path: Path, kind: Any, value: str, pattern: str, suffix: str) -> None:
    good = {"id": "c0", "index": "0", "name": "dog", "wnid": "n02121620"}[kind]
    rows = [{"image_id": "a", "class_id": good}, {"image_id": "b", "class_id": value}]
    with pytest.raises(BadFile, match=pattern) as caught:
        read_table(write(tmp_path, suffix, rows), name="t", label_space=PETS, label_kind=kind)
    assert "\n" not in caught.value.line and f"t{suffix}" in caught.value.line


@pytest.mark.parametrize("suffix", FORMATS)
def test_hostile_rows(tmp_path: Path, suffix: str) -> None:
    def read(rows: Sequence[dict[str, Any]], **options: Any) -> TestSet:
        return read_table(write(tmp_path, suffix, rows), name="t", label_space=PETS, **options)

    a, b = {"image_id": "a", "class_id": "c0"}, {"image_id": "b", "class_id": "c1"}
    with pytest.raises(BadFile, match="image 'a' in rows 1 and 3"):
        read([a, b, a])
    with pytest.raises(BadFile, match="row 2 has no image id"):
        read([a, {"image_id": None, "class_id": "c0"}])
    with pytest.raises(BadFile, match=re.escape("row 2 (image 'b') has no class")):
        read([a, {"image_id": "b", "class_id": None}])
    with pytest.raises(BadFile, match=r"no column 'klass' for classes.*image_id, class_id"):
        read([a], class_column="klass")
    with pytest.raises(BadFile, match="no column 'x' for which a type"):
        read([a], types={"x": ColumnType(kind="text")})
    with pytest.raises(BadFile, match="column 'width' cannot be read as int32"):
        read([a | {"width": "wide"}])
    with pytest.raises(BadFile, match="weight that is negative or no number"):
        read([a | {"weight": -0.5}])
    with pytest.raises(BadFile, match=r"has the path '\.\./a.jpg'"):
        read([a | {"path": "../a.jpg"}])


@pytest.mark.parametrize(
    ("name", "data", "pattern"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"image_id,class_id\n", "has no rows"),
        ("t.csv", b"image_id,image_id\na,b\n", "two columns 'image_id'"),
        ("t.csv", b"image_id,\na,b\n", "column without a name"),
        ("t.csv", b"image_id,class_id\na,c0\nb\n", "cannot be read as CSV"),
        ("t.csv", b"image_id,class_id\n\xff\xfe,c0\n", "t.csv"),
        ("t.jsonl", b"\n\n", "has no rows"),
        (
            "t.jsonl",
            b'{"image_id": "a", "class_id": "c0"}\n{"image_id"',
            "line 2 is not valid JSON",
        ),
        ("t.jsonl", b"[1]\n", "line 1 is not a JSON object"),
        ("t.jsonl", b'{"image_id":"a","class_id":"c0","x":{"y":1}}', "column 'x' has type struct"),
        (
            "t.jsonl",
            b'{"image_id":"a","class_id":"c0","x":1}\n{"image_id":"b","class_id":"c0","x":"1"}',
            "column 'x' mixes kinds",
        ),
        ("t.jsonl", b'{"image_id":1.5,"class_id":"c0"}', "ids of type double"),
        ("t.jsonl", b'{"image_id":"a","class_id":"c0","x":[[1]]}', "column 'x' holds"),
        ("t.parquet", b"PAR1 but not", "cannot be read as Parquet"),
        ("t.xlsx", b"x", "has the ending '.xlsx'"),
    ],
)
def test_hostile_files(tmp_path: Path, name: str, data: bytes, pattern: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadFile, match=pattern) as caught:
        read_table(path, name="t", label_space=PETS)
    assert "\n" not in caught.value.line and name in caught.value.line and caught.value.fix


def test_missing_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_table(tmp_path / "no.csv", name="t", label_space=PETS)
    path = write(tmp_path, ".parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadFile, match="cannot be read as Parquet"):
        read_table(path, name="t", label_space=PETS)


def test_byte_order_mark_quotes_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = 'image_id,class_id,note\r\n"a,b",c0,"two\nlines"\r\n"say ""x""",c1,\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    testset = read_table(path, name="t", label_space=PETS)
    assert testset.image_ids.to_pylist() == ["a,b", 'say "x"']
    assert testset.images["note"].to_pylist() == ["two\nlines", None]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-20", None], [1, -20, None]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1e3", "-0.5"], [1000.0, -0.5]),
        (["True", "false"], [True, False]),
        (["007", "1"], ["007", "1"]),
        (["1", "NA"], ["1", "NA"]),
        (["nan", "1.0"], ["nan", "1.0"]),
        (["1e999"], ["1e999"]),
        (["12345678901234567890"], ["12345678901234567890"]),
        (["1_000"], ["1_000"]),
        ([None, None], [None, None]),
    ],
)
def test_text_is_a_number_only_where_all_of_it_is(values: list[Any], expected: list[Any]) -> None:
    assert typed_text(pa.chunked_array([pa.array(values, pa.string())])).to_pylist() == expected


def test_types_do_not_depend_on_where_a_value_stands(tmp_path: Path) -> None:
    rows = [{"image_id": str(n), "class_id": "c0", "code": str(n)} for n in range(120_000)]
    rows[-1]["code"] = "last"  # far beyond what a reader that looks ahead would see
    testset = read_table(write(tmp_path, ".csv", rows), name="t", label_space=PETS)
    assert testset.images["code"][0].as_py() == "0" and testset.images["code"][-1].as_py() == "last"


def test_parquet_types_become_plain_ones(tmp_path: Path) -> None:
    import datetime

    columns = {
        "image_id": pa.array(["a", "b"]).dictionary_encode(),
        "class_id": pa.array(["c0", "c1"], pa.large_string()),
        "taken": pa.array([datetime.date(2018, 12, 4), None]),
        "x": pa.array([1.5, float("nan")], pa.float32()),
        "n": pa.array([1, 2], pa.uint8()),
        "seen": pa.array([True, None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    rows = read_table(tmp_path / "t.parquet", name="t", label_space=PETS).images.to_pylist()
    kept = [{key: row[key] for key in ("taken", "x", "n", "seen")} for row in rows]
    assert kept == [
        {"taken": "2018-12-04", "x": 1.5, "n": 1, "seen": True},
        {"taken": None, "x": None, "n": 2, "seen": None},
    ]
    pq.write_table(pa.table({**columns, "raw": pa.array([b"x", b"y"])}), tmp_path / "u.parquet")
    with pytest.raises(BadFile, match="column 'raw' has type binary"):
        read_table(tmp_path / "u.parquet", name="t", label_space=PETS)


def test_several_classes_an_image_only_where_that_is_said(tmp_path: Path) -> None:
    rows = [
        {"image_id": "a", "class_id": "c0", "x": 1},
        {"image_id": "a", "class_id": "c1", "x": 1},
        {"image_id": "b", "class_id": None, "x": 2},
    ]
    path = write(tmp_path, ".jsonl", rows)
    testset = read_table(path, name="t", label_space=PETS, several=True)
    assert len(testset) == 2 and testset.truth()["class_id"].to_pylist() == ["c0", "c1"]
    with pytest.raises(BadFile, match="image 'a' with class 'c0' twice"):
        read_table(
            write(tmp_path, ".csv", [rows[0], rows[0]]), name="t", label_space=PETS, several=True
        )
    rows[1]["x"] = 3
    with pytest.raises(BadFile, match="image 'a' has x 1 in row 1 and 3 in row 2"):
        read_table(write(tmp_path, ".jsonl", rows), name="t", label_space=PETS, several=True)


def test_by_the_front_door(tmp_path: Path) -> None:
    PETS.write(tmp_path / "pets.json")
    rows = [{"file": "a.jpg", "label": 2}]
    testset = read_testset(
        write(tmp_path, ".csv", rows, name="my table"),
        classes=str(tmp_path / "pets.json"),
        id_column="file",
        class_column="label",
        label_kind="index",
    )
    assert testset.name == "my-table" and testset.truth()["class_id"].to_pylist() == ["c2"]
    with pytest.raises(UserError, match="label_kind is 'colour': give one of id, wnid"):
        read_testset(write(tmp_path, ".csv", rows), label_kind="colour")


WORDS = st.text(
    st.characters(categories=("L", "P", "Zs", "Nd"), exclude_characters="|"), min_size=1
)
TEXTS = WORDS.map(lambda text: f"x{text.strip()}")  # never taken for a number


@st.composite
def sets(draw: st.DrawFn) -> TestSet:
    """A set with columns of every type, memberships and a truth with one class an image."""
    n = draw(st.integers(1, 6))
    ids = draw(st.lists(TEXTS, min_size=n, max_size=n, unique=True))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.none() | values, min_size=n, max_size=n))

    numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15)
    images = {
        "image_id": ids,
        "width": column(st.integers(1, 10_000)),
        "weight": column(st.floats(0, 1e6)),
        "licence": column(TEXTS),
        "count": pa.array(column(st.integers(-(10**17), 10**17)), pa.int64()),
        "angle": pa.array(
            column(numbers.map(lambda x: x + 0.5 if x == int(x) else x)), pa.float64()
        ),
        "flag": pa.array(column(st.booleans()), pa.bool_()),
        "word": pa.array(column(TEXTS), pa.string()),
    }
    members = [
        (image, "context", value)
        for image in ids
        for value in draw(st.lists(TEXTS.map(str.strip), max_size=3, unique=True))
    ]
    classes = draw(st.lists(st.sampled_from(PETS.ids), min_size=n, max_size=n))
    return make_testset(
        Card(name="t", label_space="pets"),
        images=image_table(images),
        truths={"original": truth_table(ids, classes)},
        label_space=PETS,
        memberships=membership_table(members),
    )


@settings(max_examples=60, deadline=None)
@given(testset=sets(), suffix=st.sampled_from([".csv", ".jsonl", ".parquet"]))
def test_import_of_an_export_is_the_same_set(
    testset: TestSet, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("export") / f"t{suffix}"
    export_tabular(testset, path)
    lists = {"context": "|"} if suffix == ".csv" and len(testset.memberships) else {}
    back = read_table(path, name="t", label_space=PETS, separators=lists)
    assert back.card.tables == testset.card.tables
    assert back.card.content_hash == testset.card.content_hash


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_multilabel_truth_comes_back(tmp_path: Path, suffix: str) -> None:
    ids = ["a", "b", "c", "d"]
    testset = make_testset(
        Card(name="t", label_space="pets"),
        images=image_table({"image_id": ids, "x": [1, 2, 3, 4]}),
        truths={
            "original": truth_table(
                ["a", "a", "b", "c"],
                ["c0", "c1", "c2", "c3"],
                correct=[["c0", "c1"], ["c1"], [], ["c2"]],
                unclear=[[], ["c3"], ["c0"], []],
                wrong=[["c3"], [], [], ["c0", "c1"]],
                problematic=[False, False, True, False],
            )
        },
        label_space=PETS,
    )
    path = tmp_path / f"t{suffix}"
    export_tabular(testset, path)
    back = read_table(path, name="t", label_space=PETS, several=True)
    assert back.card.tables == testset.card.tables
    assert back.card.truths["original"]["kind"] == "multilabel"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"image_id": "a", "class_id": ["c0"]}', "row 1 has .* for a class"),
        ('{"image_id": "a", "class_id": "c0", "x": "\\ud800"}', "is not valid JSON"),
        ('{"image_id": "a", "class_id": "c0", "": 1}', "without a name"),
    ],
)
def test_lines_that_no_manifest_has(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "m.jsonl").write_text(line + "\n")
    with pytest.raises(BadFile, match=message):
        read_table(tmp_path / "m.jsonl", name="m", label_space=PETS)


def test_a_weight_that_is_not_there_may_be_nan(tmp_path: Path) -> None:
    columns = {"image_id": ["a", "b"], "class_id": ["c0", "c1"], "weight": [2.0, float("nan")]}
    pq.write_table(pa.table(columns), tmp_path / "m.parquet")
    made = read_table(tmp_path / "m.parquet", name="m", label_space=PETS)
    assert made.images["weight"].to_pylist() == [2.0, None]
