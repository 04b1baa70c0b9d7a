"""Whose inputs these are: a table of files with licence, attribution and source beside them.

::

    file,licence,attribution,source
    field1.jpg,CC-BY-2.0,Okko Pyykkö,https://…

as CSV, as JSON (a list of such objects, or an object by file), or as TOML (``[[image]]`` tables, or
one table a file). A file is named by its path below the folder, its name, or its name without
ending.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heldout.core.errors import BadFile

NAMES = ("attributions.csv", "attributions.json", "attributions.toml")
"""Files that are looked for in a folder of inputs."""
_FIELDS = {
    "file": ("file", "image", "image_id", "path", "name"),
    "licence": ("licence", "license"),
    "attribution": ("attribution", "author", "by"),
    "source": ("source", "url", "uri"),
}


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The terms of one file; None where nothing is said."""

    licence: str | None = None
    attribution: str | None = None
    source: str | None = None


class Attributions:
    """Terms by file."""

    def __init__(self, rows: Mapping[str, Attribution]) -> None:
        self._rows = dict(rows)

    def of(self, path: str) -> Attribution:
        """The terms of a file, named by its path below the folder; empty where there are none."""
        plain = PurePosixPath(path)
        for key in (path, plain.name, plain.stem):
            if key in self._rows:
                return self._rows[key]
        return Attribution()

    def unused(self, paths: Iterable[str]) -> list[str]:
        """Rows that name none of these files."""
        known = {key for p in map(PurePosixPath, paths) for key in (str(p), p.name, p.stem)}
        return sorted(key for key in self._rows if key not in known)


def find_attributions(folder: Path, file: Path | None = None) -> Attributions:
    """The table that is named, else the one that lies in ``folder``, else an empty one."""
    if file is not None:
        return read_attributions(file)
    for name in NAMES:
        if (folder / name).is_file():
            return read_attributions(folder / name)
    return Attributions({})


def read_attributions(path: Path) -> Attributions:
    """Read a table of attributions."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".csv":
            rows: Any = list(csv.DictReader(io.StringIO(text)))
        else:
            rows = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (OSError, ValueError, csv.Error) as error:
        raise BadFile(path, f"cannot be read ({error})", fix="mend the file") from None
    if isinstance(rows, dict):
        rows.pop("schema_version", None)
        listed = [value for value in rows.values() if isinstance(value, list)]
        rows = (
            listed[0]
            if len(rows) == 1 and listed
            else [{"file": key, **value} for key, value in rows.items() if isinstance(value, dict)]
        )
    found: dict[str, Attribution] = {}
    for number, row in enumerate(rows if isinstance(rows, list) else [None], 1):
        if not isinstance(row, dict):
            raise BadFile(path, "is no table of files", fix="write file,licence,attribution,source")
        fields = {name: _field(row, keys) for name, keys in _FIELDS.items()}
        file = fields.pop("file")
        if file is None:
            raise BadFile(path, f"row {number} names no file", fix="give a column file")
        if file in found:
            raise BadFile(path, f"names {file} twice", fix="keep one row")
        found[file] = Attribution(**fields)
    return Attributions(found)


def _field(row: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    lowered = {str(key).strip().lower(): value for key, value in row.items()}
    for key in keys:
        text = str(lowered.get(key) or "").strip()
        if text:
            return " ".join(text.split())
    return None
