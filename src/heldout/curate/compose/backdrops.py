"""Backgrounds made ready for many objects: pixels as OpenCV has them, and encoded files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heldout.core.extras import require
from heldout.curate.compose.encode import Encoding, encode
from heldout.curate.compose.kept import Kept
from heldout.curate.compose.scene import Pixels, Shot
from heldout.curate.compose.splice import Splicer
from heldout.curate.compose.sprite import Sprite

if TYPE_CHECKING:
    from heldout.curate.compose.inputs import Inputs

Encoded = tuple[Shot, bytes, Mapping[str, float]]
"""A shot, the file of its image, and what was measured on it."""


class Backdrops:
    """Lays sprites on backgrounds, into arrays or files. Its arrays lie in ``kept``.

    A JPEG file decodes to what Pillow's file of the same pixels would.
    """

    def __init__(self, kept: Kept) -> None:
        self._cv2: Any = require("cv2", extra="compose", purpose="quick JPEG files")
        # Images are small and the engine has its own workers: OpenCV's threads only cost.
        self._cv2.setNumThreads(1)
        self._kept = kept

    def image(self, inputs: Inputs, shot: Shot, sprite: Sprite) -> Pixels:
        """The image of a shot, (H, W, 3) RGB."""
        image = self._background(inputs, shot).copy()
        sprite.blend(image, shot)
        pixels: Pixels = self._cv2.cvtColor(image, self._cv2.COLOR_BGR2RGB)
        return pixels

    def file(self, inputs: Inputs, shot: Shot, sprite: Sprite, encoding: Encoding) -> bytes:
        """The file of a shot's image."""
        if encoding.format != "jpeg":
            return encode(self.image(inputs, shot, sprite), encoding)
        return sprite.file(self._splicer(inputs, shot, encoding), shot)

    def files(
        self,
        inputs: Inputs,
        shots: Sequence[Shot],
        encoding: Encoding,
        sprite_of: Callable[[Inputs, Shot], Sprite],
    ) -> Iterator[Encoded]:
        """The files of shots with the sprites that ``sprite_of`` makes, and what is measured."""
        for shot in shots:
            sprite = sprite_of(inputs, shot)
            yield shot, self.file(inputs, shot, sprite, encoding), sprite.measured(shot)

    def _background(self, inputs: Inputs, shot: Shot) -> Pixels:
        size = (shot.width, shot.height)
        return self._kept.get(
            (inputs.backgrounds[shot.background].sha256, inputs.exif, "background", size),
            lambda: self._turned(inputs.background(shot.background, *size)),
        )

    def _turned(self, rgb: Pixels) -> Pixels:
        bgr: Pixels = self._cv2.cvtColor(rgb, self._cv2.COLOR_RGB2BGR)
        return bgr

    def _splicer(self, inputs: Inputs, shot: Shot, encoding: Encoding) -> Splicer:
        size = (shot.width, shot.height)
        return self._kept.get(
            (inputs.backgrounds[shot.background].sha256, inputs.exif, "file", size, encoding),
            lambda: Splicer(self._background(inputs, shot), quality=encoding.quality),
        )
