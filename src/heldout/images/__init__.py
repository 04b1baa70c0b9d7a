"""Images: where they come from, what they are, how they are decoded, and which are bad."""

from __future__ import annotations

from heldout.images.archives import TarSource, ZipSource
from heldout.images.checks import Examined, check, examine, probe, sha256_bytes
from heldout.images.decoding import decode
from heldout.images.folder import FolderSource
from heldout.images.geometry import apply_geometry, normalise, pixels_of, pixels_of_each
from heldout.images.locating import source_of
from heldout.images.memory import MAX_PIXELS
from heldout.images.object_store import ObjectStoreSource
from heldout.images.opening import BadImage, ImageInfo, bytes_of
from heldout.images.preprocessing import Geometry, Preprocessing
from heldout.images.source import (
    EXTENSIONS,
    MAX_IMAGE_BYTES,
    ImageSource,
    MemorySource,
    check_id,
    read_image,
)
from heldout.images.web import WebSource

__all__ = [
    "EXTENSIONS",
    "MAX_IMAGE_BYTES",
    "MAX_PIXELS",
    "BadImage",
    "Examined",
    "FolderSource",
    "Geometry",
    "ImageInfo",
    "ImageSource",
    "MemorySource",
    "ObjectStoreSource",
    "Preprocessing",
    "TarSource",
    "WebSource",
    "ZipSource",
    "apply_geometry",
    "bytes_of",
    "check",
    "check_id",
    "decode",
    "examine",
    "normalise",
    "pixels_of",
    "pixels_of_each",
    "probe",
    "read_image",
    "sha256_bytes",
    "source_of",
]
