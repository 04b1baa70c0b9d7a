from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heldout.core.errors import BadFile, UserError
from heldout.core.request import make
from heldout.data.importing.pools import collect_rows, read_metadata, report_of
from heldout.data.labels import LabelSpace
from heldout.data.published.requests import CollectRequest
from heldout.data.testset.testset import TestSet
from tests.data.published.yfcc_examples import key_of, photo

Written = Callable[..., Path]
Members = Callable[[TestSet, str], set[tuple[str, str]]]
DATA = Path(__file__).parent / "data"
OLD = [DATA / f"frame_pandas_{version}.pkl" for version in ("1_5_3", "1_1_5", "2_2_3")]
URL = "http://farm1.staticflickr.com/8/7088065_65c9d45e09.jpg"


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def frame(**given: Any) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "yfcc_row_id": [3, 5],
        "label_ids": [[0], [1, 2]],
        "country": ["Kenya", "Peru"],
        "country_id": [0, 1],
        "in_5k_label_ids": [[7], [7, 9]],
        "is_train": [True, False],
        "yfcc_metadata": [{"uid": "a@N00", "downloadurl": URL}, None],
    }
    made = pd.DataFrame(columns | given).astype({"country": object, "yfcc_metadata": object})
    made.columns = pd.Index(list(made.columns), dtype=object)
    return made


def pickled(path: Path, value: Any) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=4))
    return path


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_frames_of_old_pandas(path: Path, members: Members, tmp_path: Path) -> None:
    pool = read_metadata("geoyfcc", path)
    rows = pool.images.to_pylist()
    assert [row["image_id"] for row in rows] == [
        key_of(URL), key_of("http://farm1.staticflickr.com/1/2_3.jpg"),
        key_of("http://farm1.staticflickr.com/1/3_4.jpg"),
    ]  # fmt: skip
    assert [row["yfcc_row_id"] for row in rows] == [11, 25, 99]
    assert [row["country"] for row in rows] == ["Kenya", "The Bahamas", "Atlantis"]
    assert [row["continent"] for row in rows] == ["Africa", "North America", None]
    assert [row["is_train"] for row in rows] == [True, False, True]
    assert [row["country_id"] for row in rows] == [4, 1, 61]
    first = rows[0]
    assert (first["uid"], first["nickname"]) == ("7@N00", "ann b")
    assert first["licence"] == "Attribution License" and first["uri"] == URL
    assert first["attribution"] == "ann b, http://www.flickr.com/photos/7@N00/7088065/"
    assert first["licence_url"] == "http://creativecommons.org/licenses/by/2.0/"
    assert json.loads(first["yfcc_metadata"])["photoid"] == "1"
    ids = pool.image_ids.to_pylist()
    assert members(pool, "label") == {
        (ids[0], "3"), (ids[1], "0"), (ids[1], "5"), (ids[2], "1260"),
    }  # fmt: skip
    assert pool.card.facts["unknown_countries"] == {"Atlantis": 1}
    assert [problem.kind for problem in report_of(pool).problems] == [
        "photo of a country that the table does not list, no continent"
    ]
    to = tmp_path / "frame.parquet"
    collect_rows(make(CollectRequest, {"source": "geoyfcc", "paths": path}), to)
    table = pq.read_table(to)
    assert table["label_ids"].to_pylist() == [[3], [0, 5], [1260]]
    assert table["in_5k_label_ids"].to_pylist() == [[2083], [1, 7], [4]]
    again = read_metadata("geoyfcc", to, name=pool.name)
    assert again.content_hash == pool.content_hash


