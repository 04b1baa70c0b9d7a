"""One unit of prediction: a range of images through all models, and the bytes that it leaves."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from heldout.errors import HeldoutError
from heldout.images import BadImage
from heldout.models.answers import finite_rows
from heldout.models.model import Model
from heldout.predictions.pixels import ImageFiles, PixelCache, load_pixels
from heldout.predictions.predictions import top_k

WORK = "predict-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""
UNIT_IMAGES = (8, 64)
"""Fewest and most images of a unit."""
BATCH = 16


def unit_images(images: int) -> int:
    """How many images a unit of a job of so many images has; whoever runs it, it is the same.

    About 128 units, so that at the end no worker waits long for the last one; between 8 images, as
    a unit costs about a millisecond (its result is safe on disk before the next begins), and 64,
    so that an interruption costs little.

    >>> [unit_images(n) for n in (1, 200, 2000, 5000, 50_000)]
    [8, 8, 8, 32, 64]
    """
    fewest, most = UNIT_IMAGES
    return min(max(images // 128 // fewest * fewest, fewest), most)


@dataclass(frozen=True, eq=False)
class ModelRows:
    """One model's outputs on a range of rows."""

    topk: np.ndarray
    logits: np.ndarray | None
    features: np.ndarray | None


@dataclass(frozen=True, eq=False)
class UnitRows:
    """All models' outputs on a range of rows, and the images that failed (position -> reason)."""

    models: tuple[ModelRows, ...]
    failures: dict[int, str]


@dataclass(frozen=True, eq=False)
class PredictWork:
    """The work of a prediction job: ``work((start, stop)) -> bytes``.

    Images are decoded once for all models. ``keep`` is ``logits`` (float16) or ``topk``.
    """

    files: ImageFiles
    models: Sequence[Model]
    keep: str = "logits"
    features: bool = False
    batch: int = BATCH
    max_pixels: int | None = None
    cache: PixelCache | None = None
    options: dict[str, int] = field(default_factory=dict)

    def __call__(self, payload: tuple[int, int]) -> bytes:
        """Predict rows ``start`` to ``stop``."""
        return pack(self.predict(*payload))

    def predict(self, start: int, stop: int) -> UnitRows:
        """Outputs of every model on rows ``start`` to ``stop``."""
        geometries = {m.preprocessing.geometry.key: m.preprocessing.geometry for m in self.models}
        limits = {} if self.max_pixels is None else {"max_pixels": self.max_pixels}
        pixels: dict[str, list[np.ndarray]] = {key: [] for key in geometries}
        failures: dict[int, str] = {}
        good: list[int] = []
        for row in range(start, stop):
            loaded = load_pixels(
                self.files, row, list(geometries.values()), cache=self.cache, **limits
            )
            if isinstance(loaded, BadImage):
                failures[row - start] = f"{loaded.trouble}: {loaded.reason}"
                continue
            good.append(row - start)
            for key in geometries:
                pixels[key].append(loaded[key])
        outputs = [
            self._run(model, pixels[model.preprocessing.geometry.key], good, stop - start)
            for model in self.models
        ]
        # An image that one model has no numbers for fails for all: rows stay comparable.
        for model, output in zip(self.models, outputs, strict=True):
            for row in output.not_finite:
                failures.setdefault(row, f"not finite: {model.name} gave no number")
        for output in outputs:
            output.blank(sorted(failures))
        return UnitRows(tuple(output.kept(self.keep) for output in outputs), failures)

    def _run(self, model: Model, pixels: list[np.ndarray], good: list[int], n: int) -> _Raw:
        classes = len(model.label_space)
        raw = _Raw(np.zeros((n, classes), np.float32))
        features: list[np.ndarray] = []
        for start in range(0, len(good), self.batch):
            rows = good[start : start + self.batch]
            answer = model(np.stack(pixels[start : start + self.batch]))
            if answer.logits.shape != (len(rows), classes):
                raise HeldoutError(
                    f"{model.name} gave logits of shape {answer.logits.shape} for {len(rows)} images "
                    f"and {classes} classes"
                )
            finite = finite_rows(answer)
            raw.not_finite += [
                row for row, good_row in zip(rows, finite, strict=True) if not good_row
            ]
            raw.logits[rows] = answer.logits
            if self.features:
                if answer.features is None:
                    raise HeldoutError(f"{model.name} gives no features")
                features.append(answer.features)
        if self.features:
            raw.features = np.zeros((n, features[0].shape[1] if features else 0), np.float16)
            if features:
                raw.features[good] = np.concatenate(features)
        return raw


@dataclass(eq=False)
class _Raw:
    """One model's outputs on a range while it is being made."""

    logits: np.ndarray
    features: np.ndarray | None = None
    not_finite: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def blank(self, rows: list[int]) -> None:
        """Take the numbers of failed rows away."""
        self.failed = rows
        self.logits[rows] = 0.0
        if self.features is not None:
            self.features[rows] = 0.0

    def kept(self, keep: str) -> ModelRows:
        """What is stored: top k from full precision, logits as float16, clipped to its range."""
        best = top_k(self.logits)
        best[self.failed] = -1
        limit = float(np.finfo(np.float16).max)
        kept = np.clip(self.logits, -limit, limit).astype(np.float16) if keep == "logits" else None
        return ModelRows(best, kept, self.features)


def pack(rows: UnitRows) -> bytes:
    """A unit's outputs as the bytes of an uncompressed ``.npz`` archive; equal outputs, equal bytes."""
    arrays: dict[str, np.ndarray] = {}
    for place, model in enumerate(rows.models):
        arrays[f"topk{place}"] = model.topk
        if model.logits is not None:
            arrays[f"logits{place}"] = model.logits
        if model.features is not None:
            arrays[f"features{place}"] = model.features
    text = json.dumps({str(k): v for k, v in sorted(rows.failures.items())})
    arrays["failures"] = np.frombuffer(text.encode("utf-8"), np.uint8)
    handle = io.BytesIO()
    np.savez(handle, **arrays)  # type: ignore[arg-type]
    return handle.getvalue()


def unpack(data: bytes, models: int) -> UnitRows:
    """The outputs that :func:`pack` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        found = tuple(
            ModelRows(
                arrays[f"topk{place}"],
                arrays.get(f"logits{place}"),
                arrays.get(f"features{place}"),
            )
            for place in range(models)
        )
        failures = json.loads(arrays["failures"].tobytes().decode("utf-8"))
    return UnitRows(found, {int(k): v for k, v in failures.items()})
