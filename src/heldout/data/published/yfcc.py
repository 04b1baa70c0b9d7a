"""YFCC100M: metadata, places and machine tags into rows of a pool; rejected rows."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote_plus

from heldout.core.errors import BadFile, UserError
from heldout.core.files import atomic_path
from heldout.core.request import unused
from heldout.data.published.countries import CountryLookup
from heldout.data.published.json_stream import Progress, check_file, no_progress
from heldout.data.published.pool_builder import Problems, RowStream
from heldout.data.published.requests import YfccRequest
from heldout.data.published.tag_tables import read_keywords

if TYPE_CHECKING:
    import pyarrow as pa


def photo_key(url: str) -> str:
    """The key of a download address: its MD5, every byte in hexadecimal *without* a leading zero.

    So almost two keys of three are shorter than 32 characters.

    >>> photo_key("http://farm1.staticflickr.com/8/7088065_65c9d45e09.jpg")
    'fe4f6abc6b66599d9db946ca15cb466b'
    """
    digest = hashlib.md5(url.encode("utf-8"), usedforsecurity=False).digest()
    return "".join(f"{byte:x}" for byte in digest)


def object_path(key: str) -> str:
    """Where the public store keeps the file of a key.

    >>> object_path("fe4f6abc6b66599d9db946ca15cb466b")
    'data/images/fe4/f6a/fe4f6abc6b66599d9db946ca15cb466b.jpg'
    """
    return f"data/images/{key[:3]}/{key[3:6]}/{key}.jpg"


_LONGEST = 1 << 28
_TOLD_EVERY = 1 << 14


def lines_of(path: Path, *, progress: Progress = no_progress) -> Iterator[bytes]:
    """The lines of a file without their line ends; a file that breaks off is an error."""
    with check_file(path).open("rb") as raw:
        total = path.stat().st_size
        stream = unpacked(raw)
        number = 0
        while True:
            try:
                line = stream.readline(_LONGEST)
            except (OSError, EOFError, zlib.error) as error:
                raise BadFile(
                    path,
                    f"cannot be unpacked after line {number:,} ({error})",
                    fix="fetch the file again",
                ) from None
            if not line:
                break
            if len(line) == _LONGEST:
                raise BadFile(
                    path,
                    f"line {number + 1:,} is longer than {_LONGEST >> 20} MB",
                    fix="it is not a table of lines",
                )
            number += 1
            if number % _TOLD_EVERY == 0:
                progress(path.name, raw.tell(), total)
            yield line.removesuffix(b"\n").removesuffix(b"\r")
        progress(path.name, total, total)


def fields_of(line: bytes, count: int) -> list[str] | str:
    """The ``count`` tab-separated fields of a line, or what is wrong with it.

    The layout is free of quotes. An empty line is a row of empty fields.
    """
    if b"\r" in line:
        return "a carriage return inside"
    try:
        fields = line.decode("utf-8").split("\t") if line else [""] * count
    except UnicodeDecodeError:
        return "bytes that are no UTF-8"
    return fields if len(fields) == count else f"{_fields(len(fields))} instead of {count}"


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def unpacked(raw: IO[bytes]) -> IO[bytes]:
    """By the first bytes, not by the name: names change, and so does what a mirror packs."""
    magic = raw.read(3)
    raw.seek(0)
    packed: io.BufferedIOBase
    if magic[:2] == b"\x1f\x8b":
        packed = gzip.GzipFile(fileobj=raw)
    elif magic == b"BZh":
        packed = bz2.BZ2File(raw)
    else:
        return raw
    # Their own readline is Python code; a buffer's is not.
    return io.BufferedReader(cast(io.RawIOBase, packed), 1 << 20)


_LISTED = 100
_LONGEST_SHOWN = 2000


class Quarantine:
    """Takes in rows that are malformed; nothing is dropped without a line here.

    All of them go to ``sink`` as JSON lines where one is given; the first hundred are ``listed``,
    without their text.
    """

    def __init__(self, problems: Problems, sink: IO[str] | None = None) -> None:
        self._problems = problems
        self._sink = sink
        self.listed: list[dict[str, Any]] = []
        self.count = 0

    def add(self, path: Path, line: int, reason: str, text: bytes) -> None:
        """One row: its line number counts from 1 in its file."""
        self.count += 1
        where = f"{path.name} line {line}"
        self._problems.add(f"row in quarantine: {reason}", where, image_lost=True)
        entry: dict[str, Any] = {"file": path.name, "line": line, "reason": reason}
        if len(self.listed) < _LISTED:
            self.listed.append(entry)
        if self._sink is not None:
            shown = text[:_LONGEST_SHOWN].decode("utf-8", "backslashreplace")
            self._sink.write(json.dumps(entry | {"text": shown}, ensure_ascii=False) + "\n")


PackKind = Literal["places", "autotags"]
_PLACE = re.compile(rb"(?:^|,)\d+:[^,]*:[A-Za-z+]+(?:,|$)")
_AUTOTAG = re.compile(rb"^[^,:\t]+:[01]?\.?\d+(?:e-?\d+)?(?:,|$)")


def pack_kind(path: Path) -> PackKind | None:
    """What a file of two fields a line is, by its first line with a second field; None for others."""
    first = [line for line in islice(lines_of(path), 200) if line]
    if 2 * sum(line.count(b"\t") == 1 for line in first) <= len(first):
        return None
    for line in lines_of(path):
        text = line.partition(b"\t")[2]
        if _AUTOTAG.search(text):
            return "autotags"
        if text and not _PLACE.search(text):
            raise BadFile(
                path,
                f"has {text[:40].decode('utf-8', 'replace')!r}, neither places nor autotags",
                fix="give yfcc100m_places or yfcc100m_autotags",
            )
        if text:
            break
    return "places"


class Pack:
    """An expansion pack, read beside the metadata: line i of one is line i of the other."""

    def __init__(
        self, kind: PackKind, paths: Sequence[Path], problems: Problems, progress: Progress
    ) -> None:
        self.kind = kind
        self._problems = problems
        self._path = paths[0]
        self._lines = self._all_lines(paths, progress)
        self._done = 0

    def _all_lines(self, paths: Sequence[Path], progress: Progress) -> Iterator[bytes]:
        for self._path in paths:
            yield from lines_of(self._path, progress=progress)

    def beside(self, photo_id: str | None, where: Path, number: int) -> str:
        """The text of the next line, which belongs to line ``number`` of the metadata ``where``.

        ``photo_id``  the id there, which must be that of the line here; None for a malformed row

        A line without two fields has no text and is noted; another id is an error.
        """
        line = next(self._lines, None)
        if line is None:
            raise self._unlike(
                f"ends after {self._done:,} lines, before line {number:,} of {where}"
            )
        self._done += 1
        fields = fields_of(line, 2)
        if isinstance(fields, str):
            place = f"{self._path.name} line {self._done}"
            self._problems.add(f"line of {self.kind} with {fields}, not used", place)
            return ""
        if photo_id not in (None, fields[0]):
            raise self._unlike(
                f"does not stand beside {where.name}: line {number:,} is photo {photo_id} there "
                f"and {fields[0]} here"
            )
        return fields[1]

    def finish(self, where: Path) -> None:
        """Refuse a pack that goes on where the metadata ended."""
        if next(self._lines, None) is not None:
            raise self._unlike(f"goes on after line {self._done:,}, where {where.name} ends")

    def _unlike(self, what: str) -> BadFile:
        return BadFile(self._path, what, fix="give the packs of the same files, whole and in order")


def country_entries(text: str) -> list[str]:
    """All countries of a places text, in order.

    >>> country_entries("23424977:United+States:Country,55959673:Los+Angeles:Time+Zone")
    ['United States']
    """
    found = []
    for entry in text.split(","):
        _, _, rest = entry.partition(":")
        name, colon, kind = rest.rpartition(":")
        if colon and kind == "Country":
            found.append(unquote_plus(name).strip())
    return found


def autotags_in(text: str, min_score: float) -> list[str]:
    """The concepts of an autotags text with at least this score."""
    found = []
    for entry in text.split(","):
        concept, _, score = entry.rpartition(":")
        if concept and _NUMBER.fullmatch(score) and float(score) >= min_score:
            found.append(unquote_plus(concept))
    return found


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


Photo = dict[str, Any]
"""A well-formed line: its fields by the names of columns, still encoded; ``where`` it is, its
``row_id`` in the archive, and what packs have on the same line (``places``, ``autotags``)."""


def read_yfcc(
    paths: Sequence[Path], problems: Problems, options: YfccRequest, progress: Progress
) -> RowStream:
    """The rows of YFCC100M files; packs are recognised by their lines.

    Several files of one kind follow one another, as the published parts do; packs stand beside all
    of them, line by line.
    """
    files: dict[str, list[Path]] = {"core": [], "places": [], "autotags": []}
    for path in paths:
        files[pack_kind(path) or "core"].append(path)
    if not files["core"]:
        raise UserError("no file of metadata is given", fix="name yfcc100m_dataset too")
    if not files["autotags"]:
        unused(options, "files without autotags", "min_score")
    rows = RowStream()
    rows.tables = _tables(files, problems, options, progress, rows)
    return rows


def _tables(
    files: dict[str, list[Path]],
    problems: Problems,
    options: YfccRequest,
    progress: Progress,
    made: RowStream,
) -> Iterator[pa.Table]:
    kinds: tuple[PackKind, ...] = ("places", "autotags")
    packs = [Pack(kind, files[kind], problems, progress) for kind in kinds if files[kind]]
    lookup = CountryLookup(options.countries, problems, options.coordinates)
    keywords = None if options.keywords is None else read_keywords(options.keywords)
    counts = {"rows": 0, "videos": 0} | ({} if keywords is None else {"without_keyword": 0})
    with ExitStack() as stack:
        sink = None
        if options.quarantine is not None:  # written whole or not at all
            temporary = stack.enter_context(atomic_path(options.quarantine))
            sink = stack.enter_context(temporary.open("w", encoding="utf-8"))
        aside = Quarantine(problems, sink)
        for lines in metadata_lines(files["core"], aside, packs=packs, progress=progress):
            counts["rows"] += len(lines)
            photos = [line for line in lines if line["marker"] == "0"]
            counts["videos"] += len(lines) - len(photos)
            if keywords is not None:
                for photo in photos:
                    photo["class_ids"] = keywords.classes_of(_list(photo["usertags"]))
                counts["without_keyword"] += sum(not photo["class_ids"] for photo in photos)
                photos = [photo for photo in photos if photo["class_ids"]]
            if photos:
                yield _table(photos, lookup, options, problems)
        for pack in packs:
            pack.finish(files["core"][-1])
    made.counts = {**counts, "quarantined": aside.count, **lookup.report()}
    made.facts = {"quarantined": aside.count, "quarantine": aside.listed, **lookup.facts}
    if keywords is not None:
        made.space = keywords.space
        made.facts["keywords"] = dict(keywords.facts)


def _table(
    photos: list[Photo], lookup: CountryLookup, options: YfccRequest, problems: Problems
) -> pa.Table:
    """The rows of photos with what packs and coordinates say of them."""
    import pyarrow as pa

    text, whole, real, texts = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())
    kinds: dict[str, Any] = {"tags": texts, "machine_tags": texts}
    kinds |= {"row_id": whole, "date_uploaded": whole, "accuracy": whole}
    kinds |= {"longitude": real, "latitude": real}
    rows = [photo_row(photo, problems) for photo in photos]
    columns: dict[str, Any] = {
        name: pa.array([row[name] for row in rows], kinds.get(name, text)) for name in rows[0]
    }
    shown = [
        f"{photo['where'].partition(' line ')[0]} photo {photo['photoid']}" for photo in photos
    ]
    countries = [country_entries(photo.get("places", "")) for photo in photos]
    for listed, name in zip(countries, shown, strict=True):
        if len(set(listed)) > 1:
            problems.add("photo in two countries, the first kept", name)
    named = [next(iter(listed), "") for listed in countries]
    at = [columns[name].to_numpy(zero_copy_only=False) for name in ("latitude", "longitude")]
    columns |= lookup.columns(named, at[0], at[1], shown)
    if "autotags" in photos[0]:
        found = [autotags_in(photo["autotags"], options.min_score) for photo in photos]
        columns["autotags"] = pa.array(found, texts)
    if "class_ids" in photos[0]:
        columns["class_ids"] = pa.array([photo["class_ids"] for photo in photos], texts)
    if options.images is not None:
        columns["path"] = pa.array([object_path(row["image_id"]) for row in rows], text)
    return pa.table(columns)


def layout(path: Path) -> tuple[str, ...]:
    """The columns of a file of metadata, by the number of fields of its first lines."""
    counts = [line.count(b"\t") + 1 for line in islice(lines_of(path), _SHOWN) if line]
    known = {23: COLUMNS_23, 25: COLUMNS_25}
    fits = {number: counts.count(number) for number in known}
    number = max(fits, key=lambda number: fits[number])
    if not fits[number]:
        found = _fields(counts[0]) if counts else "no lines"
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
) -> Iterator[list[Photo]]:
    """The well-formed lines of files of metadata, in batches; the others are in quarantine."""
    counted = 0
    for path in paths:
        columns = layout(path)
        lines = enumerate(lines_of(path, progress=progress), start=1)
        while numbered := list(islice(lines, BATCH)):
            found = []
            for number, text in numbered:
                fields = _checked(text, columns)
                photo_id = None if isinstance(fields, str) else fields["photoid"]
                beside: Photo = {pack.kind: pack.beside(photo_id, path, number) for pack in packs}
                if isinstance(fields, str):
                    aside.add(path, number, fields, text)
                else:
                    row_id = int(fields.get("line", counted))
                    where = f"{path.name} line {number}"
                    photo: Photo = {"row_id": row_id, "where": where}
                    found.append(photo | fields | beside)
                counted += 1
            yield found


def _checked(text: bytes, columns: tuple[str, ...]) -> dict[str, str] | str:
    """The fields of a line by name, or what is wrong with it."""
    values = fields_of(text, len(columns))
    if isinstance(values, str):
        return values
    if not text:
        return "an empty line"
    fields = dict(zip(columns, values, strict=True))
    if not _PHOTO_ID.fullmatch(fields["photoid"]):
        return "a photo id that is not a number"
    if not fields["downloadurl"]:
        return "no download address"
    if fields["marker"] not in ("0", "1"):
        return "a marker that is not 0 or 1"
    if "line" in fields and not _LINE_NUMBER.fullmatch(fields["line"]):
        return "a line number that is none"
    stated = fields.get("hash") if fields["marker"] == "0" else None
    if stated is not None and stated != photo_key(fields["downloadurl"]):
        return "a photo hash that is not that of its address"
    return fields


def photo_row(photo: Photo, problems: Problems) -> dict[str, Any]:
    """The row of a photo, decoded; what is not stated is None."""

    def number(name: str, pattern: re.Pattern[str], kind: type, most: float) -> Any:
        """A number; what is none, or beyond ±``most``, is left empty and counted."""
        stated = photo[name]
        value = kind(stated) if pattern.fullmatch(stated) else None
        if value is not None and abs(value) <= most:
            return value
        if stated:
            problems.add(f"{name} that is no proper number, left empty", photo["where"])
        return None

    texts = {name: unquote_plus(photo[of]) for name, of in _TEXTS.items()}
    row = {
        "image_id": photo_key(photo["downloadurl"]),
        "uri": photo["downloadurl"],
        "source": SOURCE,
        "licence": photo["licensename"],
        "attribution": ", ".join(filter(None, (texts["nickname"], photo["pageurl"]))),
        "row_id": photo["row_id"],
        "photo_id": photo["photoid"],
        **texts,
        "date_taken": photo["datetaken"].replace("null", ""),
        "date_uploaded": number("dateuploaded", _WHOLE, int, math.inf),
        "longitude": number("longitude", _NUMBER, float, 180),
        "latitude": number("latitude", _NUMBER, float, 90),
        "accuracy": number("accuracy", _WHOLE, int, 16),
        "page_url": photo["pageurl"],
        "licence_url": photo["licenseurl"],
        "tags": _list(photo["usertags"]),
        "machine_tags": _list(photo["machinetags"]),
    }
    return {name: None if value == "" else value for name, value in row.items()}


def _list(text: str) -> list[str]:
    return [unquote_plus(entry) for entry in text.split(",") if entry]
