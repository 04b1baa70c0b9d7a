"""Text files that belong together in one folder, never written over anything else.

``<kind>.json`` among them says what they are and holds the SHA-256 of each, so that the same
content again is no change, and what was written here can be told from what was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heldout.core.errors import ExistsError, UserError
from heldout.core.files import (
    atomic_folder,
    read_json,
    sha256_file,
    sha256_text,
    write_json,
    write_text,
)

SCHEMA_VERSION = 1


def write_documents(
    folder: Path,
    documents: Mapping[str, str],
    *,
    kind: str,
    about: Mapping[str, Any],
    replace: bool = False,
) -> bool:
    """Write ``documents`` (file name to text) and ``<kind>.json`` to ``folder``; False if unchanged.

    ``about``    what the record says beyond the hashes
    ``replace``  exchange what was written here before by something different

    Other files in the folder stay as they are. One that has the name of a document is refused,
    even with ``replace``, before anything is written.
    """
    digests = {name: sha256_text(text) for name, text in sorted(documents.items())}
    record = {"schema_version": SCHEMA_VERSION, "kind": kind, **about, "files": digests}
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            _write(temporary, documents, kind, record)
        return True
    if not folder.is_dir():
        raise ExistsError(f"{folder} is a file", fix="name a folder")
    known = _recorded(folder, kind)
    ours: dict[str, str] = known.get("files", {})
    own = f"{kind}.json"
    for name in (*documents, own):
        if (folder / name).exists() and name not in ours and not (known and name == own):
            raise ExistsError(
                f"{folder / name} is there and was not written as part of a {kind}",
                fix="name another folder",
            )
    if known == record and not _changed(folder, digests):
        return False
    if known and not replace:
        raise ExistsError(
            f"{folder} holds another {kind}", fix="name another folder, or use --replace"
        )
    # The record covers old and new names while files change: an interruption orphans none.
    write_json(folder / own, {**record, "files": ours | digests})
    for name, digest in ours.items():
        if name not in digests and not _changed(folder, {name: digest}):
            (folder / name).unlink()
    _write(folder, documents, kind, record)
    return True


def _write(
    folder: Path, documents: Mapping[str, str], kind: str, record: Mapping[str, Any]
) -> None:
    for name, text in documents.items():
        write_text(folder / name, text)
    write_json(folder / f"{kind}.json", record)


def _changed(folder: Path, digests: Mapping[str, str]) -> bool:
    """Whether a file is missing or is not as it was written."""
    return any(
        not (folder / name).is_file() or sha256_file(folder / name) != digest
        for name, digest in digests.items()
    )


def _recorded(folder: Path, kind: str) -> dict[str, Any]:
    """The record in ``folder``; empty where there is none that can be read."""
    path = folder / f"{kind}.json"
    if not path.is_file():
        return {}
    try:
        value = read_json(path)
    except UserError:
        return {}
    good = (
        isinstance(value, dict)
        and value.get("kind") == kind
        and isinstance(value.get("files"), dict)
        and all(Path(name).name == name for name in value["files"])  # none leads elsewhere
    )
    return value if good else {}
