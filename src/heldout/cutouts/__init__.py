"""Cut-outs: objects freed from their photographs, by outlines that exist or by a segmenter.

Everything that the user already has comes first (alpha, mask files, COCO, OpenImages); GrabCut
needs no weights; a network is any local ONNX file. Each cut-out is cleaned, measured and gated, and
the folder that comes out is what ``heldout build compose --foregrounds`` takes.
"""

from __future__ import annotations

from heldout.cutouts.cleaning import Cleaned, Cleaning, cut
from heldout.cutouts.coco import (
    Polygons,
    RunLengths,
    compressed,
    draw_polygons,
    draw_runs,
    uncompressed,
)
from heldout.cutouts.coco_file import coco_subjects
from heldout.cutouts.cutout import Box, Matte, Outline, Problem, Subject, Subjects
from heldout.cutouts.gate import Limits, Measures, measure, reasons
from heldout.cutouts.grabcut import GrabCut
from heldout.cutouts.making import make_cutouts, read_review
from heldout.cutouts.manifest import Cutout, Manifest, read_manifest
from heldout.cutouts.masks import MaskFile, OwnAlpha, read_mask
from heldout.cutouts.onnx_segmenter import OnnxSegmenter
from heldout.cutouts.openimages import openimages_boxes, openimages_subjects
from heldout.cutouts.photo import Photo, read_photo
from heldout.cutouts.photographs import (
    Facts,
    Photographs,
    masked_photos,
    read_photo_table,
    whole_photos,
)
from heldout.cutouts.segmenter import FakeSegmenter, Segmenter

__all__ = [
    "Box",
    "Cleaned",
    "Cleaning",
    "Cutout",
    "Facts",
    "FakeSegmenter",
    "GrabCut",
    "Limits",
    "Manifest",
    "MaskFile",
    "Matte",
    "Measures",
    "OnnxSegmenter",
    "Outline",
    "OwnAlpha",
    "Photo",
    "Photographs",
    "Polygons",
    "Problem",
    "RunLengths",
    "Segmenter",
    "Subject",
    "Subjects",
    "coco_subjects",
    "compressed",
    "cut",
    "draw_polygons",
    "draw_runs",
    "make_cutouts",
    "masked_photos",
    "measure",
    "openimages_boxes",
    "openimages_subjects",
    "read_manifest",
    "read_mask",
    "read_photo",
    "read_photo_table",
    "read_review",
    "reasons",
    "uncompressed",
    "whole_photos",
]
