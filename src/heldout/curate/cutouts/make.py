"""Photos in, a folder of cut-outs out: resumable, in one step, nothing lost.

::

    DIR/<class>/<name>.png         cut-outs that passed the check, or that a person has kept
    DIR/.flagged/<class>/<name>.png  the others
    DIR/manifest.json              schema_version, method, settings, cut-outs, failures, skipped
    DIR/attributions.csv           file, licence, attribution, source of the cut-outs
    DIR/sheet-001.html             contact sheets for review
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from heldout.core import schema
from heldout.core.engine import Executor, Job, Progress, Serial, Unit, no_progress, run, unit_key
from heldout.core.engine.results import UnitFailure
from heldout.core.errors import BadFile, ExistsError, HeldoutError, UserError
from heldout.core.files import (
    atomic_folder,
    csv_text,
    held,
    is_temporary,
    sha256_file,
    write_text,
)
from heldout.core.records import Table
from heldout.curate.cutouts.contact_sheet import thumbnail, write_sheets
from heldout.curate.cutouts.photos import (
    CutoutJob,
    CutoutJobs,
    SkippedPhoto,
    in_order,
    read_photo,
    table_rows,
)
from heldout.curate.cutouts.quality_check import (
    Cleaning,
    Limits,
    MaskStatistics,
    cut,
    measure,
    reasons,
)
from heldout.curate.cutouts.segmenters import Segmenter
from heldout.data.images.decode import BadImage, bytes_of, sha256_bytes
from heldout.data.images.sources import ImageSource

MANIFEST = "manifest.json"
FLAGGED = ".flagged"
_VERSION = "cutout-1"
_FILE, _THUMBNAIL, _FACTS = "cutout.png", "thumbnail.jpg", "facts.json"

Verdict = Literal["good", "flagged", "kept", "dropped"]
"""``good`` and ``flagged`` by the check; ``kept`` and ``dropped`` by a person's review."""


class ListedCutout(schema.Document, frozen=True, kw_only=True):
    """One cut-out.

    ``file``           its path below the folder of cut-outs, whether or not it is used
    ``photo``          the id of its photo, with ``photo_sha256`` of its bytes
    ``box``            left, top, width, height of the cut-out in the upright photo
    ``sha256``         of the PNG file; empty where nothing could be cut out
    ``mask_pixels``    visible pixels (alpha above 0)
    ``reasons``        why the check flags it
    """

    record: ClassVar[str] = "cutout"
    table: ClassVar[Table] = Table("set aside", ("file", "why"), rows=10)
    file: str
    class_name: str
    photo: str
    photo_sha256: str
    photo_size: tuple[int, int]
    box: tuple[int, int, int, int]
    sha256: str
    mask_pixels: int
    measures: MaskStatistics
    verdict: Verdict
    reasons: tuple[str, ...]
    licence: str
    attribution: str
    source: str

    @property
    def used(self) -> bool:
        """Whether it is among the cut-outs to be used."""
        return self.verdict in ("good", "kept") and bool(self.sha256)

    @property
    def why(self) -> str:
        """Why it is set aside, in words."""
        return "" if self.used else "; ".join(self.reasons) or "dropped in review"

    @property
    def path(self) -> str:
        """Where the file is, below the folder of cut-outs."""
        return self.file if self.used else f"{FLAGGED}/{self.file}"


