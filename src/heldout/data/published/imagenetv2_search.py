"""Candidates that a search found: ImageNetV2's ids and records, and sources of the same shape.

However candidates were found (a search, published records of one, a table of addresses), they become
rows with the same columns, and each has one class.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from heldout.core import schema
from heldout.core.files import write_text
from heldout.core.tables import read_table_file, require_column
from heldout.core.workspace import slug
from heldout.data.labels.label_space import LabelSpace, class_ids_of
from heldout.data.published.imagenetv2 import read_classes
from heldout.data.published.json_stream import Progress
from heldout.data.published.pool_builder import Problems, RowStream, pixels, plain_text
from heldout.data.published.requests import AddressesRequest, SearchResultsRequest

if TYPE_CHECKING:
    import pyarrow as pa

FLICKR = "flickr"
WEB = "web"
TRUTH = "original"
_WEB_ADDRESS = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)


def is_web_address(text: object) -> bool:
    """Whether something is the address of a file on the web."""
    return bool(plain_text(text) and _WEB_ADDRESS.fullmatch(str(text)))


def candidate_id(photo: str, engine: str = FLICKR, class_id: str | None = None) -> str:
    """The id of a photo as a candidate; of one that is a candidate of another class too, with its class.

    >>> candidate_id("7243017850", class_id="n02687172")
    '4fc86d606b61ebfb178eac0bbd0d7e0029ef5ae5'
    """
    text = f"{photo}{engine}" if class_id is None else f"{photo},{engine},{class_id}"
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class CandidateIds:
    """Ids of photos as candidates, in the order in which they come: the first wins.

    A photo that comes again for its class has none; for another class it is another candidate.
    """

    def __init__(self) -> None:
        self._taken: set[tuple[str, str, str]] = set()
        self._photos: set[tuple[str, str]] = set()

    def take(self, photo: str, engine: str, class_id: str, stated: str = "") -> str | None:
        """The id of a photo for a class; None where the class has it already.

        ``stated``  the id that a file gives it, where that may be the one with the class
        """
        if (photo, engine, class_id) in self._taken:
            return None
        self._taken.add((photo, engine, class_id))
        own = candidate_id(photo, engine, class_id)
        if stated == own or (photo, engine) in self._photos:
            return own
        self._photos.add((photo, engine))
        return candidate_id(photo, engine)


class SearchRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One photo that a search found for a class, as ImageNetV2 published it, in its order of fields.

    ``id_ours``          the candidate's id; ``id_search_engine`` the photo's
    ``url_type``         which of the photo's sizes ``url`` is
    ``wnid``             the class; ``search_key`` the term that was searched for
    ``max_images``       how many images of the class were asked for
    ``width``, ``height``  pixels, where they are known
    ``licence``, ``owner``, ``owner_name``  not published; of our own searches

    Dates are texts ``YYYY-MM-DD HH:MM:SS``, those of windows days; an empty one is not known. A field
    that is not known is refused: it would be lost when the file is written again.
    """

    id_ours: str
    id_search_engine: str
    url: str
    url_type: str = ""
    wnid: str
    search_key: str = ""
    search_engine: str
    uploader: str = ""
    date_upload_our_db: str = ""
    date_taken: str = ""
    date_upload_search_engine: str = ""
    width: int | str | None = None
    height: int | str | None = None
    max_taken_date: str = ""
    max_uploaded_date: str = ""
    min_taken_date: str = ""
    min_uploaded_date: str = ""
    search_sort: str = ""
    max_images: int = 0
    batch: str | UnsetType = UNSET
    licence: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    owner_name: str | UnsetType = UNSET

    def outside_windows(self) -> list[str]:
        """Where the photo lies outside the days that were asked for, the last of them included."""
        found = []
        for what, day, first, last in (
            ("taken", self.date_taken[:10], self.min_taken_date, self.max_taken_date),
            (
                "uploaded",
                self.date_upload_search_engine[:10],
                self.min_uploaded_date,
                self.max_uploaded_date,
            ),
        ):
            if not day and (first or last):
                found.append(f"{what}_unknown")
            elif first and day < first:
                found.append(f"{what}_before")
            elif last and day > last:
                found.append(f"{what}_after")
        return found


def read_search(path: Path) -> list[SearchRecord]:
    """The records of a file of search results, in its order."""
    fix = "give a JSON list of search records of ImageNetV2's shape"
    return schema.read(path, list[SearchRecord], fix=fix)


def write_search(path: Path, records: Iterable[SearchRecord]) -> None:
    """Write search records in the published form."""
    write_text(path, json.dumps(msgspec.to_builtins(list(records)), indent=2, ensure_ascii=False))


def candidate_rows(records: Sequence[SearchRecord]) -> pa.Table:
    """Candidates as rows of a pool, each with its class in a list ``class_ids``."""
    import pyarrow as pa

    def sized(value: object) -> int | None:  # published files have numbers, texts and nulls
        return pixels(int(value) if isinstance(value, str) and value.isdecimal() else value)

    def column(name: str, otherwise: str = "") -> Any:
        values = (
            next((v for v in (getattr(record, n, "") for n in (name, otherwise)) if v), None)
            for record in records
        )
        return pa.array(values, pa.string())

    return pa.table(
        {
            "image_id": column("id_ours"),
            "uri": column("url"),
            "width": pa.array([sized(record.width) for record in records], pa.int32()),
            "height": pa.array([sized(record.height) for record in records], pa.int32()),
            "source": column("search_engine"),
            "licence": column("licence"),
            "attribution": column("owner_name", "owner"),
            "owner": column("owner"),
            "photo_id": column("id_search_engine"),
            "url_type": column("url_type"),
            "search_key": column("search_key"),
            "date_taken": column("date_taken"),
            "date_upload": column("date_upload_search_engine"),
            "class_ids": pa.array([[record.wnid] for record in records], pa.list_(pa.string())),
        }
    )


