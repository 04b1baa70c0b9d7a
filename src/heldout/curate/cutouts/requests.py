"""What ``cutout`` is asked: one request for each way of finding objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from heldout.core.request import (
    OnlyClasses,
    Out,
    Replace,
    Request,
    Seed,
    Workers,
    argument,
    option,
)

Masks = Annotated[Path, option("Folder of mask files; without it, the photos' own alpha.")]
Annotations = Annotated[Path, option("COCO's JSON, or OpenImages' CSV of masks.")]
GateName = Literal[
    "min_fraction",
    "max_fraction",
    "max_parts",
    "max_box_fill",
    "max_border",
    "min_confidence",
    "min_side",
]


class CutoutRequest(Request, frozen=True, kw_only=True):
    """Cut objects out of photos, by class, as PNGs with alpha.

    Beside CLASS/NAME.png there are a manifest and contact sheets for review.
    """

    tag: ClassVar[str] = "method"
    method: Annotated[
        Literal["masks", "coco", "openimages", "grabcut", "onnx"],
        argument("How objects are found."),
    ]
    photos: Annotated[str, argument("Folder, .tar or .zip of photos.")]
    out: Out
    table: (
        Annotated[Path, option("CSV of file, and any of class, licence, attribution, source.")]
        | None
    ) = None
    gate: Annotated[
        Mapping[GateName, Any],
        option(
            "What a cut-out must keep to, as name=value; repeatable: min_fraction, max_fraction, "
            "max_parts, max_box_fill, max_border, min_confidence, min_side."
        ),
    ] = {}
    review: (
        Annotated[Path, option("CSV of file, verdict (keep, drop) that wins over the gate.")] | None
    ) = None
    workers: Workers | None = None
    replace: Replace = False


class CutMasksRequest(CutoutRequest, frozen=True, kw_only=True):
    """Cut out by mask files, or by the photos' own alpha."""

    masks: Masks | None = None


class CutCocoRequest(CutoutRequest, frozen=True, kw_only=True):
    """Cut out by the polygons and run lengths of a COCO file."""

    annotations: Annotations
    only_classes: OnlyClasses = ()


class CutOpenImagesRequest(CutoutRequest, frozen=True, kw_only=True):
    """Cut out by the mask files of OpenImages."""

    masks: Masks
    annotations: Annotations
    class_names: Annotated[Path, option("OpenImages: CSV of machine id, name.")] | None = None
    only_classes: OnlyClasses = ()


class CutGrabCutRequest(CutoutRequest, frozen=True, kw_only=True):
    """Cut out what GrabCut finds; it needs no weights."""

    seed: Seed = 0


class CutOnnxRequest(CutoutRequest, frozen=True, kw_only=True):
    """Cut out what a network finds: a U²-Net or an ISNet."""

    network: Annotated[Path, option("ONNX file.")]


AnyCutout = (
    CutMasksRequest | CutCocoRequest | CutOpenImagesRequest | CutGrabCutRequest | CutOnnxRequest
)
CutoutRequest.kinds = {
    "masks": CutMasksRequest,
    "coco": CutCocoRequest,
    "openimages": CutOpenImagesRequest,
    "grabcut": CutGrabCutRequest,
    "onnx": CutOnnxRequest,
}
