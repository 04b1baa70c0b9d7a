"""Fetching a published test set: the registry, mirrors, resumable downloads."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, Literal

from msgspec import Meta, field

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import atomic_path
from heldout.core.records import Table
from heldout.core.schema import Document, read, write
from heldout.core.workspace import check_slug

if TYPE_CHECKING:
    import httpx


BUILT_IN = Path(__file__).with_name("registry.toml")
Layout = Literal["arrays", "class-index-folders", "class-name-folders", "flat", "wordnet-folders"]
"""How images and classes are laid out inside the files of a published test set.

``arrays``               NumPy arrays of images and of labels
``class-index-folders``  one folder per class, named by its place in the label space: 0, 1, 10, ...
``class-name-folders``   one folder per class, named by a name of the class
``wordnet-folders``      one folder per class, named by its WordNet id
``flat``                 images without folders; the classes come from elsewhere
"""


class PublishedFile(Document, frozen=True, kw_only=True):
    """One file of a published test set. What is not publicly known is None.

    Every mirror serves the same bytes, so a download may go on at another one.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
    mirrors: tuple[Annotated[str, Meta(pattern="^https?://")], ...] = ()
    bytes: Annotated[int, Meta(ge=0)] | None = None
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None
    md5: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")] | None = None

    @property
    def has_checksum(self) -> bool:
        """Whether a checksum of the whole file is known beforehand."""
        return self.sha256 is not None or self.md5 is not None


class PublishedSet(Document, frozen=True, kw_only=True):
    """A published test set: what it is, under which terms, and the files it comes in.

    ``inside`` is the folder in the archive that holds the images. ``by_hand`` says how a person
    gets the files where terms have to be accepted first.
    """

    record: ClassVar[str] = "published-testset"
    table: ClassVar[Table] = Table("", ("name", "title", "licence", "MB=megabytes:,.1f"), rows=40)
    name: str
    title: str
    homepage: str
    licence: str
    citation: str
    label_space: str
    layout: Layout
    files: tuple[PublishedFile, ...] = field(name="file")
    aliases: tuple[str, ...] = ()
    images: int | None = None
    inside: str = ""
    by_hand: str = ""

    def __post_init__(self) -> None:
        names = {file.name for file in self.files}
        if not names or len(names) < len(self.files):
            raise ValueError(f"{self.name} needs one or more files, each with its own name")

    @property
    def bytes(self) -> int | None:
        """The size of all files together, or None while one is not known."""
        known = [file.bytes for file in self.files if file.bytes is not None]
        return sum(known) if len(known) == len(self.files) else None

    @property
    def megabytes(self) -> float | None:
        """The same in MB."""
        return None if self.bytes is None else self.bytes / 1e6

    def to_dict(self) -> dict[str, Any]:
        """What a list of published test sets says."""
        return {name: getattr(self, name) for name in ("name", "title", "licence", "bytes")}


class _Registry(Document, frozen=True, kw_only=True):
    """The file of published test sets."""

    schema_version: int = 1
    testset: tuple[PublishedSet, ...]


def load(path: Path | None = None) -> tuple[PublishedSet, ...]:
    """Read a registry: the built-in one, or the user's own file of the same form."""
    path = path or BUILT_IN
    entries = read(path, _Registry, fix="correct the registry").testset
    seen: set[str] = set()
    for entry in entries:
        for name in (entry.name, *entry.aliases):
            if check_slug(name, "a test set") in seen:
                raise BadFile(path, f"has two test sets called {name!r}", fix="rename one")
            seen.add(name)
    return entries


