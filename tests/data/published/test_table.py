from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, UserError
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.testset.testset import TestSet

Members = Callable[[TestSet, str], set[tuple[str, str]]]
Written = Callable[..., Path]

CSV = """image_id,objects,scene,indoor,night,rating,width,note
a,cat| dog |,beach,true,false,4.5,640,hello
b,,street,false,,3,,
c,cat,,true,true,,480,007
"""


def test_tags_flags_and_typed_columns(written: Written, members: Members) -> None:
    path = written(CSV, "x.csv")
    pool = read_metadata(
        "table",
        path,
        tags=("objects=object", "scene=general", "indoor"),
        separators={"objects": "|"},
    )
    assert members(pool, "object") == {("a", "cat"), ("a", "dog"), ("c", "cat")}
    assert members(pool, "general") == {("a", "beach"), ("b", "street")}
    assert members(pool, "tag") == {("a", "indoor"), ("c", "indoor")}
    kept = pool.images.select(["image_id", "rating", "night", "width", "note"]).to_pylist()
    assert kept == [
        {"image_id": "a", "rating": 4.5, "night": False, "width": 640, "note": "hello"},
        {"image_id": "b", "rating": 3.0, "night": None, "width": None, "note": None},
        {"image_id": "c", "rating": None, "night": True, "width": 480, "note": "007"},
    ]
    assert pool.images.schema.field("rating").type == pa.float64()
    numbers = written("image_id,indoor\na,1\nb,0\nc,\n", "numbers.csv")
    every = read_metadata("table", numbers, tags=("indoor=place",))
    assert members(every, "place") == {("a", "indoor")} and len(every) == 3


def test_lists_are_tags_by_themselves(written: Written, tmp_path: Path, members: Members) -> None:
    rows = [
        {"id": 1, "tags": ["cat", "dog", "cat", " "], "score": 1},
        {"id": 2, "tags": [], "score": 2},
        {"id": 3, "tags": None, "score": None},
    ]
    text = "\n".join(map(json.dumps, rows))
    expected = {("1", "cat"), ("1", "dog")}
    pools = [read_metadata("table", written(text, "x.jsonl"), id_column="id")]
    for kind in (
        pa.list_(pa.string()),
        pa.large_list(pa.large_string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ):
        tags = pa.array([row["tags"] for row in rows], kind)
        table = pa.table({"id": [1, 2, 3], "tags": tags, "score": [1, 2, None]})
        pq.write_table(table, tmp_path / "x.parquet")
        pools.append(read_metadata("table", tmp_path / "x.parquet", id_column="id"))
    for pool in pools:
        assert members(pool, "tags") == expected and len(pool) == 3
        assert pool.images["score"].to_pylist() == [1, 2, None]
    assert len({pool.content_hash for pool in pools}) == 1


def test_rows_of_one_image_are_merged(written: Written, members: Members) -> None:
    one = written(
        "image_id,t,light,n\na,cat,day,1\na,dog,night,\n,x,day,1\n../a,x,day,2\n", "1.csv"
    )
    two = written("image_id,t,light,n\na,cow,day,\nb,cow,,5\n", "2.csv")
    pool = read_metadata("table", [one, two], tags=("t",))
    assert members(pool, "t") == {("a", "cat"), ("a", "dog"), ("a", "cow"), ("b", "cow")}
    assert pool.images.select(["light", "n"]).to_pylist() == [
        {"light": "day", "n": 1}, {"light": None, "n": 5},
    ]  # fmt: skip
    assert {problem.kind: problem.count for problem in report_of(pool).problems} == {
        "image without a usable id, left out": 2,
        "image with two values of light, the first kept": 1,
    }
    assert report_of(pool).lost_images


def test_fixed_columns_keep_their_types(written: Written) -> None:
    path = written("image_id,t,width,weight,licence\na,x,wide,1.5,3\nb,y,10,heavy,CC0\n", "x.csv")
    pool = read_metadata("table", path, tags=("t",))
    rows = pool.images.select(["width", "weight", "licence"]).to_pylist()
    assert rows == [
        {"width": None, "weight": None, "licence": "3"},
        {"width": None, "weight": None, "licence": "CC0"},
    ]
    assert {problem.count for problem in report_of(pool).problems} == {2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "has no tags"),
        ({"tags": ("nope",)}, "no column 'nope'"),
        ({"tags": ("objects", "objects=x")}, "one twice"),
        ({"tags": ("scene",), "separators": {"objects": "|"}}, "not a column of tags"),
        ({"tags": ("scene",), "id_column": "nope"}, "no column 'nope'"),
        ({"tags": ("scene=rating",)}, "both a column and a membership"),
    ],
)
def test_what_cannot_be(written: Written, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        read_metadata("table", written(CSV, "x.csv"), **options)
    assert "\n" not in caught.value.line


def test_tags_must_be_text(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image_id": ["a"], "t": [[1.5]]}), path)
    with pytest.raises(BadFile, match="holds double, not tags"):
        read_metadata("table", path)
    pq.write_table(pa.table({"image_id": [1.5], "t": [["x"]]}), path)
    with pytest.raises(BadFile, match="ids of type double"):
        read_metadata("table", path)


def test_half_a_character(written: Written) -> None:
    path = written('{"image_id": "a", "t": ["\\ud800"]}', "x.jsonl")
    with pytest.raises(BadFile, match="line 1 is not valid JSON"):
        read_metadata("table", path)


cells = st.lists(st.sampled_from(["cat", "dog", "a b", "", " x "]), max_size=4)


@given(st.lists(st.tuples(st.sampled_from("abcd"), cells), min_size=1, max_size=12))
def test_memberships_are_those_of_the_plain_way(tmp_path_factory: Any, rows: Any) -> None:
    expected = {(image, tag.strip()) for image, tags in rows for tag in tags if tag.strip()}
    folder = tmp_path_factory.mktemp("table")
    lines = [json.dumps({"image_id": image, "t": tags}) for image, tags in rows]
    (folder / "x.jsonl").write_text("\n".join(lines))
    lists = read_metadata("table", folder / "x.jsonl", tags=("t",))
    (folder / "x.csv").write_text(
        "image_id,t\n" + "".join(f"{image},{'|'.join(tags)}\n" for image, tags in rows)
    )
    text = read_metadata("table", folder / "x.csv", tags=("t",), separators={"t": "|"})
    for pool in (lists, text):
        found = {(row["image_id"], row["value"]) for row in pool.memberships.to_pylist()}
        assert found == expected and len(pool.memberships) == len(expected)
        assert set(pool.image_ids.to_pylist()) == {image for image, _ in rows}
