"""YFCC100M into rows of a pool: metadata, places and machine tags, countries, classes by keyword.

| here | there |
|---|---|
| ``image_id`` | the photo's key, from its download address |
| ``uri``, ``page_url`` | ``downloadurl``, ``pageurl`` |
| ``licence``, ``licence_url``, ``attribution`` | ``licensename``, ``licenseurl``; nickname and page |
| ``row_id`` | the line number from 0: stated (25 columns) or counted (23) |
| ``photo_id``, ``uid``, ``nickname`` | ``photoid``, ``uid``, ``unickname`` |
| ``date_taken``, ``date_uploaded`` | ``datetaken`` as text, as it may say 4501; Unix seconds |
| ``device``, ``title``, ``description`` | decoded |
| ``tags``, ``machine_tags`` | lists, split first and decoded then, as a tag may have a comma |
| ``longitude``, ``latitude``, ``accuracy`` | numbers, null where not stated |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from heldout.core.errors import BadFile, UserError
from heldout.data.published.documents import Progress, no_progress
from heldout.data.published.options import ReaderOptions
from heldout.data.published.places import Pack, PackKind, autotags_in, pack_kind
from heldout.data.published.places_countries import Locating
from heldout.data.published.report import Problems
from heldout.data.published.rows import Found, Rows
from heldout.data.published.yfcc_keys import object_path, photo_key
from heldout.data.published.yfcc_lines import counted_fields, fields_of, lines_of
from heldout.data.published.yfcc_quarantine import Quarantine, quarantine

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_23 = (
    "photoid",
    "uid",
    "unickname",
    "datetaken",
    "dateuploaded",
    "capturedevice",
    "title",
    "description",
    "usertags",
    "machinetags",
    "longitude",
    "latitude",
    "accuracy",
    "pageurl",
    "downloadurl",
    "licensename",
    "licenseurl",
    "serverid",
    "farmid",
    "secret",
    "secretoriginal",
    "ext",
    "marker",
)
"""The columns of the first release and of its database."""
COLUMNS_25 = ("line", "photoid", "hash", *COLUMNS_23[1:])
"""The columns of the later single file: a line number from 0 first, the photo's key third."""
SOURCE = "YFCC100M"
"""What the column ``source`` says."""
BATCH = 1 << 14
"""Lines that become one table; what is held at a time."""
_SHOWN = 200
_PHOTO_ID = re.compile(r"[0-9]{1,20}")
_LINE_NUMBER = re.compile(r"[0-9]{1,18}")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_TEXTS = {
    "uid": "uid",
    "nickname": "unickname",
    "device": "capturedevice",
    "title": "title",
    "description": "description",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A well-formed line of metadata.

    ``number``  of the line in its file, from 1
    ``row_id``  of the photo in the archive
    ``fields``  by the names of the columns, still encoded
    ``beside``  what the packs have on the same line, by kind
    """

    path: Path
    number: int
    row_id: int
    text: bytes
    fields: dict[str, str]
    beside: dict[PackKind, str | None]

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"{self.path.name} line {self.number}"


def read_yfcc(
    paths: Sequence[Path], problems: Problems, options: ReaderOptions, progress: Progress
) -> Rows:
    """The rows of YFCC100M files; packs are told from metadata by their lines.

    Several files of one kind follow one another, as the published parts do; packs stand beside all
    of them, line by line.
    """
    files: dict[str, list[Path]] = {"core": [], "places": [], "autotags": []}
    for path in paths:
        files[pack_kind(path) or "core"].append(path)
    if not files["core"]:
        raise UserError("no file of metadata is given", fix="name yfcc100m_dataset too")
    found = Found(images_root=options.images)
    return Rows(_tables(files, problems, options, progress, found), found)


def _tables(
    files: dict[str, list[Path]],
    problems: Problems,
    options: ReaderOptions,
    progress: Progress,
    found: Found,
) -> Iterator[pa.Table]:
    kinds: tuple[PackKind, ...] = ("places", "autotags")
    packs = [Pack(kind, files[kind], progress=progress) for kind in kinds if files[kind]]
    locating = Locating(options.countries, options.coordinates, problems)
    counts = Counter({"rows": 0, "videos": 0, "without_keyword": 0})
    with ExitStack() as stack:
        aside = stack.enter_context(quarantine(problems, options.quarantine))
        for lines in metadata_lines(files["core"], aside, packs=packs, progress=progress):
            counts["rows"] += len(lines)
            photos = [line for line in lines if line.fields["marker"] == "0"]
            counts["videos"] += len(lines) - len(photos)
            yield from _batch(photos, locating, options, problems, aside, counts)
        for pack in packs:
            pack.finish(files["core"][-1])
    located = locating.report()
    if options.keywords is None:
        del counts["without_keyword"]
    else:
        found.space = options.keywords.space
    found.counts = {**counts, "quarantined": aside.count, **located}
    found.facts = {**aside.facts, **locating.facts}


def _batch(
    photos: list[Line],
    locating: Locating,
    options: ReaderOptions,
    problems: Problems,
    aside: Quarantine,
    counts: Counter[str],
) -> Iterator[pa.Table]:
    import pyarrow as pa

    if options.keywords is not None:
        tags = [_list(photo.fields["usertags"]) for photo in photos]
        classes = options.keywords.classes_of(pa.array(tags, pa.list_(pa.string()))).to_pylist()
        numbers = [photo.number for photo in photos]
        class_ids = {number: ids for number, ids in zip(numbers, classes, strict=True) if ids}
        counts["without_keyword"] += len(photos) - len(class_ids)
        photos = [photo for photo in photos if photo.number in class_ids]
    photos = with_their_keys(photos, aside)
    if not photos:
        return
    table = photo_table(photos, problems)
    places = [photo.beside["places"] for photo in photos] if "places" in photos[0].beside else None
    for name, column in locating.columns(table, places, photos[0].path.name).items():
        table = table.append_column(name, column)
    lists = pa.list_(pa.string())
    if "autotags" in photos[0].beside:
        found = [autotags_in(photo.beside["autotags"], options.min_score) for photo in photos]
        table = table.append_column("autotags", pa.array(found, lists))
    if options.keywords is not None:
        ids = [class_ids[photo.number] for photo in photos]
        table = table.append_column("class_ids", pa.array(ids, lists))
    if options.images is not None:
        paths = [object_path(key) for key in table["image_id"].to_pylist()]
        table = table.append_column("path", pa.array(paths, pa.string()))
    yield table


def layout(path: Path) -> tuple[str, ...]:
    """The columns of a file of metadata, by the number of fields of its first lines."""
    counts = [line.count(b"\t") + 1 for line in islice(lines_of(path), _SHOWN) if line]
    known = {23: COLUMNS_23, 25: COLUMNS_25}
    fits = {number: counts.count(number) for number in known}
    number = max(fits, key=lambda number: fits[number])
    if not fits[number]:
        found = counted_fields(counts[0]) if counts else "no lines"
        raise BadFile(
            path,
            f"has {found} where YFCC100M has 23 or 25",
            fix="give yfcc100m_dataset, tab-separated, without a header",
        )
    return known[number]


def metadata_lines(
    paths: Sequence[Path],
    aside: Quarantine,
    *,
    packs: Sequence[Pack] = (),
    progress: Progress = no_progress,
) -> Iterator[list[Line]]:
    """The well-formed lines of files of metadata, in batches; the others are in quarantine.

    Quarantine is settled after the caller is done with a batch, since it may add to it.
    """
    counted = 0
    for path in paths:
        columns = layout(path)
        lines = enumerate(lines_of(path, progress=progress), start=1)
        while numbered := list(islice(lines, BATCH)):
            found = []
            for number, text in numbered:
                fields = _checked(text, columns)
                photo_id = None if isinstance(fields, str) else fields["photoid"]
                beside = {pack.kind: pack.beside(photo_id, path, number, aside) for pack in packs}
                if isinstance(fields, str):
                    aside.add(path, number, fields, text)
                else:
                    row_id = int(fields.get("line", counted))
                    found.append(Line(path, number, row_id, text, fields, beside))
                counted += 1
            yield found
            aside.settle()


def _checked(text: bytes, columns: tuple[str, ...]) -> dict[str, str] | str:
    """The fields of a line by name, or what is wrong with it."""
    values = fields_of(text, len(columns))
    if isinstance(values, str):
        return values
    if not text:
        return "an empty line"
    fields = dict(zip(columns, values, strict=True))
    if not _PHOTO_ID.fullmatch(fields["photoid"]):
        return "a photo id that is no number"
    if not fields["downloadurl"]:
        return "no download address"
    if fields["marker"] not in ("0", "1"):
        return "a marker that is not 0 or 1"
    if "line" in fields and not _LINE_NUMBER.fullmatch(fields["line"]):
        return "a line number that is none"
    return fields


def with_their_keys(photos: list[Line], aside: Quarantine) -> list[Line]:
    """Those that do not state another key than their address has, which go to quarantine."""
    kept = []
    for photo in photos:
        stated = photo.fields.get("hash")
        if stated is not None and stated != photo_key(photo.fields["downloadurl"]):
            reason = "a photo hash that is not that of its address"
            aside.add(photo.path, photo.number, reason, photo.text)
        else:
            kept.append(photo)
    return kept


def photo_table(photos: Sequence[Line], problems: Problems) -> pa.Table:
    """The rows of photos, decoded."""
    import pyarrow as pa

    def column(name: str) -> list[str]:
        return [photo.fields[name] for photo in photos]

    def number(name: str, parsed: Callable[[str], Any], most: float | None = None) -> list[Any]:
        """A column of numbers; what is none, or beyond ±``most``, is left empty and counted."""
        values, lost = [], []
        for photo in photos:
            text = photo.fields[name]
            value = parsed(text)
            if most is not None and value is not None and abs(value) > most:
                value = None
            if text and value is None:
                lost.append(photo.where)
            values.append(value)
        if lost:
            kind = f"{name} that is no proper number, left empty"
            problems.add(kind, lost[0], times=len(lost))
        return values

    def decoded(name: str) -> list[str]:
        texts = [unquote_plus(photo.fields[_TEXTS[name]]) for photo in photos]
        broken = [
            photo.where
            for photo, text in zip(photos, texts, strict=True)
            if "\ufffd" in text and not _states_replacement(photo.fields[_TEXTS[name]])
        ]
        if broken:
            problems.add(f"{name} that is no UTF-8 once decoded", broken[0], times=len(broken))
        return texts

    texts = {name: decoded(name) for name in _TEXTS}
    pages = column("pageurl")
    credits = zip(texts["nickname"], pages, strict=True)
    attributions = [", ".join(filter(None, credit)) for credit in credits]
    dates = ["" if text == "null" else text for text in column("datetaken")]
    lists = pa.list_(pa.string())
    return pa.table(
        {
            "image_id": pa.array(map(photo_key, column("downloadurl")), pa.string()),
            "uri": pa.array(column("downloadurl"), pa.string()),
            "source": pa.repeat(pa.scalar(SOURCE), len(photos)),
            "licence": _or_null(column("licensename")),
            "attribution": _or_null(attributions),
            "row_id": pa.array([photo.row_id for photo in photos], pa.int64()),
            "photo_id": pa.array(column("photoid"), pa.string()),
            **{name: _or_null(values) for name, values in texts.items()},
            "date_taken": _or_null(dates),
            "date_uploaded": pa.array(number("dateuploaded", _whole), pa.int64()),
            "longitude": pa.array(number("longitude", _real, 180), pa.float64()),
            "latitude": pa.array(number("latitude", _real, 90), pa.float64()),
            "accuracy": pa.array(number("accuracy", _whole, 16), pa.int64()),
            "page_url": _or_null(pages),
            "licence_url": _or_null(column("licenseurl")),
            "tags": pa.array(map(_list, column("usertags")), lists),
            "machine_tags": pa.array(map(_list, column("machinetags")), lists),
        }
    )


def _list(text: str) -> list[str]:
    return [unquote_plus(entry) for entry in text.split(",") if entry]


def _states_replacement(text: str) -> bool:
    """Whether an encoded text has U+FFFD of its own."""
    return "\ufffd" in text or "%EF%BF%BD" in text.upper()


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _real(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _or_null(texts: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array([text or None for text in texts], pa.string())
