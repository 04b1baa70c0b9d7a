"""Segmenters: what finds the object of a photo when nobody has drawn its outline.

:class:`GrabCut` needs no weights: colours of the border against colours of the rest. (Rother,
Kolmogorov, Blake, "GrabCut: interactive foreground extraction using iterated graph cuts", 2004; the
implementation is OpenCV's.) One run depends much on its size and seed, so several runs at several
sizes vote, and the share of votes is the matte: where they disagree, it says so.

:class:`OnnxSegmenter` is any local U²-Net or ISNet as an ONNX file. Nothing is ever downloaded.
U²-Net (Qin et al. 2020; also U²-Netp and Silueta) takes 320 × 320 pixels divided by the largest
value, then ImageNet's mean and standard deviation. ISNet (Qin et al. 2022) takes 1,024 × 1,024
pixels as ``x / 255 − 0.5``. What a file is, is inferred from the size that it takes; its output is
stretched, the smallest value to 0 and the largest to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.core.files import existing_file
from heldout.curate.cutouts.photos import Matte
from heldout.models.adapters.onnx import Port, Session, reason, weights_hash

PADDINGS = (0.0, 0.15)
"""Shares of the sides by which a photo is padded with its own edge, one view each; the mean of the
views counts. An object that fills its photo is found better with some room, others without."""
_SMALLEST = 8  # pixels of a side below which there is nothing to fit colours to


class Segmenter(Protocol):
    """Finds the object of a photo; it may be called by several threads at once."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the answer depends on beside the photo, as JSON values."""
        ...

    @property
    def runtime(self) -> Mapping[str, str]:
        """What runs it, for the record."""
        ...

    def __call__(self, pixels: np.ndarray) -> Matte:
        """The matte of uint8 pixels (h, w, 3)."""
        ...


SIZES = (192, 256, 320)
"""Longest side, in pixels, of the photo in each run of GrabCut."""
BORDER = 0.02
"""Share of each side that GrabCut takes for background for sure."""
ITERATIONS = 5


@dataclass(frozen=True)
class GrabCut:
    """OpenCV's GrabCut, voting over sizes; ``seed`` starts its colour models."""

    seed: int = 0

    @property
    def identity(self) -> Mapping[str, Any]:
        """The settings."""
        return {
            "segmenter": "grabcut",
            "sizes": list(SIZES),
            "border": BORDER,
            "iterations": ITERATIONS,
            "seed": self.seed,
        }

    @property
    def runtime(self) -> Mapping[str, str]:
        """The version of OpenCV; another one may move an edge by a pixel."""
        return {"opencv": _cv2().__version__}

    def __call__(self, pixels: np.ndarray) -> Matte:
        """The share of runs that count a pixel to the object."""
        cv2 = _cv2()
        height, width = pixels.shape[:2]
        scales = [min(1.0, size / max(height, width)) for size in SIZES]
        sides = [(max(1, round(width * s)), max(1, round(height * s))) for s in scales]
        # Votes are counted at the largest size; a whole photo would take much more memory.
        total = np.zeros(sides[-1][::-1], np.float32)
        for place, side in enumerate(sides):
            reduced = cv2.resize(pixels, side, interpolation=cv2.INTER_AREA)
            # A small photo is the same at all sizes; the seeds then still differ.
            found = self._once(cv2, reduced, place)
            total += cv2.resize(found, sides[-1], interpolation=cv2.INTER_LINEAR)
        share = np.clip(total / np.float32(len(SIZES)), 0, 1)
        return np.asarray(cv2.resize(share, (width, height), interpolation=cv2.INTER_LINEAR))

    def _once(self, cv2: Any, pixels: np.ndarray, place: int) -> Matte:
        height, width = pixels.shape[:2]
        left, top = max(1, round(width * BORDER)), max(1, round(height * BORDER))
        likely = np.zeros((height, width), bool)
        likely[top : height - top, left : width - left] = True
        if min(height, width) < _SMALLEST:
            return likely.astype(np.float32)
        cv2.setRNGSeed(self.seed + place)  # OpenCV keeps one generator per thread
        models = np.zeros((1, 65)), np.zeros((1, 65))
        mask = np.where(likely, cv2.GC_PR_FGD, cv2.GC_BGD).astype(np.uint8)
        cv2.grabCut(pixels, mask, None, *models, ITERATIONS, cv2.GC_INIT_WITH_MASK)
        return np.asarray(mask & 1, np.float32)


