"""Searching Flickr, against a loopback server that speaks its protocol and its errors."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from heldout.core.context import Context, Result
from heldout.core.errors import ExistsError, UserError
from heldout.core.records import to_dict
from heldout.core.request import make
from heldout.core.web import Patience, WebClient
from heldout.core.workspace import Workspace
from heldout.curate.collect.flickr import LARGEST_ANSWER, FlickrSearch
from heldout.curate.collect.queries import Query
from heldout.curate.collect.verbs import collect_flickr
from heldout.data.importing.pools import read_metadata
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.published.imagenetv2_search import read_search
from heldout.data.published.requests import CollectRequest, FlickrRequest
from heldout.data.testset import load
from heldout.testing.flickr import Fault, FlickrServer, answers, fails, photo
from tests.cli.conftest import Run, run

__all__ = ["run"]
KEY = "a-secret-key-0123"
PETS = {
    "schema_version": 1,
    "name": "pets",
    "classes": [
        {"id": "cat", "names": ["cat"], "search_terms": ["cat", "kitten"]},
        {"id": "dog", "names": ["dog"]},
    ],
}
DOWN = fails(105, "Service currently unavailable")
PAGE = b"<!DOCTYPE html><html><body>Bad, bad panda</body></html>"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLICKR_API_KEY", KEY)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def served(
    photos: Sequence[dict[str, Any]], faults: Sequence[Fault | None] = (), *, loose: bool = False
) -> FlickrServer:
    return FlickrServer(photos, key=KEY, faults=faults, loose=loose)


def search(server: FlickrServer, folder: Path, **asked: Any) -> tuple[Result, list[float]]:
    """A search of the pets, and how long it waited."""
    classes = folder / "pets.json"
    classes.write_text(json.dumps(PETS))
    values = {"source": "flickr", "classes": str(classes), "endpoint": server.endpoint, **asked}
    request = make(CollectRequest, {"name": "found", **values})
    assert isinstance(request, FlickrRequest)
    waits: list[float] = []
    patience = Patience(attempts=4, sleep=waits.append)
    context = Context(Workspace(folder))
    return collect_flickr(request, context, patience), waits


def tally(result: Result) -> dict[str, int]:
    return {each.name: each.value for each in result.records if each.record == "count"}


def nothing_holds_the_key(folder: Path) -> None:
    for path in folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


MANY = [photo(n, ("cat", "kitten", "dog", "cat dog")[n % 4]) for n in range(1, 241)]


def test_a_search_becomes_a_pool(tmp_path: Path) -> None:
    with served(MANY) as server:
        result, waits = search(server, tmp_path, per_class=90)
    pool = load(tmp_path / "pools" / "found")
    assert pool.content_hash == result.value.content_hash and not waits
    by_class: dict[str, int] = {}
    for label in pool.class_of_images().values():
        by_class[label] = by_class.get(label, 0) + 1
    assert by_class == {"cat": 90, "dog": 90}
    row = pool.images.slice(0, 1).to_pylist()[0]
    assert row["uri"] == f"https://live.staticflickr.com/{row['photo_id']}_o.jpg"
    assert (row["width"], row["height"], row["licence"]) == (1600, 1200, "CC-BY-2.0")
    assert (row["attribution"], row["owner"]) == ("A. Photographer", "12345678@N00")
    assert (row["date_taken"], row["date_upload"]) == ("2013-01-01 12:00:00", "2013-01-02 12:00:00")
    assert row["search_key"] == "cat" and pool.label_space.get("cat").search_terms
    assert set(pool.images["licence"].to_pylist()) == {"CC-BY-2.0"}
    assert not (tmp_path / "runs" / "collect-found").exists()
    nothing_holds_the_key(tmp_path)


def test_what_is_asked_has_flickrs_names(tmp_path: Path) -> None:
    with served(MANY) as server:
        search(
            server, tmp_path, taken="2012-07-11..2013-07-11", uploaded="2012-07-11..2013-07-12",
            licences=["CC-BY-2.0", "cc0*"], only_classes=["dog"],
        )  # fmt: skip
    (asked,) = server.asked
    assert asked["text"] == "dog" and asked["method"] == "flickr.photos.search"
    assert asked["min_taken_date"] == "2012-07-11 00:00:00"
    assert asked["max_taken_date"] == "2013-07-11 23:59:59"
    assert asked["min_upload_date"] == "1341964800"  # 2012-07-11 00:00:00 UTC
    assert asked["max_upload_date"] == "1373673599"  # 2013-07-12 23:59:59 UTC
    assert asked["license"] == "4,9" and asked["sort"] == "date-posted-asc"
    assert asked["media"] == "photos" and asked["per_page"] == "200"
    assert {"license", "owner_name", "url_o", "url_k"} <= set(asked["extras"].split(","))
    assert "min_uploaded_date" not in asked  # ImageNetV2's, which Flickr ignores


def test_pages_are_read_until_there_are_enough(tmp_path: Path) -> None:
    photos = [photo(n, "dog", licence=4 if n > 230 else 0) for n in range(1, 300)]
    with served(photos, loose=True) as server:
        result, _ = search(
            server, tmp_path, only_classes=["dog"], per_class=20, licences=["CC-BY-2.0"]
        )
    assert [each["page"] for each in server.asked] == ["1", "2", "3"]
    assert tally(result)["rejected_licence"] == 230 and tally(result)["examined"] == 250
    assert result.value.images["photo_id"].to_pylist() == [str(n) for n in range(231, 251)]


def test_no_more_pages_than_flickr_lists(tmp_path: Path) -> None:
    photos = [photo(n, "dog", licence=0) for n in range(1, 4_600)]
    with (
        served(photos, loose=True) as server,
        pytest.raises(UserError, match="no photo was kept of 4,000"),
    ):
        search(server, tmp_path, only_classes=["dog"], per_class=100, licences=["CC-BY-2.0"])
    assert len(server.asked) == 40


def test_what_flickr_lists_wrongly_is_left_out_and_counted(tmp_path: Path) -> None:
    photos = [
        photo(1, "dog"),
        photo(2, "dog", taken="2012-07-10 23:59:59"),
        photo(3, "dog", taken="2013-07-12 00:00:00"),
        photo(4, "dog", uploaded="2012-07-10 23:59:59"),
        photo(5, "dog", uploaded="2013-07-12 00:00:00"),
        photo(6, "dog", datetakenunknown="1"),
        photo(7, "dog", licence=0),
        photo(8, "dog", licence=12),
        photo(9, "dog", sizes={"s": (75, 75)}),
        photo(10, "dog", url_o="javascript:alert(1)", owner_name="half \ud800\na name"),
        photo(11, "dog", dateupload="soon"),
        photo(12, "dog", id="../12"),
        photo(14, "dog", media="video"),
        photo(13, "dog", sizes={"z": (640, 480), "k": (2048, 1536), "m": (500, 375)}),
        photo(1, "dog"),
    ]  # fmt: skip
    window = "2012-07-11..2013-07-11"
    with served(photos, loose=True) as server:
        result, _ = search(
            server, tmp_path, only_classes=["dog"], taken=window, uploaded=window, licences=["cc*"]
        )
    pool = result.value
    found = dict(
        zip(pool.images["photo_id"].to_pylist(), pool.images["url_type"].to_pylist(), strict=True)
    )
    assert found == {"1": "url_o", "10": "url_m", "13": "url_k"}
    assert pool.images["attribution"].to_pylist()[1] == "half ? a name"
    rejected = {k: v for k, v in tally(result).items() if k.startswith("rejected_")}
    assert rejected == {
        "rejected_licence": 2, "rejected_malformed": 2, "rejected_no_address": 1, "rejected_no_photo": 1,
        "rejected_repeated": 1, "rejected_taken_after": 1, "rejected_taken_before": 1,
        "rejected_taken_unknown": 1, "rejected_uploaded_after": 1, "rejected_uploaded_before": 1,
    }  # fmt: skip
    assert tally(result)["examined"] == len(photos) == len(pool) + sum(rejected.values())
    (one,) = [each for each in result.records if each.record == "searched"]
    assert sum(one.rejected.values()) + one.kept == one.examined == one.total
    json.dumps([to_dict(each) for each in result.records])


def test_the_largest_size_that_there_is(tmp_path: Path) -> None:
    order = ["o", "k", "h", "b", "l", "c", "z", "-", "m"]
    photos = [
        photo(n + 1, "dog", sizes=dict.fromkeys(reversed(order[n:]), (100 + n, 90)))
        for n in range(len(order))
    ]
    with served(photos) as server:
        result, _ = search(server, tmp_path, only_classes=["dog"])
    images = result.value.images
    assert images["url_type"].to_pylist() == [f"url_{size}" for size in order]
    assert images["width"].to_pylist() == [100 + n for n in range(len(order))]


def test_what_passes_is_asked_again(tmp_path: Path) -> None:
    faults = [
        DOWN,
        answers(429, Retry_After="7"),
        answers(502, PAGE),
        None,
        answers(200, PAGE),
        answers(200, b'{"photos": {"page": 1, "pa'),
        answers(200, json.dumps({"stat": "ok", "photos": {}}).encode()),
        None,
        answers(200, b"x" * 5000, cut=100),
    ]
    with served(MANY) as undisturbed:
        calm, _ = search(undisturbed, tmp_path, name="calm")
    with served(MANY, faults) as server:
        result, waits = search(server, tmp_path)
    assert waits == [1.0, 7.0, 4.0, 1.0, 2.0, 4.0, 1.0]
    assert result.value.content_hash == calm.value.content_hash
    assert len(server.asked) == 3 + len(waits)


def test_a_query_without_an_answer_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    with served(MANY, [None, DOWN, DOWN, DOWN, DOWN]) as server:
        with pytest.raises(
            UserError, match=r"1 of 3 queries failed.*'kitten' got no answer.*code 105.*resume"
        ):
            search(server, tmp_path)
        assert [each["text"] for each in server.asked] == ["cat", *["kitten"] * 4, "dog"]
        assert not (tmp_path / "pools").exists()
        nothing_holds_the_key(tmp_path)
        server.asked.clear()
        result, _ = search(server, tmp_path)
        assert [each["text"] for each in server.asked] == ["kitten"]
    with served(MANY) as undisturbed:
        calm, _ = search(undisturbed, tmp_path, name="calm")
    assert result.value.content_hash == calm.value.content_hash


def test_a_service_that_is_down_ends_the_run(tmp_path: Path) -> None:
    many = {"schema_version": 1, "name": "many", "classes": [{"id": f"c{n}"} for n in range(50)]}
    (tmp_path / "many.json").write_text(json.dumps(many))
    with served(MANY, [answers(503)] * 1000) as server:
        with pytest.raises(UserError, match=r"'c2' got no answer.*nor did two before it.*resume"):
            search(server, tmp_path, classes=str(tmp_path / "many.json"))
        assert len(server.asked) == 12


def test_an_hour_has_no_more_requests_than_a_key_may_send() -> None:
    waits: list[float] = []
    with served(MANY) as server:
        asked = {"source": "flickr", "classes": "x", "endpoint": server.endpoint}
        request = make(CollectRequest, asked)
        assert isinstance(request, FlickrRequest)
        patience = Patience(sleep=waits.append)
        with WebClient(server.endpoint, most=LARGEST_ANSWER, patience=patience) as client:
            search = FlickrSearch(request, client, KEY, hourly=3)
            query = Query(class_id="cat", name="cat", term="cat", images=5)
            for _ in range(2):
                search.find(query)
            assert waits == []
            search.find(query)
            search.find(query)
    assert len(waits) == 2 and all(3590 < wait <= 3600 for wait in waits)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (fails(100, f"Invalid API Key ({KEY})"), r"'Invalid API Key \(\*\*\*\)' \(code 100\)"),
        (fails(112, 'Method "x" not found'), "code 112"),
        (answers(404, b"nothing here"), "answers 404.*check {endpoint}"),
        (answers(302, Location="http://10.1.2.3/"), "private address"),
    ],
)
def test_what_no_request_would_change_ends_the_run_at_once(
    tmp_path: Path, fault: Fault, said: str
) -> None:
    with served(MANY, [fault]) as server:
        with pytest.raises(UserError, match=said) as caught:
            search(server, tmp_path)
        assert len(server.asked) == 1 and KEY not in str(caught.value)
    nothing_holds_the_key(tmp_path)


def test_an_answer_without_end_is_not_read(tmp_path: Path) -> None:
    with (
        served(MANY, [answers(200, b" " * (17 << 20))]) as server,
        pytest.raises(UserError, match="too many"),
    ):
        search(server, tmp_path)


def test_a_term_that_flickr_refuses_is_one_failure(tmp_path: Path) -> None:
    with served(MANY, [fails(3, "Parameterless searches have been disabled.")]) as server:
        with pytest.raises(UserError, match=r"1 of 3 queries failed.*change the search term"):
            search(server, tmp_path)
        assert len(server.asked) == 3


def test_a_wrong_key_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(MANY) as server:
        monkeypatch.setenv("FLICKR_API_KEY", "another")
        with pytest.raises(UserError, match=r"Invalid API Key.*check FLICKR_API_KEY"):
            search(server, tmp_path)
        monkeypatch.delenv("FLICKR_API_KEY")
        with pytest.raises(UserError, match="FLICKR_API_KEY is not set"):
            search(server, tmp_path)
        assert len(server.asked) == 1


def test_blacklisted_photos_are_left_out_and_counted(tmp_path: Path) -> None:
    with served(MANY) as server:
        first, _ = search(server, tmp_path, per_class=20)
        bad = first.value.image_ids.to_pylist()[0]
        with JudgementStore(Workspace(tmp_path).judgements) as store:
            store.add(
                [
                    Judgement(
                        question="review",
                        subject={"image_id": bad},
                        answer="blacklisted",
                        who="me",
                        testset="found",
                        evidence={"reason": "a drawing"},
                    )
                ]
            )
        second, _ = search(server, tmp_path, per_class=20, name="again")
    assert tally(second)["rejected_blacklisted"] == 1 and len(second.value) == len(first.value) - 1
    assert bad not in second.value.image_ids.to_pylist()


def test_a_photo_of_two_classes_and_one_of_two_terms(tmp_path: Path) -> None:
    with served([photo(1, "cat kitten"), photo(2, "kitten dog"), photo(3, "dog")]) as server:
        result, _ = search(server, tmp_path, write_search=tmp_path / "found.json")
    from tests.data.published.test_imagenetv2_search import sha1

    classes = result.value.class_of_images()
    assert classes == {
        sha1("1flickr"): "cat", sha1("2flickr"): "cat",
        sha1("2,flickr,dog"): "dog", sha1("3flickr"): "dog",
    }  # fmt: skip
    assert tally(result)["duplicates"] == 1 and tally(result)["of_another_class_too"] == 1
    records = read_search(tmp_path / "found.json")
    assert [each.id_ours for each in records] == result.value.image_ids.to_pylist()
    again = read_metadata("search-results", tmp_path / "found.json", classes=tmp_path / "pets.json")
    assert again.class_of_images() == classes and again.images.equals(result.value.images)


def test_a_search_that_was_done_asks_anew(tmp_path: Path) -> None:
    with served(MANY) as server:
        search(server, tmp_path)
        search(server, tmp_path)
        assert len(server.asked) == 6
        server.photos = server.photos[:40]
        with pytest.raises(ExistsError, match="replace"):
            search(server, tmp_path)
        result, _ = search(server, tmp_path, replace=True)
    assert len(result.value) < 60


def test_the_command(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    base = ("collect", "flickr", "--classes", tmp_path / "pets.json", "-w", tmp_path)
    ran = run(*base, "--plan", "--json")
    assert ran.code == 0
    asked = [each["term"] for each in ran.json if each["record"] == "query"]
    assert asked == ["cat", "kitten", "dog"]
    with served(MANY) as server:
        ran = run(*base, "--endpoint", server.endpoint, "--name", "found")
        assert ran.code == 0 and "found: 280 images" in ran.out and KEY not in ran.out + ran.err
    for wrong, said in (
        (("--taken", "2013..2014"), "--taken is '2013..2014': write FIRST..LAST"),
        (("--taken", "2014-01-02..2014-01-01"), "--taken is"),
        (("--licence", "CC-BY-9"), "--licence 'CC-BY-9' is none of Flickr's"),
        (("--endpoint", "ftp://a.org"), "--endpoint is 'ftp://a.org'"),
        (("--only-class", "cow"), "'cow' is not a class of pets"),
    ):
        ran = run(*base, *wrong)
        assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1


def test_a_killed_search_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    names = ["amber", "birch", "cedar", "dune", "elm", "fern"]
    photos = [photo(n, names[n % len(names)]) for n in range(1, 301)]
    classes = {"schema_version": 1, "name": "many", "classes": [{"id": name} for name in names]}

    def files(folder: Path) -> dict[str, bytes]:
        return {
            p.name: p.read_bytes()
            for p in sorted((folder / "pools/found").rglob("*"))
            if p.is_file()
        }

    def command(folder: Path, server: FlickrServer) -> list[str]:
        folder.mkdir(exist_ok=True)
        (folder / "many.json").write_text(json.dumps(classes))
        return [
            sys.executable, "-m", "heldout", "collect", "flickr", "--classes", "many.json",
            "--endpoint", server.endpoint, "--name", "found", "--per-class", "40",
        ]  # fmt: skip

    draw = random.Random(3)
    with served(photos) as server:
        subprocess.run(
            command(tmp_path / "calm", server),
            cwd=tmp_path / "calm",
            check=True,
            capture_output=True,
        )
        calm, once = files(tmp_path / "calm"), len(server.asked)
        killed = 0
        for after in [0, *draw.sample(range(1, once), 3)]:
            folder = tmp_path / f"killed-{after}"
            server.asked.clear()
            child = subprocess.Popen(
                command(folder, server),
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while len(server.asked) < after and child.poll() is None:
                time.sleep(0.001)
            time.sleep(draw.random() * 0.02)
            os.kill(child.pid, signal.SIGKILL)
            killed += child.wait() == -signal.SIGKILL
            subprocess.run(command(folder, server), cwd=folder, check=True, capture_output=True)
            assert files(folder) == calm
            assert not (folder / "runs" / "collect-found").exists()
            assert len(server.asked) <= 2 * once
    assert killed >= 3