class Manifest(schema.Document, frozen=True, kw_only=True):
    """All that is known of a folder of cut-outs.

    ``method``   how objects were found: its name, settings, and the hash of weights
    ``runtime``  versions of the libraries that ran it
    """

    schema_version: int = 1
    method: dict[str, Any]
    cleaning: dict[str, Any]
    limits: dict[str, Any]
    runtime: dict[str, str]
    cutouts: tuple[ListedCutout, ...]
    failures: tuple[SkippedPhoto, ...] = ()
    skipped: tuple[SkippedPhoto, ...] = ()

    @property
    def used(self) -> tuple[ListedCutout, ...]:
        """The cut-outs to be used."""
        return tuple(cutout for cutout in self.cutouts if cutout.used)

    @property
    def flagged(self) -> tuple[ListedCutout, ...]:
        """The cut-outs that are set aside."""
        return tuple(cutout for cutout in self.cutouts if not cutout.used)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder of cut-outs."""
    return schema.read(folder / MANIFEST, Manifest, fix="make them again")


@dataclass(frozen=True)
class Cutting:
    """The work of one unit: reads a photo, finds its object, writes the cut-out and its facts."""

    source: ImageSource
    segmenter: Segmenter | None
    cleaning: Cleaning

    def __call__(self, job: CutoutJob, folder: Path) -> None:
        """Write ``cutout.png``, ``thumbnail.jpg`` and ``facts.json`` into ``folder``."""
        from PIL import Image

        data = bytes_of(self.source, job.photo)
        if isinstance(data, BadImage):
            raise UserError(data.reason, fix="check the photo")
        photo = read_photo(data)
        if isinstance(photo, BadImage):
            raise UserError(f"the photo is {photo.trouble} ({photo.reason})", fix="replace it")
        if job.outline is not None:
            matte = job.outline.matte(photo)
        elif self.segmenter is not None:
            matte = self.segmenter(photo.pixels)
        else:
            raise HeldoutError(f"{job.file} has no outline, and there is no segmenter")
        made = cut(photo.pixels, matte, self.cleaning)
        if made.pixels.size:
            file = io.BytesIO()
            # Pillow keeps the colours under alpha 0 as they are.
            Image.fromarray(made.pixels).save(file, "PNG", compress_level=6)
            (folder / _FILE).write_bytes(file.getvalue())
        (folder / _THUMBNAIL).write_bytes(thumbnail(made.pixels))
        found = measure(matte, short_side=min(made.box[2:]))
        facts = {
            "photo_size": list(photo.size),
            "box": list(made.box),
            "mask_pixels": int(np.count_nonzero(made.pixels[..., 3])),
            "measures": msgspec.to_builtins(found),
        }
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


def make_cutouts(
    source: ImageSource,
    jobs: CutoutJobs,
    folder: Path,
    *,
    runs: Path,
    method: str,
    cleaning: Cleaning,
    limits: Limits,
    segmenter: Segmenter | None = None,
    review: Mapping[str, str] | None = None,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    replace: bool = False,
) -> Manifest:
    """Cut out all objects and write the folder, in one step.

    ``runs``     where finished cut-outs are kept; the same call again does what is missing
    ``review``   a person's verdicts, ``keep`` or ``drop``, by file; they win over the check
    ``replace``  replace a folder of other cut-outs

    What cannot be cut out is listed in the manifest's failures, and everything else is made.
    """
    _check_target(folder)
    # Asked first: a library that is missing is one error, not one failure per photo.
    runtime = {} if segmenter is None else dict(segmenter.runtime)
    hashes: dict[str, str] = {}
    failures = list(jobs.failures)
    for photo in dict.fromkeys(job.photo for job in jobs.jobs):
        data = bytes_of(source, photo)
        if isinstance(data, BadImage):
            failures.append(SkippedPhoto(photo=photo, object="", reason=data.reason))
        else:
            hashes[photo] = sha256_bytes(data)
    readable = [job for job in jobs.jobs if job.photo in hashes]
    keys = {job.file: _key(job, hashes[job.photo], segmenter, cleaning) for job in readable}
    # Two copies of one photo are one piece of work.
    todo = list({keys[job.file]: Unit(keys[job.file], job) for job in reversed(readable)}.values())
    work = Job(name="cutouts", work=Cutting(source, segmenter, cleaning), output="folder")
    summary = run(work, todo, runs=runs, executor=executor or Serial(), progress=progress)
    outcomes = {outcome.key: outcome for outcome in summary.results.in_order(todo)}
    made: list[ListedCutout] = []
    results: dict[str, Path] = {}
    for job in readable:
        outcome = outcomes[keys[job.file]]
        if isinstance(outcome, UnitFailure):
            reason = outcome.reason.partition(": ")[2] or outcome.reason
            failures.append(SkippedPhoto(photo=job.photo, object=job.file, reason=reason))
            continue
        results[job.file] = outcome.path
        mark = (review or {}).get(job.file, "")
        made.append(_listed(job, outcome.path, hashes[job.photo], limits, mark))
    unknown = sorted(set(review or {}) - {cutout.file for cutout in made})
    if unknown:
        raise UserError(
            f"the review names {unknown[0]}, which is not one of the cut-outs",
            fix="save it from a sheet of these cut-outs",
        )
    manifest = Manifest(
        method={"name": method, **({} if segmenter is None else segmenter.identity)},
        cleaning=asdict(cleaning),
        limits=asdict(limits),
        runtime=runtime,
        cutouts=tuple(made),
        failures=tuple(in_order(failures)),
        skipped=tuple(jobs.skipped),
    )
    with held(folder):
        return _write(manifest, results, folder, replace=replace)


def read_review(path: Path) -> dict[str, str]:
    """A person's verdicts from a CSV of ``file, verdict``, as a contact sheet saves it."""
    review: dict[str, str] = {}
    for row in table_rows(path):
        if not {"file", "verdict"} <= set(row):
            raise BadFile(path, "has no columns file and verdict", fix="save it from a sheet again")
        if row["verdict"] not in ("keep", "drop"):
            raise BadFile(path, f"has the verdict {row['verdict']!r}", fix="write keep or drop")
        review[row["file"]] = row["verdict"]
    return review


