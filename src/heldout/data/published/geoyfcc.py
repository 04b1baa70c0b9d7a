"""The published data frames of GeoYFCC and CLIP-GeoYFCC, read without pandas, into rows of a pool."""

from __future__ import annotations

import gzip
import itertools
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import unquote_plus

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, read_json
from heldout.core.unpickle import load_pickle
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.countries import CountryLookup
from heldout.data.published.json_stream import Progress
from heldout.data.published.pool_builder import Found, Problems, RowStream
from heldout.data.published.requests import GeoYfcc
from heldout.data.published.yfcc import COLUMNS_23, COLUMNS_25, SOURCE, object_path, photo_key

if TYPE_CHECKING:
    import pyarrow as pa


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
"""What replaces the names that a pickled frame has."""


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


def frame_chunks(path: Path) -> Iterator[dict[str, Sequence[Any]]]:
    """The columns of a frame, some rows at a time: Parquet, a pickle, or an archive with one."""
    with path.open("rb") as handle:
        magic = handle.read(4)
    if magic == b"PAR1":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches(batch_size=_CHUNK):
            yield {name: batch.column(name).to_pylist() for name in batch.schema.names}
        return
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
        raise TypeError("the names of columns are not a plain array")
    names: list[str] = np.asarray(data).tolist()
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a column's name is not text")
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


def metadata_fields(value: Any) -> dict[str, Any]:
    """The fields of a photo's metadata: an object, JSON, or a line of the archive; {} for others."""
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            try:
                value = json.loads(value)
            except ValueError:
                return {}
        else:
            value = value.rstrip("\n").split("\t")
    if isinstance(value, list | tuple) and len(value) in (23, 25):
        value = dict(zip(COLUMNS_23 if len(value) == 23 else COLUMNS_25, value, strict=True))
    if not isinstance(value, Mapping):
        return {}
    return {str(key): plain_value(entry) for key, entry in value.items()}


