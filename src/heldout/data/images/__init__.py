"""Images: where they come from, what they are, how they are decoded, and which are bad."""

from __future__ import annotations

from heldout.data.images.decode import (
    MAX_PIXELS,
    BadImage,
    Examined,
    ImageInfo,
    bytes_of,
    check,
    decode,
    examine,
    probe,
    sha256_bytes,
)
from heldout.data.images.preprocessing import (
    Geometry,
    Preprocessing,
    apply_geometry,
    normalise,
    pixels_of,
    pixels_of_each,
)
from heldout.data.images.sources import (
    FolderSource,
    ImageSource,
    MemorySource,
    ObjectStoreSource,
    TarSource,
    WebSource,
    ZipSource,
    check_id,
    open_source,
    read_image,
)

__all__ = [
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
    "open_source",
    "pixels_of",
    "pixels_of_each",
    "probe",
    "read_image",
    "sha256_bytes",
]
