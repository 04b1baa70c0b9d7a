"""Files: atomic writes, locks, CSV, JSON with a schema version, hashes.

Every file that heldout writes goes through :func:`atomic_path`, so a reader (or a run after
``kill -9``) sees the old file, the new file, or none; never half of one.

Whoever writes a temporary file or folder holds a lock on it. The operating system drops the locks
of a process that dies, so what nobody holds is left over, and the next writer in that folder
removes it. (Ids of processes would not do: they are used again, and machines may share a folder.)
"""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound, UserError

_TEMPORARY = ".tmp-"
_HOLD = f"{_TEMPORARY}hold-"
_NAME = re.compile(r"\.tmp-(?:hold|([0-9a-f]{8})[0-9a-f]{24})-(old-)?")
_SECTOR = 4096
_MANY_DIGITS = re.compile("[0-9]{19}")
_LONGEST = 200  # bytes of a name up to which its temporary name has all of it
_swept: set[Path] = set()


@contextmanager
def atomic_path(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block succeeds.

    ``durable``  forced onto the disk first; not for what may be lost with the power
    """
    with _own(path) as temporary:
        try:
            yield temporary
            if durable:
                with temporary.open("rb") as handle:
                    os.fsync(handle.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; rename it to ``path`` when the block succeeds.

    With ``replace`` an existing folder is exchanged with the new one in one step where the system
    can (Linux), so that an interruption leaves the one or the other. Elsewhere it is moved aside
    first and removed last: nothing is lost, but an interruption between the two renames leaves
    the old folder under its temporary name.
    """
    with _own(path, folder=True) as temporary:
        old: Path | None = None
        try:
            yield temporary
            try:
                temporary.rename(path)
            except OSError:
                if not (replace and path.exists()):
                    raise
                if not _exchange(temporary, path):
                    old = _beside(path, "old-")
                    path.rename(old)
                    temporary.rename(path)
        finally:
            if old is not None and not path.exists():
                old.rename(path)
            for leftover in (temporary, old):
                if leftover is not None:
                    _remove(leftover)


@contextmanager
def _own(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new temporary beside ``path``, held by this process for the block."""
    _sweep_once(path.parent)
    with ExitStack() as stack:
        while True:
            temporary = _beside(path)
            with suppress(FileNotFoundError):  # swept before it was held
                path.parent.mkdir(parents=True, exist_ok=True)
                if folder:
                    temporary.mkdir()
                new = 0 if folder else os.O_CREAT | os.O_EXCL
                stack.enter_context(locked(temporary, flags=new))
                break
        yield temporary


@contextmanager
def locked(
    path: Path, *, shared: bool = False, wait: bool = True, flags: int = 0
) -> Iterator[bool]:
    """Lock the file or folder at ``path`` for the block; False where there are no locks.

    ``flags``  further ones to open a file with, such as ``os.O_CREAT``
    BlockingIOError where another has it and this one does not ``wait``; FileNotFoundError where
    it is not there, or has been removed or replaced while this one waited.
    """
    if sys.platform == "win32":
        yield False
        return
    import fcntl

    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:  # a network file system wants a lock's file open for writing
        handle = os.open(path, os.O_RDWR | flags, 0o666)
    except IsADirectoryError:
        handle = os.open(path, os.O_RDONLY)
    try:
        known = True
        try:
            fcntl.flock(handle, how)
        except BlockingIOError:
            raise
        except OSError:
            known = False
        if not os.path.samestat(os.fstat(handle), path.stat()):
            raise FileNotFoundError(path)
        yield known
    finally:
        with suppress(OSError):  # also for workers that were forked meanwhile
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


@contextmanager
def lock_file(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file that is only there for it, and is made if need be."""
    with ExitStack() as stack:
        while True:
            with suppress(FileNotFoundError):  # removed before it was held
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(path, shared=shared, flags=os.O_CREAT))
                break
        yield


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep ``path`` from all others who ask for it for the block: they wait.

    For what looks at a file or folder and then writes it. Where there are no locks nobody waits.
    """
    path = path.resolve()
    _sweep_once(path.parent)
    lock = path.parent / f"{_HOLD}{_fitting(path.name)}"
    with lock_file(lock):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def left_over(path: Path) -> Iterator[bool | None]:
    """Whether whoever wrote a temporary has died; None where that cannot be known.

    It cannot where there are no locks, nor of what another machine or an earlier version wrote:
    locks of one machine may be unknown to another. False also for what is not of heldout, and for
    the only copy of something. For the block nobody else holds it.
    """
    with ExitStack() as stack:
        try:
            known = stack.enter_context(locked(path, wait=False))
        except OSError:  # held, or gone
            yield False
            return
        named = _NAME.match(path.name)
        # What a replacement moved aside may be the only copy.
        aside = named and named[2] and not (path.parent / path.name[named.end() :]).exists()
        if named is None or aside:
            yield False
        else:
            yield True if known and named[1] in (None, _machine()) else None


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders directly in ``folder`` that dead writers left."""
    for path in sorted(folder.glob(f"{_TEMPORARY}*")):
        with left_over(path) as left:
            if left:
                _remove(path)


def _sweep_once(folder: Path) -> None:
    """Sweep a folder when this process first writes there: not for each of a million files."""
    folder = folder.absolute()
    if folder not in _swept:
        _swept.add(folder)
        sweep(folder)


def _remove(path: Path) -> None:
    while path.exists():
        with suppress(FileNotFoundError):  # another process removes it too
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _machine() -> str:
    """Eight digits for this machine, by its name."""
    return sha256_text(platform.node())[:8]


def _beside(path: Path, mark: str = "") -> Path:
    """A temporary name in the same folder."""
    name = f"{_machine()}{os.urandom(12).hex()}-{mark}{_fitting(path.name)}"
    return path.parent / f"{_TEMPORARY}{name}"


def _fitting(name: str) -> str:
    """The name, or one of its own for a name so long that no temporary name could hold it."""
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    return f"{name[:40]}-{sha256_text(name)[:16]}"


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths in one step; False where the system or the file system cannot."""
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def remove_folder(path: Path) -> None:
    """Remove a folder so that an interruption never leaves a part of it under its own name."""
    gone = _beside(path)
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    _remove(gone)


def is_temporary(path: Path) -> bool:
    """Whether ``path`` is something an interrupted write left behind."""
    return path.name.startswith(_TEMPORARY)


def is_set_aside(path: Path, folder: Path) -> bool:
    """Whether ``path`` is the old ``folder`` that a replacement moved aside and did not remove."""
    return _left(path, "old-", folder)


def is_unfinished(path: Path, folder: Path) -> bool:
    """Whether ``path`` is what an interrupted write of ``folder`` itself left beside it."""
    return _left(path, "", folder)


def _left(path: Path, mark: str, folder: Path) -> bool:
    name = re.escape(f"-{mark}{_fitting(folder.name)}")
    return re.fullmatch(rf"{re.escape(_TEMPORARY)}[0-9a-f]{{32}}{name}", path.name) is not None


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """CSV with a header; nulls are empty cells; lines end with a plain newline.

    >>> csv_text(["a", "b"], [[1, None], ["x,y", 2.5]])
    'a,b\\n1,\\n"x,y",2.5\\n'
    """
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerows(map(csv_cells, chain([header], rows)))
    return "".join(lines)


FORMULA = r"'*[=+\-@\t\r]"
"""How a text begins that a spreadsheet would run, or that :func:`csv_cells` has marked."""
_FORMULA = re.compile(FORMULA)
_NUMBER = re.compile(r"-?(\.?[0-9][0-9.]*([eE][+-]?[0-9]+)?)?\Z")


def csv_cells(row: Iterable[Any]) -> list[Any]:
    """A row as a spreadsheet may open it: nulls empty, and an apostrophe before each text that it
    would take for a formula. Numbers stay. Readers of CSV undo it with :func:`csv_text_of`.

    >>> csv_cells(["=1+1", "-0.5", -0.5, "'=", "it's", None])
    ["'=1+1", '-0.5', -0.5, "''=", "it's", '']
    """
    return ["" if cell is None else f"'{cell}" if _runs(cell) else cell for cell in row]


def _runs(cell: object) -> bool:
    return isinstance(cell, str) and bool(_FORMULA.match(cell)) and not _NUMBER.match(cell)


def csv_text_of(cell: str) -> str:
    """The text that :func:`csv_cells` wrote as ``cell``.

    >>> csv_text_of("'=1+1"), csv_text_of("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


class _Lines(list[str]):
    """Rows as ``csv`` writes them, one at a time, with a plain newline at their end.

    It quotes a cell for the characters of the line's end alone: given a plain newline, it would
    write a carriage return bare, which readers take for the end of a row.
    """

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` atomically as UTF-8 with plain newlines."""
    write_bytes(path, text.encode("utf-8"))


_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    >>> canonical_json({"b": 1, "a": [1.5, None]})
    '{"a":[1.5,null],"b":1}'
    """
    return _CANONICAL.encode(value)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one JSON object atomically; it must carry ``schema_version``."""
    if "schema_version" not in value:
        raise ValueError(f"{path.name}: a JSON file of heldout needs a schema_version")
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, *, unique_keys: bool = False) -> Any:
    """Read any JSON file; a missing or broken one is a user error that names it.

    ``unique_keys`` refuses an object with a key twice, of which JSON readers keep the last only.
    """

    try:
        with open_file(path) as handle:
            return parse_json(handle.read(), unique_keys=unique_keys)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFound(f"no file {path}", fix="check the path") from None
    except ValueError as error:
        raise BadFile(
            path, f"not valid JSON ({error})", fix="fetch or write the file again"
        ) from None


def parse_json(data: bytes | str, *, unique_keys: bool = False) -> Any:
    """The value of JSON text that every other writer can write again; else a ValueError.

    Refused are NaN, halves of characters, nesting deeper than Python's calls, and integers of more
    than 64 bits, which neither tables nor arrays hold.
    """
    import msgspec

    if isinstance(data, bytes):
        data = data.decode(json.detect_encoding(data))
    try:
        value = msgspec.json.decode(data)
        if unique_keys or _MANY_DIGITS.search(data):
            json.loads(data, object_pairs_hook=_once if unique_keys else None, parse_int=_int64)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def _int64(digits: str) -> int:
    value = int(digits)
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"the integer {digits[:24]} has more than 64 bits")
    return value


def read_versioned_json(path: Path, *, version: int) -> dict[str, Any]:
    """Read a JSON object that heldout wrote; refuse one of a newer schema, or one that was changed."""
    value: dict[str, Any] = read_json(path)
    check_version(value, path, version)
    return unsealed(value, path)


def check_version(value: object, path: Path, newest: int) -> None:
    """Refuse a value that is not an object with a schema version, or that has a newer one."""
    version = value.get("schema_version") if isinstance(value, dict) else None
    if not isinstance(version, int):
        raise BadFile(path, "has no schema_version", fix="it was not written by heldout")
    if version > newest:
        raise BadFile(
            path,
            f"has schema_version {version}, this heldout reads up to {newest}",
            fix="upgrade heldout",
        )


def open_file(path: Path) -> BufferedReader:
    """A file, open for reading. A pipe, a device or a socket is a user error: it may keep its reader
    waiting, or never end."""

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    try:
        handle = open(path, "rb", opener=at_once)  # noqa: SIM115  the caller closes it
        if stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            return handle
        handle.close()
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.ENODEV):  # as a socket answers
            raise
    raise BadFile(path, "is not a regular file", fix="remove it, or replace it by a file")


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with ``check``, a hash over everything that it says, as its last field."""
    return {**record, "check": sha256_text(canonical_json(record))[:32]}


def unsealed(record: dict[str, Any], path: Path, *, fix: str = "restore it") -> dict[str, Any]:
    """The object without its ``check``; one that is not as it was written is refused.

    Without that field, as in files written before there was one, it is taken as it is.
    """
    rest = {name: value for name, value in record.items() if name != "check"}
    try:
        whole = sealed(rest)["check"] == record.get("check", sealed(rest)["check"])
    except ValueError:  # a number or a text that is never written
        whole = False
    if not whole:
        raise BadFile(
            path,
            "is not as it was written",
            fix=f"{fix}; if it was changed on purpose, remove its field check",
        )
    return rest


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open_file(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """The SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def checksum(data: Any) -> str:
    """A check of stored bytes (any contiguous buffer), as 32 hexadecimal digits.

    It finds damage, at the speed of memory: the sum of every 4 KiB as 64-bit words, then a hash of
    the sums, of what is left over and of the length. One changed word always changes it, and so
    do sectors that are lost or exchanged. It is no proof against a forger.
    """
    import numpy as np

    view = memoryview(data).cast("B")
    whole = len(view) // _SECTOR * _SECTOR
    words = np.frombuffer(view[:whole], "<u8").reshape(-1, _SECTOR // 8)
    digest = hashlib.blake2b(words.sum(axis=1, dtype="<u8"), digest_size=16)
    digest.update(view[whole:])
    digest.update(len(view).to_bytes(8, "little"))
    return digest.hexdigest()


def mapped(path: Path) -> memoryview:
    """The bytes of a file, mapped into memory: only what is looked at is read."""
    import mmap

    with path.open("rb") as handle:
        if not os.fstat(handle.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))


def damaged(path: Path, fix: str) -> BadFile:
    """The error for a file whose bytes are not those of its checksum."""
    return BadFile(path, "is damaged: its bytes are not those that were written", fix=fix)


def existing_file(path: Path, what: str) -> Path:
    """``path`` if it is a file, else a user error that says ``what`` was expected there."""
    if not path.is_file():
        raise NotFound(f"no {what} at {path}", fix="check the path")
    return path


def existing_folder(path: Path, what: str) -> Path:
    """``path`` if it is a folder, else a user error that says ``what`` was expected there."""
    if not path.is_dir():
        raise NotFound(f"no {what} at {path}", fix="check the path")
    return path


def check_writable(path: Path | None, *, folder: bool = False) -> None:
    """Refuse a path that no file, or no folder, can be written to, before the work and not after it."""
    if path is None:
        return
    if path.is_dir() and not folder:
        raise UserError(f"{path} is a folder", fix="name a file")
    for place in path.parents:
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file", fix=f"{path} cannot be in it; name another file")
