"""Fetching a published test set: the registry, mirrors, resumable downloads."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import atomic_path, read_json, read_versioned_json, write_json
from heldout.core.workspace import check_slug

if TYPE_CHECKING:
    import httpx


BUILT_IN = Path(__file__).with_name("registry.toml")
SCHEMA_VERSION = 1
LAYOUTS = (
    "arrays",
    "class-index-folders",
    "class-name-folders",
    "flat",
    "wordnet-folders",
)
"""How images and classes are laid out inside the files of a published test set.

``arrays``               NumPy arrays of images and of labels
``class-index-folders``  one folder a class, named by its place in the label space: 0, 1, 10, ...
``class-name-folders``   one folder a class, named by a name of the class
``wordnet-folders``      one folder a class, named by its WordNet id
``flat``                 images without folders; the classes come from elsewhere
"""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """One file of a published test set. What is not publicly known is None.

    Every mirror serves the same bytes, so a download may go on at another one.
    """

    name: str
    mirrors: tuple[str, ...] = ()
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None

    @property
    def has_checksum(self) -> bool:
        """Whether a checksum of the whole file is known beforehand."""
        return self.sha256 is not None or self.md5 is not None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published test set: what it is, under which terms, and the files it comes in.

    ``layout`` is one of :data:`LAYOUTS`; ``inside`` the folder in the archive that holds the
    images. ``by_hand`` says how a person gets the files where terms have to be accepted first.
    """

    name: str
    title: str
    homepage: str
    licence: str
    citation: str
    label_space: str
    layout: str
    files: tuple[PublishedFile, ...]
    aliases: tuple[str, ...] = ()
    images: int | None = None
    inside: str = ""
    by_hand: str = ""

    @property
    def bytes(self) -> int | None:
        """The size of all files together, or None while one is not known."""
        sizes = [file.bytes for file in self.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


def load(path: Path | None = None) -> tuple[Published, ...]:
    """Read a registry: the built-in one, or the user's own file of the same form."""
    import tomllib

    path = path or BUILT_IN
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"no registry at {path}", fix="check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFile(path, f"not valid TOML ({error})", fix="correct the file") from None
    version = value.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise BadFile(
            path,
            f"has schema_version {version!r}, this heldout reads {SCHEMA_VERSION}",
            fix=f"write schema_version = {SCHEMA_VERSION}, or upgrade heldout",
        )
    reader = _Reader(path)
    rows = reader.take(value, "testset", list, "the registry")
    reader.end(value, "the registry")
    entries = tuple(reader.entry(row, f"test set {n + 1}") for n, row in enumerate(rows))
    seen: set[str] = set()
    for entry in entries:
        for name in (entry.name, *entry.aliases):
            if name in seen:
                raise BadFile(path, f"has two test sets called {name!r}", fix="rename one")
            seen.add(name)
    return entries


def find(entries: Sequence[Published], name: str) -> Published:
    """The test set of this name or alias."""
    for entry in entries:
        if name == entry.name or name in entry.aliases:
            return entry
    names = ", ".join(entry.name for entry in entries)
    raise NotFound(f"no published test set {name!r} in the registry", fix=f"there is {names}")


class _Reader:
    """Takes fields out of parsed TOML; what is wrong is said with the file and the place."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def bad(self, where: str, message: str) -> BadFile:
        return BadFile(self.path, f"{where} {message}", fix="correct the registry")

    def take(
        self, row: dict[str, Any], key: str, kind: type, where: str, default: Any = ...
    ) -> Any:
        if key not in row and default is not ...:
            return default
        value = row.pop(key, None)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.bad(where, f"needs {key} as {kind.__name__}")
        return value

    def texts(self, row: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
        values = self.take(row, key, list, where, [])
        if not all(isinstance(value, str) for value in values):
            raise self.bad(where, f"needs {key} as a list of texts")
        return tuple(values)

    def end(self, row: dict[str, Any], where: str) -> None:
        if row:
            raise self.bad(where, f"has the unknown field {sorted(row)[0]!r}")

    def entry(self, row: Any, where: str) -> Published:
        if not isinstance(row, dict):
            raise self.bad(where, "is no table")
        row = dict(row)
        name = check_slug(self.take(row, "name", str, where), "a test set")
        where = f"test set {name}"
        files = self.take(row, "file", list, where)
        entry = Published(
            name=name,
            files=tuple(self.file(each, where) for each in files),
            aliases=tuple(check_slug(a, "an alias") for a in self.texts(row, "aliases", where)),
            images=self.take(row, "images", int, where, None),
            inside=self.take(row, "inside", str, where, ""),
            by_hand=self.take(row, "by_hand", str, where, ""),
            **{
                key: self.take(row, key, str, where)
                for key in ("title", "homepage", "licence", "citation", "label_space", "layout")
            },
        )
        self.end(row, where)
        names = [file.name for file in entry.files]
        if not names or len(set(names)) < len(names):
            raise self.bad(where, "needs one or more files, each with its own name")
        if entry.layout not in LAYOUTS:
            raise self.bad(where, f"has layout {entry.layout!r}, not one of {', '.join(LAYOUTS)}")
        if not entry.by_hand and not all(file.mirrors for file in entry.files):
            raise self.bad(where, "needs mirrors for every file, or by_hand")
        return entry

    def file(self, row: Any, where: str) -> PublishedFile:
        if not isinstance(row, dict):
            raise self.bad(where, "has a file that is no table")
        row = dict(row)
        file = PublishedFile(
            name=self.take(row, "name", str, where),
            mirrors=self.texts(row, "mirrors", where),
            bytes=self.take(row, "bytes", int, where, None),
            sha256=self.take(row, "sha256", str, where, None),
            md5=self.take(row, "md5", str, where, None),
        )
        self.end(row, where)
        if not _FILE_NAME.match(file.name):
            raise self.bad(where, f"has the file name {file.name!r}, which is no plain name")
        for kind, text, digits in (("sha256", file.sha256, 64), ("md5", file.md5, 32)):
            if text is not None and not re.fullmatch(f"[0-9a-f]{{{digits}}}", text):
                raise self.bad(where, f"has a {kind} that is not {digits} lower-case hex digits")
        if file.bytes is not None and file.bytes < 0:
            raise self.bad(where, "has a file of negative size")
        for mirror in file.mirrors:
            if not mirror.startswith(("https://", "http://")):
                raise self.bad(where, f"has the mirror {mirror!r}, which is no web address")
        return file


Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are there, and the bytes in all where known."""

_ENOUGH = 1 << 20  # bytes that make an attempt worth another row of attempts
_RETRY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_PAUSE = 60.0
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")
_MARKUP = re.compile(rb"\s*<(!doctype|html|head|body|\?xml|error)", re.IGNORECASE)


class MirrorFailed(Exception):
    """This mirror does not give the file; ``str`` says why in a few words."""


class _TryAgain(Exception):
    """This attempt failed in a way that may pass; ``wait`` is what the server asked for."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often and how long to try one mirror.

    ``attempts`` in a row without a further mebibyte end it; ``pause`` seconds come before the
    second, doubled for each further one.
    """

    attempts: int = 5
    pause: float = 1.0
    sleep: Callable[[float], None] = time.sleep


def new_client() -> httpx.Client:
    """A client for downloads; proxies and certificates come from the environment."""
    from importlib.metadata import PackageNotFoundError, version

    import httpx

    try:
        name = f"heldout/{version('heldout')}"
    except PackageNotFoundError:  # run from the source tree
        name = "heldout/source"
    return httpx.Client(
        follow_redirects=True,
        timeout=httpx.Timeout(60.0, connect=20.0),
        headers={"User-Agent": name, "Accept-Encoding": "identity"},
    )


def download(
    url: str,
    part: Path,
    handle: BinaryIO,
    *,
    file: PublishedFile,
    client: httpx.Client,
    patience: Patience,
    progress: Progress,
) -> bool:
    """Bring ``part`` to its full length from ``url``, going on where it stands.

    ``handle`` is the part as :func:`holding` opened it. Beside it lies ``<part>.json`` with the
    address and the validator it came with, so that a file that changed on the server is never
    joined to an older beginning. Returns whether the part was joined from several answers.
    """
    import httpx

    failures = 0
    while True:
        before = handle.seek(0, 2)
        try:
            return _attempt(url, part, handle, file=file, client=client, progress=progress)
        except (_TryAgain, httpx.TransportError) as error:
            gained = handle.seek(0, 2) - before
            failures = 1 if gained >= _ENOUGH else failures + 1
            if failures >= patience.attempts:
                raise MirrorFailed(_say(error)) from None
            asked = error.wait if isinstance(error, _TryAgain) else 0.0
            wait = max(asked, patience.pause * 2 ** (failures - 1))
            patience.sleep(min(wait, _LONGEST_PAUSE))
        except httpx.HTTPError as error:  # too many redirects and the like
            raise MirrorFailed(_say(error)) from None
        except httpx.InvalidURL as error:
            raise MirrorFailed(f"is not a web address ({error})") from None


def discard(part: Path) -> None:
    """Forget a part that leads nowhere."""
    part.unlink(missing_ok=True)
    _state_path(part).unlink(missing_ok=True)


def _attempt(
    url: str,
    part: Path,
    handle: BinaryIO,
    *,
    file: PublishedFile,
    client: httpx.Client,
    progress: Progress,
) -> bool:
    have = handle.seek(0, 2)
    headers = _resume_headers(url, part, have, file)
    if not headers:
        have = 0
    with client.stream("GET", url, headers=headers) as response:
        _check_answer(response, url, file)
        if response.status_code == 416:
            # Either the part is whole already, or it is of another file.
            if have and have == _total_of_416(response):
                return True
            handle.truncate(0)
            raise _TryAgain("the server has less than the part that is here")
        if response.status_code == 206:
            start, total = _range_of(response)
            if start != have:
                handle.truncate(0)
                raise _TryAgain(f"asked for bytes from {have}, got them from {start}")
        else:
            start, total = 0, _length_of(response)
        _receive(
            response, url, part, handle, start=start, total=total, file=file, progress=progress
        )
    return start > 0


def _receive(
    response: httpx.Response,
    url: str,
    part: Path,
    handle: BinaryIO,
    *,
    start: int,
    total: int | None,
    file: PublishedFile,
    progress: Progress,
) -> None:
    """Write the body of a good answer into the part, from byte ``start`` on."""
    import httpx

    got = start
    try:
        # Raw: an archive that a server labels as compressed must arrive as it is.
        chunks = response.iter_raw()
        first = next(chunks, b"")
        if start == 0:
            _check_start(first, file)
        _check_total(total, file, response)
        if start == 0:  # only now is an earlier part given up
            handle.truncate(0)
            _write_state(url, part, response)
        handle.seek(start)
        for chunk in chain([first], chunks):
            got += len(chunk)
            if total is not None and got > total:
                handle.truncate(0)
                raise MirrorFailed(f"sends more than the {total} bytes it promised")
            handle.write(chunk)
            handle.flush()  # what is on disk when the process dies can be gone on from
            progress(file.name, got, total)
    except httpx.RemoteProtocolError:
        raise _TryAgain(f"broke off at {got} of {total or 'unknown'} bytes") from None
    if total is not None and got < total:
        raise _TryAgain(f"broke off at {got} of {total} bytes")


def _resume_headers(url: str, part: Path, have: int, file: PublishedFile) -> dict[str, str]:
    """Headers that ask for the rest; none where it would not be safe to join it."""
    if not have or (file.bytes is not None and have > file.bytes):
        return {}
    state = _read_state(part)
    if state.get("url") == url and state.get("validator"):
        return {"Range": f"bytes={have}-", "If-Range": str(state["validator"])}
    if file.has_checksum:  # a wrong join would be found at the end
        return {"Range": f"bytes={have}-"}
    return {}


def _check_answer(response: httpx.Response, url: str, file: PublishedFile) -> None:
    if url.startswith("https://") and response.url.scheme != "https":
        raise MirrorFailed("redirects to an address without encryption")
    status = response.status_code
    if status in _RETRY:
        raise _TryAgain(f"answers {status} {response.reason_phrase}", wait=_retry_after(response))
    if status not in (200, 206, 416):
        raise MirrorFailed(f"answers {status} {response.reason_phrase}")
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") and not file.name.endswith((".html", ".htm")):
        raise MirrorFailed("answers with a web page instead of the file")
    coding = response.headers.get("content-encoding", "identity").lower()
    if coding != "identity" and not file.name.endswith((".gz", ".tgz")):
        raise MirrorFailed(f"sends the file with the coding {coding}, which was not asked for")


def _check_start(chunk: bytes, file: PublishedFile) -> None:
    if not chunk:
        raise MirrorFailed("sends an empty file")
    if _MARKUP.match(chunk) and not file.name.endswith((".html", ".htm", ".xml", ".svg")):
        raise MirrorFailed("answers with a web page instead of the file")


def _check_total(total: int | None, file: PublishedFile, response: httpx.Response) -> None:
    if total is None:
        chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
        if file.bytes is None and not file.has_checksum and not chunked:
            raise MirrorFailed("does not say how long the file is, so a break could not be seen")
    elif file.bytes is not None and total != file.bytes:
        raise MirrorFailed(f"offers {total} bytes, the registry says {file.bytes}")


def _length_of(response: httpx.Response) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _range_of(response: httpx.Response) -> tuple[int, int | None]:
    match = _RANGE.match(response.headers.get("content-range", ""))
    if not match:
        raise MirrorFailed("answers 206 without saying which bytes it sends")
    return int(match[1]), None if match[3] == "*" else int(match[3])


def _total_of_416(response: httpx.Response) -> int | None:
    text = response.headers.get("content-range", "").removeprefix("bytes */")
    return int(text) if text.isdecimal() else None


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _say(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _state_path(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_state(part: Path) -> dict[str, Any]:
    path = _state_path(part)
    if not path.exists():
        return {}
    try:
        value = read_json(path)
    except UserError:  # only a hint: without it the download begins again
        return {}
    return value if isinstance(value, dict) else {}


def _write_state(url: str, part: Path, response: httpx.Response) -> None:
    tag = response.headers.get("etag", "")
    # A weak tag says that two answers mean the same, not that they have the same bytes.
    validator = tag if tag.startswith('"') else response.headers.get("last-modified", "")
    write_json(_state_path(part), {"schema_version": 1, "url": url, "validator": validator})


@contextmanager
def holding(part: Path) -> Iterator[BinaryIO]:
    """The part, open for reading and writing, held by this process alone."""
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    with part.open("r+b") as handle:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{part} is being written by another process", fix="wait for it to end"
                ) from None
            except OSError:
                pass  # a file system without locks
        if not part.exists() or not os.path.samestat(os.fstat(handle.fileno()), part.stat()):
            # Another process finished between our opening and our locking: this handle is the
            # finished file, which must not be written to.
            raise UserError(f"{part} was finished by another process", fix="run again")
        yield handle


Trust = Literal["registry", "record", "first use"]
"""What a file was held against: the registry's checksum, the hash seen at an earlier fetch, or
nothing (its hash is on record from now on)."""


@dataclass(frozen=True, kw_only=True)
class FetchedFile:
    """A file in place, with its size, its hash, and what it was held against.

    ``source`` is the mirror it came from, ``file`` for a local file, ``there`` if it was in place.
    """

    path: Path
    bytes: int
    sha256: str
    trust: Trust
    source: str

    @property
    def note(self) -> str:
        """What a user must know about a file that nothing vouches for; empty for others."""
        if self.trust != "first use":
            return ""
        return (
            f"{self.path.name}: no checksum is published, so it is trusted on first use; "
            f"its sha256 {self.sha256} is on record"
        )


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """All files of a published test set, in place."""

    entry: Published
    files: tuple[FetchedFile, ...]


def fetch(
    entry: Published,
    folder: Path,
    *,
    mirrors: Sequence[str] = (),
    source: Path | None = None,
    patience: Patience | None = None,
    progress: Progress | None = None,
    client: httpx.Client | None = None,
) -> Fetched:
    """Bring every file of ``entry`` into ``folder``; called again, it goes on where it stopped.

    ``mirrors``   base addresses to try first; each file's name is put after them
    ``source``    a local file, or a folder with the files under their names: taken instead of any
                  download, after the same checks
    ``patience``  attempts and pauses a mirror
    ``progress``  told the file's name, the bytes that are there, and the bytes in all if known
    """
    made: httpx.Client | None = None
    fetched = []
    try:
        for file in entry.files:
            target = folder / file.name
            if target.exists():
                fetched.append(_accept(target, file, source="there"))
                continue
            if source is not None:
                fetched.append(_adopt(_local(source, entry, file), target, file))
                continue
            addresses = [f"{base.rstrip('/')}/{file.name}" for base in mirrors]
            addresses += file.mirrors
            if not addresses:
                how = f"{entry.by_hand}, then pass" if entry.by_hand else "pass"
                raise NotFound(
                    f"{entry.name} cannot be fetched by a program", fix=f"{how} it with --from FILE"
                )
            if client is None:
                client = made = new_client()
            fetched.append(
                _from_mirrors(
                    entry,
                    file,
                    target,
                    addresses,
                    client=client,
                    patience=patience or Patience(),
                    progress=progress or _silent,
                )
            )
    finally:
        if made is not None:
            made.close()
    return Fetched(entry=entry, files=tuple(fetched))


def _from_mirrors(
    entry: Published,
    file: PublishedFile,
    target: Path,
    addresses: Sequence[str],
    *,
    client: httpx.Client,
    patience: Patience,
    progress: Progress,
) -> FetchedFile:
    part = target.with_name(target.name + ".part")
    _check_room(part, file)
    reasons = []
    for url in addresses:
        try:
            return _one_mirror(url, file, part, target, client, patience, progress)
        except (MirrorFailed, _Wrong) as error:
            reasons.append(f"{url} {error}")
    raise UserError(
        f"{entry.name}: {file.name} could not be fetched ({'; '.join(reasons)})",
        fix="try again later to go on, name another mirror, or pass --from FILE",
    )


class _Wrong(Exception):
    """A whole file that is not the right one."""


def _one_mirror(
    url: str,
    file: PublishedFile,
    part: Path,
    target: Path,
    client: httpx.Client,
    patience: Patience,
    progress: Progress,
) -> FetchedFile:
    with holding(part) as handle:
        while True:
            joined = download(
                url, part, handle, file=file, client=client, patience=patience, progress=progress
            )
            try:
                size, sha256, trust = _check(part, file, target)
                break
            except _Wrong as error:
                handle.truncate(0)
                if not joined:
                    discard(part)
                    raise _Wrong(f"gave a file that {error}") from None
                # The beginning may have been of another file: once more, from nothing.
        os.fsync(handle.fileno())
        part.replace(target)
        discard(part)
    return _record(target, size, sha256, trust, source=url)


def _accept(target: Path, file: PublishedFile, *, source: str) -> FetchedFile:
    """A file that is already in place, checked like any other."""
    try:
        size, sha256, trust = _check(target, file, target)
    except _Wrong as error:
        raise BadFile(target, str(error), fix="remove it and fetch again") from None
    return _record(target, size, sha256, trust, source=source)


def _adopt(path: Path, target: Path, file: PublishedFile) -> FetchedFile:
    """Copy a local file into place, after the same checks."""
    try:
        _check(path, file, target)
    except _Wrong as error:
        raise BadFile(path, str(error), fix=f"give the published {file.name}") from None
    with atomic_path(target) as temporary:
        shutil.copyfile(path, temporary)
        # Checked again as it was written: the copy is what will be used.
        try:
            size, sha256, trust = _check(temporary, file, target)
        except _Wrong as error:
            raise BadFile(path, f"changed while it was copied: it {error}") from None
    return _record(target, size, sha256, trust, source="file")


def _local(source: Path, entry: Published, file: PublishedFile) -> Path:
    path = source / file.name if source.is_dir() else source
    if not path.is_file():
        raise NotFound(f"no file {path}", fix=f"{entry.name} needs {file.name}")
    if path == source and len(entry.files) > 1 and source.name != file.name:
        names = ", ".join(each.name for each in entry.files)
        raise UserError(f"{entry.name} is several files", fix=f"give a folder with {names}")
    return path


def _check(path: Path, file: PublishedFile, target: Path) -> tuple[int, str, Trust]:
    """Size and hash of a file, held against what is known; raises :class:`_Wrong`."""
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        raise _Wrong(f"has {size} bytes, the registry says {file.bytes}")
    sha256 = _digest(path, "sha256")
    if file.sha256 is not None and sha256 != file.sha256:
        raise _Wrong(f"has sha256 {sha256}, the registry says {file.sha256}")
    if file.md5 is not None and file.sha256 is None:
        md5 = _digest(path, "md5")
        if md5 != file.md5:
            raise _Wrong(f"has md5 {md5}, the registry says {file.md5}")
    if file.has_checksum:
        return size, sha256, "registry"
    record = _record_path(target)
    if record.exists():
        known = read_versioned_json(record, version=SCHEMA_VERSION).get("sha256")
        if sha256 != known:
            raise _Wrong(f"has sha256 {sha256}, and {known} was seen at first ({record.name})")
        return size, sha256, "record"
    return size, sha256, "first use"


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(
            handle, lambda: hashlib.new(kind, usedforsecurity=False)
        ).hexdigest()


def _record(target: Path, size: int, sha256: str, trust: Trust, *, source: str) -> FetchedFile:
    path = _record_path(target)
    if not path.exists():
        write_json(
            path,
            {
                "schema_version": SCHEMA_VERSION,
                "name": target.name,
                "bytes": size,
                "sha256": sha256,
                "trust": trust,
                "source": source,
            },
        )
    return FetchedFile(path=target, bytes=size, sha256=sha256, trust=trust, source=source)


def _record_path(target: Path) -> Path:
    return target.with_name(target.name + ".fetched.json")


def _check_room(part: Path, file: PublishedFile) -> None:
    if file.bytes is None:
        return
    part.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.exists() else 0
    free = shutil.disk_usage(part.parent).free
    if file.bytes - have > free:
        needs = f"{file.name} needs {file.bytes - have:,} bytes"
        raise UserError(
            f"{needs} and {part.parent} has room for {free:,}",
            fix="make room, or fetch into another folder",
        )


def _silent(name: str, done: int, total: int | None) -> None:
    """Say nothing."""
