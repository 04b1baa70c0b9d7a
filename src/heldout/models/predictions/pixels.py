"""Pixels of a test set's images: read, decoded once, brought into every geometry that is wanted."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from heldout.core.errors import MismatchError
from heldout.data.images import (
    BadImage,
    FolderSource,
    ImageSource,
    bytes_of,
    open_source,
    sha256_bytes,
)
from heldout.data.images.preprocessing import Geometry, pixels_of, pixels_of_each
from heldout.data.testset import TestSet

CHANGED = "changed"
"""In the place of a SHA-256: two reads of an image gave different bytes."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Where the bytes of a test set's images are: a source, and the source's name of each row.

    ``digests``  SHA-256 of each image as the set has it
    ``seen``     row -> SHA-256 of the bytes that were read to run a model on them
    """

    source: ImageSource
    names: Sequence[str]
    digests: Sequence[str | None]
    seen: dict[int, str] = field(default_factory=dict)

    def read(self, row: int) -> bytes:
        """The bytes of one image."""
        with self.source.open(self.names[row]) as handle:
            return handle.read()

    def saw(self, row: int, data: bytes | memoryview) -> None:
        """Remember which bytes were read; of an image that gave others before, that it changed."""
        digest = sha256_bytes(data)
        if self.seen.setdefault(row, digest) != digest:
            self.seen[row] = CHANGED

    def used(self, start: int, stop: int, failed: Container[int]) -> list[str | None]:
        """SHA-256 of the images of some rows that a model ran on; None for those that ``failed``.

        An image that is not the set's own is refused.
        """
        found: list[str | None] = []
        for row in range(start, stop):
            own = self.digests[row]
            digest = None if row - start in failed else self.seen.get(row)
            if digest is not None and own is not None and digest != own:
                raise not_the_sets_own(self.names[row])
            found.append(digest)
        return found


def not_the_sets_own(what: str) -> MismatchError:
    """The error for files with other bytes than a test set says."""
    return MismatchError(
        f"{what}: the files are not those that the test set was made from",
        fix="restore them, or import the set again with --replace; heldout verify names them",
    )


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
) -> Mapping[str, np.ndarray | BadImage] | BadImage:
    """The pixels of one image by the geometry's key; or why there are none, in one or in all.

    What one geometry gives never depends on which others are asked for.
    """
    data = bytes_of(files.source, files.names[row])
    if isinstance(data, BadImage):
        return data
    files.saw(row, data)
    made: Sequence[np.ndarray | BadImage] | BadImage
    made = pixels_of_each(data, geometries)
    if isinstance(made, BadImage):
        if len(geometries) == 1:
            return made
        # Bad in one geometry, perhaps in one alone (a line blown up): each for itself.
        made = [pixels_of(data, geometry) for geometry in geometries]
    return {geometry.key: pixels for geometry, pixels in zip(geometries, made, strict=True)}


def good_pixels(
    loaded: Mapping[str, np.ndarray | BadImage] | BadImage,
) -> Mapping[str, np.ndarray] | None:
    """Pixels that are good in every geometry, or None."""
    if isinstance(loaded, BadImage):
        return None
    good = {key: pixels for key, pixels in loaded.items() if not isinstance(pixels, BadImage)}
    return good if len(good) == len(loaded) else None
