"""Rendering: the original's pixels by Pillow, each step done once for all images that share it.

The original scales (and rotates) the object anew for every image. Here the cut-out is
premultiplied once; a scaled sprite is made once for all rotations, backgrounds and positions; a
rotated one once for all backgrounds and positions. All arithmetic is Pillow's own, in the
original's order, so pixels are equal bit by bit. The fast renderer has sprites of its own
(:mod:`heldout.curate.compose.fast_sprites`). Factors are a step between sprite and file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from heldout.curate.compose.pillow_resize import Scaler, use_numba
from heldout.curate.compose.plan import ImagePlan, Size, Window, window_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from heldout.curate.compose.factors import Factors
    from heldout.curate.compose.inputs import Inputs, Pixels


class Encoding(NamedTuple):
    """A format (``jpeg``, ``png`` or ``webp``), and the quality of JPEG and WebP, 1 to 100.

    The default is what the original wrote: Pillow's JPEG, chroma at half size both ways.
    """

    format: str = "jpeg"
    quality: int = 75

    @property
    def ending(self) -> str:
        """What names of such files end with."""
        return {"jpeg": ".jpg", "png": ".png", "webp": ".webp"}[self.format]


def encode(image: Image, encoding: Encoding) -> bytes:
    """The file of an image, by Pillow."""
    options: dict[str, Any] = {} if encoding.format == "png" else {"quality": encoding.quality}
    if encoding.format == "jpeg":
        options["subsampling"] = "4:2:0"
    file = io.BytesIO()
    image.save(file, encoding.format, **options)
    return file.getvalue()


class Sprite:
    """An object as it is pasted; ``total`` is the sum of its alpha."""

    size: Size
    total: int

    def mask_within(self, part: tuple[slice, slice]) -> int:
        """The sum of alpha in a part."""
        raise NotImplementedError

    def window(self, shot: ImagePlan) -> Window:
        """The part of a shot's image that it covers."""
        return window_of(*shot.box[:2], self.size, (shot.width, shot.height))

    def measured(self, shot: ImagePlan) -> dict[str, float]:
        """``mask_fraction`` (mask in sight over the image) and ``visible_fraction`` (mask in sight
        over the whole mask) of a shot in which it is simply pasted."""
        window = self.window(shot)
        if window.size == self.size:
            seen = self.total
        else:
            seen = 0 if window.empty else self.mask_within(window.within(*shot.box[:2]))
        return {
            "mask_fraction": seen / 255 / (shot.width * shot.height),
            "visible_fraction": seen / self.total if self.total else 0.0,
        }


class ExactSprite(Sprite):
    """A sprite as an image of Pillow, RGBA."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.size = image.size
        self._alpha = np.asarray(image.getchannel("A"))
        self.total = int(self._alpha.sum(dtype=np.int64))

    @cached_property
    def pixels(self) -> Pixels:
        """The sprite as (h, w, 4), straight alpha; not to be changed."""
        return np.asarray(self.image)

    def mask_within(self, part: tuple[slice, slice]) -> int:
        """The sum of alpha in a part."""
        return int(self._alpha[part].sum(dtype=np.int64))


class ExactSprites:
    """Sprites and images of shots by Pillow, keeping what the next shot may share with the last.

    Shots of one object, size and rotation should follow each other; the order changes the time
    and nothing else.
    """

    def __init__(self) -> None:
        self._scalings = 0
        self._inputs: Inputs | None = None
        self._last: dict[str, tuple[Any, Any]] = {}

    def _kept(self, what: str, key: Any, make: Any) -> Any:
        """What was made last under this name, or is made now for another key."""
        if what not in self._last or self._last[what][0] != key:
            self._last[what] = key, make()
        return self._last[what][1]

    def sprite(self, inputs: Inputs, shot: ImagePlan) -> ExactSprite:
        """The object of a shot, scaled and rotated."""
        from PIL.Image import Resampling

        if inputs is not self._inputs:
            self._inputs, self._last = inputs, {}
        size = shot.foreground, shot.sprite

        def make() -> ExactSprite:
            image = self._kept("scaled", size, lambda: self._scaled(inputs, shot))
            if shot.rotation % 90.0 == 0:
                return ExactSprite(image.rotate(shot.rotation, Resampling.BICUBIC, expand=True))
            flat = self._kept("flat", size, lambda: image.convert("RGBa"))
            turned = flat.rotate(shot.rotation, Resampling.BICUBIC, expand=True)
            return ExactSprite(turned.convert("RGBA"))

        made: ExactSprite = self._kept("sprite", (*size, shot.rotation), make)
        return made

    def _scaled(self, inputs: Inputs, shot: ImagePlan) -> Image:
        cutout = inputs.cutout_image(shot.foreground)
        if cutout.size == shot.sprite:
            return cutout  # Pillow copies here, without premultiplying
        scaler = self._kept("scaler", shot.foreground, lambda: Scaler(cutout.convert("RGBa")))
        self._scalings += 1
        scaled: Image = scaler.scaled(shot.sprite, quick=use_numba(self._scalings))
        return scaled.convert("RGBA")

    def image(self, inputs: Inputs, shot: ImagePlan, sprite: ExactSprite) -> Image:
        """The image of a shot."""
        image = inputs.background_image(shot.background, (shot.width, shot.height)).copy()
        image.paste(sprite.image, shot.box[:2], sprite.image)
        return image

    def file(
        self, inputs: Inputs, shot: ImagePlan, sprite: ExactSprite, encoding: Encoding
    ) -> bytes:
        """The file of a shot's image."""
        return encode(self.image(inputs, shot, sprite), encoding)


