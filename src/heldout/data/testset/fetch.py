"""Fetching a published test set: the registry, mirrors, resumable downloads."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, Literal

from msgspec import Meta, field

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import atomic_path, locked
from heldout.core.records import Table
from heldout.core.schema import Document, read, write
from heldout.core.workspace import check_slug

if TYPE_CHECKING:
    import httpx

    from heldout.core.web import Patience, WebClient

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
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")
_MARKUP = re.compile(rb"\s*<(!doctype|html|head|body|\?xml|error)", re.IGNORECASE)
_PAGES = (".html", ".htm", ".xml", ".svg")


class _State(Document, frozen=True, kw_only=True):
    """``<part>.json``: where a part came from, and the validator it came with."""

    schema_version: int = 1
    url: str = ""
    validator: str = ""


@dataclass
class _Download:
    """One file from one mirror.

    ``source`` is the address without secrets, as it is written down; ``handle`` the part as
    :func:`holding` opened it. Beside it lies ``<part>.json`` with the address and the validator it
    came with, so that a file that changed on the server is never joined to an older beginning.
    """

    url: str
    source: str
    file: PublishedFile
    part: Path
    handle: BinaryIO
    client: WebClient
    progress: Progress
    received: int = 0

    @property
    def state(self) -> Path:
        """Where the part came from."""
        return self.part.with_name(self.part.name + ".json")

    def finish(self, target: Path) -> FetchedFile:
        """Bring the right file to ``target``, or say why this mirror cannot give it.

        ``attempts`` in a row without a further mebibyte end it. The longest that the part has ever
        been counts: a server that makes it begin again does not gain attempts by that.
        """
        from heldout.core.web import Unanswered

        failures, longest = 0, self.handle.seek(0, 2)
        while True:
            try:
                made = self._attempt(target)
                break
            except Unanswered as error:
                reached = self.handle.seek(0, 2)
                failures = 1 if reached >= longest + _ENOUGH else failures + 1
                longest = max(longest, reached)
                self.client.patience.rest(failures, error)
        os.fsync(self.handle.fileno())
        self.part.replace(target)
        self.state.unlink(missing_ok=True)
        return _recorded(made)

    def _attempt(self, target: Path) -> FetchedFile:
        """Bring the part to its full length, and check it."""
        from heldout.core.web import BadAddress, Unanswered

        joined = self._joined()
        try:
            return _checked(self.part, self.file, target, source=self.source)
        except _Wrong as error:
            self.handle.truncate(0)
            reason = f"gave a file that {error}"
            if joined:  # its beginning may have been of another file: once more, from nothing
                raise Unanswered(reason) from None
            self.part.unlink()
            self.state.unlink(missing_ok=True)
            raise BadAddress(reason) from None

    def _joined(self) -> bool:
        """Bring the part to its full length; whether it was joined from several answers."""
        from heldout.core.web import BadAddress, Unanswered

        have = self.handle.seek(0, 2)
        headers, validator = self._resume(have)
        if not headers:
            have = 0
        with self.client.answer(self.url, headers) as response:
            status = response.status_code
            if status not in (200, 206, 416):
                raise BadAddress(f"answers {status} {response.reason_phrase}")
            said = response.headers.get("content-range", "")
            start, total = 0, _number(response.headers.get("content-length", ""))
            if status == 416:
                # Either the part is whole already, or it is of another file.
                if have and have == _number(said.removeprefix("bytes */")):
                    return True
                self.handle.truncate(0)
                raise Unanswered("the server has less than the part that is here")
            if status == 206:
                match = _RANGE.match(said)
                if not match:
                    raise BadAddress("answers 206 without saying which bytes it sends")
                start, total = int(match[1]), _number(match[3])
                if start != have:
                    self.handle.truncate(0)
                    raise Unanswered(f"asked for bytes from {have}, got them from {start}")
                if start and validator and _validator(response) not in ("", validator):
                    self.handle.truncate(0)
                    raise Unanswered("the file has changed")
            self._receive(response, start, total)
        return start > 0

    def _resume(self, have: int) -> tuple[dict[str, str], str]:
        """Headers that ask for the rest, none where it would not be safe to join it; and the
        validator that the part came with."""
        if not have or (self.file.bytes is not None and have > self.file.bytes):
            return {}, ""
        state = _State()
        with suppress(UserError):  # only a hint: without it the download begins again
            state = read(self.state, _State)
        ranges = {"Range": f"bytes={have}-"}
        if state.url == self.source and state.validator:
            return ranges | {"If-Range": state.validator}, state.validator
        # Without a validator, a wrong join must be found at the end.
        return ranges if self.file.has_checksum else {}, ""

    def _receive(self, response: httpx.Response, start: int, total: int | None) -> None:
        """Write the body of a good answer into the part, from byte ``start`` on."""
        import httpcore

        from heldout.core.web import BadAddress, Unanswered

        got, file = start, self.file
        chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
        if total is None and file.bytes is None and not file.has_checksum and not chunked:
            raise BadAddress("does not say how long the file is, so a break could not be seen")
        limit = self.client.most if total is None else total
        try:
            # Raw: an archive that a server labels as compressed must arrive as it is.
            chunks = response.iter_raw()
            first = next(chunks, b"")
            page = _MARKUP.match(first) and not file.name.endswith(_PAGES)
            if start == 0 and (page or not first):
                raise BadAddress("answers with nothing or a web page instead of the file")
            if file.bytes is not None and total not in (None, file.bytes):
                raise BadAddress(f"offers {total} bytes, the registry says {file.bytes}")
            if limit > self.client.most:
                raise BadAddress(f"offers {total} bytes, and there is room for {self.client.most}")
            if start == 0:  # only now is an earlier part given up
                self.handle.truncate(0)
                write(self.state, _State(url=self.source, validator=_validator(response)))
            self.handle.seek(start)
            for chunk in chain([first], chunks):
                got += len(chunk)
                self.received += len(chunk)
                if got > limit or self.received > self.client.most * self.client.patience.attempts:
                    self.handle.truncate(0)
                    raise BadAddress(f"sends more than the {limit} bytes that the file may have")
                self.handle.write(chunk)
                self.handle.flush()  # what is on disk when the process dies can be gone on from
                self.progress(file.name, got, total)
        except httpcore.RemoteProtocolError:
            raise Unanswered(f"broke off at {got} of {total or 'unknown'} bytes") from None
        if total is not None and got < total:
            raise Unanswered(f"broke off at {got} of {total} bytes")


def _validator(response: httpx.Response) -> str:
    """What says that two answers have the same bytes; a weak tag only says that they mean the
    same."""
    tag: str = response.headers.get("etag", "")
    return tag if tag.startswith('"') else str(response.headers.get("last-modified", ""))


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


@contextmanager
def holding(part: Path) -> Iterator[BinaryIO]:
    """The part, open for reading and writing, held by this process alone."""
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(part, wait=False))
        except BlockingIOError:
            raise UserError(
                f"{part} is being written by another process", fix="wait for it to end"
            ) from None
        except FileNotFoundError:
            # Between our touching it and our locking it: what was there is the finished file now.
            raise UserError(f"{part} was finished by another process", fix="run again") from None
        yield stack.enter_context(part.open("r+b"))


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
) -> Fetched:
    """Bring every file of ``entry`` into ``folder``; called again, it goes on where it stopped.

    ``mirrors``   base addresses to try first; each file's name is put after them
    ``source``    a local file, or a folder with the files under their names: taken instead of any
                  download, after the same checks
    ``patience``  attempts and pauses per mirror

    An address of the registry or of ``mirrors`` may be private; one that it redirects to may not.
    """
    from heldout.core.web import BadAddress, Patience, Unanswered, WebClient, masked

    patience = patience or Patience()
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
        part = target.with_name(target.name + ".part")
        most = _check_room(part, file)
        reasons = []
        for url in addresses:
            with holding(part) as handle:
                try:
                    with WebClient(url, most=most, patience=patience) as client:
                        download = _Download(url, masked(url), file, part, handle, client, progress)
                        fetched.append(download.finish(target))
                    break
                except (BadAddress, Unanswered) as error:
                    reasons.append(f"{masked(url)} {error}")
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


def _check_room(part: Path, file: PublishedFile) -> int:
    """How many bytes the file may have: as published, else half of what there is room for."""
    part.parent.mkdir(parents=True, exist_ok=True)
    needed = (file.bytes or 0) - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise UserError(
            f"{file.name} needs {needed:,} bytes and {part.parent} has room for {free:,}",
            fix="make room, or fetch into another folder",
        )
    return file.bytes if file.bytes is not None else free // 2
