"""YFCC100M: metadata, places and machine tags into rows of a pool; rejected rows; countries."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote_plus

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, MissingExtra, NotFound, UserError
from heldout.core.files import atomic_path
from heldout.data.published.countries import Countries, Country, built_in_countries
from heldout.data.published.json_stream import Progress, no_progress
from heldout.data.published.options import ReaderOptions
from heldout.data.published.pool_builder import Found, Problems, RowStream

if TYPE_CHECKING:
    import pyarrow as pa


_SIXTEEN = "%x" * 16


def photo_key(url: str) -> str:
    """The key of a download address: its MD5, every byte in hexadecimal *without* a leading zero.

    So almost two keys of three are shorter than 32 characters.

    >>> photo_key("http://farm1.staticflickr.com/8/7088065_65c9d45e09.jpg")
    'fe4f6abc6b66599d9db946ca15cb466b'
    """
    digest = hashlib.md5(url.encode("utf-8"), usedforsecurity=False).digest()
    return _SIXTEEN % tuple(digest)


def object_path(key: str, *, video: bool = False) -> str:
    """Where the public store keeps the file of a key.

    >>> object_path("fe4f6abc6b66599d9db946ca15cb466b")
    'data/images/fe4/f6a/fe4f6abc6b66599d9db946ca15cb466b.jpg'
    """
    folder, ending = ("videos/mp4", "mp4") if video else ("images", "jpg")
    return f"data/{folder}/{key[:3]}/{key[3:6]}/{key}.{ending}"


_LONGEST = 1 << 28
_MARK = b"\xef\xbb\xbf"
_TOLD_EVERY = 1 << 14


def lines_of(path: Path, *, progress: Progress = no_progress) -> Iterator[bytes]:
    """The lines of a file without their line ends; a file that breaks off is an error."""
    with _opened(path) as raw:
        total = path.stat().st_size
        stream = _unpacked(raw)
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
                    fix="it is no table of lines",
                )
            if not number:
                line = line.removeprefix(_MARK)
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
    return fields if len(fields) == count else f"{counted_fields(len(fields))} instead of {count}"


def counted_fields(count: int) -> str:
    """So many fields, in words."""
    return "1 field" if count == 1 else f"{count} fields"


def _opened(path: Path) -> IO[bytes]:
    if not path.exists():
        raise NotFound(f"no file {path}", fix="check the path")
    if path.is_dir():
        raise BadFile(path, "is a folder", fix="name the files in it")
    if path.stat().st_size == 0:
        raise BadFile(path, "is empty", fix="fetch or write the file again")
    return path.open("rb")


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
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

    All of them go to ``sink`` as JSON lines where one is given; the first hundred are in ``facts``,
    without their text.
    """

    def __init__(self, problems: Problems, sink: IO[str] | None = None) -> None:
        self._problems = problems
        self._sink = sink
        self._listed: list[dict[str, Any]] = []
        self._waiting: list[tuple[int, str, Path, bytes]] = []
        self.count = 0

    def add(self, path: Path, line: int, reason: str, text: bytes = b"") -> None:
        """One row: its line number counts from 1 in its file."""
        self.count += 1
        self._waiting.append((line, reason, path, text))

    def settle(self) -> None:
        """Put down what was added, by line; called after each block, as its checks come in turn."""
        for line, reason, path, text in sorted(self._waiting, key=lambda row: row[0]):
            where = f"{path.name} line {line}"
            self._problems.add(f"row in quarantine: {reason}", where, image_lost=True)
            entry: dict[str, Any] = {"file": path.name, "line": line, "reason": reason}
            if len(self._listed) < _LISTED:
                self._listed.append(entry)
            if self._sink is not None:
                shown = text[:_LONGEST_SHOWN].decode("utf-8", "backslashreplace")
                self._sink.write(json.dumps(entry | {"text": shown}, ensure_ascii=False) + "\n")
        self._waiting.clear()

    def note(self, path: Path, line: int, what: str) -> None:
        """Something odd on a line by which no photo is lost."""
        self._problems.add(f"{what}, not used", f"{path.name} line {line}")

    @property
    def facts(self) -> dict[str, Any]:
        """What a pool remembers of it."""
        return {"quarantined": self.count, "quarantine": list(self._listed)}


@contextmanager
def quarantine(problems: Problems, to: Path | None) -> Iterator[Quarantine]:
    """A quarantine that is written to ``to`` as JSON lines, whole or not at all."""
    if to is None:
        yield Quarantine(problems)
        return
    with atomic_path(to) as temporary, temporary.open("w", encoding="utf-8") as sink:
        yield Quarantine(problems, sink)


PackKind = Literal["places", "autotags"]
_PLACE = re.compile(rb"(?:^|,)\d+:[^,]*:[A-Za-z+]+(?:,|$)")
_AUTOTAG = re.compile(rb"^[^,:\t]+:[01]?\.?\d+(?:e-?\d+)?(?:,|$)")
_SCORED = re.compile(r"(?P<concept>.+):(?P<score>[0-9.eE+-]+)")