def candidate_stream(
    records: Iterable[SearchRecord], space: LabelSpace, counts: dict[str, int]
) -> RowStream:
    """Records, each with its own id, as rows of a pool with their classes as the truth."""
    return RowStream(iter([candidate_rows(list(records))]), space=space, truth=TRUTH, counts=counts)


def first_of_each(records: Iterable[SearchRecord], tally: Counter[str]) -> Iterator[SearchRecord]:
    """Records with the ids of their candidates; a photo that its class has already is counted.

    An address that a table gives an id keeps it.
    """
    ids = CandidateIds()
    plain: dict[tuple[str, str], str] = {}
    for record in records:
        if record.search_engine == WEB and record.id_ours:
            yield record
            continue
        photo = (record.id_search_engine, record.search_engine)
        image = ids.take(*photo, record.wnid, record.id_ours)
        if image is None:
            tally["duplicates"] += 1
            continue
        tally["of_another_class_too"] += plain.setdefault(photo, record.wnid) != record.wnid
        yield record if record.id_ours == image else msgspec.structs.replace(record, id_ours=image)


def read_search_results(
    paths: Sequence[Path], problems: Problems, options: SearchResultsRequest, progress: Progress
) -> RowStream:
    """The candidates of files of search results, which are read in the order of their names.

    Records outside the windows of their search are counted; they were candidates all the same.
    """
    space = read_classes(options.classes or "imagenet-1k")
    tally: Counter[str] = Counter(records=0, duplicates=0, of_another_class_too=0)

    def usable(path: Path) -> Iterator[SearchRecord]:
        progress(str(path), 0, None)
        for number, record in enumerate(read_search(path), 1):
            where = f"{path.name} record {number:,}"
            tally["records"] += 1
            tally.update(f"outside_window_{reason}" for reason in record.outside_windows())
            photo, engine = record.id_search_engine, record.search_engine
            if record.wnid not in space:
                problems.add(
                    f"class that {space.name} does not have, left out", where, image_lost=True
                )
            elif record.id_ours not in (
                candidate_id(photo, engine),
                candidate_id(photo, engine, record.wnid),
            ):
                problems.add("id that is not its photo's, left out", where, image_lost=True)
            elif not is_web_address(record.url):
                problems.add("record without a web address, left out", where, image_lost=True)
            else:
                yield record

    ordered = sorted(paths, key=lambda path: path.name)
    kept = list(first_of_each(chain.from_iterable(map(usable, ordered)), tally))
    return candidate_stream(kept, space, dict(tally))


_NAMES = {
    "url": ("uri", "url", "address"),
    "wnid": ("class_id", "class"),
    "licence": ("licence", "license"),
    "owner": ("owner", "attribution"),
    "id_ours": ("image_id",),
    "width": ("width",),
    "height": ("height",),
    "date_taken": ("date_taken",),
    "date_upload_search_engine": ("date_upload",),
    "search_key": ("search_key",),
}
"""What a column of a table of addresses may be called."""


def read_addresses(
    paths: Sequence[Path], problems: Problems, options: AddressesRequest, progress: Progress
) -> RowStream:
    """The candidates of tables of image addresses; without ids, they get them as photos do."""
    tables = []
    for path in paths:
        progress(str(path), 0, None)
        tables.append((path, _address_columns(path)))
    if options.classes is None:
        named = {str(label) for _, table in tables for label in table["wnid"] if label is not None}
        space = LabelSpace.from_ids(slug(paths[0].stem).lower(), sorted(named))
    else:
        space = read_classes(options.classes)
    tally: Counter[str] = Counter(records=0, duplicates=0, of_another_class_too=0)

    def usable(path: Path, table: dict[str, list[Any]]) -> Iterator[SearchRecord]:
        labels = class_ids_of(table["wnid"], label_space=space, label_kind="id", path=path)
        for row, label in enumerate(labels):
            tally["records"] += 1
            said = {name: values[row] for name, values in table.items()}
            url = said["url"]
            if not is_web_address(url):
                where = f"{path.name} row {row + 1:,}"
                problems.add("row without a web address, left out", where, image_lost=True)
                continue
            fields: dict[str, Any] = {
                name: value if name in ("width", "height") else str(value)
                for name, value in said.items()
                if value is not None
            }
            own = {"url": url, "wnid": label, "id_search_engine": url, "search_engine": WEB}
            yield SearchRecord(**{"id_ours": "", **fields, **own})

    kept = list(first_of_each(chain.from_iterable(usable(*each) for each in tables), tally))
    return candidate_stream(kept, space, dict(tally))


def _address_columns(path: Path) -> dict[str, list[Any]]:
    table = read_table_file(path)
    found: dict[str, list[Any]] = {}
    for field, names in _NAMES.items():
        name = next((name for name in names if name in table.column_names), None)
        if name is not None:
            found[field] = table[name].to_pylist()
        elif field in ("url", "wnid"):
            require_column(
                table, names[0], path, "image addresses" if field == "url" else "classes"
            )
    return found