def _key(job: CutoutJob, photo: str, segmenter: Segmenter | None, cleaning: Cleaning) -> str:
    by = job.outline or segmenter
    found = None if by is None else dict(by.identity)
    return unit_key(_VERSION, photo=photo, found=found, cleaning=asdict(cleaning))


class _Facts(schema.Document, frozen=True, kw_only=True):
    """What is known of one result beside its pictures."""

    photo_size: tuple[int, int]
    box: tuple[int, int, int, int]
    mask_pixels: int
    measures: MaskStatistics


def _listed(
    job: CutoutJob, result: Path, photo_sha256: str, limits: Limits, mark: str
) -> ListedCutout:
    fix = f"remove {result} and run the same command again"
    facts = schema.read(result / _FACTS, _Facts, fix=fix)
    found = facts.measures
    flaws = reasons(found, limits)
    verdict: Verdict = "flagged" if flaws else "good"
    exists = (result / _FILE).is_file()
    if mark == "drop":
        verdict = "dropped"
    elif mark == "keep" and flaws and exists:
        verdict = "kept"
    return ListedCutout(
        file=job.file,
        class_name=job.class_name,
        photo=job.photo,
        photo_sha256=photo_sha256,
        photo_size=facts.photo_size,
        box=facts.box,
        sha256=sha256_file(result / _FILE) if exists else "",
        mask_pixels=facts.mask_pixels,
        measures=found,
        verdict=verdict,
        reasons=flaws,
        licence=job.licence,
        attribution=job.attribution,
        source=job.source,
    )


def _check_target(folder: Path) -> None:
    """Refuse, before any work, a folder that is not ours to write."""
    if folder.exists() and (
        not folder.is_dir()
        or (
            not (folder / MANIFEST).is_file()
            and any(not is_temporary(inner) for inner in folder.iterdir())
        )
    ):
        raise ExistsError(
            f"{folder} exists and holds no cut-outs of ours", fix="name another folder"
        )


def _write(
    manifest: Manifest, results: Mapping[str, Path], folder: Path, *, replace: bool
) -> Manifest:
    cutouts = [cutout for cutout in manifest.cutouts if cutout.sha256]
    if (folder / MANIFEST).is_file() and not replace:
        intact = all(
            (folder / c.path).is_file() and sha256_file(folder / c.path) == c.sha256
            for c in cutouts
        )
        if read_manifest(folder) == manifest and intact:
            return manifest
        raise ExistsError(f"{folder} holds other cut-outs", fix="use --replace, or another folder")
    with atomic_folder(folder, replace=folder.exists()) as temporary:
        for cutout in cutouts:
            target = temporary / cutout.path
            target.parent.mkdir(parents=True, exist_ok=True)
            # A copy, not a link: nobody who edits the folder may change the stored result.
            shutil.copyfile(results[cutout.file] / _FILE, target)
        schema.write(temporary / MANIFEST, manifest)
        fields = ("file", "licence", "attribution", "source")
        rows = [[getattr(cutout, field) for field in fields] for cutout in manifest.used]
        write_text(temporary / "attributions.csv", csv_text(fields, rows))
        views = {file: result / _THUMBNAIL for file, result in results.items()}
        write_sheets(temporary, manifest.cutouts, views)
    return manifest
