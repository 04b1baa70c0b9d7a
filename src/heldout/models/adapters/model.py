"""What a model and an encoder are, what goes into them, and checks of what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from heldout.core.errors import MismatchError, UserError
from heldout.data.images.preprocessing import Geometry, Interpolation, Preprocessing, normalise
from heldout.data.labels.label_space import LabelSpace

Outputs = Literal["logits", "probabilities"]
_UNIT_ROWS = 2048
"""Rows whose float64 form is in memory at once."""


@dataclass(frozen=True, eq=False)
class ModelOutput:
    """Outputs for a batch: logits float32 (b, classes); features float32 (b, d) or None."""

    logits: np.ndarray
    features: np.ndarray | None = None


@runtime_checkable
class Model(Protocol):
    """A classifier. ``__call__`` gets uint8 pixels (b, height, width, 3), RGB, after the geometry
    of ``preprocessing``, and applies scale, mean, std and layout itself, so that the same decoded
    pixels serve many models.

    ``identity`` distinguishes it from any other model: hash of the weights, library versions that
    change outputs, arguments. It must be safe to call from several threads at once.
    """

    name: str
    label_space: LabelSpace
    preprocessing: Preprocessing
    identity: Mapping[str, Any]

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        """Logits (and features) of a batch."""
        ...


@runtime_checkable
class Encoder(Protocol):
    """Images and texts in one space, where the cosine measures how well they match.

    ``dimension``  of the space
    ``identity``   distinguishes it from any other encoder: hash of the weights, library versions
                   that change outputs, arguments
    ``scale``      what a cosine is multiplied by before a softmax, as the encoder was trained

    Like a :class:`Model` it gets uint8 pixels (b, height, width, 3), RGB, after the geometry of
    ``preprocessing``. It must be safe to call from several threads at once.
    """

    name: str
    dimension: int
    preprocessing: Preprocessing
    identity: Mapping[str, Any]
    scale: float

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """A batch as vectors of length 1; float32 (b, dimension)."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as vectors of length 1; float32 (texts, dimension)."""
        ...


def label_space_of(classes: LabelSpace | str) -> LabelSpace:
    """The label space itself, or the one of a name or file."""
    return classes if isinstance(classes, LabelSpace) else LabelSpace.load(classes)


def resize_and_crop(
    resized: int | tuple[int, int],
    crop: int | tuple[int, int],
    interpolation: Interpolation,
    *,
    keep_aspect: bool = True,
) -> Geometry:
    """Resize, then centre crop; sizes are one side of a square or (height, width)."""
    (height, width), (crop_height, crop_width) = (
        (size, size) if isinstance(size, int) else size for size in (resized, crop)
    )
    return Geometry(
        resize="shorter" if keep_aspect else "exact",
        resize_height=height,
        resize_width=width,
        interpolation=interpolation,
        crop_height=crop_height,
        crop_width=crop_width,
    )


def model_input(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """``(pixel / scale - mean) / std`` per channel, as contiguous float32 in the model's layout.

    ``pixels`` uint8 (b, height, width, 3), RGB, after the geometry; the result is float32
    (b, 3, height, width) or (b, height, width, 3). ``mean`` and ``std`` are in the model's order
    of colours. Divided, subtracted, divided in float32 and in
    this order, so that the bits are those of torchvision's ``ToTensor`` and ``Normalize``.
    """
    check_pixels(pixels, preprocessing)
    return normalise(pixels, preprocessing)


def check_pixels(pixels: np.ndarray, preprocessing: Preprocessing) -> None:
    """Refuse pixels that are not those of a preprocessing's geometry."""
    geometry = preprocessing.geometry
    expected = (geometry.crop_height, geometry.crop_width, 3)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != expected:
        raise ValueError(f"pixels {pixels.dtype} {pixels.shape} instead of uint8 (b, {expected})")


def made_up_pixels(preprocessing: Preprocessing, rows: int) -> np.ndarray:
    """Varied images, uint8 (rows, height, width, 3): noise of its own brightness in each."""
    geometry = preprocessing.geometry
    shape = (rows, geometry.crop_height, geometry.crop_width, 3)
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 256, shape)
    contrast = generator.uniform(0.1, 1, (rows, 1, 1, 3))
    return (noise * contrast).astype(np.uint8)


def model_output(
    logits: Any,
    features: Any = None,
    *,
    rows: int,
    classes: int,
    model: str,
    outputs: Outputs = "logits",
) -> ModelOutput:
    """Outputs as float32 (rows, classes) and (rows, d) from the arrays that a model returned.

    Axes of length 1 after the second are dropped. Probabilities become their logarithms, which
    are logits of the same probabilities; a probability of 0 becomes that of the smallest float32.
    """
    scores = _matrix(logits, rows, "logits", model)
    if scores.shape[1] != classes:
        raise MismatchError(
            f"{model} gives {scores.shape[1]} outputs per image, its label space has {classes} classes",
            fix="state the label space that it was trained with",
        )
    if outputs == "probabilities":
        scores = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
    return ModelOutput(
        scores, None if features is None else _matrix(features, rows, "features", model)
    )


def _matrix(value: Any, rows: int, what: str, model: str) -> np.ndarray:
    array = np.asarray(value)
    while array.ndim > 2 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != 2 or array.shape[0] != rows or array.dtype.kind not in "fiu":
        raise UserError(
            f"{model} gives {what} of {array.dtype} {array.shape} for {rows} images",
            fix=f"one row of numbers per image is needed, shape ({rows}, n)",
        )
    return np.ascontiguousarray(array, np.float32)


def finite_rows(output: ModelOutput) -> np.ndarray:
    """Which images have outputs at all, bool (b,): False where a logit or feature is NaN or ±inf.

    An output with NaN has no best class; such an image counts as failed.
    """
    found: np.ndarray = np.isfinite(output.logits).all(axis=1)
    if output.features is not None:
        found &= np.isfinite(output.features).all(axis=1)
    return found


def look_like_probabilities(logits: np.ndarray, *, tolerance: float = 1e-3) -> bool:
    """Whether every row is at least 0 and sums to 1, as only a softmax makes it."""
    sums = logits.sum(axis=1, dtype=np.float64)
    return logits.shape[1] > 1 and bool((logits >= 0).all() and (abs(sums - 1) < tolerance).all())


def check_output(output: ModelOutput, where: str, outputs: Outputs, *, fix: str) -> None:
    """Refuse outputs that are not finite, and probabilities where logits are stated."""
    if not finite_rows(output).all():
        raise UserError(
            f"{where} gives NaN or infinity", fix="check the export and its preprocessing"
        )
    if outputs == "logits" and look_like_probabilities(output.logits):
        raise MismatchError(
            f"outputs of {where} are at least 0 and sum to 1: probabilities, not logits", fix=fix
        )


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths, float32 (n, d); the length is summed in float64.

    Made in one way everywhere, so that equal input gives equal bits. A row of zeros, or with NaN
    or infinity in it, has no direction and becomes a row of NaN.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [nan, nan]]
    """
    made = np.empty(vectors.shape, np.float32)
    for start in range(0, len(vectors), _UNIT_ROWS):
        part = slice(start, start + _UNIT_ROWS)
        wide = np.asarray(vectors[part], np.float64)
        # A sum of squares may overflow or vanish where the direction itself is plain.
        largest = np.abs(wide).max(axis=1, initial=0.0)
        good = np.isfinite(largest) & (largest > 0)
        wide = wide / np.where(good, largest, 1.0)[:, None]
        wide[~good] = np.nan
        made[part] = wide / np.sqrt((wide * wide).sum(axis=1))[:, None]
    return made
