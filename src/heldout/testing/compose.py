"""Stand-ins for composing: inputs of factors held in memory, and a segmenter that needs no weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.curate.compose.inputs import Pixels
from heldout.curate.cutouts.photos import Matte


@dataclass(frozen=True, eq=False, kw_only=True)
class InMemoryInputs:
    """Cut-outs (h, w, 4) and backgrounds (h, w, 3) as arrays, with their classes."""

    cutouts: Sequence[Pixels]
    cutout_classes: Sequence[str]
    backgrounds: Sequence[Pixels]
    background_classes: Sequence[str | None]

    def cutout(self, index: int) -> Pixels:
        """A cut-out."""
        return self.cutouts[index]

    def background(self, index: int, width: int, height: int) -> Pixels:
        """A background, resized where its size is another."""
        from PIL import Image

        pixels = self.backgrounds[index]
        if pixels.shape[:2] == (height, width):
            return pixels
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image)


class FakeSegmenter:
    """A stand-in for tests: the object is where the photograph is brighter than ``level``."""

    def __init__(self, level: int = 127) -> None:
        self.level = level

    @property
    def identity(self) -> Mapping[str, Any]:
        """The level."""
        return {"segmenter": "fake", "level": self.level}

    @property
    def runtime(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def __call__(self, pixels: np.ndarray) -> Matte:
        """1 where the mean of the colours is above the level, else 0."""
        return np.asarray(pixels.mean(axis=2) > self.level, np.float32)
