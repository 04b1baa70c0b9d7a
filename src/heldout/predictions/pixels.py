"""Pixels of a test set's images: read, decoded once, brought into every geometry that is wanted."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.errors import NotFound, UserError
from heldout.images import MAX_PIXELS, BadImage, FolderSource, ImageSource
from heldout.images.decoding import decode
from heldout.images.geometry import apply_geometry
from heldout.images.preprocessing import Geometry
from heldout.testset import TestSet


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Where the bytes of a test set's images are: a source, and the source's name of each row."""

    source: ImageSource
    names: Sequence[str]
    digests: Sequence[str | None]

    def read(self, row: int) -> bytes:
        """The bytes of one image."""
        with self.source.open(self.names[row]) as handle:
            return handle.read()


def image_files(testset: TestSet, images: ImageSource | Path | None = None) -> ImageFiles:
    """The image files of a test set: its own folder, or another folder or source with the same paths."""
    paths = testset.images["path"].to_pylist()
    ids = testset.image_ids.to_pylist()
    if images is None:
        source: ImageSource = FolderSource(testset.images_folder())
    elif isinstance(images, Path):
        source = FolderSource(images)
    else:
        source = images
    names = [path or name for path, name in zip(paths, ids, strict=True)]
    if isinstance(images, Path) and not images.is_dir():
        raise NotFound(f"no folder {images}", fix="name the folder of the images with --images")
    return ImageFiles(source, names, testset.images["sha256"].to_pylist())


class PixelCache:
    """Decoded pixels kept in memory, so that a further model runs at its own speed.

    Holds at most ``max_bytes``; what does not fit is decoded again. 50,000 images of 224 x 224 are
    7.5 GB. Safe to share between threads, and between calls in one process.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._known: dict[tuple[str, str], np.ndarray] = {}
        self._lock = threading.Lock()

    def get(self, image: str, geometry: Geometry) -> np.ndarray | None:
        """The pixels of an image (named by its hash), or None."""
        return self._known.get((image, geometry.key))

    def put(self, image: str, geometry: Geometry, pixels: np.ndarray) -> None:
        """Keep pixels if there is room."""
        with self._lock:
            key = (image, geometry.key)
            if key not in self._known and self.bytes + pixels.nbytes <= self.max_bytes:
                self._known[key] = pixels
                self.bytes += pixels.nbytes

    def __len__(self) -> int:
        return len(self._known)


def load_pixels(
    files: ImageFiles,
    row: int,
    geometries: Sequence[Geometry],
    *,
    max_pixels: int = MAX_PIXELS,
    cache: PixelCache | None = None,
) -> Mapping[str, np.ndarray] | BadImage:
    """The pixels of one image in every geometry, by the geometry's key; or why there are none."""
    found: dict[str, np.ndarray] = {}
    digest = files.digests[row]
    if cache is not None and digest is not None:
        for geometry in geometries:
            kept = cache.get(digest, geometry)
            if kept is not None:
                found[geometry.key] = kept
    missing = [geometry for geometry in geometries if geometry.key not in found]
    if not missing:
        return found
    try:
        data = files.read(row)
    except (OSError, UserError) as error:
        reason = error.line if isinstance(error, UserError) else (error.strerror or str(error))
        return BadImage(trouble="unreadable", reason=reason)
    for exif in {geometry.exif for geometry in missing}:
        image = decode(data, exif=exif, max_pixels=max_pixels)
        if isinstance(image, BadImage):
            return image
        for geometry in missing:
            if geometry.exif == exif:
                pixels = apply_geometry(image, geometry)
                found[geometry.key] = pixels
                if cache is not None and digest is not None:
                    cache.put(digest, geometry, pixels)
    return found
