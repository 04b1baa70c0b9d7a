from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from heldout.core.errors import BadFile
from heldout.core.request import make
from heldout.data.importing.pools import collect_rows, read_metadata, report_of
from heldout.data.published.requests import CollectRequest
from heldout.data.testset.testset import load, save

Written = Callable[..., Path]
TRAIN = "clipart/aircraft_carrier/clipart_001_000001.jpg 0\nclipart/cat/clipart_064_000002.jpg 64\n"
TEST = "real/cat/real 064 1.jpg 64\n"


def test_lists_of_domains_and_splits(written: Written, tmp_path: Path) -> None:
    files = [written(TRAIN, "clipart_train.txt"), written(TEST, "real_test.txt")]
    pool = read_metadata("domainnet", files, images=tmp_path)
    rows = pool.images.select(["image_id", "domain", "split", "class_index"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("clipart/aircraft_carrier/clipart_001_000001.jpg", "clipart", "train", 0),
        ("clipart/cat/clipart_064_000002.jpg", "clipart", "train", 64),
        ("real/cat/real 064 1.jpg", "real", "test", 64),
    ]
    assert pool.truth()["class_id"].to_pylist() == ["aircraft_carrier", "cat", "cat"]
    assert pool.images["path"].to_pylist() == pool.image_ids.to_pylist()
    assert pool.label_space.get("aircraft_carrier").name == "aircraft carrier"
    assert pool.truth().to_pylist()[2]["correct"] == ["cat"]
    assert pool.card.facts["class_numbers"] == {"aircraft_carrier": 0, "cat": 64}
    assert report_of(pool).counts["domains"] == 2 and report_of(pool).problems == ()
    save(pool, tmp_path / "pool")
    assert load(tmp_path / "pool").content_hash == pool.content_hash
    collect_rows(
        make(CollectRequest, {"source": "domainnet", "paths": files}), tmp_path / "x.parquet"
    )
    table = pq.read_table(tmp_path / "x.parquet")
    assert table["class_id"].to_pylist() == pool.truth()["class_id"].to_pylist()


def test_numbers_that_mean_two_folders(written: Written) -> None:
    path = written("a/cat/1.jpg 0\na/dog/2.jpg 0\na/dog/3.jpg 1\n", "a.txt")
    pool = read_metadata("domainnet", path)
    assert pool.truth()["class_id"].to_pylist() == ["0", "0", "1"]
    assert pool.images["split"].to_pylist() == [None] * 3
    assert "class 0: cat, dog" in report_of(pool).problems[0].line


def test_lines_that_are_none(written: Written) -> None:
    text = "# list\n\nx/cat/1.jpg 0\nx/cat/1.jpg 0\nx/cat/2.jpg\n../cat/3.jpg 0\nx/cat/4.jpg -1\n"
    pool = read_metadata("domainnet", written(text, "x_train.txt"))
    assert pool.image_ids.to_pylist() == ["x/cat/1.jpg"]
    counts = {problem.kind: problem.count for problem in report_of(pool).problems}
    assert counts == {
        "line that is no path and class number, left out": 3,
        "photo that comes again, the first kept": 1,
    }
    assert report_of(pool).lost_images
    with pytest.raises(BadFile, match="lists no image"):
        read_metadata("domainnet", written("nothing here\n", "x.txt"))
    with pytest.raises(BadFile, match="not text in UTF-8"):
        read_metadata("domainnet", written(b"\xff\xfe", "x.txt"))
