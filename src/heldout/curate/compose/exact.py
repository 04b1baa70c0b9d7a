"""The exact renderer: the original's pixels, each step done once for all images that share it.

The original scales (and rotates) the object anew for every image. Here the cut-out is
premultiplied once; a scaled sprite is made once for all rotations, backgrounds and positions; a
rotated one once for all backgrounds and positions. All arithmetic is Pillow's own, in the
original's order, so pixels are equal bit by bit.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.encode import Encoding, options_of
from heldout.curate.compose.scaling import Scaler, worth_it
from heldout.curate.compose.scene import Pixels, Rendered, Shot

if TYPE_CHECKING:
    from PIL.Image import Image

    from heldout.curate.compose.inputs import Inputs

_ASKED_OFTEN = 4


class Sprite:
    """An object as it is pasted, and how much of its mask lies in any part of it."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._sums: NDArray[np.int64] | None = None

    @cached_property
    def pixels(self) -> Pixels:
        """The sprite as (h, w, 4), straight alpha; not to be changed."""
        return np.asarray(self.image)

    @cached_property
    def alpha(self) -> NDArray[np.uint8]:
        """Its mask, (h, w)."""
        return np.asarray(self.image.getchannel("A"))

    @cached_property
    def total(self) -> int:
        """The sum of alpha."""
        return int(self.alpha.sum(dtype=np.int64))

    def mask_within(self, left: int, top: int, right: int, bottom: int) -> int:
        """The sum of alpha in a part, given in pixels of the sprite and clipped to it."""
        width, height = self.image.size
        part = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
        left, top, right, bottom = part
        if part == (0, 0, width, height):
            return self.total
        if left >= right or top >= bottom:
            return 0
        if part not in self._known:
            self._known[part] = self._sum(*part)
        return self._known[part]

    def _sum(self, left: int, top: int, right: int, bottom: int) -> int:
        if self._sums is None:
            if len(self._known) < _ASKED_OFTEN:
                return int(self.alpha[top:bottom, left:right].sum(dtype=np.int64))
            # Asked again and again, as positions move: sums over all upper left parts.
            sums = np.zeros((self.alpha.shape[0] + 1, self.alpha.shape[1] + 1), np.int64)
            np.cumsum(self.alpha, axis=0, dtype=np.int64, out=sums[1:, 1:])
            np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
            self._sums = sums
        sums = self._sums
        return int(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left])


class ExactRenderer:
    """Renders with Pillow, keeping what the next shot may share with the last ones.

    Not to be shared between threads. Shots of one object, size and rotation should follow each
    other; the order changes the time and nothing else.
    """

    def __init__(self) -> None:
        self._scalings = 0
        self._forget(None)

    def _forget(self, inputs: Inputs | None) -> None:
        self._source: tuple[int, Scaler] | None = None
        self._scaled: tuple[tuple[int, tuple[int, int]], Image] | None = None
        self._premultiplied: Image | None = None
        self._sprite: tuple[tuple[int, tuple[int, int], float], Sprite] | None = None
        self._inputs: Inputs | None = inputs

    def render(self, inputs: Inputs, shots: Sequence[Shot]) -> Iterator[Rendered]:
        """The image of each shot as an array, in the order of ``shots``."""
        for shot, image, measured in self.pictures(inputs, shots):
            yield shot, np.asarray(image), measured

    def pictures(
        self, inputs: Inputs, shots: Sequence[Shot]
    ) -> Iterator[tuple[Shot, Image, Mapping[str, float]]]:
        """The image of each shot as Pillow has it: encoding one needs no copy."""
        for shot in shots:
            sprite = self.sprite(inputs, shot)
            background = inputs.background_image(shot.background, (shot.width, shot.height))
            image = background.copy()
            left, top = shot.box[:2]
            image.paste(sprite.image, (left, top), sprite.image)
            yield shot, image, measured_mask(sprite, shot)

    def encoded(
        self, inputs: Inputs, shots: Sequence[Shot], encoding: Encoding
    ) -> Iterator[tuple[Shot, bytes, Mapping[str, float]]]:
        """The file of each shot's image, as Pillow writes it."""
        options = options_of(encoding)
        for shot, image, measured in self.pictures(inputs, shots):
            file = io.BytesIO()
            image.save(file, encoding.format, **options)
            yield shot, file.getvalue(), measured

    def sprite(self, inputs: Inputs, shot: Shot) -> Sprite:
        """The object of a shot, scaled and rotated."""
        from PIL.Image import Resampling

        if inputs is not self._inputs:
            self._forget(inputs)
        key = shot.foreground, shot.sprite, shot.rotation
        if self._sprite is not None and self._sprite[0] == key:
            return self._sprite[1]
        image = self._scale(inputs, shot)
        angle = shot.rotation % 360.0
        if angle in (0, 90, 180, 270):
            image = image.rotate(shot.rotation, Resampling.BICUBIC, expand=True)
        else:
            if self._premultiplied is None:
                self._premultiplied = image.convert("RGBa")
            turned = self._premultiplied.rotate(shot.rotation, Resampling.BICUBIC, expand=True)
            image = turned.convert("RGBA")
        made = Sprite(image)
        self._sprite = key, made
        return made

    def _scale(self, inputs: Inputs, shot: Shot) -> Image:
        key = shot.foreground, shot.sprite
        if self._scaled is not None and self._scaled[0] == key:
            return self._scaled[1]
        cutout = inputs.cutout_image(shot.foreground)
        if cutout.size == shot.sprite:
            image = cutout  # Pillow copies here, without premultiplying
        else:
            if self._source is None or self._source[0] != shot.foreground:
                self._source = shot.foreground, Scaler(cutout.convert("RGBa"))
            self._scalings += 1
            scaled = self._source[1].scaled(shot.sprite, quick=worth_it(self._scalings))
            image = scaled.convert("RGBA")
        self._scaled, self._premultiplied = (key, image), None
        return image


def measured_mask(sprite: Sprite, shot: Shot) -> dict[str, Any]:
    """``mask_fraction`` and ``visible_fraction`` of an object that is simply pasted."""
    left, top = shot.box[:2]
    seen = sprite.mask_within(-left, -top, shot.width - left, shot.height - top)
    return {
        "mask_fraction": seen / 255 / (shot.width * shot.height),
        "visible_fraction": seen / sprite.total if sprite.total else 0.0,
    }
