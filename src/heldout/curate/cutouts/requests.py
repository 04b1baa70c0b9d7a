"""What ``cutout`` is asked: one request for each way of finding objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from heldout.core.request import (
    Out,
    Replace,
    Request,
    Seed,
    Workers,
    argument,
    needs,
    option,
)

Masks = Annotated[Path, option("Folder of mask files; without it, the photos' own alpha.")]
Annotations = Annotated[
    Path, option("COCO's JSON or OpenImages' CSV; a segmenter looks in the boxes of it.")
]
ClassNames = Annotated[Path, option("OpenImages: CSV of machine id, name.")]
OnlyClasses = Annotated[
    tuple[str, ...], option("Annotations of this class only; repeatable.", flag="only-class")
]
GateName = Literal[
    "min_fraction",
    "max_fraction",
    "max_parts",
    "max_box_fill",
    "max_border",
    "min_confidence",
    "min_side",
]
AllowMissing = Annotated[bool, option("Annotated photos may be missing.")]


class Cutout(Request, frozen=True, kw_only=True):
    """Cut objects out of photos, by class, as PNG files with alpha.

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
    class_name: (
        Annotated[str, option("The class of all photos; their folder's name by default.")] | None
    ) = None
    credit: Annotated[
        Mapping[Literal["licence", "attribution"], str],
        option("licence=TEXT, attribution=TEXT: of photos that the table gives none; repeatable."),
    ] = {}
    edges: Annotated[
        Mapping[Literal["stray", "holes", "soft", "feather"], Any],
        option(
            "What is done to edges, as name=value; repeatable: stray and holes (parts and holes "
            "below this share are removed and filled), soft (true keeps grey), feather (pixels)."
        ),
    ] = {}
    gate: Annotated[
        Mapping[GateName, Any],
        option(
            "What a cut-out must keep to, as name=value; repeatable: min_fraction, max_fraction, "
            "max_parts, max_box_fill, max_border, min_confidence, min_side."
        ),
    ] = {}
    keep_flagged: Annotated[bool, option("Use cut-outs that the gate flags, too.")] = False
    review: (
        Annotated[Path, option("CSV of file, verdict (keep, drop) that wins over the gate.")] | None
    ) = None
    workers: Workers | None = None
    replace: Replace = False


class CutMasks(Cutout, frozen=True, kw_only=True):
    """Cut out by mask files, or by the photos' own alpha."""

    masks: Masks | None = None
    instances: Annotated[bool, option("Values of a mask number its objects.")] = False
    resize_masks: Annotated[bool, option("Bring masks of another size to the photos'.")] = False

    def check(self) -> None:
        """Alpha has the size of its photo, and one object."""
        needs(self, "instances", "masks")
        needs(self, "resize_masks", "masks")


class CutCoco(Cutout, frozen=True, kw_only=True):
    """Cut out by the polygons and run lengths of a COCO file."""

    annotations: Annotations
    only_classes: OnlyClasses = ()
    allow_missing: AllowMissing = False


class CutOpenImages(Cutout, frozen=True, kw_only=True):
    """Cut out by the mask files of OpenImages."""

    masks: Masks
    annotations: Annotations
    class_names: ClassNames | None = None
    only_classes: OnlyClasses = ()
    allow_missing: AllowMissing = False


class CutFound(Cutout, frozen=True, kw_only=True):
    """Cut out what a segmenter finds, in the whole photo or in boxes."""

    annotations: Annotations | None = None
    class_names: ClassNames | None = None
    only_classes: OnlyClasses = ()
    allow_missing: AllowMissing = False

    def check(self) -> None:
        """What is said of annotations needs some."""
        for name in ("class_names", "only_classes", "allow_missing"):
            needs(self, name, "annotations")


class CutGrabCut(CutFound, frozen=True, kw_only=True):
    """Cut out what GrabCut finds; it needs no weights."""

    seed: Seed = 0


class CutOnnx(CutFound, frozen=True, kw_only=True):
    """Cut out what a network finds: a U²-Net, an ISNet, or your own."""

    network: Annotated[
        Path, option("ONNX file; what another network takes is in NAME.json beside it.")
    ]


AnyCutout = CutMasks | CutCoco | CutOpenImages | CutGrabCut | CutOnnx
Cutout.kinds = {
    "masks": CutMasks,
    "coco": CutCoco,
    "openimages": CutOpenImages,
    "grabcut": CutGrabCut,
    "onnx": CutOnnx,
}
