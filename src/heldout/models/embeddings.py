"""Vectors of images and texts: made by an encoder, kept in a workspace, or read from files.

The vectors of a pool are kept under what they depend on, the encoder and the images:
``embeddings/<encoder>@<12 hex>/<12 hex of the images>/``. Other classes, templates or similarities
never run the encoder on an image again. ::

    FOLDER/
      embedding.json     schema_version, name, encoder, dimension, rows, what was embedded, checksums
      vectors.npy        float32, float16 or uint8 (rows, d); a row of NaN has no vector
      ids.txt            one id per line, in the order of the rows
      sha256.txt         the hash of each image's file; an empty line: it is not known, or the image
                         could not be read. Images of equal hash are encoded once

``FILE.npy`` with ``FILE.ids.txt`` beside it, and ``.npz`` files with the arrays ``vectors`` and
``ids``, are read as well. Arrays of a folder or a ``.npy`` file are mapped into memory, never read
whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from heldout.core.arrays import load_array, load_arrays
from heldout.core.engine import JobResults, Progress, Shard, Threads, Unit, no_progress, unit_key
from heldout.core.engine.jobs import ShardsMissing, map_units
from heldout.core.engine.results import remove_job, working
from heldout.core.errors import (
    BadFile,
    HeldoutError,
    MismatchError,
    NotApplicable,
    NotFound,
)
from heldout.core.files import (
    atomic_folder,
    canonical_json,
    checksum,
    damaged,
    is_temporary,
    mapped,
    sealed,
    sha256_file,
    sha256_text,
    write_json,
    write_text,
)
from heldout.core.schema import read_facts
from heldout.core.workspace import Workspace, slug
from heldout.data.images import BadImage, ImageSource
from heldout.data.testset.testset import TestSet
from heldout.models.adapters.model import Encoder
from heldout.models.predictions.pixels import (
    ImageFiles,
    image_files,
    load_pixels,
    not_the_sets_own,
)
from heldout.models.predictions.run_models import (
    BATCH,
    in_images,
    pack_arrays,
    unit_images,
    unpack_arrays,
)

SCHEMA_VERSION = 1
WORK = "embed-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""
_HEAD, _VECTORS, _IDS, _DIGESTS = "embedding.json", "vectors.npy", "ids.txt", "sha256.txt"
_IDS_FIX = "write one id per line, in the order of the rows"


class _Head(TypedDict):
    """``embedding.json``; what else is known of the origin stands beside these."""

    rows: int
    dimension: int
    dtype: str
    failures: NotRequired[dict[str, str]]
    files: NotRequired[dict[str, str]]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors by id: ``vectors`` float (n, d), ``ids`` in the same order, ``facts`` of their origin."""

    ids: Sequence[str]
    vectors: np.ndarray
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


def encoder_key(encoder: Encoder) -> str:
    """What vectors are filed under: SHA-256 of the encoder's identity and its preprocessing."""
    stated = {**encoder.identity, "preprocessing": encoder.preprocessing.to_dict()}
    return sha256_text(canonical_json(stated))


def encoder_facts(encoder: Encoder) -> dict[str, object]:
    """What is recorded of an encoder beside everything that it made."""
    return {
        "name": encoder.name,
        "key": encoder_key(encoder),
        "identity": dict(encoder.identity),
        "preprocessing": encoder.preprocessing.to_dict(),
        "dimension": encoder.dimension,
        "scale": encoder.scale,
    }


def embeddings_folder(workspace: Workspace, encoder: Encoder) -> Path:
    """Where a workspace keeps what an encoder made."""
    return workspace.root / "embeddings" / f"{slug(encoder.name)}@{encoder_key(encoder)[:12]}"