def _cv2() -> Any:
    return require("cv2", extra="compose", purpose="cutting out with GrabCut")


class _Network(NamedTuple):
    """What a family of networks takes; a ``scale`` of None is each photo's largest value."""

    name: str
    size: int
    scale: float | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


NETWORKS = (
    _Network("u2net", 320, None, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    _Network("isnet", 1024, 255.0, (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)),
)


class OnnxSegmenter:
    """A network of an ONNX file; safe to call from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = existing_file(path, "ONNX file")
        self._sha256 = weights_hash(path)
        self._session = Session(path, purpose="cutting out with a network")
        self._input, self.network = _network(path, self._session)
        names = [port.name for port in self._session.outputs]
        # U²-Net and ISNet give the final map first, then those of their levels.
        self._output = "output" if "output" in names else names[0]
        self._try()

    @property
    def identity(self) -> Mapping[str, Any]:
        """The hash of the weights, and what is done around them."""
        return {
            "segmenter": "onnx",
            "weights": self._sha256,
            "family": {**self.network._asdict(), "values": "stretch", "output": self._output},
            "paddings": list(PADDINGS),
        }

    @property
    def runtime(self) -> Mapping[str, str]:
        """The version of ONNX Runtime."""
        return {"onnxruntime": self._session.version}

    def __call__(self, pixels: np.ndarray) -> Matte:
        """The mean of the views' mattes."""
        total = sum(self._view(pixels, padding) for padding in PADDINGS)
        return np.asarray(np.clip(np.asarray(total, np.float32) / len(PADDINGS), 0, 1))

    def _view(self, pixels: np.ndarray, padding: float) -> Matte:
        from PIL import Image

        height, width = pixels.shape[:2]
        dy, dx = round(height * padding), round(width * padding)
        padded = np.pad(pixels, ((dy, dy), (dx, dx), (0, 0)), mode="edge")
        size = self.network.size
        reduced = Image.fromarray(padded).resize((size, size), Image.Resampling.BILINEAR)
        found = self._run(np.asarray(reduced))
        found = found.reshape(found.shape[-2:])
        low, high = float(found.min()), float(found.max())
        if high - low < 1e-6:
            return np.zeros((height, width), np.float32)  # a flat answer has found nothing
        found = np.asarray((found - low) / (high - low), np.float32)
        # Cut the padding off and go back to the photo's size in one step.
        x, y = size / padded.shape[1], size / padded.shape[0]
        inner = (dx * x, dy * y, (dx + width) * x, (dy + height) * y)
        whole = Image.fromarray(found).resize((width, height), Image.Resampling.BILINEAR, box=inner)
        return np.asarray(whole)

    def _run(self, pixels: np.ndarray) -> np.ndarray:
        network, values = self.network, pixels.astype(np.float32)
        values /= np.float32(network.scale or max(float(values.max()), 1.0))
        values -= np.asarray(network.mean, np.float32)
        values /= np.asarray(network.std, np.float32)
        batch = np.ascontiguousarray(values.transpose(2, 0, 1)[None], self._input.dtype)
        (found,) = self._session.run({self._input.name: batch}, [self._output])
        return np.asarray(found, np.float32)

    def _try(self) -> None:
        """One run on made-up pixels, so that what cannot work is said before anything starts."""
        size = self.network.size
        noise = np.random.default_rng(0).integers(0, 256, (size, size, 3)).astype(np.uint8)
        try:
            found = self._run(noise)
        except Exception as error:  # the runtime has classes of its own for what a layer refuses
            raise UserError(
                f"{self.path} cannot run on {size} × {size} pixels ({reason(error)})",
                fix="export it again",
            ) from None
        if found.size != size * size or not np.isfinite(found).all():
            raise UserError(
                f"{self.path}: output {self._output} of shape {found.shape} is not one map of "
                "finite numbers",
                fix="give a U²-Net or an ISNet",
            )


def _network(path: Path, session: Session) -> tuple[Port, _Network]:
    """What a graph takes, and the family that takes photos of this size."""
    for port in session.inputs if len(session.inputs) == 1 else ():
        for network in NETWORKS:
            fits = port.shape[1:] == (3, network.size, network.size) and port.shape[0] in (None, 1)
            if fits and port.dtype in ("float32", "float16"):
                return port, network
    raise UserError(
        f"{path} takes {', '.join(map(str, session.inputs)) or 'nothing'}",
        fix="give a U²-Net (1, 3, 320, 320) or an ISNet (1, 3, 1024, 1024)",
    )
