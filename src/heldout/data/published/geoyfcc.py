"""The published data frames of GeoYFCC and CLIP-GeoYFCC into rows of a pool.

GeoYFCC      ``yfcc_row_id, label_ids, country, country_id, in_5k_label_ids, is_train, yfcc_metadata``
CLIP-GeoYFCC the same with ``in_imagenet21k_label_indices, continent, region, file_name``

Frames come as Parquet, as a pickle, or as an archive with one pickle in it; a pickle is read only
on request, through the restricted reader. Beside the frame, ``in5k_map.json`` names its classes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, read_json
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.countries import built_in_countries
from heldout.data.published.documents import Progress
from heldout.data.published.geoyfcc_frame import frame_chunks
from heldout.data.published.geoyfcc_metadata import listed_numbers, metadata_fields, plain_value
from heldout.data.published.options import ReaderOptions
from heldout.data.published.report import Problems
from heldout.data.published.rows import Found, Rows
from heldout.data.published.yfcc import SOURCE
from heldout.data.published.yfcc_keys import object_path, photo_key

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDED = ("yfcc_row_id", "country")
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
Columns = Mapping[str, Sequence[Any]]


def read_geoyfcc(
    paths: Sequence[Path], problems: Problems, options: ReaderOptions, progress: Progress
) -> Rows:
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
    chunks = frame_chunks(path, allow_pickle=options.pickle)
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
    classes = _classes(first, maps, problems)
    found = Found(truth="original", images_root=options.images)
    if classes is not None:
        found.space = classes[0]

    def tables() -> Iterator[pa.Table]:
        reading = _Reading(path, problems, options, None if classes is None else classes[1])
        yield reading.table(first)
        for chunk in chunks:
            yield reading.table(chunk)
        found.counts, found.facts = reading.report()

    return Rows(tables(), found)


class _Reading:
    """Turns columns of a frame into rows, and remembers what was odd."""

    def __init__(
        self,
        path: Path,
        problems: Problems,
        options: ReaderOptions,
        classes: Callable[[Columns, int], list[str]] | None,
    ) -> None:
        self._path = path
        self._problems = problems
        self._images = options.images is not None
        self._countries = options.countries or built_in_countries()
        self._classes = classes
        self._country_of = cache((options.countries or built_in_countries()).get)
        self._unknown: Counter[str] = Counter()
        self._done = 0

    def table(self, columns: Columns) -> pa.Table:
        """The rows of one chunk of the frame."""
        import pyarrow as pa

        n = len(columns["yfcc_row_id"])
        text, whole = pa.string(), pa.int64()
        kinds: dict[str, Any] = dict.fromkeys(("image_id", "source", "attribution"), text)
        kinds |= {name: pa.float64() if name in _NUMBERS else text for name in _METADATA}
        kinds |= dict.fromkeys(("country", "country_code", "continent", "region"), text)
        kinds |= {"yfcc_row_id": whole, "country_id": whole, "is_train": pa.bool_()}
        kinds |= {name: pa.list_(whole) for name in _LISTS}
        kinds |= {"file_name": text, "yfcc_metadata": text, "class_ids": pa.list_(text)}
        kinds["path"] = text
        used = {"image_id", "source", "attribution", *_METADATA, "country_code", "continent"}
        used |= {name for name in columns if name in kinds}
        used |= {"class_ids"} if self._classes else set()
        used |= {"path"} if self._images else set()
        try:
            rows = [self._row(columns, i) for i in range(n)]
            table = pa.table(
                {
                    name: pa.array([row.get(name) for row in rows], kind)
                    for name, kind in kinds.items()
                    if name in used
                }
            )
        except (ValueError, TypeError, OverflowError) as error:  # Arrow's own are among them
            raise BadFile(
                self._path, f"has a value of another type ({error})", fix="give the published frame"
            ) from None
        self._done += n
        return table

    def _row(self, columns: Columns, i: int) -> dict[str, Any]:
        made: dict[str, Any] = {"source": SOURCE}
        for name in ("yfcc_row_id", "country_id", "is_train", "region", "continent", "file_name"):
            if name in columns:
                made[name] = plain_value(columns[name][i])
        for name in _LISTS:
            if name in columns:
                made[name] = listed_numbers(columns[name][i])
        made |= self._metadata(columns["yfcc_metadata"][i]) if "yfcc_metadata" in columns else {}
        name = plain_value(columns["country"][i])
        country = self._country_of(name) if isinstance(name, str) else None
        if country is None:
            self._unknown[str(name)] += 1
            made["country"] = name if isinstance(name, str) else None
        else:
            made |= {"country": country.name, "country_code": country.code or None}
            if not made.get("continent") or country in self._countries.own:
                made["continent"] = country.continent
        uri = made.get("uri")
        key = made.get("file_name") or (photo_key(uri) if uri else None)
        if not key and made["yfcc_row_id"] is None:
            raise ValueError(f"row {self._done + i} has neither a key nor a yfcc_row_id")
        made["image_id"] = str(key if key else made["yfcc_row_id"])
        if self._images and key:
            made["path"] = object_path(str(key))
        if self._classes is not None:
            made["class_ids"] = self._classes(columns, i)
        return made

    def _metadata(self, value: Any) -> dict[str, Any]:
        """What the photo's own metadata say; kept whole as JSON beside the columns."""
        fields = metadata_fields(value)
        made: dict[str, Any] = {}
        if not fields:
            if value is not None:
                self._problems.add("metadata of an unknown form, kept as text", f"row {self._done}")
                made["yfcc_metadata"] = str(value)
            return made
        made["yfcc_metadata"] = json.dumps(fields, ensure_ascii=False, default=str)
        for name, theirs in _METADATA.items():
            stated = next(
                (fields[key] for key in theirs if fields.get(key) not in (None, "")), None
            )
            if stated is None:
                continue
            if name in _NUMBERS:
                try:
                    made[name] = float(stated)
                except (TypeError, ValueError):
                    self._problems.add(f"{name} that is no number, left empty", f"row {self._done}")
            else:
                made[name] = str(stated)
        if "nickname" in made:
            made["nickname"] = unquote_plus(made["nickname"])
        who = [made[name] for name in ("nickname", "page_url") if name in made]
        made["attribution"] = ", ".join(who) or None
        return made

    def report(self) -> tuple[dict[str, int], dict[str, Any]]:
        """Counts and facts at the end; unknown countries are problems, the most frequent first."""
        most = sorted(self._unknown.items(), key=lambda item: (-item[1], item[0]))
        for name, times in most:
            self._problems.add(
                "photo of a country that the table does not list, no continent", name, times=times
            )
        facts: dict[str, Any] = {"countries": dict(self._countries.facts)}
        if most:
            facts["unknown_countries"] = dict(most[:100])
        return {"rows": self._done}, facts