Measured = Mapping[str, float]
"""What was measured on an image: ``mask_fraction``, ``visible_fraction``, and what factors add."""


class Renderer:
    """Renders shots, ``exact`` or ``fast``. Not to be shared between threads.

    With factors beyond SI-SCORE, sprites are always exact ones; every factor of the set is measured
    on every image, and images at neutral values have the exact pixels.
    """

    def __init__(self, name: str, factors: Factors) -> None:
        self._factors = factors
        self.sprites: Any = ExactSprites()
        if name == "fast" and not factors.grid:
            from heldout.curate.compose.fast_sprites import FastSprites

            self.sprites = FastSprites()

    def render(
        self, inputs: Inputs, shots: Sequence[ImagePlan]
    ) -> Iterator[tuple[ImagePlan, Pixels, Measured]]:
        """The image of each shot, (H, W, 3) RGB, in the order of ``shots``."""
        for shot in shots:
            sprite = self.sprites.sprite(inputs, shot)
            if self._factors.grid:
                yield shot, *self._finished(inputs, shot, sprite)
            else:
                image = self.sprites.image(inputs, shot, sprite)
                yield shot, np.asarray(image), sprite.measured(shot)

    def encoded(
        self, inputs: Inputs, shots: Sequence[ImagePlan], encoding: Encoding
    ) -> Iterator[tuple[ImagePlan, bytes, Measured]]:
        """The file of each shot's image; the factor ``jpeg_quality`` may say how it is encoded."""
        from PIL.Image import fromarray

        for shot in shots:
            sprite = self.sprites.sprite(inputs, shot)
            if not self._factors.grid:
                data = self.sprites.file(inputs, shot, sprite, encoding)
                yield shot, data, sprite.measured(shot)
                continue
            pixels, measured = self._finished(inputs, shot, sprite)
            quality = int(shot.values.get("jpeg_quality", encoding.quality))
            data = encode(fromarray(pixels), encoding._replace(quality=quality))
            if "jpeg_quality" in self._factors.grid:
                measured["jpeg_quality_measured"] = 8.0 * len(data) / (shot.width * shot.height)
            yield shot, data, measured

    def _finished(
        self, inputs: Inputs, shot: ImagePlan, sprite: ExactSprite
    ) -> tuple[Pixels, dict[str, float]]:
        from heldout.curate.compose.factors import Layers, finish

        behind = inputs.background(shot.background, shot.width, shot.height)
        layers = Layers(sprite.pixels, *shot.box[:2], behind)
        factors = self._factors
        return finish(layers, shot, inputs, factors=factors, keys=factors.grid)