def embed(
    pool: TestSet,
    encoder: Encoder,
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    workers: int | None = None,
    shard: Shard | None = None,
    progress: Progress = no_progress,
) -> Embeddings:
    """Vectors of a pool's images, from the workspace or made now; the same call again resumes.

    An image that is in another set already (the same bytes) is not encoded again. One that cannot be
    read has a row of NaN (zeros where vectors are whole numbers), and is listed in
    ``facts["failures"]``; it is tried again by every call.
    With ``shard`` only that share is made here; until all shares are there, asking for the vectors
    is refused.
    """
    files = image_files(pool, images)
    ids = pool.images["image_id"].to_pylist()
    digests = files.digests
    listed = [[name, digest] for name, digest in zip(ids, digests, strict=True)]
    what = sha256_text(canonical_json(listed))
    parent = embeddings_folder(workspace, encoder)
    folder = parent / what[:12]
    key = encoder_key(encoder)
    work = EmbedWork(files, encoder)
    results = JobResults(workspace.runs / f"embed-{what[:12]}-{key[:12]}")

    def readable(failures: Mapping[int, str]) -> set[int]:
        # A file that was not there, or was looked for in the wrong folder, may be there by now.
        return {row for row in failures if not isinstance(work.pixels(row), BadImage)}

    if is_embeddings(folder) and None not in digests:
        known = read_embeddings(folder)
        noted = known.facts.get("failures", {})
        if not readable({row: noted[image] for row, image in enumerate(ids) if image in noted}):
            remove_job(results.folder)
            return known
    stored = _stored_rows(parent, digests)
    missing = [row for row in range(len(ids)) if row not in stored]
    size = unit_images(len(ids))
    chunks = [tuple(missing[start : start + size]) for start in range(0, len(missing), size)]
    units = [
        Unit(unit_key(WORK, images=[listed[row] for row in rows], encoder=key), rows)
        for rows in chunks
    ]

    def make(some: Sequence[Unit], share: Shard | None) -> dict[int, str]:
        total = sum(len(unit.payload) for unit in some)
        try:
            map_units(
                work,
                some,
                name=results.folder.name,
                what=f"vectors of {pool.name}",
                runs=workspace.runs,
                executor=Threads(workers),
                shard=share,
                progress=in_images(progress, total, len(some)),
            )
        except ShardsMissing:
            done = sum(len(unit.payload) for unit in some if results.has(unit.key))
            raise ShardsMissing(f"images of {pool.name}", done, total) from None
        failures: dict[int, str] = {}
        for unit in some:
            bad, _ = unpack_arrays(io.BytesIO(results.read(unit.key)))
            failures |= {unit.payload[place]: reason for place, reason in bad.items()}
        return failures

    with working(results):  # until the results are read: who does the same removes them then
        failures = make(units, shard)
        if rows := readable(failures):
            again = [unit for unit in units if not rows.isdisjoint(unit.payload)]
            for unit in again:
                results.path(unit.key).unlink(missing_ok=True)
            make(again, None)
            failures = make(units, None)
        if ids and len(failures) == len(ids):
            raise NotApplicable(
                f"none of the {len(ids)} images of {pool.name} could be read "
                f"({next(iter(failures.values()))})",
                fix="check where the images are (--images)",
            )
        facts = {
            "encoder": encoder_facts(encoder),
            "images": what,
            "images_without_hash": digests.count(None),
            "failures": {ids[row]: reason for row, reason in sorted(failures.items())},
        }
        lines = [digest if row not in failures else None for row, digest in enumerate(digests)]
        with _writing(folder, ids, facts, replace=True, digests=lines) as temporary:
            # Row by row into the file: the vectors of a large set are larger than memory.
            vectors = np.lib.format.open_memmap(
                temporary / _VECTORS, "w+", _dtype(encoder), (len(ids), encoder.dimension)
            )
            for row, (source, place) in stored.items():
                vectors[row] = source[place]
            for unit in units:
                _, made = unpack_arrays(io.BytesIO(results.read(unit.key)))
                vectors[list(unit.payload)] = made["vectors"]
            vectors.flush()
            del vectors
    remove_job(results.folder)
    return read_embeddings(folder)


