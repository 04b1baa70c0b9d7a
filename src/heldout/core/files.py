"""Files: atomic writes, CSV, JSON with a schema version, hashes.

Every file that heldout writes goes through :func:`atomic_path`, so a reader (or a run after
``kill -9``) sees the old file, the new file, or none; never half of one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound, UserError

_TEMPORARY = ".tmp-"
_SECTOR = 4096
_MANY_DIGITS = re.compile("[0-9]{19}")
_LONGEST = 200  # bytes of a name up to which its temporary name has all of it


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    try:
        yield temporary
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    temporary.mkdir()
    old: Path | None = None
    try:
        yield temporary
        if not (replace and path.exists()):
            temporary.rename(path)
        elif not _exchange(temporary, path):
            old = _beside(path, "old-")
            path.rename(old)
            temporary.rename(path)
    finally:
        if old is not None and not path.exists():
            old.rename(path)
        for leftover in (temporary, old):
            if leftover is not None and leftover.exists():
                shutil.rmtree(leftover)


def _beside(path: Path, mark: str = "") -> Path:
    """A temporary name in the same folder."""
    return path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}-{mark}{_fitting(path.name)}"


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
    shutil.rmtree(gone)


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
    writer.writerow(header)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return "".join(lines)


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


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    >>> canonical_json({"b": 1, "a": [1.5, None]})
    '{"a":[1.5,null],"b":1}'
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


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
        return parse_json(path.read_bytes(), unique_keys=unique_keys)
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


def sha256_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as handle:
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


def check_writable(path: Path | None) -> None:
    """Refuse a path that no file can be written to, before the work and not after it."""
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder", fix="name a file")
    for place in path.parents:
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file", fix=f"{path} cannot be in it; name another file")
