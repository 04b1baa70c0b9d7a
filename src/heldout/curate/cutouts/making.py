"""Photographs in, a folder of cut-outs out: resumable, in one step, nothing lost."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.engine import Executor, Job, Progress, Serial, Unit, no_progress, run, unit_key
from heldout.core.engine.results import UnitFailure
from heldout.core.errors import BadFile, ExistsError, HeldoutError, UserError
from heldout.core.files import atomic_folder, is_temporary, sha256_file
from heldout.curate.cutouts.cleaning import Cleaning, cut
from heldout.curate.cutouts.cutout import Problem, Subject, Subjects
from heldout.curate.cutouts.gate import Limits, Measures, limits_to_dict, measure, reasons
from heldout.curate.cutouts.manifest import MANIFEST, Cutout, Manifest, Verdict, read_manifest
from heldout.curate.cutouts.photo import read_photo
from heldout.curate.cutouts.segmenter import Segmenter
from heldout.curate.cutouts.sheet import thumbnail, write_sheets
from heldout.data.images.checks import sha256_bytes
from heldout.data.images.decode import BadImage, bytes_of
from heldout.data.images.sources import ImageSource

_VERSION = "cutout-1"
_FILE, _THUMBNAIL, _FACTS = "cutout.png", "thumbnail.jpg", "facts.json"


@dataclass(frozen=True)
class Cutting:
    """The work of one unit: reads a photograph, finds its object, writes the cut-out and its facts."""

    source: ImageSource
    segmenter: Segmenter | None
    cleaning: Cleaning

    def __call__(self, subject: Subject, folder: Path) -> None:
        """Write ``cutout.png``, ``thumbnail.jpg`` and ``facts.json`` into ``folder``."""
        photo = read_photo(_bytes(self.source, subject.photo))
        if isinstance(photo, BadImage):
            raise UserError(f"the photo is {photo.trouble} ({photo.reason})", fix="replace it")
        if subject.outline is not None:
            matte = subject.outline.matte(photo)
        elif self.segmenter is not None:
            matte = self.segmenter(photo.pixels, subject.box)
        else:
            raise HeldoutError(f"{subject.file} has no outline, and there is no segmenter")
        made = cut(photo.pixels, matte, self.cleaning)
        measures = measure(matte, short_side=min(made.box[2:]), box=subject.box)
        if not made.empty:
            (folder / _FILE).write_bytes(_png(made.pixels))
        (folder / _THUMBNAIL).write_bytes(thumbnail(made.pixels))
        facts = {
            "photo_size": list(photo.size),
            "box": list(made.box),
            "mask_pixels": int(np.count_nonzero(made.pixels[..., 3])),
            "measures": measures.to_dict(),
        }
        (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


def make_cutouts(
    source: ImageSource,
    subjects: Subjects,
    folder: Path,
    *,
    runs: Path,
    method: str,
    cleaning: Cleaning,
    limits: Limits,
    segmenter: Segmenter | None = None,
    review: Mapping[str, str] | None = None,
    keep_flagged: bool = False,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    replace: bool = False,
) -> Manifest:
    """Cut out all subjects and write the folder, in one step.

    ``runs``          where finished cut-outs are kept; the same call again does what is missing
    ``review``        a person's verdicts, ``keep`` or ``drop``, by file; they win over the gate
    ``keep_flagged``  use flagged cut-outs too
    ``replace``       replace a folder of other cut-outs

    What cannot be cut out is listed in the manifest's failures, and everything else is made.
    """
    _check_target(folder)
    # Asked first: a library that is missing is one error, not one failure a photograph.
    runtime = {} if segmenter is None else dict(segmenter.runtime)
    hashes, unreadable = _hashes(source, subjects)
    keyed: dict[str, Unit] = {}
    keys: dict[str, str] = {}
    for subject in subjects.subjects:
        if subject.photo in hashes:
            key = _key(subject, hashes[subject.photo], segmenter, cleaning)
            # Two copies of one photograph are one piece of work.
            keyed.setdefault(key, Unit(key, subject))
            keys[subject.file] = key
    job = Job(name="cutouts", work=Cutting(source, segmenter, cleaning), output="folder")
    summary = run(
        job, list(keyed.values()), runs=runs, executor=executor or Serial(), progress=progress
    )
    outcomes = {o.key: o for o in summary.results.in_order(keyed.values())}
    made: list[Cutout] = []
    failures = [*subjects.failures, *unreadable]
    folders: dict[str, Path] = {}
    for subject in subjects.subjects:
        if subject.file not in keys:
            continue
        outcome = outcomes[keys[subject.file]]
        if isinstance(outcome, UnitFailure):
            reason = outcome.reason.partition(": ")[2] or outcome.reason
            failures.append(Problem(subject.photo, subject.file, reason))
            continue
        folders[subject.file] = outcome.path
        made.append(
            _cutout(
                subject,
                outcome.path,
                hashes[subject.photo],
                limits=limits,
                mark=(review or {}).get(subject.file, "keep" if keep_flagged else ""),
            )
        )
    _check_review(review or {}, made)
    manifest = Manifest(
        method={"name": method, **({} if segmenter is None else segmenter.identity)},
        cleaning=cleaning.identity,
        limits=limits_to_dict(limits),
        runtime=runtime,
        cutouts=tuple(made),
        failures=tuple(sorted(failures, key=lambda p: (p.photo, p.object, p.reason))),
        skipped=subjects.skipped,
    )
    return _write(manifest, folders, folder, replace=replace)


def read_review(path: Path) -> dict[str, str]:
    """A person's verdicts from a CSV of ``file, verdict``, as a contact sheet saves it."""
    from heldout.curate.cutouts.photographs import raw_csv

    review: dict[str, str] = {}
    for row in raw_csv(path):
        if not {"file", "verdict"} <= set(row):
            raise BadFile(path, "has no columns file and verdict", fix="save it from a sheet again")
        if row["verdict"] not in ("keep", "drop"):
            raise BadFile(path, f"has the verdict {row['verdict']!r}", fix="write keep or drop")
        review[row["file"]] = row["verdict"]
    return review