def _classes(
    columns: Columns, maps: Sequence[Path], problems: Problems
) -> tuple[LabelSpace, Callable[[Columns, int], list[str]]] | None:
    """The label space of a frame, and how a row's classes are told; None where it cannot be."""
    if "in_imagenet21k_label_indices" in columns:
        space = LabelSpace.load("imagenet-21k")

        def by_position(columns: Columns, i: int) -> list[str]:
            listed = listed_numbers(columns["in_imagenet21k_label_indices"][i]) or []
            good = sorted({place for place in listed if 0 <= place < len(space)})
            if len(good) < len(set(listed)):
                problems.add("position that is no class of imagenet-21k", str(listed))
            return [space.ids[place] for place in good]

        return space, by_position
    if not maps:
        return None
    if "in_5k_label_ids" not in columns:
        raise UserError(
            "a map of classes is given for a frame without in_5k_label_ids", fix="leave it out"
        )
    names = _class_map(maps[0])
    known = LabelSpace.load("wordnet-nodes")
    space = LabelSpace(
        slug(maps[0].stem).lower(),
        tuple(known.get(wnid) for wnid in dict.fromkeys(names.values())),
    )

    def by_label(columns: Columns, i: int) -> list[str]:
        listed = listed_numbers(columns["in_5k_label_ids"][i]) or []
        good = [names[label] for label in listed if label in names]
        if len(good) < len(listed):
            problems.add("label that the map of classes does not list", str(listed))
        return sorted(set(good))

    return space, by_label


def _class_map(path: Path) -> dict[int, str]:
    value = read_json(path)
    known = LabelSpace.load("wordnet-nodes")
    try:
        made = {int(entry["label_id"]): entry["label_name"] for entry in value}
    except (TypeError, KeyError, ValueError):
        raise BadFile(path, "is no map of classes", fix="give in5k_map.json") from None
    unknown = [wnid for wnid in made.values() if wnid not in known]
    if unknown:
        raise BadFile(path, f"names {unknown[0]!r}, which is no WordNet id", fix="mend it")
    return made
