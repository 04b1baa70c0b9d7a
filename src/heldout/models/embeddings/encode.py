"""Embedding the images of a pool with an encoder: resumable, each image looked at once.

The vectors are kept in the workspace under what they depend on, the encoder and the images:
``embeddings/<encoder>@<12 hex>/<12 hex of the images>/``. Other classes, templates or similarities
never run the encoder on an image again.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.engine import (
    Job,
    JobSummary,
    Progress,
    Shard,
    Threads,
    Unit,
    no_progress,
    run,
    unit_key,
)
from heldout.core.errors import HeldoutError, NotApplicable, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.core.workspace import Workspace, slug
from heldout.data.images import MAX_PIXELS, BadImage, FolderSource, ImageSource, open_source
from heldout.data.testset.pool import Pool
from heldout.models.adapters.model import Encoder
from heldout.models.embeddings.store import (
    Embeddings,
    is_embeddings,
    read_embeddings,
    write_embeddings,
)
from heldout.models.predictions.pixels import ImageFiles, load_pixels
from heldout.models.predictions.run_models import BATCH, in_images, unit_images

WORK = "embed-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""
DTYPES = ("float32", "float16")


class ShardsMissing(NotApplicable):
    """Only some shares of the vectors are there yet: ``done`` of ``total`` images."""

    def __init__(self, name: str, done: int, total: int) -> None:
        super().__init__(
            f"{done:,} of {total:,} images of {name} have vectors",
            fix="run the other shards, then the same command without --shard",
        )
        self.done, self.total = done, total


def encoder_key(encoder: Encoder) -> str:
    """What vectors are filed under: SHA-256 of the encoder's identity and its preprocessing."""
    stated = {**encoder.identity, "preprocessing": encoder.preprocessing.to_dict()}
    return sha256_text(canonical_json(stated))


def encoder_facts(encoder: Encoder) -> dict[str, object]:
    """What is written down of an encoder beside everything that it made."""
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


def check_dtype(dtype: str) -> None:
    """Refuse a type that vectors are not kept in."""
    if dtype not in DTYPES:
        raise UserError(f"vectors as {dtype!r}", fix=f"use {' or '.join(DTYPES)}")


def pool_image_files(pool: Pool, images: ImageSource | Path | str | None = None) -> ImageFiles:
    """The image files of a pool: below its own folder, or where ``images`` says they are."""
    paths, ids = pool.images["path"].to_pylist(), pool.images["image_id"].to_pylist()
    names = [path or name for path, name in zip(paths, ids, strict=True)]
    if images is None and pool.images_root is None:
        raise NotApplicable(
            f"pool {pool.name} does not say where its images are", fix="name the folder: --images"
        )
    source: ImageSource
    if images is None:
        source = FolderSource(pool.images_root)  # type: ignore[arg-type]  # asked above
    elif isinstance(images, Path | str):
        source = open_source(images, ids=names)
    else:
        source = images
    return ImageFiles(source, names, pool.images["sha256"].to_pylist())


def embed(
    pool: Pool,
    encoder: Encoder,
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    dtype: str = "float32",
    workers: int | None = None,
    batch: int = BATCH,
    max_pixels: int = MAX_PIXELS,
    shard: Shard | None = None,
    progress: Progress = no_progress,
) -> Embeddings:
    """Vectors of a pool's images, from the workspace or made now; the same call again resumes.

    An image that cannot be read has a row of NaN, and stands in ``facts["failures"]``; it is tried
    again by every call.
    ``dtype`` float16 halves the file; the vectors are then those numbers. With ``shard`` only that
    share is made here; until all shares are there, asking for the vectors is refused.
    """
    check_dtype(dtype)
    files = pool_image_files(pool, images)
    ids = pool.images["image_id"].to_pylist()
    unknown = sum(digest is None for digest in files.digests)
    listed = [[name, digest] for name, digest in zip(ids, files.digests, strict=True)]
    what = sha256_text(canonical_json(listed))
    suffix = "" if dtype == "float32" else "-f16"
    folder = embeddings_folder(workspace, encoder) / f"{what[:12]}{suffix}"
    key = encoder_key(encoder)
    size = unit_images(len(ids))
    units = [
        Unit(unit_key(WORK, images=listed[start : start + size], encoder=key), (start, stop))
        for start in range(0, len(ids), size)
        for stop in [min(start + size, len(ids))]
    ]
    name = f"embed-{what[:12]}-{key[:12]}"
    work = EmbedWork(files, encoder, batch, max_pixels)

    def made_by(job: str, some: Sequence[Unit], share: Shard | None) -> Embeddings:
        summary = run(
            Job(name=job, work=work),
            some,
            runs=workspace.runs,
            executor=Threads(workers),
            shard=share,
            progress=in_images(progress, _images(some), len(some)),
        )
        return _joined(
            summary, some, pool.name, ids, np.empty((len(ids), encoder.dimension), dtype)
        )

    known = read_embeddings(folder) if is_embeddings(folder) and not unknown else None
    made = made_by(name, units, shard) if known is None else known
    # A file that was not there, or was looked for in the wrong folder, may be there by now.
    failed = [row for row, image in enumerate(ids) if image in made.facts["failures"]]
    mended = [row for row in failed if not isinstance(work.pixels(row), BadImage)]
    if mended:
        shutil.rmtree(workspace.runs / f"{name}-again", ignore_errors=True)
        some = [unit for unit in units if _holds(unit.payload, mended)]
        fresh = made_by(f"{name}-again", some, None)
        made = _patched(made, fresh, [unit.payload for unit in some])
        shutil.rmtree(workspace.runs / f"{name}-again", ignore_errors=True)
    failures = made.facts["failures"]
    if ids and len(failures) == len(ids):
        raise NotApplicable(
            f"none of the {len(ids)} images of {pool.name} could be read "
            f"({next(iter(failures.values()))})",
            fix="check where the images are (--images)",
        )
    if made is not known:
        facts = {
            "encoder": encoder_facts(encoder),
            "images": what,
            "images_without_hash": unknown,
            "failures": failures,
        }
        write_embeddings(folder, Embeddings(ids, made.vectors, facts), replace=True)
        shutil.rmtree(workspace.runs / name, ignore_errors=True)
    return read_embeddings(folder)