def _key(subject: Subject, photo: str, segmenter: Segmenter | None, cleaning: Cleaning) -> str:
    box = subject.box
    found: Any = None if subject.outline is None else dict(subject.outline.identity)
    if subject.outline is None and segmenter is not None:
        found = {
            **segmenter.identity,
            "box": None
            if box is None
            else [box.left, box.top, box.width, box.height, box.relative],
        }
    return unit_key(_VERSION, photo=photo, found=found, cleaning=dict(cleaning.identity))


def _hashes(source: ImageSource, subjects: Subjects) -> tuple[dict[str, str], list[Problem]]:
    """The hash of each photograph that has a subject, and those that cannot be read."""
    hashes: dict[str, str] = {}
    unreadable = []
    for photo in dict.fromkeys(subject.photo for subject in subjects.subjects):
        data = bytes_of(source, photo)
        if isinstance(data, BadImage):
            unreadable.append(Problem(photo, "", data.reason))
        else:
            hashes[photo] = sha256_bytes(data)
    return hashes, unreadable


def _bytes(source: ImageSource, photo: str) -> bytes:
    data = bytes_of(source, photo)
    if isinstance(data, BadImage):
        raise UserError(data.reason, fix="check the photo")
    return data


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    handle = io.BytesIO()
    # Pillow keeps the colours under alpha 0 as they are.
    Image.fromarray(pixels).save(handle, "PNG", compress_level=6)
    return handle.getvalue()


def _cutout(
    subject: Subject, result: Path, photo_sha256: str, *, limits: Limits, mark: str
) -> Cutout:
    facts = json.loads((result / _FACTS).read_bytes())
    measures = Measures(**facts["measures"])
    found = reasons(measures, limits)
    verdict: Verdict = "flagged" if found else "good"
    exists = (result / _FILE).is_file()
    if mark == "drop":
        verdict = "dropped"
    elif mark == "keep" and found and exists:
        verdict = "kept"
    return Cutout(
        file=subject.file,
        class_name=subject.class_name,
        photo=subject.photo,
        photo_sha256=photo_sha256,
        photo_size=tuple(facts["photo_size"]),
        box=tuple(facts["box"]),
        sha256=sha256_file(result / _FILE) if exists else "",
        mask_pixels=facts["mask_pixels"],
        measures=measures,
        verdict=verdict,
        reasons=found,
        licence=subject.licence,
        attribution=subject.attribution,
        source=subject.source,
    )


def _check_review(review: Mapping[str, str], made: list[Cutout]) -> None:
    known = {cutout.file for cutout in made}
    unknown = sorted(set(review) - known)
    if unknown:
        raise UserError(
            f"the review names {unknown[0]}, which is none of the cut-outs",
            fix="save it from a sheet of these cut-outs",
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
    if (folder / MANIFEST).is_file() and not replace:
        if read_manifest(folder) == manifest and _intact(manifest, folder):
            return manifest
        raise ExistsError(f"{folder} holds other cut-outs", fix="use --replace, or another folder")
    with atomic_folder(folder, replace=folder.exists()) as temporary:
        for cutout in manifest.cutouts:
            if cutout.sha256:
                target = temporary / cutout.path
                target.parent.mkdir(parents=True, exist_ok=True)
                # A copy, not a link: nobody who edits the folder may change the stored result.
                shutil.copyfile(results[cutout.file] / _FILE, target)
        manifest.write(temporary)
        write_sheets(
            temporary,
            manifest.cutouts,
            {file: result / _THUMBNAIL for file, result in results.items()},
        )
    return manifest


def _intact(manifest: Manifest, folder: Path) -> bool:
    return all(
        (folder / cutout.path).is_file() and sha256_file(folder / cutout.path) == cutout.sha256
        for cutout in manifest.cutouts
        if cutout.sha256
    )