def find(entries: Sequence[PublishedSet], name: str) -> PublishedSet:
    """The test set of this name or alias."""
    for entry in entries:
        if name == entry.name or name in entry.aliases:
            return entry
    names = ", ".join(entry.name for entry in entries)
    raise NotFound(f"no published test set {name!r} in the registry", fix=f"there is {names}")


Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are there, and the bytes in all where known."""

_ENOUGH = 1 << 20  # bytes that make an attempt worth another row of attempts
_RETRY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_PAUSE = 60.0
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")
_MARKUP = re.compile(rb"\s*<(!doctype|html|head|body|\?xml|error)", re.IGNORECASE)
_PAGES = (".html", ".htm", ".xml", ".svg")


class MirrorFailed(Exception):
    """This mirror does not give the right file; ``str`` says why in a few words."""


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
    import httpx

    from heldout import __version__

    return httpx.Client(
        follow_redirects=True,
        timeout=httpx.Timeout(60.0, connect=20.0),
        headers={"User-Agent": f"heldout/{__version__}", "Accept-Encoding": "identity"},
    )


class _State(Document, frozen=True, kw_only=True):
    """``<part>.json``: where a part came from, and the validator it came with."""

    schema_version: int = 1
    url: str = ""
    validator: str = ""


@dataclass
class _Download:
    """One file from one mirror.

    ``handle`` is the part as :func:`holding` opened it. Beside it lies ``<part>.json`` with the
    address and the validator it came with, so that a file that changed on the server is never
    joined to an older beginning.
    """

    url: str
    file: PublishedFile
    part: Path
    handle: BinaryIO
    client: httpx.Client
    patience: Patience
    progress: Progress

    @property
    def state(self) -> Path:
        """Where the part came from."""
        return self.part.with_name(self.part.name + ".json")

    def finish(self, target: Path) -> FetchedFile:
        """Bring the right file to ``target``, or say why this mirror cannot give it."""
        while True:
            joined = self._whole()
            try:
                made = _checked(self.part, self.file, target, source=self.url)
                break
            except _Wrong as error:
                self.handle.truncate(0)
                if not joined:
                    self.part.unlink()
                    self.state.unlink(missing_ok=True)
                    raise MirrorFailed(f"gave a file that {error}") from None
                # The beginning may have been of another file: once more, from nothing.
        os.fsync(self.handle.fileno())
        self.part.replace(target)
        self.state.unlink(missing_ok=True)
        return _recorded(made)

    def _whole(self) -> bool:
        """Bring the part to its full length; whether it was joined from several answers."""
        import httpx

        failures = 0
        while True:
            before = self.handle.seek(0, 2)
            try:
                return self._attempt()
            except (_TryAgain, httpx.TransportError) as error:
                gained = self.handle.seek(0, 2) - before
                failures = 1 if gained >= _ENOUGH else failures + 1
                if failures >= self.patience.attempts:
                    raise MirrorFailed(_say(error)) from None
                asked = error.wait if isinstance(error, _TryAgain) else 0.0
                wait = max(asked, self.patience.pause * 2 ** (failures - 1))
                self.patience.sleep(min(wait, _LONGEST_PAUSE))
            except (httpx.HTTPError, httpx.InvalidURL) as error:  # too many redirects and the like
                raise MirrorFailed(_say(error)) from None

    def _attempt(self) -> bool:
        have = self.handle.seek(0, 2)
        headers = self._resume_headers(have)
        if not headers:
            have = 0
        with self.client.stream("GET", self.url, headers=headers) as response:
            status = response.status_code
            if self.url.startswith("https://") and response.url.scheme != "https":
                raise MirrorFailed("redirects to an address without encryption")
            if status not in (200, 206, 416):
                answer = f"answers {status} {response.reason_phrase}"
                if status in _RETRY:
                    wait = _number(response.headers.get("retry-after", "")) or 0.0
                    raise _TryAgain(answer, wait=wait)
                raise MirrorFailed(answer)
            said = response.headers.get("content-range", "")
            start, total = 0, _number(response.headers.get("content-length", ""))
            if status == 416:
                # Either the part is whole already, or it is of another file.
                if have and have == _number(said.removeprefix("bytes */")):
                    return True
                self.handle.truncate(0)
                raise _TryAgain("the server has less than the part that is here")
            if status == 206:
                match = _RANGE.match(said)
                if not match:
                    raise MirrorFailed("answers 206 without saying which bytes it sends")
                start, total = int(match[1]), _number(match[3])
                if start != have:
                    self.handle.truncate(0)
                    raise _TryAgain(f"asked for bytes from {have}, got them from {start}")
            self._receive(response, start, total)
        return start > 0

    def _resume_headers(self, have: int) -> dict[str, str]:
        """Headers that ask for the rest; none where it would not be safe to join it."""
        if not have or (self.file.bytes is not None and have > self.file.bytes):
            return {}
        state = _State()
        with suppress(UserError):  # only a hint: without it the download begins again
            state = read(self.state, _State)
        if state.url == self.url and state.validator:
            return {"Range": f"bytes={have}-", "If-Range": state.validator}
        # Without a validator, a wrong join must be found at the end.
        return {"Range": f"bytes={have}-"} if self.file.has_checksum else {}

    def _receive(self, response: httpx.Response, start: int, total: int | None) -> None:
        """Write the body of a good answer into the part, from byte ``start`` on."""
        import httpx

        got, file = start, self.file
        chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
        if total is None and file.bytes is None and not file.has_checksum and not chunked:
            raise MirrorFailed("does not say how long the file is, so a break could not be seen")
        try:
            # Raw: an archive that a server labels as compressed must arrive as it is.
            chunks = response.iter_raw()
            first = next(chunks, b"")
            page = _MARKUP.match(first) and not file.name.endswith(_PAGES)
            if start == 0 and (page or not first):
                raise MirrorFailed("answers with nothing or a web page instead of the file")
            if file.bytes is not None and total not in (None, file.bytes):
                raise MirrorFailed(f"offers {total} bytes, the registry says {file.bytes}")
            if start == 0:  # only now is an earlier part given up
                self.handle.truncate(0)
                tag = response.headers.get("etag", "")
                # A weak tag says that two answers mean the same, not that they have the same bytes.
                strong = tag if tag.startswith('"') else response.headers.get("last-modified", "")
                write(self.state, _State(url=self.url, validator=strong))
            self.handle.seek(start)
            for chunk in chain([first], chunks):
                got += len(chunk)
                if total is not None and got > total:
                    self.handle.truncate(0)
                    raise MirrorFailed(f"sends more than the {total} bytes it promised")
                self.handle.write(chunk)
                self.handle.flush()  # what is on disk when the process dies can be gone on from
                self.progress(file.name, got, total)
        except httpx.RemoteProtocolError:
            raise _TryAgain(f"broke off at {got} of {total or 'unknown'} bytes") from None
        if total is not None and got < total:
            raise _TryAgain(f"broke off at {got} of {total} bytes")


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _say(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


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

    record: ClassVar[str] = "file"
    table: ClassVar[Table] = Table(
        "", ("file=path", "MB=megabytes:,.1f", "checked by=trust", "sha256")
    )
    path: Path
    bytes: int
    sha256: str
    trust: Trust
    source: str

    @property
    def megabytes(self) -> float:
        """Its size in MB."""
        return self.bytes / 1e6

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

    entry: PublishedSet
    files: tuple[FetchedFile, ...]


class _Record(Document, frozen=True, kw_only=True):
    """``<file>.fetched.json``: what a file was when it was first fetched."""

    schema_version: int = 1
    name: str
    bytes: int
    sha256: str
    trust: Trust
    source: str


def fetch(
    entry: PublishedSet,
    folder: Path,
    *,
    mirrors: Sequence[str] = (),
    source: Path | None = None,
    patience: Patience | None = None,
    progress: Progress = lambda name, done, total: None,
    client: httpx.Client | None = None,
) -> Fetched:
    """Bring every file of ``entry`` into ``folder``; called again, it goes on where it stopped.

    ``mirrors``   base addresses to try first; each file's name is put after them
    ``source``    a local file, or a folder with the files under their names: taken instead of any
                  download, after the same checks
    ``patience``  attempts and pauses per mirror
    """
    with ExitStack() as stack:
        fetched = []
        for file in entry.files:
            target = folder / file.name
            if target.exists():
                fetched.append(_accept(target, file))
                continue
            if source is not None:
                fetched.append(_adopt(_local(source, entry, file), target, file))
                continue
            addresses = [f"{base.rstrip('/')}/{file.name}" for base in mirrors]
            addresses += file.mirrors
            if not addresses:
                how = f"{entry.by_hand}, then pass" if entry.by_hand else "pass"
                raise NotFound(
                    f"{entry.name} cannot be fetched by a program",
                    fix=f"{how} it with --local FILE",
                )
            client = client or stack.enter_context(new_client())
            part = target.with_name(target.name + ".part")
            _check_room(part, file)
            reasons = []
            for url in addresses:
                with holding(part) as handle:
                    download = _Download(
                        url, file, part, handle, client, patience or Patience(), progress
                    )
                    try:
                        fetched.append(download.finish(target))
                        break
                    except MirrorFailed as error:
                        reasons.append(f"{url} {error}")
            else:
                raise UserError(
                    f"{entry.name}: {file.name} could not be fetched ({'; '.join(reasons)})",
                    fix="try again later to go on, name another mirror, or pass --local FILE",
                )
    return Fetched(entry=entry, files=tuple(fetched))


class _Wrong(Exception):
    """A whole file that is not the right one."""


def _accept(target: Path, file: PublishedFile) -> FetchedFile:
    """A file that is already in place, checked like any other."""
    try:
        return _recorded(_checked(target, file, target, source="there"))
    except _Wrong as error:
        raise BadFile(target, str(error), fix="remove it and fetch again") from None


def _adopt(path: Path, target: Path, file: PublishedFile) -> FetchedFile:
    """Copy a local file into place, checked as it was written."""
    with atomic_path(target) as temporary:
        shutil.copyfile(path, temporary)
        try:
            made = _checked(temporary, file, target, source="file")
        except _Wrong as error:
            raise BadFile(path, str(error), fix=f"give the published {file.name}") from None
    return _recorded(made)


def _local(source: Path, entry: PublishedSet, file: PublishedFile) -> Path:
    path = source / file.name if source.is_dir() else source
    if not path.is_file():
        raise NotFound(f"no file {path}", fix=f"{entry.name} needs {file.name}")
    if path == source and len(entry.files) > 1 and source.name != file.name:
        names = ", ".join(each.name for each in entry.files)
        raise UserError(f"{entry.name} is several files", fix=f"give a folder with {names}")
    return path


def _checked(path: Path, file: PublishedFile, target: Path, *, source: str) -> FetchedFile:
    """A file by what is known of it; raises :class:`_Wrong`."""
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
    trust: Trust = "registry" if file.has_checksum else "first use"
    record = _record_path(target)
    if trust != "registry" and record.exists():
        trust, known = "record", read(record, _Record).sha256
        if sha256 != known:
            raise _Wrong(f"has sha256 {sha256}, and {known} was seen at first ({record.name})")
    return FetchedFile(path=target, bytes=size, sha256=sha256, trust=trust, source=source)


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(
            handle, lambda: hashlib.new(kind, usedforsecurity=False)
        ).hexdigest()


def _recorded(file: FetchedFile) -> FetchedFile:
    path = _record_path(file.path)
    if not path.exists():
        said = {name: value for name, value in asdict(file).items() if name != "path"}
        write(path, _Record(name=file.path.name, **said))
    return file


def _record_path(target: Path) -> Path:
    return target.with_name(target.name + ".fetched.json")


def _check_room(part: Path, file: PublishedFile) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    needed = (file.bytes or 0) - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise UserError(
            f"{file.name} needs {needed:,} bytes and {part.parent} has room for {free:,}",
            fix="make room, or fetch into another folder",
        )
