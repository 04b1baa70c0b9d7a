"""One unit of prediction: a range of images through all models, and the bytes that it leaves."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from heldout.core.errors import HeldoutError
from heldout.data.images import MAX_PIXELS, BadImage
from heldout.models.adapters.model import Model, finite_rows
from heldout.models.predictions.pixels import ImageFiles, load_pixels
from heldout.models.predictions.predictions import as_stored, top_k

WORK = "predict-4"
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
    """One model's outputs on a range of rows, and the images that failed (position -> reason).

    Failures are the model's own: what is stored of one model never depends on which others ran
    beside it. ``digests`` are the SHA-256 of the images that it ran on, None for failures.
    """

    topk: np.ndarray
    logits: np.ndarray | None
    features: np.ndarray | None
    failures: dict[int, str]
    digests: list[str | None]


@dataclass(frozen=True, eq=False)
class PredictWork:
    """Predicts ranges of rows with all models; each image is decoded once for all of them.

    ``keep`` is ``logits`` (float16) or ``topk``.
    """

    files: ImageFiles
    models: Sequence[Model]
    keep: str = "logits"
    features: bool = False
    batch: int = BATCH
    max_pixels: int = MAX_PIXELS

    def predict(
        self, start: int, stop: int, places: Sequence[int] | None = None
    ) -> Iterator[ModelRows]:
        """Outputs on rows ``start`` to ``stop`` of every model, or of those at ``places``; one after
        the other, so that one that breaks does not take the others' with it."""
        models = self.models if places is None else [self.models[place] for place in places]
        geometries = {m.preprocessing.geometry.key: m.preprocessing.geometry for m in models}
        pixels: dict[str, dict[int, np.ndarray]] = {key: {} for key in geometries}
        failures: dict[str, dict[int, str]] = {key: {} for key in geometries}
        for row in range(start, stop):
            loaded = load_pixels(
                self.files,
                row,
                list(geometries.values()),
                max_pixels=self.max_pixels,
            )
            for key in geometries:
                found = loaded if isinstance(loaded, BadImage) else loaded[key]
                if isinstance(found, BadImage):
                    failures[key][row - start] = f"{found.trouble}: {found.reason}"
                else:
                    pixels[key][row - start] = found
        for model in models:
            key = model.preprocessing.geometry.key
            yield self._run(model, pixels[key], failures[key], start, stop)

    def _run(
        self,
        model: Model,
        pixels: dict[int, np.ndarray],
        bad: dict[int, str],
        start: int,
        stop: int,
    ) -> ModelRows:
        n = stop - start
        classes = len(model.label_space)
        logits = np.zeros((n, classes), np.float32)
        failures = dict(bad)
        found: list[np.ndarray] = []
        good = sorted(pixels)
        for at in range(0, len(good), self.batch):
            rows = good[at : at + self.batch]
            answer = model(np.stack([pixels[row] for row in rows]))
            if answer.logits.shape != (len(rows), classes):
                raise HeldoutError(
                    f"{model.name} gave logits of shape {answer.logits.shape} for {len(rows)} images "
                    f"and {classes} classes"
                )
            for row, finite in zip(rows, finite_rows(answer), strict=True):
                if not finite:
                    failures[row] = f"not finite: {model.name} gave no number"
            logits[rows] = answer.logits
            if self.features:
                if answer.features is None:
                    raise HeldoutError(f"{model.name} gives no features")
                found.append(answer.features)
        failed = sorted(failures)
        logits[failed] = 0.0
        best = top_k(logits)
        best[failed] = -1
        features = None
        if self.features:
            features = np.zeros((n, found[0].shape[1] if found else 0), np.float16)
            if found:
                features[good] = as_stored(np.concatenate(found))
                features[failed] = 0.0
        # Full precision decides the order; float16 keeps the numbers.
        kept = as_stored(logits) if self.keep == "logits" else None
        return ModelRows(best, kept, features, failures, self.files.used(start, stop, failures))


def pack(models: Mapping[str, ModelRows]) -> bytes:
    """Outputs by model as the bytes of an uncompressed ``.npz`` archive; equal outputs, equal bytes."""
    arrays: dict[str, np.ndarray] = {}
    for name, model in models.items():
        text = json.dumps({str(k): v for k, v in sorted(model.failures.items())})
        arrays[f"{name}.failures"] = np.frombuffer(text.encode("utf-8"), np.uint8)
        arrays[f"{name}.sha256"] = np.array([digest or "" for digest in model.digests], "S64")
        arrays[f"{name}.topk"] = model.topk
        if model.logits is not None:
            arrays[f"{name}.logits"] = model.logits
        if model.features is not None:
            arrays[f"{name}.features"] = model.features
    handle = io.BytesIO()
    np.savez(handle, **arrays)  # type: ignore[arg-type]
    return handle.getvalue()


def unpack(packed: Path | IO[bytes], name: str) -> ModelRows:
    """One model's outputs from what :func:`pack` wrote.

    The others are not read: putting together the predictions of many models stays linear.
    """
    with np.load(packed, allow_pickle=False) as arrays:
        failures = json.loads(arrays[f"{name}.failures"].tobytes().decode("utf-8"))
        return ModelRows(
            arrays[f"{name}.topk"],
            arrays.get(f"{name}.logits"),
            arrays.get(f"{name}.features"),
            {int(k): v for k, v in failures.items()},
            [digest.decode() or None for digest in arrays[f"{name}.sha256"].tolist()],
        )
