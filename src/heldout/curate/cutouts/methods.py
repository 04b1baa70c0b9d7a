"""The methods by name: what each needs, the subjects it gives, and its usual cleaning and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import UserError
from heldout.core.files import existing_folder
from heldout.curate.cutouts import cleaning, gate
from heldout.curate.cutouts.cleaning import Cleaning
from heldout.curate.cutouts.coco_file import coco_subjects
from heldout.curate.cutouts.cutout import Subjects
from heldout.curate.cutouts.gate import Limits
from heldout.curate.cutouts.grabcut import GrabCut
from heldout.curate.cutouts.onnx_segmenter import OnnxSegmenter
from heldout.curate.cutouts.openimages import openimages_boxes, openimages_subjects
from heldout.curate.cutouts.photographs import Photographs, masked_photos, whole_photos
from heldout.curate.cutouts.segmenter import Segmenter

METHODS = ("masks", "coco", "openimages", "grabcut", "onnx")
_SEGMENTERS = ("grabcut", "onnx")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was given beside the photographs.

    ``masks``          folder of mask files; ``instances`` and ``resize`` as
                       :func:`masked_photos` takes them
    ``annotations``    COCO's JSON or OpenImages' CSV; a segmenter takes the boxes in it
    ``class_names``    OpenImages: names by machine id
    ``only``           annotations of these classes alone
    ``allow_missing``  annotations of photographs that are not there are skipped, not failed
    ``model``, ``sidecar``  a network's ONNX file, and what it takes where that is not known
    """

    masks: Path | None = None
    instances: bool = False
    resize: bool = False
    annotations: Path | None = None
    class_names: Path | None = None
    only: tuple[str, ...] = ()
    allow_missing: bool = False
    model: Path | None = None
    sidecar: Path | None = None


def likely_method(inputs: Inputs) -> str:
    """The method that the given files are for: outlines first, then a network, then GrabCut.

    >>> likely_method(Inputs(annotations=Path("instances_val2017.json")))
    'coco'
    """
    if inputs.model is not None:
        return "onnx"
    if inputs.annotations is not None and inputs.masks is not None:
        return "openimages"
    if inputs.masks is not None:
        return "masks"
    if inputs.annotations is not None and inputs.annotations.suffix.lower() == ".json":
        return "coco"
    return "grabcut"


def find_subjects(method: str, photographs: Photographs, inputs: Inputs) -> Subjects:
    """What is to be cut out by a method."""
    _check(method, inputs)
    if method == "coco":
        return _coco(photographs, inputs, boxes=False)
    if method == "openimages":
        return openimages_subjects(
            _given(inputs.annotations, method, "--annotations FILE.csv"),
            existing_folder(_given(inputs.masks, method, "--masks DIR"), "folder of masks"),
            photographs,
            class_names=inputs.class_names,
            classes=inputs.only,
            allow_missing=inputs.allow_missing,
        )
    if method == "masks":
        if inputs.masks is None:
            return whole_photos(photographs, own_alpha=True)
        return masked_photos(
            photographs,
            existing_folder(inputs.masks, "folder of masks"),
            instances=inputs.instances,
            resize=inputs.resize,
        )
    if inputs.annotations is None:
        return whole_photos(photographs)
    if inputs.annotations.suffix.lower() == ".json":
        return _coco(photographs, inputs, boxes=True)
    return openimages_boxes(
        inputs.annotations,
        photographs,
        class_names=inputs.class_names,
        classes=inputs.only,
        allow_missing=inputs.allow_missing,
    )


def find_segmenter(method: str, inputs: Inputs, *, seed: int = 0) -> Segmenter | None:
    """The segmenter of a method; None where outlines are given."""
    if method == "onnx":
        return OnnxSegmenter(
            _given(inputs.model, method, "--model FILE.onnx"), sidecar=inputs.sidecar
        )
    return GrabCut(seed=seed) if method == "grabcut" else None


def usual_cleaning(method: str) -> Cleaning:
    """How mattes of a method are cleaned unless told otherwise."""
    if method in _SEGMENTERS:
        return cleaning.FOR_SEGMENTERS
    # OpenImages' masks are brought to another size, which blurs an edge that was sharp.
    return Cleaning() if method == "openimages" else cleaning.FOR_OUTLINES


def usual_limits(method: str) -> Limits:
    """What cut-outs of a method must keep to unless told otherwise."""
    return gate.FOR_SEGMENTERS if method in _SEGMENTERS else gate.FOR_OUTLINES


def _coco(photographs: Photographs, inputs: Inputs, *, boxes: bool) -> Subjects:
    return coco_subjects(
        _given(inputs.annotations, "coco", "--annotations FILE.json"),
        photographs,
        classes=inputs.only,
        boxes=boxes,
        allow_missing=inputs.allow_missing,
    )


def _check(method: str, inputs: Inputs) -> None:
    if method not in METHODS:
        raise UserError(f"there is no method {method!r}", fix=f"use one of {', '.join(METHODS)}")
    needless: Sequence[tuple[str, object, tuple[str, ...]]] = (
        ("--masks", inputs.masks, ("masks", "openimages")),
        ("--instances", inputs.instances, ("masks",)),
        ("--annotations", inputs.annotations, ("coco", "openimages", *_SEGMENTERS)),
        ("--model", inputs.model, ("onnx",)),
        ("--sidecar", inputs.sidecar, ("onnx",)),
    )
    for option, value, methods in needless:
        if value and method not in methods:
            raise UserError(
                f"{option} is not for --method {method}", fix=f"it is for {', '.join(methods)}"
            )


def _given(value: Path | None, method: str, option: str) -> Path:
    if value is None:
        raise UserError(f"--method {method} needs a file", fix=f"give {option}")
    return value