def pack_kind(path: Path) -> PackKind | None:
    """What a file of two fields a line is, by its first line with a second field; None for others."""
    first = [line for line in islice(lines_of(path), 200) if line]
    if 2 * sum(line.count(b"\t") == 1 for line in first) <= len(first):
        return None
    for line in lines_of(path):
        text = line.partition(b"\t")[2]
        if _PLACE.search(text):
            return "places"
        if _AUTOTAG.search(text):
            return "autotags"
        if text:
            raise BadFile(
                path,
                f"has {text[:40].decode('utf-8', 'replace')!r}, neither places nor autotags",
                fix="give yfcc100m_places or yfcc100m_autotags",
            )
    # Nothing in it: then the name tells, and it does not matter much.
    return "autotags" if "autotag" in path.name else "places"


class Pack:
    """An expansion pack, read beside the metadata: line i of one is line i of the other."""

    def __init__(
        self, kind: PackKind, paths: Sequence[Path], *, progress: Progress = no_progress
    ) -> None:
        self.kind = kind
        self._path = paths[0]
        self._lines = self._all_lines(paths, progress)
        self._done = 0

    def _all_lines(self, paths: Sequence[Path], progress: Progress) -> Iterator[bytes]:
        for self._path in paths:
            yield from lines_of(self._path, progress=progress)

    def beside(
        self, photo_id: str | None, where: Path, number: int, quarantine: Quarantine
    ) -> str | None:
        """The text of the next line, which stands beside line ``number`` of the metadata ``where``.

        ``photo_id``  the id there, which must be that of the line here; None for a malformed row

        A line without two fields has no text and is noted; another id is an error.
        """
        line = next(self._lines, None)
        if line is None:
            raise BadFile(
                self._path,
                f"ends after {self._done:,} lines, before line {number:,} of {where}",
                fix="give the packs of the same files, whole",
            )
        self._done += 1
        fields = fields_of(line, 2)
        if isinstance(fields, str):
            quarantine.note(self._path, self._done, f"line of {self.kind} with {fields}")
            return None
        if photo_id not in (None, fields[0]):
            raise BadFile(
                self._path,
                f"does not stand beside {where.name}: line {number:,} is photo {photo_id} there "
                f"and {fields[0]} here",
                fix="give the packs of the same files, in the same order",
            )
        return fields[1]

    def finish(self, where: Path) -> None:
        """Refuse a pack that goes on where the metadata ended."""
        if next(self._lines, None) is not None:
            raise BadFile(
                self._path,
                f"goes on after line {self._done:,}, where {where.name} ends",
                fix="give the packs of the same files, whole",
            )


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


def autotags_in(text: str | None, min_score: float) -> list[str]:
    """The concepts of an autotags text with at least this score."""
    found = []
    for entry in (text or "").split(","):
        parts = _SCORED.fullmatch(entry)
        if parts and _score(parts["score"]) >= min_score:
            found.append(unquote_plus(parts["concept"]))
    return found


def _score(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


class CountryLookup:
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
        from heldout.data.published.countries import known_towns

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
class PhotoLine:
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
) -> RowStream:
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
    return RowStream(_tables(files, problems, options, progress, found), found)


def _tables(
    files: dict[str, list[Path]],
    problems: Problems,
    options: ReaderOptions,
    progress: Progress,
    found: Found,
) -> Iterator[pa.Table]:
    kinds: tuple[PackKind, ...] = ("places", "autotags")
    packs = [Pack(kind, files[kind], progress=progress) for kind in kinds if files[kind]]
    lookup = CountryLookup(options.countries, options.coordinates, problems)
    counts = Counter({"rows": 0, "videos": 0, "without_keyword": 0})
    with ExitStack() as stack:
        aside = stack.enter_context(quarantine(problems, options.quarantine))
        for lines in metadata_lines(files["core"], aside, packs=packs, progress=progress):
            counts["rows"] += len(lines)
            photos = [line for line in lines if line.fields["marker"] == "0"]
            counts["videos"] += len(lines) - len(photos)
            yield from _batch(photos, lookup, options, problems, aside, counts)
        for pack in packs:
            pack.finish(files["core"][-1])
    located = lookup.report()
    if options.keywords is None:
        del counts["without_keyword"]
    else:
        found.space = options.keywords.space
    found.counts = {**counts, "quarantined": aside.count, **located}
    found.facts = {**aside.facts, **lookup.facts}


def _batch(
    photos: list[PhotoLine],
    lookup: CountryLookup,
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
    for name, column in lookup.columns(table, places, photos[0].path.name).items():
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
) -> Iterator[list[PhotoLine]]:
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
                    found.append(PhotoLine(path, number, row_id, text, fields, beside))
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


def with_their_keys(photos: list[PhotoLine], aside: Quarantine) -> list[PhotoLine]:
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


def photo_table(photos: Sequence[PhotoLine], problems: Problems) -> pa.Table:
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
