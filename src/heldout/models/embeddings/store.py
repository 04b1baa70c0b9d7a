"""Vectors by id: the folder that embedding writes, and files that others wrote.

::

    FOLDER/
      embedding.json     schema_version, name, encoder, dimension, rows, what was embedded
      vectors.npy        float32 or float16 (rows, d); a row of NaN has no vector
      ids.txt            one id a line, in the order of the rows

``FILE.npy`` with ``FILE.ids.txt`` beside it, and ``.npz`` files with the arrays ``vectors`` and
``ids``, are read as well. Arrays of a folder or a ``.npy`` file are mapped into memory, never read
whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.core.files import (
    atomic_folder,
    read_versioned_json,
    sha256_file,
    write_json,
    write_text,
)

SCHEMA_VERSION = 1
_HEAD, _VECTORS, _IDS = "embedding.json", "vectors.npy", "ids.txt"
_IDS_FIX = "write one id a line, in the order of the rows"


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors by id: ``vectors`` float (n, d), ``ids`` in the same order, ``facts`` of their origin."""

    ids: Sequence[str]
    vectors: np.ndarray
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


def write_embeddings(folder: Path, embeddings: Embeddings, *, replace: bool = False) -> None:
    """Write vectors to a folder, block by block."""
    vectors = embeddings.vectors
    with atomic_folder(folder, replace=replace) as temporary:
        if vectors.size:
            made = np.lib.format.open_memmap(
                temporary / _VECTORS, mode="w+", dtype=vectors.dtype, shape=vectors.shape
            )
            for start in range(0, len(vectors), 65_536):
                made[start : start + 65_536] = vectors[start : start + 65_536]
            made.flush()
            del made
        else:
            np.save(temporary / _VECTORS, vectors)
        write_text(temporary / _IDS, "".join(f"{name}\n" for name in embeddings.ids))
        head = {
            "schema_version": SCHEMA_VERSION,
            "rows": len(vectors),
            "dimension": int(vectors.shape[1]),
            "dtype": vectors.dtype.name,
            **embeddings.facts,
        }
        write_json(temporary / _HEAD, head)


def is_embeddings(path: Path) -> bool:
    """Whether a path is a folder of vectors or a file of them."""
    return (path / _HEAD).is_file() or (path.suffix in (".npy", ".npz") and path.is_file())


def read_embeddings(path: Path) -> Embeddings:
    """Read vectors from a folder, a ``.npy`` file with its ids beside it, or a ``.npz`` file."""
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise NotFound(f"no embeddings at {path}", fix="give a folder, a .npy or a .npz file")
    if path.suffix == ".npz":
        return _read_npz(path)
    ids = path.with_suffix(".ids.txt")
    if not ids.is_file():
        raise NotFound(f"{path} has no ids beside it", fix=f"{_IDS_FIX}, to {ids.name}")
    facts = {"file": path.name, "sha256": sha256_file(path), "ids_sha256": sha256_file(ids)}
    return _checked(path, _load(path), _read_ids(ids), facts)


def _read_folder(path: Path) -> Embeddings:
    if not (path / _HEAD).is_file():
        raise NotFound(f"{path} has no {_HEAD}", fix="give a folder that heldout annotate wrote")
    head = read_versioned_json(path / _HEAD, version=SCHEMA_VERSION)
    found = _checked(path / _VECTORS, _load(path / _VECTORS), _read_ids(path / _IDS), head)
    if len(found) != head.get("rows"):
        raise BadFile(
            path / _HEAD, f"says {head.get('rows')} rows, there are {len(found)}", fix="embed again"
        )
    return found


def _read_npz(path: Path) -> Embeddings:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            vectors, ids = arrays["vectors"], arrays["ids"]
    except KeyError:
        raise BadFile(path, "lacks the arrays vectors and ids", fix="save both") from None
    except (OSError, ValueError) as error:
        raise BadFile(
            path, f"cannot be read ({error})", fix="save it again without objects"
        ) from None
    if ids.ndim != 1:
        raise BadFile(path, f"ids are {ids.shape}", fix=_IDS_FIX)
    facts = {"file": path.name, "sha256": sha256_file(path)}
    return _checked(path, vectors, [str(name) for name in ids.tolist()], facts)


def _load(path: Path) -> np.ndarray:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="embed again")
    try:
        made: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadFile(path, f"is no array of numbers ({error})", fix="save it again") from None
    return made


def _read_ids(path: Path) -> list[str]:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix=_IDS_FIX)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []


def _checked(
    path: Path, vectors: np.ndarray, ids: Sequence[str], facts: Mapping[str, Any]
) -> Embeddings:
    if vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise BadFile(
            path, f"holds {vectors.dtype} {vectors.shape}", fix="give floats, one row an image"
        )
    if len(ids) != len(vectors):
        raise MismatchError(f"{path} has {len(vectors)} rows and {len(ids)} ids", fix=_IDS_FIX)
    if len(set(ids)) != len(ids) or "" in ids:
        raise BadFile(path, "has an id twice, or an empty one", fix="give every row its own id")
    return Embeddings(ids, vectors, facts)
