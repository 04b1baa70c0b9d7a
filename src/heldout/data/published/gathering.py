"""Memberships as they are gathered: numbers for images and values, tables at the end.

Readers see millions of (image, value) pairs over a few thousand values. Each column keeps a
vocabulary and arrays of numbers; repeated pairs fall out by one sort of numbers, and the texts are
put back by dictionary arrays, so no text is held twice while reading.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.data.images import check_id
from heldout.data.published.report import Problems
from heldout.data.testset.tables import image_table, membership_schema

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_PIXELS = 2**31 - 1


@dataclass
class _Column:
    """One membership column: ``counts[i]`` of the ``codes`` belong to image ``images[i]``."""

    vocabulary: dict[str, int] = field(default_factory=dict)
    images: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("q"))


class Gathering:
    """Images and memberships of one pool while they are read.

    An image that comes again (in another file, or twice in one) is merged: its memberships are
    the union, and of every other fact the first that was stated counts.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self._places: dict[str, int] = {}
        self._facts: dict[str, list[Any]] = {}
        self._columns: dict[str, _Column] = {}

    def __len__(self) -> int:
        return len(self._places)

    def knows(self, image_id: str) -> bool:
        """Whether an image of this id was met."""
        return image_id in self._places

    def image(self, image_id: object, where: str, facts: Mapping[str, Any] | None = None) -> int:
        """The number of an image, new or known; -1 for something that cannot be an id.

        ``facts`` are single values of the image; those that are None are not stated.
        """
        text = id_text(image_id)
        place = self._places.get(text, -1)
        if place < 0:
            try:
                check_id(text)
            except UserError:
                self.problems.add("image without a usable id, left out", where, image_lost=True)
                return -1
            place = self._places[text] = len(self._places)
        for name, value in (facts or {}).items():
            if value is not None:
                self.state(name, place, value, where)
        return place

    def state(self, name: str, place: int, value: Any, where: str) -> None:
        """Image number ``place`` has this single value; of two that differ the first is kept."""
        stated = self._facts.setdefault(name, [])
        if len(stated) <= place:
            stated.extend([None] * (place + 1 - len(stated)))
        if stated[place] is None:
            stated[place] = value
        elif stated[place] != value:
            self.problems.add(f"image with two values of {name}, the first kept", where)

    def fact(self, name: str, place: int) -> Any:
        """A single value of an image, or None where none was stated."""
        stated = self._facts.get(name, [])
        return stated[place] if place < len(stated) else None

    def add(self, column: str, place: int, values: Collection[str]) -> None:
        """Image number ``place`` has these values of ``column``."""
        if not values:
            return
        kept = self._columns.get(column)
        if kept is None:
            kept = self._columns[column] = _Column()
        vocabulary = kept.vocabulary
        kept.codes.extend([vocabulary.setdefault(value, len(vocabulary)) for value in values])
        kept.images.append(place)
        kept.counts.append(len(values))

    def add_codes(
        self,
        column: str,
        places: NDArray[np.int64],
        codes: NDArray[np.int64],
        vocabulary: Sequence[str],
    ) -> None:
        """Pairs given as numbers: image ``places[i]`` has value ``vocabulary[codes[i]]``."""
        if not len(places):
            return
        kept = self._columns.setdefault(column, _Column())
        ours = np.array(
            [kept.vocabulary.setdefault(value, len(kept.vocabulary)) for value in vocabulary],
            dtype=np.int64,
        )
        kept.codes.frombytes(ours[codes].tobytes())
        kept.images.frombytes(np.ascontiguousarray(places, dtype=np.int64).tobytes())
        kept.counts.frombytes(np.ones(len(places), dtype=np.int64).tobytes())

    def rename(self, column: str, name_of: Callable[[str], str]) -> None:
        """Give the values of a column other names; values that get one name become one."""
        kept = self._columns.get(column)
        if kept is None:
            return
        vocabulary: dict[str, int] = {}
        ours = np.array(
            [vocabulary.setdefault(name_of(value), len(vocabulary)) for value in kept.vocabulary],
            dtype=np.int64,
        )
        kept.codes = array("q", ours[_numbers(kept.codes)].tobytes())
        kept.vocabulary = vocabulary

    @property
    def columns(self) -> tuple[str, ...]:
        """The membership columns, sorted."""
        return tuple(sorted(self._columns))

    def vocabulary(self, column: str) -> tuple[str, ...]:
        """The distinct values of a column, in the order they were met."""
        kept = self._columns.get(column)
        return () if kept is None else tuple(kept.vocabulary)

    def images_table(self) -> pa.Table:
        """The images, in the order they were met."""
        n = len(self._places)
        columns: dict[str, Any] = {"image_id": list(self._places)}
        for name, stated in self._facts.items():
            columns[name] = stated + [None] * (n - len(stated))
        return image_table(columns)

    def memberships_table(self) -> pa.Table:
        """The memberships, each once: by column, then image as met, then value."""
        return self.memberships()[0]

    def memberships(self) -> tuple[pa.Table, dict[str, int]]:
        """The table of memberships; and how many, in all and a column, and of how many values."""
        import pyarrow as pa

        ids = pa.array(self._places, pa.string())
        parts = [membership_schema().empty_table()]
        counts: dict[str, int] = {}
        for name in self.columns:
            places, codes, words = _distinct_pairs(self._columns[name])
            parts.append(_column_table(name, ids, places, codes, words))
            counts[f"{name}_memberships"] = len(codes)
            counts[f"{name}_values"] = int(np.count_nonzero(np.bincount(codes)))
        table = pa.concat_tables(parts)
        return table, {"images": len(self), "memberships": len(table), **counts}


def _numbers(values: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.zeros(0, dtype=np.int64)


def _distinct_pairs(
    column: _Column,
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Each pair of image and value once, by image and then by value; and the values, sorted."""
    words = sorted(column.vocabulary)
    rank = np.empty(len(words), dtype=np.int64)
    rank[[column.vocabulary[word] for word in words]] = np.arange(len(words))
    keys = np.repeat(_numbers(column.images), _numbers(column.counts))
    keys *= len(words)
    keys += rank[_numbers(column.codes)]
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    places, codes = np.divmod(keys, len(words))
    return places, codes, words


def _column_table(
    name: str, ids: Any, places: NDArray[np.int64], codes: NDArray[np.int64], words: list[str]
) -> Any:
    import pyarrow as pa

    def texts(numbers: NDArray[np.int64], dictionary: Any) -> Any:
        coded = pa.array(numbers, pa.int32())
        return pa.DictionaryArray.from_arrays(coded, dictionary).dictionary_decode()

    return pa.table(
        [
            texts(places, ids),
            texts(np.zeros(len(places), dtype=np.int64), pa.array([name], pa.string())),
            texts(codes, pa.array(words, pa.string())),
        ],
        schema=membership_schema(),
    )


def id_text(value: object) -> str:
    """An id as text: whole numbers as their digits; what cannot be an id is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    # A float beyond 2^53 may not be the id that was meant, and no id has thousands of digits.
    if isinstance(value, float) and not (value.is_integer() and abs(value) <= 2**53):
        return ""
    return str(int(value)) if abs(value) < 2**64 else ""


def plain_text(value: object) -> str | None:
    """A text such as an address; None for what is none, empty, or not printable."""
    return value if isinstance(value, str) and value.isprintable() and value else None


def pixels(value: object) -> int | None:
    """A width or height in pixels; None for anything that is no whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value <= _MOST_PIXELS or value != int(value):  # NaN is in no range
        return None
    return int(value)
