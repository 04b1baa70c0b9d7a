"""Pixels of a test set's images: read, decoded once, brought into every geometry that is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.data.images import (
    MAX_PIXELS,
    BadImage,
    FolderSource,
    ImageSource,
    bytes_of,
    open_source,
)
from heldout.data.images.preprocessing import Geometry, pixels_of, pixels_of_each
from heldout.data.testset import TestSet


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


def image_files(testset: TestSet, images: ImageSource | Path | str | None = None) -> ImageFiles:
    """The image files of a test set: its own source or folder, or where ``images`` says they are.

    That is a source, or a folder, a ``.tar`` or ``.zip`` file or a URL with the set's own paths.
    """
    paths = testset.images["path"].to_pylist()
    ids = testset.image_ids.to_pylist()
    names = [path or name for path, name in zip(paths, ids, strict=True)]
    if images is None and testset.source is not None:
        source: ImageSource = testset.source
        names = ids
    elif images is None:
        source = FolderSource(testset.images_folder())
    elif isinstance(images, Path | str):
        source = open_source(images, ids=names)
    else:
        source = images
    return ImageFiles(source, names, testset.images["sha256"].to_pylist())


def load_pixels(
    files: ImageFiles,
    row: int,
    geometries: Sequence[Geometry],
    *,
    max_pixels: int = MAX_PIXELS,
) -> Mapping[str, np.ndarray | BadImage] | BadImage:
    """The pixels of one image by the geometry's key; or why there are none, in one or in all.

    What one geometry gives never depends on which others are asked for.
    """
    data = bytes_of(files.source, files.names[row])
    if isinstance(data, BadImage):
        return data
    made: Sequence[np.ndarray | BadImage] | BadImage
    made = pixels_of_each(data, geometries, max_pixels=max_pixels)
    if isinstance(made, BadImage):
        if len(geometries) == 1:
            return made
        # Bad in one geometry, perhaps in one alone (a line blown up): each for itself.
        made = [pixels_of(data, geometry, max_pixels=max_pixels) for geometry in geometries]
    return {geometry.key: pixels for geometry, pixels in zip(geometries, made, strict=True)}


def good_pixels(
    loaded: Mapping[str, np.ndarray | BadImage] | BadImage,
) -> Mapping[str, np.ndarray] | None:
    """Pixels that are good in every geometry, or None."""
    if isinstance(loaded, BadImage):
        return None
    good = {key: pixels for key, pixels in loaded.items() if not isinstance(pixels, BadImage)}
    return good if len(good) == len(loaded) else None
