"""Images: where they come from, what they are, and which of them are bad."""

from __future__ import annotations

from heldout.images.archives import TarSource, ZipSource
from heldout.images.checks import (
    MAX_PIXELS,
    BadImage,
    Examined,
    ImageInfo,
    check,
    examine,
    probe,
    sha256_bytes,
)
from heldout.images.folder import FolderSource
from heldout.images.source import EXTENSIONS, ImageSource, MemorySource, check_id, read_image

__all__ = [
    "EXTENSIONS",
    "MAX_PIXELS",
    "BadImage",
    "Examined",
    "FolderSource",
    "ImageInfo",
    "ImageSource",
    "MemorySource",
    "TarSource",
    "ZipSource",
    "check",
    "check_id",
    "examine",
    "probe",
    "read_image",
    "sha256_bytes",
]