def plain_value(value: Any) -> Any:
    """A NumPy scalar as Python's own; NaN for nothing."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    return None if isinstance(value, float) and value != value else value


def listed_numbers(value: Any) -> list[int] | None:
    """Labels as a list: a list of numbers, or one number."""
    value = plain_value(value)
    if value is None:
        return None
    return [int(entry) for entry in (value if isinstance(value, list | tuple | set) else [value])]


_NEEDED = ("yfcc_row_id", "country")
_PLAIN = ("yfcc_row_id", "country_id", "is_train", "region", "continent", "file_name")
_LISTS = ("label_ids", "in_5k_label_ids", "in_imagenet21k_label_indices")
_METADATA = {
    "uid": ("uid", "userid", "user_id"),
    "nickname": ("unickname", "nickname"),
    "licence": ("licensename", "license_name", "license"),
    "licence_url": ("licenseurl", "license_url"),
    "page_url": ("pageurl", "page_url"),
    "uri": ("downloadurl", "download_url", "url"),
    "date_taken": ("datetaken", "date_taken"),
    "photo_id": ("photoid", "photo_id"),
    "longitude": ("longitude",),
    "latitude": ("latitude",),
}
_NUMBERS = ("longitude", "latitude")
_ALWAYS = {"image_id", "source", "attribution", *_METADATA, "country_code", "continent"}
Columns = Mapping[str, Sequence[Any]]


def read_geoyfcc(
    paths: Sequence[Path], problems: Problems, options: GeoYfcc, progress: Progress
) -> RowStream:
    """The rows of one published frame, and the names of its classes where a map is given too."""
    for path in paths:
        existing_file(path, "file")
    maps = [path for path in paths if path.suffix.lower() == ".json"]
    frames = [path for path in paths if path not in maps]
    if len(frames) != 1 or len(maps) > 1:
        raise UserError(
            f"{len(frames)} frames and {len(maps)} maps of classes are given",
            fix="give one frame, and in5k_map.json where it is at hand",
        )
    path = frames[0]
    chunks = frame_chunks(path)
    first = next(chunks, None)
    if first is None:
        raise BadFile(path, "has no rows", fix="fetch it again")
    missing = [name for name in _NEEDED if name not in first]
    if missing:
        raise BadFile(
            path,
            f"has no column {missing[0]!r}",
            fix=f"it has {', '.join(first)}; give the published frame",
        )
    classes = _classes(first, maps)
    found = Found(truth="original")
    if classes is not None:
        found.space = classes.space

    def tables() -> Iterator[pa.Table]:
        rows = _FrameRows(problems, options, classes)
        for chunk in itertools.chain([first], chunks):
            try:
                yield rows.table(chunk)
            except (ValueError, TypeError, OverflowError) as error:  # Arrow's own are among them
                raise BadFile(
                    path, f"has a value of another type ({error})", fix="give the published frame"
                ) from None
        rows.lookup.report()
        found.counts, found.facts = {"rows": rows.done}, rows.lookup.facts

    return RowStream(tables(), found)


@dataclass(frozen=True)
class _Classes:
    """The label space of a frame: class ids by the numbers that ``column`` lists."""

    space: LabelSpace
    column: str
    ids: Mapping[int, str]
    problem: str


class _FrameRows:
    """Turns columns of a frame into rows, and remembers what was odd."""

    def __init__(self, problems: Problems, options: GeoYfcc, classes: _Classes | None) -> None:
        self._problems = problems
        self._images = options.images is not None
        self._classes = classes
        self.lookup = CountryLookup(options.countries, problems)
        self.done = 0

    def table(self, columns: Columns) -> pa.Table:
        """The rows of one chunk of the frame."""
        import pyarrow as pa

        text, whole = pa.string(), pa.int64()
        kinds: dict[str, Any] = dict.fromkeys(("image_id", "source", "attribution"), text)
        kinds |= {name: pa.float64() if name in _NUMBERS else text for name in _METADATA}
        kinds |= dict.fromkeys(("country", "country_code", "continent", "region"), text)
        kinds |= {"yfcc_row_id": whole, "country_id": whole, "is_train": pa.bool_()}
        kinds |= {name: pa.list_(whole) for name in _LISTS}
        kinds |= {"file_name": text, "yfcc_metadata": text, "class_ids": pa.list_(text)}
        kinds["path"] = text
        used = _ALWAYS | set(columns)
        used |= {"class_ids"} if self._classes else set()
        used |= {"path"} if self._images else set()
        rows = [self._row(columns, i) for i in range(len(columns["yfcc_row_id"]))]
        self.done += len(rows)
        return pa.table(
            {
                name: pa.array([row.get(name) for row in rows], kind)
                for name, kind in kinds.items()
                if name in used
            }
        )

    def _row(self, columns: Columns, i: int) -> dict[str, Any]:
        made: dict[str, Any] = {"source": SOURCE}
        made |= {name: plain_value(columns[name][i]) for name in _PLAIN if name in columns}
        made |= {name: listed_numbers(columns[name][i]) for name in _LISTS if name in columns}
        if "yfcc_metadata" in columns:
            made |= self._metadata(columns["yfcc_metadata"][i])
        name = plain_value(columns["country"][i])
        country = self.lookup.by_name(str(name))
        if country is None:
            made["country"] = name if isinstance(name, str) else None
        else:
            made |= {"country": country.name, "country_code": country.code or None}
            if not made.get("continent") or country in self.lookup.countries.own:
                made["continent"] = country.continent
        uri = made.get("uri")
        key = made.get("file_name") or (photo_key(uri) if uri else None)
        if not key and made["yfcc_row_id"] is None:
            raise ValueError(f"row {self.done + i} has neither a key nor a yfcc_row_id")
        made["image_id"] = str(key if key else made["yfcc_row_id"])
        if self._images and key:
            made["path"] = object_path(str(key))
        if self._classes is not None:
            listed, ids = made[self._classes.column] or [], self._classes.ids
            if any(number not in ids for number in listed):
                self._problems.add(self._classes.problem, str(listed))
            made["class_ids"] = sorted({ids[number] for number in listed if number in ids})
        return made

    def _metadata(self, value: Any) -> dict[str, Any]:
        """What the photo's own metadata say; kept whole as JSON beside the columns."""
        fields = metadata_fields(value)
        if not fields:
            if value is None:
                return {}
            self._problems.add("metadata of an unknown form, kept as text", f"row {self.done}")
            return {"yfcc_metadata": str(value)}
        made: dict[str, Any] = {
            "yfcc_metadata": json.dumps(fields, ensure_ascii=False, default=str)
        }
        for name, theirs in _METADATA.items():
            stated = next(
                (fields[key] for key in theirs if fields.get(key) not in (None, "")), None
            )
            if stated is None:
                continue
            try:
                made[name] = float(stated) if name in _NUMBERS else str(stated)
            except (TypeError, ValueError):
                self._problems.add(f"{name} that is no number, left empty", f"row {self.done}")
        if "nickname" in made:
            made["nickname"] = unquote_plus(made["nickname"])
        who = [made[name] for name in ("nickname", "page_url") if name in made]
        made["attribution"] = ", ".join(who) or None
        return made


def _classes(columns: Columns, maps: Sequence[Path]) -> _Classes | None:
    """What the labels of a frame mean; None where that is not known."""
    column = "in_imagenet21k_label_indices"
    if column in columns:
        space = LabelSpace.load("imagenet-21k")
        ids = dict(enumerate(space.ids))
        return _Classes(space, column, ids, "position that is no class of imagenet-21k")
    if not maps:
        return None
    column = "in_5k_label_ids"
    if column not in columns:
        raise UserError(
            f"a map of classes is given for a frame without {column}", fix="leave it out"
        )
    names = _class_map(maps[0])
    known = LabelSpace.load("wordnet-nodes")
    classes = tuple(known.get(wnid) for wnid in dict.fromkeys(names.values()))
    space = LabelSpace(slug(maps[0].stem).lower(), classes)
    return _Classes(space, column, names, "label that the map of classes does not list")


def _class_map(path: Path) -> dict[int, str]:
    value = read_json(path)
    known = LabelSpace.load("wordnet-nodes")
    try:
        made = {int(entry["label_id"]): entry["label_name"] for entry in value}
    except (TypeError, KeyError, ValueError):
        raise BadFile(path, "is not a map of classes", fix="give in5k_map.json") from None
    unknown = [wnid for wnid in made.values() if wnid not in known]
    if unknown:
        raise BadFile(path, f"names {unknown[0]!r}, which is not a WordNet id", fix="correct it")
    return made