def _dtype(encoder: Encoder) -> np.dtype[Any]:
    return np.dtype(getattr(encoder, "dtype", np.float32))


def _stored_rows(parent: Path, digests: Sequence[str | None]) -> dict[int, tuple[np.ndarray, int]]:
    """Rows whose image was encoded before, in whatever set: the array and the row in it."""
    rows: dict[str, list[int]] = {}
    for row, digest in enumerate(digests):
        if digest is not None:
            rows.setdefault(digest, []).append(row)
    found: dict[int, tuple[np.ndarray, int]] = {}
    for folder in sorted(parent.glob("*/")):
        if not rows or is_temporary(folder) or not (folder / _DIGESTS).is_file():
            continue
        places = {
            digest: place
            for place, digest in enumerate((folder / _DIGESTS).read_text("utf-8").splitlines())
            if digest in rows
        }
        if not places:
            continue
        try:
            vectors = read_embeddings(folder).vectors
        except BadFile:  # damaged: its rows are made again
            continue
        for digest, place in places.items():
            found |= dict.fromkeys(rows.pop(digest), (vectors, place))
    return found


@dataclass(frozen=True, eq=False)
class EmbedWork:
    """The work of an embedding job: ``work(rows) -> bytes``."""

    files: ImageFiles
    encoder: Encoder

    def __call__(self, rows: Sequence[int]) -> bytes:
        """Embed some rows; failures and vectors are by position among them."""
        good: list[int] = []
        pixels: list[np.ndarray] = []
        failures: dict[int, str] = {}
        for place, row in enumerate(rows):
            found = self.pixels(row)
            seen, own = self.files.seen.get(row), self.files.digests[row]
            if None not in (seen, own) and seen != own:
                raise not_the_sets_own(self.files.names[row])
            if isinstance(found, BadImage):
                failures[place] = f"{found.trouble}: {found.reason}"
            else:
                good.append(place)
                pixels.append(found)
        dtype = _dtype(self.encoder)
        nothing = np.nan if dtype.kind == "f" else 0
        vectors = np.full((len(rows), self.encoder.dimension), nothing, dtype)
        for first in range(0, len(good), BATCH):
            some = good[first : first + BATCH]
            made = self.encoder.encode_images(np.stack(pixels[first : first + BATCH]))
            if made.shape != (len(some), self.encoder.dimension):
                raise HeldoutError(
                    f"{self.encoder.name} gave vectors {made.shape} for {len(some)} images, "
                    f"its dimension is {self.encoder.dimension}"
                )
            vectors[some] = made
        for place in good:
            if not np.isfinite(vectors[place]).all():
                failures[place] = f"not finite: {self.encoder.name} gave no vector"
                vectors[place] = np.nan
        return pack_arrays(failures, {"vectors": vectors})

    def pixels(self, row: int) -> np.ndarray | BadImage:
        """The pixels of one image as the encoder takes them, or what is wrong with it."""
        geometry = self.encoder.preprocessing.geometry
        found = load_pixels(self.files, row, [geometry])
        return found if isinstance(found, BadImage) else found[geometry.key]


def rows_of(embeddings: Embeddings, ids: Sequence[str], *, what: str = "images") -> np.ndarray:
    """The row of each id among embeddings, int64; ids without a vector are refused."""
    place = {name: row for row, name in enumerate(embeddings.ids)}
    missing = [name for name in ids if name not in place]
    if missing:
        raise NotApplicable(
            f"{len(missing)} of {len(ids)} {what} have no vector, such as {missing[0]!r}",
            fix=f"give vectors of all {what}",
        )
    return np.array([place[name] for name in ids], np.int64)


def write_embeddings(folder: Path, embeddings: Embeddings, *, replace: bool = False) -> None:
    """Write vectors to a folder."""
    with _writing(folder, embeddings.ids, embeddings.facts, replace=replace) as temporary:
        np.save(temporary / _VECTORS, embeddings.vectors)


