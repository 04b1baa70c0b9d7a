"""Backgrounds of the demonstration: tinted textures of scikit-image, and skies that are computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_SIDE = 512
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Backdrop:
    """A background: a grey texture between two colours, or a sky from top to bottom.

    ``file``  the texture in scikit-image; None for a sky
    """

    name: str
    file: str | None
    colours: tuple[Colour, Colour]
    source: str
    attribution: str


BACKDROPS = (
    Backdrop(
        "dusk", None, ((36, 50, 96), (232, 164, 120)), "computed", "the authors of heldout"
    ),
    Backdrop(
        "gravel", "gravel.png", ((44, 38, 34), (222, 212, 198)), "scikit-image gravel.png",
        "CC0Textures",
    ),
    Backdrop(
        "meadow", "grass.png", ((18, 38, 12), (196, 214, 132)), "scikit-image grass.png",
        "linolafett",
    ),
    Backdrop("sky", None, ((72, 128, 206), (214, 232, 246)), "computed", "the authors of heldout"),
)  # fmt: skip
"""All of them show no object of ImageNet; all are under CC0."""


def backdrop(ground: Backdrop, photos: Path) -> Any:
    """The background as an image of 512 × 512 pixels; ``photos`` is scikit-image's folder."""
    from PIL import Image

    if ground.file is None:
        share = _sky()
    else:
        with Image.open(photos / ground.file) as image:
            grey = image.convert("L").resize((_SIDE, _SIDE))
        share = np.asarray(grey, dtype=np.float64) / 255
    first, last = (np.array(colour, dtype=np.float64) for colour in ground.colours)
    pixels = first + share[:, :, None] * (last - first)
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


def _sky() -> np.ndarray:
    """From 0 at the top to 1 at the bottom, with soft bands of cloud: sums of a few waves."""
    down, across = np.mgrid[0 : 1 : _SIDE * 1j, 0 : 1 : _SIDE * 1j]
    waves = sum(
        np.sin(2 * np.pi * (a * across + b * down) + c) / (k + 2)
        for k, (a, b, c) in enumerate(((1.3, 3.1, 0.4), (2.1, -5.2, 1.9), (4.7, 9.4, 3.0)))
    )
    share: np.ndarray = np.clip(down**1.2 + 0.06 * waves, 0, 1)
    return share
