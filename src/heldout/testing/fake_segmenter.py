"""A segmenter that needs no weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from heldout.curate.cutouts.photos import Box, Matte
from heldout.curate.cutouts.segmenters import in_box


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

    def __call__(self, pixels: np.ndarray, box: Box | None = None) -> Matte:
        """1 where the mean of the colours is above the level, else 0."""
        return in_box(
            pixels, box, lambda part, inner: (part.mean(axis=2) > self.level).astype(np.float32)
        )
