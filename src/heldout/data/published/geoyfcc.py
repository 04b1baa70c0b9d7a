"""The published data frames of GeoYFCC and CLIP-GeoYFCC, read without pandas, into rows of a pool."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, parse_json, read_json
from heldout.core.tables import parquet_batches
from heldout.core.unpickle import load_pickle
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.countries import CountryLookup
from heldout.data.published.json_stream import Progress
from heldout.data.published.pool_builder import Problems, RowStream
from heldout.data.published.requests import GeoYfccRequest
from heldout.data.published.yfcc import SOURCE, object_path, photo_key, unpacked

if TYPE_CHECKING:
    import pyarrow as pa


_CHUNK = 50_000


class _Record:
    """Takes whatever a pickle gives to a constructor or as state, and does nothing with it."""

    given: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *given: Any) -> _Record:
        made = super().__new__(cls)
        made.given = given
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Frame(_Record):
    pass


class _Manager(_Record):
    pass


class _Range(_Record):
    pass


def _new_index(kind: type, parts: Any) -> _Record:
    return kind(parts) if isinstance(kind, type) and issubclass(kind, _Record) else _Record(parts)


def _block(values: Any, placement: Any, ndim: int = 2) -> tuple[Any, Any]:
    return values, placement


_BASE = "pandas.core.indexes"
STAND_INS: Mapping[tuple[str, str], Any] = {
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): _Manager,
    ("pandas.core.internals", "BlockManager"): _Manager,
    ("pandas._libs.internals", "_unpickle_block"): _block,
    ("pandas._libs.internals", "BlockPlacement"): lambda value: value,
    (f"{_BASE}.base", "_new_Index"): _new_index,
    (f"{_BASE}.base", "Index"): _Record,
    (f"{_BASE}.numeric", "Int64Index"): _Record,
    (f"{_BASE}.range", "RangeIndex"): _Range,
    ("pandas", "Index"): _Record,
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
        for batch in parquet_batches(path, size=_CHUNK):
            yield {name: batch.column(name).to_pylist() for name in batch.schema.names}
        return
    if tarfile.is_tarfile(path):
        frame = _from_archive(path)
    else:
        with path.open("rb") as raw:
            frame = read_frame(unpacked(raw), path)
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
    if manager.given:
        blocks, axes = manager.given[:2]
    else:  # up to pandas 1.2: (axes, values, items, {"0.14.1": {"axes": …, "blocks": […]}})
        state = manager.state[3]["0.14.1"]
        blocks = [(block["values"], block["mgr_locs"]) for block in state["blocks"]]
        axes = state["axes"]
    data, rows = axes[0].given[0]["data"], axes[1].given[0]
    if isinstance(data, _Record):  # an array of pandas' own
        raise TypeError("the names of columns are not a plain array")
    names: list[str] = np.asarray(data).tolist()
    if isinstance(axes[1], _Range):
        count = len(range(rows["start"], rows["stop"], rows["step"]))
    else:
        count = len(rows["data"])
    found: dict[int, NDArray[Any]] = {}
    for values, places in blocks:
        if isinstance(places, slice):
            places = np.arange(len(names))[places]
        if not isinstance(values, np.ndarray) or values.shape != (len(places), count):
            raise TypeError("a block is not an array of the shape of its columns")
        found.update(zip(map(int, places), values, strict=True))
    if sorted(found) != list(range(len(names))) or len(set(map(str, names))) < len(names):
        raise ValueError("columns are missing, or two have one name")
    return {str(name): found[place] for place, name in enumerate(names)}


def _plain(value: Any) -> Any:
    """A NumPy value as Python's own; NaN for nothing."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return None if isinstance(value, float) and value != value else value


def _numbers(value: Any) -> list[int] | None:
    """Labels as a list: a list of numbers, or one number."""
    value = _plain(value)
    if value is None:
        return None
    return [int(entry) for entry in (value if isinstance(value, list | tuple | set) else [value])]


_NEEDED = ("yfcc_row_id", "country")
_PLAIN = ("yfcc_row_id", "country_id", "is_train", "region", "continent", "file_name")
_LISTS = ("label_ids", "in_5k_label_ids", "in_imagenet21k_label_indices")
_METADATA = {
    "uid": "uid",
    "nickname": "unickname",
    "licence": "licensename",
    "licence_url": "licenseurl",
    "page_url": "pageurl",
    "uri": "downloadurl",
    "date_taken": "datetaken",
    "photo_id": "photoid",
    "longitude": "longitude",
    "latitude": "latitude",
}
"""Columns of a pool, and what the photo's own metadata call them."""
_FLOATS = ("longitude", "latitude")
_ALWAYS = {"image_id", "source", "attribution", *_METADATA, "country_code", "continent"}
Columns = Mapping[str, Sequence[Any]]


