"""Small photographs with a known object, and files of masks and annotations for them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def ellipse(width: int = 120, height: int = 90, *, share: float = 0.6) -> np.ndarray:
    """A mask (height, width) bool: an ellipse in the middle, ``share`` of each side."""
    y, x = np.mgrid[:height, :width]
    dx = (x + 0.5 - width / 2) / (share * width / 2)
    dy = (y + 0.5 - height / 2) / (share * height / 2)
    return np.asarray(dx * dx + dy * dy < 1)


def scene(mask: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """A photograph (h, w, 3) uint8: a reddish object on a greenish ground, both with noise."""
    rng = np.random.default_rng(seed)
    colours = np.where(mask[..., None], (200, 70, 50), (60, 120, 70))
    return np.clip(colours + rng.normal(0, 12, (*mask.shape, 3)), 0, 255).astype(np.uint8)


def encoded(pixels: np.ndarray, form: str = "PNG", **options: object) -> bytes:
    handle = io.BytesIO()
    Image.fromarray(pixels).save(handle, form, **options)
    return handle.getvalue()


def write(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / max(1, (a | b).sum()))


def photos(root: Path, classes: tuple[str, ...] = ("cup", "dog"), each: int = 2) -> Path:
    """``root/<class>/<n>.png``, every photograph with noise of its own."""
    for place, name in enumerate(classes):
        for n in range(each):
            write(root / name / f"{n}.png", scene(ellipse(), seed=10 * place + n))
    return root
