"""Image sources: folders, tar and zip archives, object stores, web servers, memory."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from heldout.core.errors import BadFile, NotApplicable, NotFound, UserError
from heldout.core.extras import require
from heldout.core.files import existing_file, existing_folder, open_file

if TYPE_CHECKING:
    from heldout.core.web import Patience, WebClient

T = TypeVar("T")
EXTENSIONS = frozenset(
    {
        ".avif",
        ".bmp",
        ".gif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    }
)
"""Endings, in lower case, of files that are taken for images."""

MAX_IMAGE_BYTES = 1 << 27
"""An encoded image of more bytes than this (134 MB) is not read."""


class ImageSource(Protocol):
    """Where images come from: a folder, an archive, an object store, a renderer.

    A source may be used by several threads at once and may be sent to another process.
    """

    def ids(self) -> Sequence[str]:
        """The ids of all images, each once, in an order that is always the same."""
        ...

    def open(self, image_id: str) -> BinaryIO:
        """The encoded image, to be read from its start and closed by the caller."""
        ...


class MemorySource:
    """Images held in memory, by id: for tests and for small sets."""

    def __init__(self, images: Mapping[str, bytes]) -> None:
        self._images = {check_id(key): bytes(images[key]) for key in sorted(images)}

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        return tuple(self._images)

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id."""
        try:
            return io.BytesIO(self._images[image_id])
        except KeyError:
            raise no_image(image_id, "memory") from None


def read_image(source: ImageSource, image_id: str) -> bytes:
    """All bytes of one encoded image; one beyond ``MAX_IMAGE_BYTES`` is a user error."""
    with source.open(image_id) as handle:
        if not handle.seekable():
            data = handle.read(MAX_IMAGE_BYTES + 1)
            check_size(image_id, len(data))
            return data
        return _whole(handle, image_id)


def read_image_file(path: Path) -> bytes:
    """All bytes of an encoded image in a file of its own, within the same limits."""
    with open_file(path) as handle:
        return _whole(handle, str(path))


def _whole(handle: BinaryIO, name: str) -> bytes:
    size = handle.seek(0, os.SEEK_END)
    check_size(name, size)
    handle.seek(0)
    return handle.read(size)


def check_size(image_id: str, size: int) -> None:
    """Refuse an encoded image of more bytes than ``MAX_IMAGE_BYTES``."""
    if size > MAX_IMAGE_BYTES:
        raise UserError(
            f"{image_id} has {size:,} bytes or more, which is too many for an image",
            fix=f"make it smaller than {MAX_IMAGE_BYTES:,}",
        )


def check_id(image_id: str) -> str:
    """``image_id`` if it is a plain relative POSIX path, else a user error.

    Ids end up as paths below some folder, so one that could lead out of it is refused: no
    ``..``, no leading slash, no backslash, no drive, nothing that is not printable text.

    >>> check_id("n01440764/ILSVRC2012_val_00000293.JPEG")
    'n01440764/ILSVRC2012_val_00000293.JPEG'
    """
    parts = image_id.split("/")
    if (
        not image_id
        or any(part in ("", ".", "..") for part in parts)
        or "\\" in image_id
        or not image_id.isprintable()
        or (len(image_id) > 1 and image_id[1] == ":")
    ):
        raise UserError(
            f"{image_id!r} cannot be an image id",
            fix="use a relative path with forward slashes, without '.' or '..' parts",
        )
    return image_id


def is_image_name(image_id: str) -> bool:
    """Whether a path looks like an image: a known ending, and no hidden file or folder on the way.

    >>> is_image_name("a/b.JPG"), is_image_name("a/.b.jpg"), is_image_name("a/b.txt")
    (True, False, False)
    """
    parts = image_id.split("/")
    if any(part.startswith(".") for part in parts):
        return False
    stem, dot, ending = parts[-1].rpartition(".")
    return bool(stem) and f"{dot}{ending.lower()}" in EXTENSIONS


def no_image(image_id: str, where: object) -> NotFound:
    """The error for an id that a source does not have."""
    return NotFound(f"no image {image_id!r} in {where}", fix="check the id")


