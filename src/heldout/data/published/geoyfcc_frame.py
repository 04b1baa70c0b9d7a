"""Pickled pandas frames as columns, without pandas: every class in them is a plain record here.

A pickle only says which callables to call with what. Here these are records of our own, so nothing
of a pandas version is needed, run or trusted. Understood are frames whose columns and names are NumPy
arrays, Python objects among them, as pandas 1 and 2 write them. Texts of pandas 3 are buffers of
another library, which cannot be trusted with what a stranger put into them: those are refused.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, UserError
from heldout.core.unpickle import load_pickle

_CHUNK = 50_000


class _Record:
    """Takes whatever a pickle gives to a constructor or as state, and does nothing with it."""

    def __new__(cls, *given: Any) -> _Record:
        made = super().__new__(cls)
        made.given = given
        made.state = None
        return made

    given: tuple[Any, ...]
    state: Any

    def __init__(self, *given: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Frame(_Record):
    pass


class _Manager(_Record):
    pass


class _Index(_Record):
    pass


class _Range(_Record):
    pass


@dataclass(frozen=True, eq=False)
class _Block:
    values: Any
    placement: Any


def _block(values: Any, placement: Any, ndim: int = 2) -> _Block:
    return _Block(values, placement)


def _placement(value: Any) -> Any:
    return value


def _new_index(kind: type, parts: Any) -> _Record:
    return kind(parts) if isinstance(kind, type) and issubclass(kind, _Record) else _Record(parts)


_BASE = "pandas.core.indexes"
STAND_INS: Mapping[tuple[str, str], Any] = {
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): _Manager,
    ("pandas.core.internals", "BlockManager"): _Manager,
    ("pandas._libs.internals", "_unpickle_block"): _block,
    ("pandas._libs.internals", "BlockPlacement"): _placement,
    (f"{_BASE}.base", "_new_Index"): _new_index,
    (f"{_BASE}.base", "Index"): _Index,
    (f"{_BASE}.numeric", "Int64Index"): _Index,
    (f"{_BASE}.range", "RangeIndex"): _Range,
    ("pandas", "Index"): _Index,
    ("pandas", "RangeIndex"): _Range,
}
"""What stands in for the names that a pickled frame has."""


def read_frame(handle: IO[bytes], name: str | Path) -> dict[str, NDArray[Any]]:
    """The columns of a pickled data frame, each (n,); anything else is refused.

    The index of its rows is not kept: GeoYFCC refers to rows by position.
    """
    value = load_pickle(handle, name, stand_ins=STAND_INS)
    if not isinstance(value, _Frame):
        raise BadFile(name, "holds no data frame", fix="give the published frame")
    try:
        return _columns(value)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise BadFile(
            name,
            f"is a data frame of an unknown layout ({error})",
            fix="write it as Parquet with the library that made it",
        ) from None


def frame_chunks(path: Path, *, allow_pickle: bool) -> Iterator[dict[str, Sequence[Any]]]:
    """The columns of a frame, some rows at a time: Parquet, a pickle, or an archive with one.

    A pickle is read only where ``allow_pickle`` says so.
    """
    with path.open("rb") as handle:
        magic = handle.read(4)
    if magic == b"PAR1":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches(batch_size=_CHUNK):
            yield {name: batch.column(name).to_pylist() for name in batch.schema.names}
        return
    if not allow_pickle:
        raise UserError(
            f"{path} is no Parquet file; a pickle is read on request only",
            fix="add --pickle: it is read without running anything in it",
        )
    if tarfile.is_tarfile(path):
        frame = _from_archive(path)
    else:
        packed = magic[:2] == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as handle:
            frame = read_frame(cast(IO[bytes], handle), path)
    n = max((len(column) for column in frame.values()), default=0)
    for start in range(0, n, _CHUNK):
        yield {name: column[start : start + _CHUNK] for name, column in frame.items()}


def _from_archive(path: Path) -> dict[str, Any]:
    """The frame of the one pickle in a tar archive."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.lower().endswith((".pkl", ".pickle")):
                    handle: IO[bytes] | None = archive.extractfile(member)
                    if handle is not None:
                        return read_frame(handle, f"{path}:{member.name}")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BadFile(path, f"cannot be unpacked ({error})", fix="fetch it again") from None
    raise BadFile(path, "holds no .pkl file", fix="give the published archive")


def _columns(frame: _Frame) -> dict[str, NDArray[Any]]:
    state = frame.state
    manager = state.get("_mgr", state.get("_data")) if isinstance(state, dict) else state
    if not isinstance(manager, _Manager):
        raise ValueError("it has no blocks")
    blocks, axes = _parts(manager)
    names, count = _labels(axes[0]), _length(axes[1])
    found: dict[int, NDArray[Any]] = {}
    for block in blocks:
        values = block.values
        if not isinstance(values, np.ndarray) or values.ndim != 2:
            raise TypeError("a column is no NumPy array")
        places = _numbers(block.placement, len(names))
        if values.shape != (len(places), count):
            raise ValueError("a block has another shape than its columns")
        for place, column in zip(places, values, strict=True):
            if found.setdefault(place, column) is not column:
                raise ValueError("a column comes twice")
    if sorted(found) != list(range(len(names))):
        raise ValueError("columns are missing")
    if len(set(names)) < len(names):
        raise ValueError("two columns have one name")
    return {name: found[place] for place, name in enumerate(names)}


def _parts(manager: _Manager) -> tuple[list[_Block], list[Any]]:
    if manager.given:
        blocks, axes = manager.given[0], manager.given[1]
        return list(blocks), list(axes)
    # Up to pandas 1.2: (axes, values, items, {"0.14.1": {"axes": …, "blocks": […]}}).
    state = manager.state[3]["0.14.1"]
    made = [_Block(block["values"], block["mgr_locs"]) for block in state["blocks"]]
    return made, list(state["axes"])


def _labels(index: Any) -> list[str]:
    data = index.given[0]["data"]
    if isinstance(data, _Record):  # an array of pandas' own
        raise TypeError("the names of columns are no plain array")
    names: list[str] = np.asarray(data).tolist()
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a column's name is no text")
    return names


def _length(index: Any) -> int:
    parts = index.given[0]
    if isinstance(index, _Range):
        return len(range(parts["start"], parts["stop"], parts["step"]))
    return len(parts["data"])


def _numbers(placement: Any, count: int) -> list[int]:
    if isinstance(placement, slice):
        return list(range(count))[placement]
    return [int(place) for place in np.asarray(placement).tolist()]
