"""Images in tar and zip archives, read in place: indexed once, then any image directly."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file
from heldout.data.images.source import check_id, check_size, is_image_name, no_image

if TYPE_CHECKING:
    from zipfile import ZipFile

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


class _Place(NamedTuple):
    shard: int
    offset: int
    size: int


class TarSource:
    """The images in one tar file or in a list of them (shards); an id is the member's name.

    Tar files must not be compressed, as a compressed one has no random access. Ids are sorted,
    so the order of members and of shards plays no part. Each read opens its file by itself:
    threads do not wait for each other, and no number of shards runs out of file handles.
    """

    def __init__(self, paths: Path | Sequence[Path]) -> None:
        listed = [paths] if isinstance(paths, Path) else list(paths)
        self.paths = tuple(existing_file(path, "tar file") for path in listed)
        self._index: dict[str, _Place] | None = None
        self._lock = threading.Lock()

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        return tuple(self._places())

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, from its place in its file."""
        place = self._places().get(image_id)
        if place is None:
            raise no_image(image_id, self.paths[0] if len(self.paths) == 1 else "the tar files")
        check_size(image_id, place.size)
        path = self.paths[place.shard]
        with path.open("rb", buffering=0) as handle:
            handle.seek(place.offset)
            data = handle.read(place.size)
        if len(data) < place.size:
            raise BadFile(path, f"ends inside {image_id}", fix="fetch or write the file again")
        return io.BytesIO(data)

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths, "_index": self._index}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _places(self) -> dict[str, _Place]:
        with self._lock:
            if self._index is None:
                found: dict[str, _Place] = {}
                for shard, path in enumerate(self.paths):
                    for name, offset, size in _members(path):
                        if name in found:
                            raise _twice(path, name)
                        found[name] = _Place(shard, offset, size)
                self._index = {name: found[name] for name in sorted(found)}
            return self._index


class ZipSource:
    """The images in a zip file; an id is the member's name. Ids are sorted."""

    def __init__(self, path: Path) -> None:
        self.path = existing_file(path, "zip file")
        self._zip: ZipFile | None = None
        self._ids: tuple[str, ...] = ()
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        self._opened()
        return self._ids

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

    def close(self) -> None:
        """Close the file; it is opened again when it is next used."""
        with self._lock:
            if self._zip is not None:
                self._zip.close()
                self._zip = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]

    def _opened(self) -> ZipFile:
        from zipfile import BadZipFile, ZipFile

        with self._lock:
            if self._zip is None:
                try:
                    archive = ZipFile(self.path)
                except (BadZipFile, EOFError) as error:
                    raise BadFile(
                        self.path, f"is no zip file ({error})", fix="fetch or write the file again"
                    ) from None
                try:
                    self._names = _zip_names(archive, self.path)
                except BaseException:
                    archive.close()
                    raise
                self._ids = tuple(sorted(self._names))
                self._zip = archive
            return self._zip


def _zip_names(archive: ZipFile, path: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for info in archive.infolist():
        if info.is_dir():
            continue
        image_id = _member_id(info.filename, path)
        if is_image_name(image_id):
            if image_id in names:
                raise _twice(path, image_id)
            names[image_id] = info.filename
    return names


def _members(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each image in a tar file."""
    import tarfile

    with path.open("rb") as handle:
        start = handle.read(6)
    for magic, kind in _COMPRESSED.items():
        if start.startswith(magic):
            raise BadFile(
                path,
                f"is compressed with {kind}, so images in it cannot be read directly",
                fix="unpack it once, to a folder or to a plain tar file",
            )
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
                    raise BadFile(path, f"{image_id} is no plain file", fix="pack the files anew")
                if member.offset_data + member.size > length:
                    raise BadFile(path, f"ends inside {image_id}", fix="fetch the file again")
                yield image_id, member.offset_data, member.size
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise BadFile(
            path, f"is no whole tar file ({error})", fix="fetch or write the file again"
        ) from None


def _member_id(name: str, path: Path) -> str:
    """The id of a member; one whose name could lead out of a folder is refused."""
    while name.startswith("./"):
        name = name[2:]
    try:
        return check_id(name)
    except UserError:
        raise BadFile(
            path,
            f"has a member called {name!r}, which is no safe path",
            fix="do not use this archive, or pack it anew",
        ) from None


def _twice(path: Path, name: str) -> BadFile:
    return BadFile(path, f"{name} is there twice", fix="give every image its own name")
