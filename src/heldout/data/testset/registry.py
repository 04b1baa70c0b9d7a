"""The registry of published test sets: a TOML file, read and checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound
from heldout.core.workspace import check_slug

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
        raise BadFile(path, f"not valid TOML ({error})", fix="mend the file") from None
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
        return BadFile(self.path, f"{where} {message}", fix="mend the registry")

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