def read_geoyfcc(
    paths: Sequence[Path], problems: Problems, options: GeoYfccRequest, progress: Progress
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
    made = RowStream(truth="original", space=None if classes is None else classes.space)

    def tables() -> Iterator[pa.Table]:
        lookup = CountryLookup(options.countries, problems)
        done = 0
        for chunk in itertools.chain([first], chunks):
            count = len(chunk["yfcc_row_id"])
            try:
                rows = [
                    _row(chunk, i, done + i, classes, options, lookup, problems)
                    for i in range(count)
                ]
                yield _table(rows, _ALWAYS | set(chunk))
            except (ValueError, TypeError, OverflowError) as error:  # Arrow's own are among them
                raise BadFile(
                    path, f"has a value of another type ({error})", fix="give the published frame"
                ) from None
            done += count
        lookup.report()
        made.counts, made.facts = {"rows": done}, lookup.facts

    made.tables = tables()
    return made


@dataclass(frozen=True)
class _Classes:
    """The label space of a frame: class ids by the numbers that ``column`` lists."""

    space: LabelSpace
    column: str
    ids: Mapping[int, str]
    problem: str


def _table(rows: Sequence[Mapping[str, Any]], used: set[str]) -> pa.Table:
    """Rows of a frame in the columns that all of its rows have."""
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    kinds: dict[str, Any] = dict.fromkeys(("image_id", "source", "attribution"), text)
    kinds |= {name: pa.float64() if name in _FLOATS else text for name in _METADATA}
    kinds |= dict.fromkeys(("country", "country_code", "continent", "region"), text)
    kinds |= {"yfcc_row_id": whole, "country_id": whole, "is_train": pa.bool_()}
    kinds |= {name: pa.list_(whole) for name in _LISTS}
    kinds |= {"file_name": text, "yfcc_metadata": text, "class_ids": pa.list_(text), "path": text}
    used = used | rows[0].keys() if rows else used
    return pa.table(
        {
            name: pa.array([row.get(name) for row in rows], kind)
            for name, kind in kinds.items()
            if name in used
        }
    )


def _row(
    columns: Columns,
    i: int,
    number: int,
    classes: _Classes | None,
    options: GeoYfccRequest,
    lookup: CountryLookup,
    problems: Problems,
) -> dict[str, Any]:
    """Row ``i`` of a chunk, which is row ``number`` of the frame."""
    made: dict[str, Any] = {"source": SOURCE}
    made |= {name: _plain(columns[name][i]) for name in _PLAIN if name in columns}
    made |= {name: _numbers(columns[name][i]) for name in _LISTS if name in columns}
    if "yfcc_metadata" in columns:
        made |= _metadata(columns["yfcc_metadata"][i], f"row {number}", problems)
    name = _plain(columns["country"][i])
    country = lookup.by_name(str(name))
    if country is None:
        made["country"] = name if isinstance(name, str) else None
    else:
        made |= {"country": country.name, "country_code": country.code or None}
        if not made.get("continent") or country in lookup.countries.own:
            made["continent"] = country.continent
    uri = made.get("uri")
    key = made.get("file_name") or (photo_key(uri) if uri else None)
    if not key and made["yfcc_row_id"] is None:
        raise ValueError(f"row {number} has neither a key nor a yfcc_row_id")
    made["image_id"] = str(key or made["yfcc_row_id"])
    if options.images is not None:
        made["path"] = object_path(str(key)) if key else None
    if classes is not None:
        listed, ids = made[classes.column] or [], classes.ids
        if any(label not in ids for label in listed):
            problems.add(classes.problem, str(listed))
        made["class_ids"] = sorted({ids[label] for label in listed if label in ids})
    return made


def _metadata(value: Any, where: str, problems: Problems) -> dict[str, Any]:
    """What the photo's own metadata say; kept whole as JSON beside the columns."""
    fields = value
    if isinstance(value, str):
        try:
            fields = parse_json(value)
        except ValueError:
            fields = None
    if value is None:
        return {}
    if not isinstance(fields, Mapping):
        problems.add("metadata of an unknown form, kept as text", where)
        return {"yfcc_metadata": str(value)}
    fields = {str(key): _plain(entry) for key, entry in fields.items()}
    text = json.dumps(fields, ensure_ascii=False, default=str)
    made: dict[str, Any] = {"yfcc_metadata": text}
    for name, theirs in _METADATA.items():
        stated = fields.get(theirs)
        if stated in (None, ""):
            continue
        try:
            made[name] = float(stated) if name in _FLOATS else str(stated)
        except (TypeError, ValueError):
            problems.add(f"{name} that is not a number, left empty", where)
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
    path, known = maps[0], LabelSpace.load("wordnet-nodes")
    try:
        names = {int(entry["label_id"]): entry["label_name"] for entry in read_json(path)}
    except (TypeError, KeyError, ValueError):
        raise BadFile(path, "is not a map of classes", fix="give in5k_map.json") from None
    listed = tuple(known.get(wnid) for wnid in dict.fromkeys(names.values()))
    space = LabelSpace(slug(path.stem).lower(), listed)
    return _Classes(space, column, names, "label that the map of classes does not list")