def _joined(
    summary: JobSummary, units: Sequence[Unit], name: str, ids: Sequence[str], vectors: np.ndarray
) -> Embeddings:
    """What some units gave, filled into ``vectors`` for all ``ids``; other rows stay as they are."""
    if summary.failed:
        first = next(iter(summary.results.failures()))
        raise HeldoutError(
            f"{summary.failed} units failed; the first: {first.reason}\n{first.traceback}"
        )
    there = [unit for unit in units if summary.results.has(unit.key)]
    if len(there) < len(units):
        raise ShardsMissing(name, _images(there), len(ids))
    failures: dict[str, str] = {}
    for unit in units:
        start, stop = unit.payload
        vectors[start:stop], bad = unpack(summary.results.read(unit.key))
        failures |= {ids[start + row]: reason for row, reason in bad.items()}
    return Embeddings(ids, vectors, {"failures": failures})


def _images(units: Sequence[Unit]) -> int:
    return sum(stop - start for start, stop in (unit.payload for unit in units))


def _holds(payload: tuple[int, int], rows: Sequence[int]) -> bool:
    return any(payload[0] <= row < payload[1] for row in rows)


def _patched(old: Embeddings, new: Embeddings, parts: Sequence[tuple[int, int]]) -> Embeddings:
    """Vectors with those of some ranges of rows made anew."""
    vectors = np.array(old.vectors)
    failures = dict(old.facts["failures"])
    for start, stop in parts:
        vectors[start:stop] = new.vectors[start:stop]
        for name in old.ids[start:stop]:
            failures.pop(name, None)
    return Embeddings(old.ids, vectors, {"failures": failures | new.facts["failures"]})


@dataclass(frozen=True, eq=False)
class EmbedWork:
    """The work of an embedding job: ``work((start, stop)) -> bytes``."""

    files: ImageFiles
    encoder: Encoder
    batch: int = BATCH
    max_pixels: int = MAX_PIXELS

    def __call__(self, payload: tuple[int, int]) -> bytes:
        """Embed rows ``start`` to ``stop``."""
        start, stop = payload
        pixels: dict[int, np.ndarray] = {}
        failures: dict[int, str] = {}
        for row in range(start, stop):
            found = self.pixels(row)
            if isinstance(found, BadImage):
                failures[row - start] = f"{found.trouble}: {found.reason}"
            else:
                pixels[row - start] = found
        vectors = np.full((stop - start, self.encoder.dimension), np.nan, np.float32)
        good = sorted(pixels)
        for first in range(0, len(good), self.batch):
            rows = good[first : first + self.batch]
            made = self.encoder.encode_images(np.stack([pixels[row] for row in rows]))
            if made.shape != (len(rows), self.encoder.dimension):
                raise HeldoutError(
                    f"{self.encoder.name} gave vectors {made.shape} for {len(rows)} images, "
                    f"its dimension is {self.encoder.dimension}"
                )
            vectors[rows] = made
        for row in good:
            if not np.isfinite(vectors[row]).all():
                failures[row] = f"not finite: {self.encoder.name} gave no vector"
                vectors[row] = np.nan
        return pack(vectors, failures)

    def pixels(self, row: int) -> np.ndarray | BadImage:
        """The pixels of one image as the encoder takes them, or what is wrong with it."""
        geometry = self.encoder.preprocessing.geometry
        found = load_pixels(self.files, row, [geometry], max_pixels=self.max_pixels)
        return found if isinstance(found, BadImage) else found[geometry.key]


def pack(vectors: np.ndarray, failures: dict[int, str]) -> bytes:
    """A unit's vectors and failures as bytes; equal results, equal bytes."""
    text = json.dumps({str(row): reason for row, reason in sorted(failures.items())})
    handle = io.BytesIO()
    np.savez(handle, vectors=vectors, failures=np.frombuffer(text.encode("utf-8"), np.uint8))
    return handle.getvalue()


def unpack(data: bytes) -> tuple[np.ndarray, dict[int, str]]:
    """What :func:`pack` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        failures = json.loads(arrays["failures"].tobytes().decode("utf-8"))
        return arrays["vectors"], {int(row): reason for row, reason in failures.items()}


def rows_of(embeddings: Embeddings, ids: Sequence[str], *, what: str = "images") -> np.ndarray:
    """Where each id stands among embeddings, int64; ids without a vector are refused."""
    place = {name: row for row, name in enumerate(embeddings.ids)}
    missing = [name for name in ids if name not in place]
    if missing:
        raise NotApplicable(
            f"{len(missing)} of {len(ids)} {what} have no vector, such as {missing[0]!r}",
            fix=f"give vectors of all {what}",
        )
    return np.array([place[name] for name in ids], np.int64)
