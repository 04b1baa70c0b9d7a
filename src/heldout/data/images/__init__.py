"""Images: where they come from, what they are, how they are decoded, and which are bad."""

from __future__ import annotations

from heldout.data.images.archives import TarSource, ZipSource
from heldout.data.images.checks import Examined, check, examine, probe, sha256_bytes
from heldout.data.images.decoding import decode
from heldout.data.images.folder import FolderSource
from heldout.data.images.geometry import apply_geometry, normalise, pixels_of, pixels_of_each
from heldout.data.images.locating import source_of
from heldout.data.images.memory import MAX_PIXELS
from heldout.data.images.object_store import ObjectStoreSource
from heldout.data.images.opening import BadImage, ImageInfo, bytes_of
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.images.source import (
    EXTENSIONS,
    MAX_IMAGE_BYTES,
    ImageSource,
    MemorySource,
    check_id,
    read_image,
)
from heldout.data.images.web import WebSource

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
