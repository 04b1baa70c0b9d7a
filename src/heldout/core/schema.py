"""Typed reading and writing of our own JSON and TOML: the type of a file says what it may hold.

A file format is a :class:`Document`: a frozen msgspec Struct that refuses unknown fields. Reading,
validation and the error for a wrong file all come from the type::

    class Sidecar(Document, kw_only=True):
        schema_version: int = 1
        height: int
        width: int

    sidecar = read(path, Sidecar, fix="write it again with heldout model describe")
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from heldout.core.errors import BadFile
from heldout.core.files import (
    check_version,
    existing_file,
    read_json,
    sealed,
    unsealed,
    write_text,
)

T = TypeVar("T")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of ours. Give it a field ``schema_version: int = N``: newer files are refused."""


def read(path: Path, kind: type[T], *, fix: str = "") -> T:
    """The document in a JSON or TOML file (``.toml``), checked against its type.

    One that is sealed, and not as it was written, is refused. ``fix`` is what to do about a wrong
    file, such as the command that writes it again.
    """
    value = read_plain(path)
    if isinstance(value, dict) and "check" in value:
        value = unsealed(value, path, fix=fix or "restore it")
    return convert(value, kind, where=path, fix=fix)


def read_facts(path: Path, kind: type[T], *, newest: int, fix: str = "") -> T:
    """The object in a JSON file, checked against a TypedDict; what that does not name is kept.

    One that is not as it was written is refused.
    """
    value = read_plain(path)
    check_version(value, path, newest)
    value = unsealed(value, path, fix=fix or "restore it")
    convert(value, kind, where=path, fix=fix)
    return cast("T", value)


def convert(value: object, kind: type[T], *, where: Path, fix: str = "") -> T:
    """A parsed value as ``kind``; the error names the file ``where`` it stood and the field."""
    newest = _newest(kind)
    if newest is not None:
        check_version(value, where, newest)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise BadFile(where, _reason(str(error), kind), fix=fix) from None


def write(path: Path, document: Document, *, seal: bool = False) -> None:
    """Write a document as JSON, atomically; fields in the order in which the type states them.

    ``seal``  adds a hash over all that it says: for files that numbers come from and nobody edits
    """
    plain = msgspec.to_builtins(document)
    if seal:
        plain = sealed(plain)
    write_text(path, json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_plain(path: Path) -> Any:
    """The value of any JSON or TOML file; a missing or broken one is a user error naming it."""
    if path.suffix.lower() != ".toml":
        return read_json(path)
    try:
        return tomllib.loads(existing_file(path, "file").read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"not valid TOML ({error})", fix="correct the file") from None


def _newest(kind: Any) -> int | None:
    """The newest schema version that a type reads: the default of its field."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return None
    for field in msgspec.structs.fields(kind):
        if field.name == "schema_version":
            return int(field.default)
    return None


def _reason(message: str, kind: Any) -> str:
    """The validator's message in the words of our errors, with the field that may be meant."""
    unknown = _UNKNOWN.search(message)
    where = re.search(r" - at `\$\.?(.*?)`$", message)
    field = where[1] if where else ""
    if unknown:
        near: list[str] = []
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            names = [field.encode_name for field in msgspec.structs.fields(kind)]
            near = difflib.get_close_matches(unknown[1], names, 1)
        inside = f" in {field}" if field else ""
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"has an unknown field {unknown[1]!r}{inside}{hint}"
    plain = message.partition(" - at ")[0].replace("`", "")
    return f"{field}: {plain}" if field else plain
