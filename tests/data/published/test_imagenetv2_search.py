"""Candidates of a search: ids, records, and tables of addresses."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import BadFile, UserError
from heldout.core.tables import read_table_file
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.published.imagenetv2_search import (
    CandidateIds,
    SearchRecord,
    candidate_id,
    first_of_each,
    read_search,
    write_search,
)
from heldout.data.testset import TestSet, load, save
from tests.cli.conftest import Run, run

__all__ = ["run"]


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


def record(photo: str, wnid: str, **further: Any) -> dict[str, Any]:
    own = {"id_ours": sha1(f"{photo}flickr"), "id_search_engine": photo, "search_engine": "flickr"}
    return {**own, "url": f"https://a.org/{photo}.jpg", "wnid": wnid, **further}


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text(json.dumps(records))
    return path


def problems(pool: TestSet) -> dict[str, int]:
    return {each.kind: each.count for each in report_of(pool).problems}


def test_the_published_photo_of_a_second_class() -> None:
    assert candidate_id("7243017850", class_id="n02687172") == (
        "4fc86d606b61ebfb178eac0bbd0d7e0029ef5ae5"
    )
    assert candidate_id("7243017850") == sha1("7243017850flickr")


def test_ids_against_a_slow_oracle() -> None:
    draw = random.Random(1)
    asked = [(str(draw.randrange(30)), draw.choice("abc")) for _ in range(300)]
    ids = CandidateIds()
    found = [ids.take(photo, "flickr", label) for photo, label in asked]
    for place, (photo, label) in enumerate(asked):
        before = asked[:place]
        if (photo, label) in before:
            assert found[place] is None
        elif photo in [each for each, _ in before]:
            assert found[place] == sha1(f"{photo},flickr,{label}")
        else:
            assert found[place] == sha1(f"{photo}flickr")
    assert None in found and len({each for each in found if each}) == len(set(asked))


def test_a_record_may_state_the_second_id() -> None:
    second = sha1("1,flickr,b")
    tally: Counter[str] = Counter()
    given = [SearchRecord(**record("1", "b", id_ours=second)), SearchRecord(**record("1", "a"))]
    assert [each.id_ours for each in first_of_each(given, tally)] == [second, sha1("1flickr")]
    assert tally == {"of_another_class_too": 1}


def test_records_are_written_as_they_were_read(tmp_path: Path) -> None:
    given = [
        SearchRecord(**record("1", "n01440764", width=640, max_images=200)),
        SearchRecord(**record("2", "n01440764", licence="CC0-1.0", owner="me", batch="b")),
    ]
    write_search(tmp_path / "found.json", given)
    assert read_search(tmp_path / "found.json") == given
    first, second = json.loads((tmp_path / "found.json").read_text())
    assert list(first)[:4] == ["id_ours", "id_search_engine", "url", "url_type"]
    assert "licence" not in first and second["licence"] == "CC0-1.0"
    with pytest.raises(BadFile, match="unknown field 'colour'"):
        read_search(written(tmp_path / "x.json", record("1", "n01440764", colour="red")))


@pytest.mark.parametrize(
    ("dates", "reasons"),
    [
        ({"date_taken": "2012-07-11 00:00:00"}, []),
        ({"date_taken": "2013-07-11 23:59:59"}, []),
        ({"date_taken": "2012-07-10 23:59:59"}, ["taken_before"]),
        ({"date_taken": "2013-07-12 00:00:00"}, ["taken_after"]),
        ({"date_taken": ""}, ["taken_unknown"]),
        ({"date_upload_search_engine": "2012-07-10 23:59:59"}, ["uploaded_before"]),
        ({"date_upload_search_engine": "2013-07-12 00:00:00"}, ["uploaded_after"]),
        (
            {"date_taken": "2000-01-01 00:00:00", "date_upload_search_engine": ""},
            ["taken_before", "uploaded_unknown"],
        ),
    ],
)
def test_windows_hold_their_last_day(dates: dict[str, str], reasons: list[str]) -> None:
    inside = "2012-12-24 18:00:00"
    days = {f"min_{w}_date": "2012-07-11" for w in ("taken", "uploaded")}
    days |= {f"max_{w}_date": "2013-07-11" for w in ("taken", "uploaded")}
    known = {"date_taken": inside, "date_upload_search_engine": inside}
    assert (
        SearchRecord(**record("1", "a", **days, **{**known, **dates})).outside_windows() == reasons
    )
    assert SearchRecord(**record("1", "a", **dates)).outside_windows() == []


def test_search_results_become_a_pool(tmp_path: Path) -> None:
    later = written(tmp_path / "b.json", record("1", "n01443537"), record("1", "n01440764"))
    first = written(
        tmp_path / "a.json",
        record("1", "n01440764", width="640", height=None, search_key="tench"),
        record("2", "n00000000"),
        record("3", "n01440764", id_ours="0" * 40),
        record("4", "n01440764", url="ftp://a.org/4.jpg"),
    )
    pool = read_metadata("search-results", [later, first], name="found")
    assert pool.image_ids.to_pylist() == [sha1("1flickr"), sha1("1,flickr,n01443537")]
    assert pool.class_of_images() == {
        sha1("1flickr"): "n01440764",
        sha1("1,flickr,n01443537"): "n01443537",
    }
    row = pool.images.slice(0, 1).to_pylist()[0]
    assert (row["width"], row["height"], row["search_key"]) == (640, None, "tench")
    assert (row["uri"], row["source"], row["photo_id"]) == ("https://a.org/1.jpg", "flickr", "1")
    assert problems(pool) == {
        "class that imagenet-1k does not have, left out": 1,
        "id that is not its photo's, left out": 1,
        "record without a web address, left out": 1,
    }
    counts = report_of(pool).counts
    assert (counts["records"], counts["duplicates"], counts["of_another_class_too"]) == (6, 1, 1)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_addresses_become_the_same_pool(tmp_path: Path, ending: str) -> None:
    rows = [
        {"url": "https://a.org/1.jpg", "class": "cat", "license": "CC0-1.0", "owner": "me"},
        {"url": "https://a.org/1.jpg", "class": "dog", "license": "CC0-1.0", "owner": None},
        {"url": "https://a.org/1.jpg", "class": "dog", "license": None, "owner": "me"},
        {"url": "/home/me/1.jpg", "class": "dog", "license": None, "owner": "me"},
    ]
    path = tmp_path / f"mine.{ending}"
    if ending == "csv":
        lines = [",".join(rows[0]), *(",".join(v or "" for v in row.values()) for row in rows)]
        path.write_text("\n".join(lines))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    pool = read_metadata("addresses", path)
    address = "https://a.org/1.jpg"
    assert pool.image_ids.to_pylist() == [sha1(f"{address}web"), sha1(f"{address},web,dog")]
    assert list(pool.class_of_images().values()) == ["cat", "dog"]
    assert pool.images["licence"].to_pylist() == ["CC0-1.0", "CC0-1.0"]
    assert pool.images["attribution"].to_pylist() == ["me", None]
    assert pool.label_space.ids == ("cat", "dog")
    assert problems(pool) == {"row without a web address, left out": 1}
    searched = read_metadata(
        "search-results", written(tmp_path / "a.json", record("1", "n01440764"))
    )
    assert pool.images.schema == searched.images.schema
    assert load(save(pool, tmp_path / "pool").folder or tmp_path).content_hash == pool.content_hash


def test_addresses_keep_their_own_ids_and_need_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "image_id,uri,class_id\na,http://b.org/1.jpg,n01440764\nb,http://b.org/1.jpg,tench\n"
    )
    assert read_metadata("addresses", path).image_ids.to_pylist() == ["a", "b"]
    with pytest.raises(UserError, match=r"row 2: 'tench' is not a class.*the id is n01440764"):
        read_metadata("addresses", path, classes="imagenet-1k")
    path.write_text("image_id,uri\na,http://b.org/1.jpg\n")
    with pytest.raises(BadFile, match="has no column 'class_id'"):
        read_metadata("addresses", path)


def test_class_folders_become_a_pool(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    for name in ("cat/1.png", "dog/2.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        Image.new("RGB", (7, 5)).save(tmp_path / "photos" / name)
    ran = run("collect", "folders", tmp_path / "photos", "--name", "mine", "-w", tmp_path)
    assert ran.code == 0, ran.err
    pool = load(tmp_path / "pools" / "mine")
    assert pool.class_of_images() == {"cat/1.png": "cat", "dog/2.png": "dog"}
    assert pool.images["width"].to_pylist() == [7, 7] and pool.card.stage == "pool"
    assert pool.images_folder().resolve() == (tmp_path / "photos").resolve()
    space = {"schema_version": 1, "name": "pets", "classes": [{"id": "d", "names": ["dog"]}]}
    (tmp_path / "pets.json").write_text(json.dumps(space))
    ran = run(
        "collect",
        "folders",
        tmp_path / "photos",
        "--classes",
        tmp_path / "pets.json",
        "-w",
        tmp_path,
    )
    assert ran.code == 2 and "'cat'" in ran.err
    ran = run("collect", "folders", tmp_path / "photos", tmp_path, "-w", tmp_path)
    assert ran.code == 2 and "name the one above them" in ran.err


def test_a_pool_does_not_keep_old_words_about_its_classes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("uri,class_id\nhttp://b.org/1.jpg,cat\n")
    asked = (
        "collect",
        "addresses",
        tmp_path / "mine.csv",
        "--classes",
        tmp_path / "pets.json",
        "-w",
        tmp_path,
    )
    for gloss, flag, code in (
        ("purrs", "", 0),
        ("purrs", "", 0),
        ("meows", "", 2),
        ("meows", "--replace", 0),
    ):
        classes = [{"id": "cat", "gloss": gloss}]
        space = {"schema_version": 1, "name": "pets", "classes": classes}
        (tmp_path / "pets.json").write_text(json.dumps(space))
        ran = run(*asked, *filter(None, [flag]), "--name", "mine")
        assert ran.code == code and ("links of its classes" in ran.err) == (code == 2), ran.err
    assert load(tmp_path / "pools" / "mine").label_space.get("cat").gloss == "meows"


def test_candidates_in_a_parquet_file(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", record("1", "n01440764"))
    assert run("collect", "search-results", path, "-o", tmp_path / "rows.parquet").code == 0
    table = read_table_file(tmp_path / "rows.parquet")
    assert table["class_id"].to_pylist() == ["n01440764"]


# published


def published(shared_data: Path) -> list[Path]:
    return sorted((shared_data / "imagenetv2" / "search_results").glob("*.json"))


def test_every_published_record_obeys_the_first_formula(shared_data: Path) -> None:
    records = [each for path in published(shared_data) for each in read_search(path)]
    assert len(records) == 6_505
    assert all(each.id_ours == sha1(f"{each.id_search_engine}flickr") for each in records)


def test_published_records_outside_their_window(shared_data: Path) -> None:
    pool = read_metadata("search-results", published(shared_data), name="found")
    counts = report_of(pool).counts
    outside = {name: n for name, n in counts.items() if name.startswith("outside_window")}
    assert outside == {"outside_window_uploaded_before": 867, "outside_window_uploaded_after": 143}
    assert sum(outside.values()) == 1_010
    assert (len(pool), counts["duplicates"], counts["of_another_class_too"]) == (6_098, 407, 28)
    assert pool.reordered(1).content_hash == pool.content_hash


def test_published_files_are_written_byte_for_byte(shared_data: Path, tmp_path: Path) -> None:
    for path in published(shared_data):
        write_search(tmp_path / path.name, read_search(path))
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
