"""``cutout``: objects freed from their photographs, ready for ``build compose``."""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from heldout.core.context import Context, Result
from heldout.core.engine import Threads
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES, UserError
from heldout.core.files import existing_folder
from heldout.core.request import RequestError
from heldout.curate.cutouts.make import Manifest, make_cutouts, read_review
from heldout.curate.cutouts.outlines import (
    coco_jobs,
    masked_photos,
    openimages_jobs,
    whole_photos,
)
from heldout.curate.cutouts.photos import CutoutJobs, Photographs, read_photo_table
from heldout.curate.cutouts.quality_check import FOUND, Cleaning, Limits
from heldout.curate.cutouts.requests import (
    AnyCutout,
    CutCocoRequest,
    CutGrabCutRequest,
    CutMasksRequest,
    CutOnnxRequest,
    CutOpenImagesRequest,
)
from heldout.curate.cutouts.segmenters import GrabCut, OnnxSegmenter, Segmenter
from heldout.data.images import open_source
from heldout.data.testset.exporters.licences import licence_rule

_SAID = 10

# What a person has drawn is left as it is, and may be small in its photo or cut in parts by what is
# in front of it; what a program has found is freed of specks and pinholes. OpenImages' masks are
# brought to another size, which blurs an edge that was sharp.
_DRAWN = Limits(min_fraction=0.0, max_parts=4)
USUAL = {
    "masks": (Cleaning(soft=True), _DRAWN),
    "coco": (Cleaning(soft=True), _DRAWN),
    "openimages": (Cleaning(), _DRAWN),
    "grabcut": (FOUND, Limits()),
    "onnx": (FOUND, Limits()),
}
"""What is done to edges, and what a cut-out must keep to where the request does not say."""


def cutout(request: AnyCutout, context: Context) -> Result:
    """Cut out all objects, and say what came out and what did not."""
    cleaning, limits = USUAL[request.method]
    try:
        limits = msgspec.convert(asdict(limits) | {**request.gate}, Limits, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(f"{{gate}}: {error}", fix="give numbers") from None
    source = open_source(request.photos)
    ids = source.ids()
    if not ids:
        raise UserError(f"{request.photos} holds no photos", fix="give a folder of images")
    facts = {} if request.table is None else read_photo_table(request.table, ids)
    photographs = Photographs(ids, facts)
    jobs = find_jobs(request, photographs)
    with context.progress("cut-outs") as progress:
        manifest = make_cutouts(
            source,
            jobs,
            request.out,
            runs=context.workspace.runs,
            method=request.method,
            cleaning=cleaning,
            limits=limits,
            segmenter=find_segmenter(request),
            review=None if request.review is None else read_review(request.review),
            executor=Threads(request.workers),
            progress=progress,
            replace=request.replace,
        )
    _say(manifest, request, context)
    classes = len({cutout.class_name for cutout in manifest.used})
    lines = [f"{request.out}: {len(manifest.used):,} cut-outs of {classes:,} classes"]
    if manifest.flagged:
        lines.append(
            f"{len(manifest.flagged):,} set aside: look at {request.out / 'sheet-001.html'}"
        )
    return Result(
        records=manifest.cutouts,
        brief=manifest.flagged,
        lines=lines,
        value=manifest,
        code=EXIT_FAILED_IMAGES if manifest.failures else EXIT_DONE,
    )


def find_jobs(request: AnyCutout, photographs: Photographs) -> CutoutJobs:
    """What is to be cut out."""
    if isinstance(request, CutMasksRequest):
        if request.masks is None:
            return whole_photos(photographs, own_alpha=True)
        return masked_photos(photographs, existing_folder(request.masks, "folder of masks"))
    if isinstance(request, CutOpenImagesRequest):
        return openimages_jobs(
            request.annotations,
            photographs,
            masks=existing_folder(request.masks, "folder of masks"),
            class_names=request.class_names,
            only=request.only_classes,
        )
    if isinstance(request, CutCocoRequest):
        return coco_jobs(request.annotations, photographs, only=request.only_classes)
    return whole_photos(photographs)


def find_segmenter(request: AnyCutout) -> Segmenter | None:
    """What finds the objects; None where outlines are given."""
    if isinstance(request, CutOnnxRequest):
        return OnnxSegmenter(request.network)
    return GrabCut(seed=request.seed) if isinstance(request, CutGrabCutRequest) else None


def _say(manifest: Manifest, request: AnyCutout, context: Context) -> None:
    """What did not come out, and what may not be shared."""
    unchangeable = sum("no changed copies" in licence_rule(c.licence).note for c in manifest.used)
    if unchangeable:
        context.note(
            f"{unchangeable:,} photos are under a licence that allows no changed copies to be shared"
        )
    if manifest.skipped:
        first = manifest.skipped[0]
        context.say(
            f"{len(manifest.skipped):,} skipped, such as {first.photo} {first.object}: {first.reason}"
        )
    for problem in manifest.failures[:_SAID]:
        what = " ".join(filter(None, (problem.photo, problem.object)))
        context.say(f"failed: {what}: {problem.reason}")
    if manifest.failures:
        listed = request.out / "manifest.json"
        context.say(f"{len(manifest.failures):,} failed: all of them in {listed}")
