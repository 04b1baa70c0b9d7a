"""The country and continent of every photo: from places, else from coordinates; conflicts told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import MissingExtra, UserError
from heldout.data.published.countries import Countries, Country, built_in_countries
from heldout.data.published.places import country_entries
from heldout.data.published.report import Problems

if TYPE_CHECKING:
    import pyarrow as pa

_LISTED = 100


class Locating:
    """Countries and continents of rows, and what was odd about them.

    ``coordinates``  ``fallback``, ``check`` or ``off``, as in
                     :class:`~heldout.data.published.options.ReaderOptions`
    """

    def __init__(self, countries: Countries | None, coordinates: str, problems: Problems) -> None:
        self.countries = countries or built_in_countries()
        self.facts: dict[str, Any] = {}
        self._mode = coordinates
        self._problems = problems
        self._unknown: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()

    def columns(
        self, table: pa.Table, places: Sequence[str | None] | None, where: str
    ) -> dict[str, Any]:
        """``country``, its code, where it is from, whether a border is near, and the continent.

        ``table`` has ``photo_id``, ``longitude`` and ``latitude``; ``places`` are texts or None.
        """
        import pyarrow as pa

        def photo(row: int) -> str:
            return f"{where} photo {table['photo_id'][row].as_py()}"

        n = len(table)
        named = np.full(n, -1, dtype=np.int64)
        codes_of: dict[str, int] = {}
        for row, text in enumerate(places or ()):
            listed = country_entries(text or "")
            if listed and listed[0]:
                named[row] = codes_of.setdefault(listed[0], len(codes_of))
            if len(set(listed)) > 1:
                self._problems.add("photo in two countries, the first kept", photo(row))
        names = list(codes_of)
        codes, near = self._by_coordinates(table, named < 0)
        distinct, located = np.unique(codes.astype(np.str_), return_inverse=True)
        # All countries that occur: those of names first, then those of codes.
        known = [self.countries.get(name) for name in names]
        known += [self.countries.by_code.get(str(code)) for code in distinct]
        shown = [*names, *map(str, distinct)]
        by_coordinates = (named < 0) & (codes != "")
        entry = np.where(named >= 0, named, np.where(by_coordinates, len(names) + located, -1))
        self._compare(known, named, codes, near, photo)
        self._count(shown, known, entry, by_coordinates)

        def column(values: list[str | None]) -> Any:
            return pa.array(values, pa.string()).take(pa.array(entry, mask=entry < 0))

        sources = pa.array(["places", "coordinates"], pa.string())
        return {
            "country": column(
                [name if one is None else one.name for name, one in zip(shown, known, strict=True)]
            ),
            "country_code": column([None if one is None else one.code or None for one in known]),
            "country_source": sources.take(
                pa.array(by_coordinates.astype(np.int64), mask=entry < 0)
            ),
            "near_border": pa.array(near, mask=codes == ""),
            "continent": column([None if one is None else one.continent for one in known]),
        }

    def _by_coordinates(
        self, table: pa.Table, open_: NDArray[np.bool_]
    ) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
        """Codes of countries where coordinates are asked ("" elsewhere), and nearness of a border."""
        import pyarrow.compute as pc

        codes = np.full(len(table), "", dtype=object)
        near = np.zeros(len(table), dtype=bool)
        stated = pc.and_(pc.is_valid(table["longitude"]), pc.is_valid(table["latitude"]))
        asked = stated.to_numpy() & (open_ | (self._mode == "check"))
        if self._mode == "off" or not asked.any():
            return codes, near
        from heldout.data.published.coordinates import known_towns

        try:
            towns = known_towns()
        except MissingExtra as error:
            raise UserError(error.message, fix=f"{error.fix}, or --coordinates off") from None
        self.facts["towns"] = towns.version
        at = towns.locate(table["latitude"].to_numpy()[asked], table["longitude"].to_numpy()[asked])
        codes[asked], near[asked] = at.codes, at.border
        self._tally["far_from_towns"] += int((at.codes == "").sum())
        self._tally["near_border"] += int(at.border.sum())
        return codes, near

    def _compare(
        self,
        known: list[Country | None],
        named: NDArray[np.int64],
        codes: NDArray[np.object_],
        near: NDArray[np.bool_],
        photo: Any,
    ) -> None:
        """Report where places and coordinates differ away from any border."""
        stated = np.array(["" if one is None else one.code for one in known], dtype=object)
        ours = np.where(named >= 0, stated[named], "")
        differ = (ours != "") & (codes != "") & (ours != codes) & ~near
        for row in np.flatnonzero(differ).tolist():
            self._problems.add(
                "places and coordinates in different countries, places kept",
                f"{photo(row)}: {ours[row]}, {codes[row]}",
            )
        self._tally["country_conflicts"] += int(differ.sum())

    def _count(
        self,
        shown: list[str],
        known: list[Country | None],
        entry: NDArray[np.int64],
        by_coordinates: NDArray[np.bool_],
    ) -> None:
        counts = np.bincount(entry[entry >= 0], minlength=len(shown)).tolist()
        for name, one, count in zip(shown, known, counts, strict=True):
            if one is None and count:
                self._unknown[name] += count
        self._tally["country_from_places"] += int(((entry >= 0) & ~by_coordinates).sum())
        self._tally["country_from_coordinates"] += int(by_coordinates.sum())
        self._tally["without_country"] += int((entry < 0).sum())

    def report(self) -> dict[str, int]:
        """State unknown countries, the most frequent first; what was counted."""
        most = sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))
        for name, times in most:
            self._problems.add(
                "photo of a country that the table does not list, no continent", name, times=times
            )
        self.facts["countries"] = dict(self.countries.facts)
        if most:
            self.facts["unknown_countries"] = dict(most[:_LISTED])
        return {name: self._tally[name] for name in sorted(self._tally) if self._tally[name]}
