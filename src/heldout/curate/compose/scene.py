"""One image to be made, and the layers it is made of.

A :class:`Shot` says everything about an image before any pixel work; :class:`Layers` are what
factors past the paper work on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Value = float | str
"""A factor's value: a number, or one of a few words."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One image, decided in closed form.

    ``number``      its place among all candidates, those that were filtered out included
    ``foreground``  index into ``Inputs.cutouts``; ``background`` into ``Inputs.backgrounds``
    ``width``       of the image in pixels, and ``height``
    ``x``, ``y``    the object's centre, as fractions of width and height
    ``area``        bounding-box area of the object before rotation over the area of the image
    ``rotation``    degrees, counter-clockwise
    ``sprite``      (width, height) of the object after scaling, before rotation
    ``box``         (left, top, width, height) of the object in the image, after rotation and
                    after factors that change its outline; it may lie outside in part
    ``inside``      the share of the box inside the image, 0 to 1, not rounded
    ``values``      factors past the paper by key; those at their neutral value are left out
    ``seed``        chance for this image: a hash of the set's seed and ``number``
    """

    number: int
    foreground: int
    background: int
    width: int
    height: int
    x: float
    y: float
    area: float
    rotation: float
    sprite: tuple[int, int]
    box: tuple[int, int, int, int]
    inside: float
    values: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 0

    def __reduce__(self) -> tuple[type[Shot], tuple[Any, ...]]:
        # Thousands travel to worker processes: half the time of what dataclasses do by themselves.
        return Shot, tuple(getattr(self, name) for name in self.__slots__)


class Extra(NamedTuple):
    """A further sprite on top of the object: a distractor, or something that hides it.

    ``pixels``  (h, w, 4) straight alpha; its corner at ``left``, ``top`` in the image
    """

    pixels: Pixels
    left: int
    top: int


@dataclass(eq=False)
class Layers:
    """What an image is composed of. Arrays are never changed in place, only replaced.

    ``foreground``  (h, w, 4) the sprite after size and rotation, straight alpha
    ``left``        where its corner lies in the image, and ``top``; may be negative
    ``background``  (H, W, 3)
    ``extras``      further sprites, from the lowest to the topmost
    """

    foreground: Pixels
    left: int
    top: int
    background: Pixels
    extras: list[Extra] = field(default_factory=list)


Rendered = tuple[Shot, Pixels, Mapping[str, float]]
"""A shot, its image (H, W, 3), and what was measured on it: ``mask_fraction`` (mask over the
image), ``visible_fraction`` (mask in sight over the whole mask, where a pixel of alpha a counts
a/255), and what each factor adds."""


def mask_sum(alpha: NDArray[Any]) -> float:
    """The mask of a sprite in pixels: a pixel of alpha a counts a/255."""
    return float(alpha.sum(dtype=np.int64)) / 255.0