@contextmanager
def _writing(
    folder: Path,
    ids: Sequence[str],
    facts: Mapping[str, Any],
    *,
    replace: bool,
    digests: Sequence[str | None] | None = None,
) -> Iterator[Path]:
    """Yield a temporary folder for the file of vectors; the files beside it are written after it."""
    with atomic_folder(folder, replace=replace) as temporary:
        yield temporary
        write_text(temporary / _IDS, "".join(f"{name}\n" for name in ids))
        if digests is not None:
            write_text(temporary / _DIGESTS, "".join(f"{digest or ''}\n" for digest in digests))
        vectors = np.load(temporary / _VECTORS, mmap_mode="r")
        head = {
            "schema_version": SCHEMA_VERSION,
            "rows": len(vectors),
            "dimension": int(vectors.shape[1]),
            "dtype": vectors.dtype.name,
            **facts,
        }
        names = (_VECTORS, _IDS, *(() if digests is None else (_DIGESTS,)))
        head["files"] = {name: checksum(mapped(temporary / name)) for name in names}
        write_json(temporary / _HEAD, sealed(head))


def is_embeddings(path: Path) -> bool:
    """Whether a path is a folder of vectors or a file of them."""
    return (path / _HEAD).is_file() or (path.suffix in (".npy", ".npz") and path.is_file())


def read_embeddings(path: Path) -> Embeddings:
    """Read vectors from a folder, a ``.npy`` file with its ids beside it, or a ``.npz`` file."""
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise NotFound(f"no embeddings at {path}", fix="give a folder, a .npy or a .npz file")
    facts = {"file": path.name, "sha256": sha256_file(path)}
    if path.suffix == ".npz":
        return _read_npz(path, facts)
    ids = path.with_suffix(".ids.txt")
    if not ids.is_file():
        raise NotFound(f"{path} has no ids beside it", fix=f"{_IDS_FIX}, to {ids.name}")
    facts["ids_sha256"] = sha256_file(ids)
    return _checked(path, load_array(path, mapped=True), _read_ids(ids), facts)


def _read_folder(path: Path) -> Embeddings:
    if not (path / _HEAD).is_file():
        raise NotFound(f"{path} has no {_HEAD}", fix="give a folder that heldout annotate wrote")
    head = read_facts(path / _HEAD, _Head, newest=SCHEMA_VERSION, fix="embed again")
    for name, known in head.get("files", {}).items():
        if not (path / name).is_file() or checksum(mapped(path / name)) != known:
            raise damaged(path / name, "remove the folder: the same command embeds again")
    ids = _read_ids(path / _IDS)
    found = _checked(path / _VECTORS, load_array(path / _VECTORS, mapped=True), ids, head)
    if len(found) != head["rows"]:
        raise BadFile(
            path / _HEAD, f"says {head['rows']} rows, there are {len(found)}", fix="embed again"
        )
    return found


def _read_npz(path: Path, facts: Mapping[str, Any]) -> Embeddings:
    # What is named may be images or texts.
    vectors, ids = load_arrays(path, "vectors", ("ids", "image_ids", "texts"))
    return _checked(path, vectors, [str(name) for name in ids.ravel().tolist()], facts)


def _read_ids(path: Path) -> list[str]:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix=_IDS_FIX)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    return text.removesuffix("\n").split("\n") if text else []


def _checked(
    path: Path, vectors: np.ndarray, ids: Sequence[str], facts: Mapping[str, Any]
) -> Embeddings:
    if vectors.ndim != 2 or (vectors.dtype.kind != "f" and vectors.dtype != np.uint8):
        raise BadFile(
            path, f"holds {vectors.dtype} {vectors.shape}", fix="give floats, one row per image"
        )
    if len(ids) != len(vectors):
        raise MismatchError(f"{path} has {len(vectors)} rows and {len(ids)} ids", fix=_IDS_FIX)
    if len(set(ids)) != len(ids) or "" in ids:
        raise BadFile(path, "has an id twice, or an empty one", fix="give every row its own id")
    return Embeddings(ids, vectors, facts)
