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

from heldout.core.errors import LabelError, UserError
from heldout.core.request import make
from heldout.data.importing.pools import collect_rows, read_metadata, report_of
from heldout.data.labels import LabelSpace
from heldout.data.published.requests import CollectRequest
from heldout.data.published.tag_tables import read_keywords
from heldout.data.testset.testset import load, save
from tests.data.published.yfcc_examples import line_23, line_25, photo

Written = Callable[..., Path]
WORDS = {"bird": ["crane", "Heron"], "machine": ["crane", "tower crane"], "cat": ["cat"]}
ROWS = [
    photo(1, usertags="CRANE,sky"),
    photo(2, usertags="tower_crane,cat,Cat"),
    photo(3, usertags="cranes,catalogue"),
    photo(4, usertags=""),
    photo(5, usertags="tower+crane"),
]


def test_photos_with_a_keyword_and_their_classes(written: Written, tmp_path: Path) -> None:
    path = written(b"\n".join(map(line_23, ROWS)), "d")
    words = written(WORDS, "words.json")
    pool = read_metadata("yfcc", path, keywords=words, coordinates="off")
    truth = pool.truth("keywords").to_pylist()
    assert [(row["class_id"], row["correct"]) for row in truth] == [
        (None, ["bird", "machine"]),
        (None, ["machine", "cat"]),
        ("machine", ["machine"]),
    ]
    assert pool.label_space.ids == ("bird", "machine", "cat")
    counts = report_of(pool).counts
    assert (counts["images"], counts["without_keyword"]) == (3, 2)
    assert pool.card.facts["keywords"]["of_several_classes"] == 1
    save(pool, tmp_path / "pool")
    assert load(tmp_path / "pool").truth("keywords").equals(pool.truth("keywords"))
    asked = {"source": "yfcc", "paths": path, "keywords": words, "coordinates": "off"}
    collect_rows(make(CollectRequest, asked), tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    assert table.schema.field("class_ids").type == pa.list_(pa.string())
    assert table["class_ids"].to_pylist() == [row["correct"] for row in truth]
    assert table["class_id"].to_pylist() == [row["class_id"] for row in truth]


def test_a_malformed_row_is_rejected_with_or_without_a_keyword(written: Written) -> None:
    rows = [photo(1, usertags="cat"), photo(2, usertags="sky", hash="0" * 32)]
    path = written(b"\n".join(line_25(row, i) for i, row in enumerate(rows)), "d")
    for options in ({}, {"keywords": written(WORDS, "words.json")}):
        pool = read_metadata("yfcc", path, coordinates="off", **options)
        assert len(pool) == 1 and report_of(pool).counts["quarantined"] == 1


def test_where_keywords_come_from(written: Written) -> None:
    table = read_keywords(str(written({"a": ["x y", "z"], "b": ["z"]}, "k.json")))
    assert dict(table.words) == {"x y": (0,), "z": (0, 1)}
    listed = [
        {"label_id": "5", "label_name": "n02123045"},
        {"label_id": 6, "label_name": "n02084071"},
    ]
    synsets = read_keywords(str(written(listed, "in5k_map.json")))
    assert synsets.space.ids == ("n02084071",) and "domestic dog" in synsets.words
    whole = read_keywords("imagenet-1k")
    assert whole.space == LabelSpace.load("imagenet-1k") and len(whole.words["crane"]) == 2
    for value, said in (
        ({"a": "x"}, "holds no keywords"),
        ([1], "holds no keywords"),
        ([{"label_name": "n99999999"}], "n99999999"),
    ):
        with pytest.raises(UserError, match=said):
            read_keywords(str(written(value, "bad.json")))
    with pytest.raises(LabelError, match="no class with keywords"):
        read_keywords(str(written({}, "none.json")))


@pytest.mark.shared
def test_the_published_map(shared_data: Path) -> None:
    path = shared_data / "geoyfcc" / "in5k_map.json"
    assert len(json.loads(path.read_text())) == 5000
    fewer = read_keywords(str(path))
    assert not set(fewer.space.ids) & set(LabelSpace.load("imagenet-1k").ids)
    assert 4000 <= len(fewer.space) < 4100


tags = st.lists(st.sampled_from(["crane", "CAT", "heron ", "tower_crane", "dog", "İ"]), max_size=4)


@given(st.lists(tags, max_size=6))
def test_classes_are_those_of_the_plain_way(tmp_path_factory: Any, rows: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("words") / "w.json"
    path.write_text(json.dumps(WORDS))
    words = read_keywords(str(path))
    meant = {c: {word.lower() for word in words} for c, words in WORDS.items()}
    assert [words.classes_of(row) for row in rows] == [
        [c for c in WORDS if {tag.lower().replace("_", " ").strip() for tag in row} & meant[c]]
        for row in rows
    ]


def test_a_file_called_as_a_built_in_space_keeps_its_own_classes(written: Written) -> None:
    words = {"n02123045": ["tabby"], "n02124075": ["egyptian cat"]}
    found = read_keywords(str(written(words, "imagenet-1k.json")))
    assert found.space.ids == ("n02123045", "n02124075")
    assert found.space.name == "imagenet-1k-keywords"
    assert found.classes_of(["Egyptian_cat", "sky"]) == ["n02124075"]
    assert found.classes_of([]) == []
    assert read_keywords("imagenet-1k").space is LabelSpace.load("imagenet-1k")
