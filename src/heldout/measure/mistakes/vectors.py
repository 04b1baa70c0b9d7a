"""Vectors of images and texts in one space, from files or from an image-text encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, MismatchError
from heldout.core.files import existing_file
from heldout.data.images import BadImage, ImageSource
from heldout.data.testset import TestSet
from heldout.models.adapters.model import Encoder
from heldout.models.predictions.pixels import image_files, load_pixels

_BATCH = 32


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of length 1 by name: of images by image id, of texts by the text itself.

    ``values``  float32 (names, dimension)
    """

    names: tuple[str, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.names):
            raise MismatchError(
                f"{len(self.names)} names and vectors of shape {self.values.shape}",
                fix="give one row for each name",
            )
        lengths = np.linalg.norm(self.values, axis=1)
        if not np.isfinite(lengths).all() or (lengths == 0).any():
            raise MismatchError("a vector is zero or not finite", fix="leave it out")
        object.__setattr__(self, "values", (self.values / lengths[:, None]).astype(np.float32))

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """The row of each name, -1 where it has none; int64."""
        return np.array([self._rows.get(name, -1) for name in names], dtype=np.int64)


def read_vectors(path: Path, *, names: str) -> Vectors:
    """Vectors of a ``.npz`` file: ``names`` is the array of its names, ``vectors`` (n, dimension)."""
    existing_file(path, "file of vectors")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in (names, "vectors") if name not in arrays]
            if missing:
                raise BadFile(
                    path, f"has no array {missing[0]!r}", fix=f"it needs {names} and vectors"
                )
            texts, values = arrays[names], arrays["vectors"]
    except (ValueError, OSError, EOFError) as error:
        raise BadFile(path, f"is not an .npz of vectors ({error})", fix="write it again") from None
    return Vectors(tuple(str(text) for text in texts.tolist()), values.astype(np.float32))


def image_vectors(
    encoder: Encoder,
    testset: TestSet,
    image_ids: Sequence[str],
    *,
    images: ImageSource | Path | str | None = None,
    batch: int = _BATCH,
    show: Callable[[int, int], None] | None = None,
) -> Vectors:
    """Vectors of some images of a test set; those that cannot be decoded are left out.

    ``show`` is told how many of how many images are done.
    """
    files = image_files(testset, images)
    place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    geometry = encoder.preprocessing.geometry
    wanted = list(dict.fromkeys(image for image in image_ids if image in place))
    names: list[str] = []
    found: list[np.ndarray] = []
    for start in range(0, len(wanted), batch):
        kept, pixels = [], []
        for image in wanted[start : start + batch]:
            loaded = load_pixels(files, place[image], [geometry])
            made = loaded if isinstance(loaded, BadImage) else loaded[geometry.key]
            if not isinstance(made, BadImage):
                kept.append(image)
                pixels.append(made)
        if pixels:
            found.append(encoder.encode_images(np.stack(pixels)))
            names += kept
        if show is not None:
            show(min(start + batch, len(wanted)), len(wanted))
    if not names:
        raise MismatchError(
            f"none of {len(wanted)} images of {testset.name} can be read",
            fix="say where they are with --images",
        )
    return Vectors(tuple(names), np.concatenate(found))


def typicality(vectors: Vectors, labels: Mapping[str, str]) -> dict[str, float]:
    """How typical each image is of its class: cosine with the mean vector of the others of its class.

    Images that are alone in their class have no such number.
    """
    members: dict[str, list[int]] = {}
    for row, name in enumerate(vectors.names):
        if name in labels:
            members.setdefault(labels[name], []).append(row)
    found: dict[str, float] = {}
    for rows in members.values():
        if len(rows) < 2:
            continue
        mine = vectors.values[rows].astype(np.float64)
        others = mine.sum(axis=0) - mine
        lengths = np.maximum(np.linalg.norm(others, axis=1), 1e-12)
        cosines = (mine * others).sum(axis=1) / lengths
        found |= {vectors.names[row]: float(c) for row, c in zip(rows, cosines, strict=True)}
    return found