class FolderSource:
    """The images below a folder; an id is the path from there, with forward slashes.

    Files with a known ending count, whatever its case; hidden files and folders do not. Links to
    files are followed, links to folders are not. The folder is listed when ids are first asked
    for, and only then.
    """

    def __init__(self, root: Path) -> None:
        self.root = existing_folder(root, "folder of images")
        self._ids: tuple[str, ...] | None = None

    def ids(self) -> Sequence[str]:
        """All ids, sorted as text; the order of the file system plays no part."""
        if self._ids is None:
            self._ids = tuple(sorted(self._walk()))
        return self._ids

    def open(self, image_id: str) -> BinaryIO:
        """The image file of this id."""
        path = self.root / check_id(image_id)
        try:
            return open_file(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise no_image(image_id, self.root) from None

    def _walk(self) -> list[str]:
        found = []
        for folder, inner, files in os.walk(self.root, onerror=_raise):
            inner[:] = [name for name in inner if not name.startswith(".")]
            base = Path(folder).relative_to(self.root)
            found += [id for name in files if is_image_name(id := (base / name).as_posix())]
        try:
            return [check_id(image_id) for image_id in found]
        except UserError as error:
            raise BadFile(self.root, error.message, fix="rename it, in plain UTF-8") from None


def _raise(error: OSError) -> None:
    raise error  # os.walk would pass over a folder that cannot be read


class _Lazy:
    """A source whose handle (an index, a file, a client) is made when it is first needed.

    Several threads may use it. Sent to another process it goes without its lock and its handle.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._lock = threading.Lock()

    def _make(self) -> Any:
        raise NotImplementedError

    def _opened(self) -> Any:
        with self._lock:
            if self._handle is None:
                self._handle = self._make()
            return self._handle

    def close(self) -> None:
        """Close the file or connection; it is opened again when the source is next used."""
        with self._lock:
            handle, self._handle = self._handle, None
        if hasattr(handle, "close"):
            handle.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


class TarSource:
    """The images in one tar file or in a list of them (shards); an id is the member's name.

    Tar files must not be compressed, as a compressed one has no random access. Ids are sorted,
    so the order of members and of shards does not matter. Each read opens its file by itself:
    threads do not wait for each other, and no number of shards runs out of file handles.
    """

    def __init__(self, paths: Path | Sequence[Path]) -> None:
        listed = [paths] if isinstance(paths, Path) else paths
        self.paths = tuple(existing_file(path, "tar file") for path in listed)

    @cached_property
    def _index(self) -> dict[str, tuple[int, int, int]]:
        """The file, offset and size of every image, by id."""
        found: dict[str, tuple[int, int, int]] = {}
        for shard, path in enumerate(self.paths):
            for name, offset, size in _members(path):
                _add(found, name, (shard, offset, size), path)
        return dict(sorted(found.items()))

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        return tuple(self._index)

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, from its place in its file."""
        place = self._index.get(image_id)
        if place is None:
            raise no_image(image_id, self.paths[0] if len(self.paths) == 1 else "the tar files")
        shard, offset, size = place
        check_size(image_id, size)
        path = self.paths[shard]
        with path.open("rb", buffering=0) as handle:
            handle.seek(offset)
            data = handle.read(size)
        if len(data) < size:
            raise BadFile(path, f"ends inside {image_id}", fix="fetch or write the file again")
        return io.BytesIO(data)


class ZipSource(_Lazy):
    """The images in a zip file; an id is the member's name. Ids are sorted."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = existing_file(path, "zip file")
        self._names: dict[str, str] = {}

    def _make(self) -> Any:
        from zipfile import BadZipFile, ZipFile

        try:
            archive = ZipFile(self.path)
        except (BadZipFile, EOFError) as error:
            raise BadFile(
                self.path, f"is not a zip file ({error})", fix="fetch or write the file again"
            ) from None
        try:
            names: dict[str, str] = {}
            for info in archive.infolist():
                image_id = "" if info.is_dir() else _member_id(info.filename, self.path)
                if is_image_name(image_id):
                    _add(names, image_id, info.filename, self.path)
            self._names = dict(sorted(names.items()))
        except BaseException:
            archive.close()
            raise
        return archive

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        self._opened()
        return tuple(self._names)

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, unpacked and with its checksum verified."""
        import zlib
        from zipfile import BadZipFile

        archive = self._opened()
        if image_id not in self._names:
            raise no_image(image_id, self.path)
        info = archive.getinfo(self._names[image_id])
        if info.flag_bits & 1:
            raise BadFile(self.path, f"{image_id} is encrypted", fix="unpack it with its password")
        check_size(image_id, info.file_size)
        try:
            # Shared safely: the module gives every reader its own position under a lock.
            return io.BytesIO(archive.read(info))
        except (BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            raise BadFile(self.path, f"cannot unpack {image_id} ({error})") from None


def _members(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each image in a tar file."""
    import tarfile

    length = path.stat().st_size
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                image_id = _member_id(member.name, path)
                if not is_image_name(image_id):
                    continue
                if not member.isreg() or member.issparse():
                    raise BadFile(path, f"{image_id} is not a plain file", fix="pack it again")
                if member.offset_data + member.size > length:
                    raise BadFile(path, f"ends inside {image_id}", fix="fetch the file again")
                yield image_id, member.offset_data, member.size
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        fix = "fetch or write the file again; a compressed one must be unpacked"
        raise BadFile(path, f"is not a whole tar file ({error})", fix=fix) from None


def _add(found: dict[str, T], image_id: str, place: T, path: Path) -> None:
    if image_id in found:
        raise BadFile(path, f"{image_id} is there twice", fix="give every image its own name")
    found[image_id] = place


def _member_id(name: str, path: Path) -> str:
    """The id of a member; one whose name could lead out of a folder is refused."""
    while name.startswith("./"):
        name = name[2:]
    try:
        return check_id(name)
    except UserError:
        raise BadFile(
            path,
            f"has a member called {name!r}, which is not a safe path",
            fix="do not use this archive, or pack it again",
        ) from None


STORES = ("s3", "gs", "az")
"""Schemes of the stores that are read, by the package obstore."""


class _Remote(_Lazy):
    """A source behind a URL; ``ids`` are its images, where they are known."""

    def __init__(self, url: str, *, ids: Sequence[str] | None = None) -> None:
        super().__init__()
        self.url = url.rstrip("/")
        self._ids = _checked_ids(ids)


class ObjectStoreSource(_Remote):
    """The images below a URL such as ``s3://bucket/prefix``; an id is the path from there.

    ``ids`` saves the listing. Credentials, region and endpoint come from the environment, in the
    names that each vendor uses (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``), never from the URL.
    A store that does not answer, after several attempts, raises ``ConnectionError``: no image is
    bad for that.
    """

    def _make(self) -> Any:
        store = require("obstore.store", extra="stores", purpose=f"reading {self.url}")
        return store.from_url(self.url)

    def ids(self) -> Sequence[str]:
        """All ids, sorted: those given, else those of all objects named like images."""
        if self._ids is None:
            self._ids = _checked_ids([name for name in self.stored() if is_image_name(name)])
        return self._ids or ()

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, fetched whole."""
        check_id(image_id)

        def get(store: Any) -> bytes:
            found = store.get(image_id)
            check_size(image_id, found.meta["size"])
            return bytes(found.bytes())

        try:
            return io.BytesIO(self._ask(get))
        except FileNotFoundError:
            raise no_image(image_id, self.url) from None

    def put(self, name: str, data: bytes) -> None:
        """Store one file whole, in place of one of that name."""
        check_id(name)
        self._must(lambda store: store.put(name, data))

    def stored(self) -> dict[str, int]:
        """All files below the URL, with their sizes in bytes."""
        listed = self._must(lambda store: [meta for part in store.list() for meta in part])
        return {meta["path"]: meta["size"] for meta in listed}

    def _must(self, question: Callable[[Any], Any]) -> Any:
        """The same as :meth:`_ask`, where a store that does not answer is the user's to look at."""
        try:
            return self._ask(question)
        except ConnectionError as error:
            raise UserError(str(error), fix="check the address and the network") from None

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        """The answer of the store, which tries again by itself; its errors as ours."""
        errors = require("obstore.exceptions", extra="stores", purpose=f"reading {self.url}")
        try:
            return question(self._opened())
        except (PermissionError, errors.UnauthenticatedError, errors.PermissionDeniedError):
            raise UserError(
                f"{self.url}: access denied", fix="set its credentials in the environment"
            ) from None
        except errors.BaseError as error:
            line = str(error).strip().partition("\n")[0]
            raise ConnectionError(f"{self.url}: {line}") from None


def _checked_ids(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if ids is None else tuple(sorted({check_id(image_id) for image_id in ids}))


class WebSource(_Remote):
    """The images below a URL such as ``https://host/folder``; an id is the path from there.

    A web server cannot be listed, so the ids come with it: those of a test set, mostly. A server
    that does not answer, after several attempts, raises ``ConnectionError``: no image is bad for
    that. The server may be on a private address; what it redirects to may not.
    """

    def __init__(
        self, url: str, *, ids: Sequence[str] | None = None, patience: Patience | None = None
    ) -> None:
        super().__init__(url, ids=ids)
        self._patience = patience

    def _make(self) -> WebClient:
        from heldout.core.web import Patience, WebClient

        return WebClient(
            self.url, most=MAX_IMAGE_BYTES, patience=self._patience or Patience(attempts=4)
        )

    def ids(self) -> Sequence[str]:
        """The ids that were given, sorted."""
        if self._ids is None:
            raise NotApplicable(
                f"{self.url} is on a web server, which cannot be listed",
                fix="give the ids, for example those of a test set",
            )
        return self._ids

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, fetched whole."""
        from heldout.core.web import BadAddress, Unanswered, masked

        address = f"{self.url}/{quote(check_id(image_id))}"
        try:
            status, data = self._opened().get(address)
        except BadAddress as error:
            fix = "use an address that gives the image itself"
            raise UserError(f"{masked(address)} {error}", fix=fix) from None
        except Unanswered as error:
            raise ConnectionError(f"{masked(address)}: {error}") from None
        if status in (404, 410):
            raise no_image(image_id, masked(self.url))
        if status in (401, 403):
            fix = "use an address that is open"
            raise UserError(f"{masked(address)}: access denied", fix=fix)
        if status != 200:
            raise ConnectionError(f"{masked(address)}: answers {status}")
        return io.BytesIO(data)


def open_source(where: str | Path, *, ids: Sequence[str] | None = None) -> ImageSource:
    """The source behind a folder, a ``.tar`` or ``.zip`` file, or a URL.

    URLs are ``file://``, ``s3://bucket/prefix``, ``gs://``, ``az://``, ``http://``, ``https://``.
    A web server needs ``ids``, as it cannot be listed; for a store they save the listing; files
    on disk list themselves.
    """
    text = str(where)
    url = urlsplit("" if isinstance(where, Path) or "://" not in text else text)
    if not url.scheme or (url.scheme == "file" and url.netloc in ("", "localhost")):
        path = Path(unquote(url.path)) if url.scheme else Path(where)
        suffix = "" if path.is_dir() else path.suffix.lower()
        if suffix in (".tar", ".zip"):
            return TarSource(path) if suffix == ".tar" else ZipSource(path)
        return FolderSource(path)
    if "@" in url.netloc:
        raise UserError(
            f"a URL on {url.hostname} contains a password", fix="set it in the environment instead"
        )
    if url.netloc and url.scheme in STORES:
        return ObjectStoreSource(text, ids=ids)
    if url.netloc and url.scheme in ("http", "https"):
        return WebSource(text, ids=ids)
    raise UserError(
        f"{text}: no images can be read from there",
        fix="give a path, file:///folder, s3://bucket/prefix, gs://, az:// or https://host/folder",
    )
