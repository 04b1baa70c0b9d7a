"""What an export is: a folder written whole or not at all, with a file that says what is in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import ExistsError, UserError
from heldout.core.files import atomic_folder, read_json, sha256_file, write_json
from heldout.data.testset.testset import TestSet

SCHEMA_VERSION = 1
RECORD = "export.json"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An image that an export had to leave out, and why."""

    image_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a builder wrote: rows of the manifest, copied image files, failures, notes."""

    rows: int
    copied: int = 0
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Export:
    """The result of an export.

    ``rows``       images (once for each class they have) in the export
    ``copied``     image files written
    ``failures``   images left out, in the order of the set
    ``notes``      what a reader of the format should know
    ``unchanged``  the same export was there already and nothing was written
    """

    format: str
    folder: str
    testset: str
    content_hash: str
    truth: str
    rows: int
    copied: int
    files: int
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    unchanged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def write_export(
    testset: TestSet,
    folder: Path,
    build: Callable[[Path], Written],
    *,
    form: str,
    truth: str,
    options: Mapping[str, Any],
    replace: bool = False,
) -> Export:
    """Let ``build`` fill a temporary folder, then rename it to ``folder``.

    ``export.json`` in it records the test set, the options and the SHA-256 of every file. The same
    export again changes nothing. Anything else in ``folder`` is refused; with ``replace`` another
    export is replaced, and something that is no export never.
    """
    key = {
        "format": form,
        "testset": testset.name,
        "content_hash": testset.card.content_hash,
        "truth": truth,
        "options": dict(options),
    }
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        known = _recorded(folder)
        if known is None:
            raise ExistsError(f"{folder} exists and is no export", fix="name another folder")
        if not replace:
            if {name: known.get(name) for name in key} != key:
                raise ExistsError(
                    f"{folder} holds another export ({known.get('format')} of "
                    f"{known.get('testset')})",
                    fix="name another folder, or use --replace",
                )
            changed = _changed(folder, known)
            if changed:
                raise ExistsError(
                    f"{folder} holds this export, but {changed[0]} is not as it was written",
                    fix="use --replace to write it again",
                )
            if not known["failures"]:
                return _export(key, folder, known, unchanged=True)
            replace = True  # incomplete: try again for the images that failed
    with atomic_folder(folder, replace=replace) as temporary:
        written = build(temporary)
        failures = tuple(dict.fromkeys(written.failures))  # an image of two classes fails once
        written = dataclasses.replace(written, failures=failures)
        if written.rows == 0:
            reason = f", such as {_shown(written.failures[0])}" if written.failures else ""
            raise UserError(
                f"no image of {testset.name} could be exported{reason}",
                fix="name the folder of its images with --images",
            )
        files = {
            path.relative_to(temporary).as_posix(): sha256_file(path)
            for path in sorted(temporary.rglob("*"))
            if path.is_file()
        }
        record = {"schema_version": SCHEMA_VERSION, **key, **asdict(written), "files": files}
        write_json(temporary / RECORD, record)
    return _export(key, folder, record)


def _shown(failure: Failure) -> str:
    return f"{failure.image_id}: {failure.reason}"


def _export(
    key: Mapping[str, Any], folder: Path, record: Mapping[str, Any], *, unchanged: bool = False
) -> Export:
    return Export(
        format=key["format"],
        folder=str(folder),
        testset=key["testset"],
        content_hash=key["content_hash"],
        truth=key["truth"],
        rows=record["rows"],
        copied=record["copied"],
        files=len(record["files"]),
        failures=tuple(Failure(**failure) for failure in record["failures"]),
        notes=tuple(record["notes"]),
        unchanged=unchanged,
    )


def _recorded(folder: Path) -> dict[str, Any] | None:
    """The record of the export in ``folder``; None where there is none that can be read."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        value = read_json(path)
    except UserError:
        return None
    wanted = {"rows": int, "copied": int, "files": dict, "failures": list, "notes": list}
    good = isinstance(value, dict) and all(
        isinstance(value.get(name), kind) for name, kind in wanted.items()
    )
    return value if good else None


def _changed(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """Files that are missing, changed or new since the export was written, sorted."""
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    there.pop(RECORD, None)
    recorded: dict[str, str] = record["files"]
    changed = set(recorded.keys() ^ there.keys())
    changed |= {
        name
        for name, digest in recorded.items()
        if name in there and sha256_file(there[name]) != digest
    }
    return sorted(changed)