def test_pickles_are_known_by_what_they_hold(tmp_path: Path) -> None:
    archive = tmp_path / "geoyfcc.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        data = OLD[0].read_bytes()
        for name, content in (("readme.txt", b"x"), ("geoyfcc_all_metadata.pkl", data)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    pool = read_metadata("geoyfcc", archive)
    assert len(pool) == 3
    packed = tmp_path / "frame.pkl.gz"
    packed.write_bytes(gzip.compress(OLD[0].read_bytes()))
    assert read_metadata("geoyfcc", packed).content_hash == pool.content_hash
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(BadFile):
        read_metadata("geoyfcc", cut)


def test_hostile_pickles_are_refused_and_run_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "was-run"
    inside = frame()
    inside.at[0, "yfcc_metadata"] = Hostile(marker)
    values = np.array([Hostile(marker), 1], dtype=object)
    for number, value in enumerate((Hostile(marker), inside, {"a": Hostile(marker)}, values)):
        path = pickled(tmp_path / f"{number}.pkl", value)
        with pytest.raises(BadFile, match=r"refused as a pickle \(it names (posix|nt)\.system\)"):
            read_metadata("geoyfcc", path)
    assert not marker.exists()
    for number, value in enumerate(({"a": 1}, [1], pd.Series([1, 2])), start=10):
        with pytest.raises(BadFile) as caught:
            read_metadata("geoyfcc", pickled(tmp_path / f"{number}.pkl", value))
        assert "\n" not in caught.value.line
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04garbage")
    with pytest.raises(BadFile, match="refused as a pickle"):
        read_metadata("geoyfcc", tmp_path / "x.pkl")


def _records(values: Any) -> bytes:
    """A pickle that names a frame, with this state."""
    return b"\x80\x04cpandas.core.frame\nDataFrame\n)\x81" + pickle.dumps(values, 4)[2:-1] + b"b."


@pytest.mark.parametrize("state", [None, {}, {"_mgr": 1}, {"_mgr": {"x": 1}}, (1, 2), "text"])
def test_frames_of_unknown_layout(tmp_path: Path, state: Any) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(_records(state))
    with pytest.raises(BadFile, match="unknown layout"):
        read_metadata("geoyfcc", path)


def test_frames_with_columns_of_pandas_own_are_refused(tmp_path: Path) -> None:
    made = frame()
    made["country"] = made["country"].astype("category")
    with pytest.raises(BadFile, match="it names pandas"):
        read_metadata("geoyfcc", pickled(tmp_path / "x.pkl", made))
    made = frame().astype({"country": "str"})
    with pytest.raises(BadFile, match="it names pandas"):
        read_metadata("geoyfcc", pickled(tmp_path / "x.pkl", made))


def test_missing_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"yfcc_row_id": [1], "label_ids": [[1]]}), path)
    with pytest.raises(BadFile, match="has no column 'country': it has yfcc_row_id, label_ids"):
        read_metadata("geoyfcc", path)
    pq.write_table(pa.table({"yfcc_row_id": ["x"], "country": ["Peru"]}), path)
    with pytest.raises(BadFile, match="value of another type"):
        read_metadata("geoyfcc", path)
    for column, value in (("label_ids", [["x"], [1]]), ("yfcc_row_id", [None, 1])):
        made = frame(**{column: value}, yfcc_metadata=[None, None])
        with pytest.raises(BadFile, match="value of another type") as caught:
            read_metadata("geoyfcc", pickled(tmp_path / "x.pkl", made))
        assert "\n" not in caught.value.line
    names = tmp_path / "in5k_map.json"
    names.write_text("[]")
    pq.write_table(pa.table({"yfcc_row_id": [1], "country": ["Peru"]}), path)
    with pytest.raises(UserError, match="a frame without in_5k_label_ids"):
        read_metadata("geoyfcc", [path, names])
    with pytest.raises(UserError, match="2 frames and 0 maps"):
        read_metadata("geoyfcc", [path, OLD[0]])


def test_classes_by_the_published_map(written: Written, tmp_path: Path) -> None:
    names = [
        {"label_id": "7", "label_name": "n02084071"},
        {"label_id": "8", "label_name": "n02121620"},
    ]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pandas(frame()), path)
    pool = read_metadata("geoyfcc", [path, written(names, "in5k_map.json")])
    truth = pool.truth().to_pylist()
    assert [row["correct"] for row in truth] == [["n02084071"], ["n02084071"]]
    assert pool.label_space.get("n02121620").name == "cat"
    assert [problem.line for problem in report_of(pool).problems] == [
        "1 × label that the map of classes does not list, such as [7, 9]"
    ]
    assert pool.image_ids.to_pylist() == [key_of(URL), "5"]
    with pytest.raises(BadFile, match="not a map of classes"):
        read_metadata("geoyfcc", [path, written({"a": 1}, "in5k_map.json")])


def test_a_table_of_ones_own_wins_over_the_continents_of_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    columns = {
        "yfcc_row_id": [5, 6],
        "country": ["Turkey", "Kenya"],
        "continent": ["Asia", "Afrika"],
    }
    pq.write_table(pa.table(columns), path)
    (tmp_path / "own.csv").write_text("country,continent\nTürkiye,Europe\n")
    plain = read_metadata("geoyfcc", path)
    mine = read_metadata("geoyfcc", path, countries=tmp_path / "own.csv")
    assert plain.images["continent"].to_pylist() == ["Asia", "Afrika"]
    assert mine.images["continent"].to_pylist() == ["Europe", "Afrika"]


def test_the_relabelled_frame(tmp_path: Path) -> None:
    made = frame(
        file_name=["abc123", "def456"],
        continent=["Africa", "North America"],
        region=["East Africa", "x"],
        in_imagenet21k_label_indices=[0, 21842],
        label_ids=[4, 5],
    )
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pandas(made), path)
    pool = read_metadata("geoyfcc", path, images=tmp_path)
    space = LabelSpace.load("imagenet-21k")
    assert pool.label_space is space
    assert pool.truth()["class_id"].to_pylist() == [space.ids[0], space.ids[-1]]
    rows = pool.images.to_pylist()
    assert [row["continent"] for row in rows] == ["Africa", "North America"]  # as published
    assert [row["image_id"] for row in rows] == ["abc123", "def456"]
    assert rows[0]["region"] == "East Africa"
    assert rows[0]["path"] == "data/images/abc/123/abc123.jpg"


def test_metadata_in_other_forms(tmp_path: Path) -> None:
    stated = photo(1) | {"longitude": "x"}
    forms = [json.dumps(stated), json.dumps({"uid": "u", "longitude": "x"}), None, "{broken"]
    for start in range(0, 4, 2):
        made = frame(yfcc_metadata=forms[start : start + 2])
        pool = read_metadata("geoyfcc", pickled(tmp_path / "x.pkl", made))
        rows = pool.images.to_pylist()
        if start == 0:
            assert rows[0]["image_id"] == key_of(photo(1)["downloadurl"])
            assert rows[0]["licence"].startswith("Attribution") and rows[1]["uid"] == "u"
            assert rows[0]["nickname"] == "ann b."
            assert "longitude that is not a number" in report_of(pool).problems[0].kind
        else:
            assert rows[1]["yfcc_metadata"] == "{broken" and rows[0]["uid"] is None
