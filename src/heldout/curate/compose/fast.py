"""The fast renderer: the same images as the exact one up to a little sharpness, in far less time.

What is shared is made once: a cut-out's levels, a sprite for all its backgrounds and places, a
background's JPEG file for all the objects on it. An image is then one blend over the sprite's
tiles, and the JPEG code of these tiles.

Boxes, sizes and places are the plan's, so that metadata equal those of the exact renderer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from heldout.curate.compose.backdrops import Backdrops, Encoded
from heldout.curate.compose.encode import JPEG_75, Encoding
from heldout.curate.compose.kept import Kept
from heldout.curate.compose.pyramid import Pyramid, premultiplied
from heldout.curate.compose.scene import Rendered, Shot
from heldout.curate.compose.sprite import Sprite

if TYPE_CHECKING:
    from heldout.curate.compose.inputs import Inputs

SOURCES = 256 << 20
"""Bytes of cut-outs, levels and backgrounds that a renderer keeps."""
SPRITES = 12 << 20
"""Bytes of sprites that it keeps: few, so that they stay in the processor's caches."""


class FastRenderer:
    """Renders shots by sampling blurred levels of their cut-outs. Threads may share one.

    Shots that follow each other should share their cut-out, then size, rotation and place. Equal
    shots give equal bytes on one machine, whatever was rendered before.
    """

    def __init__(self, *, sources: int = SOURCES, sprites: int = SPRITES) -> None:
        self._sources = Kept(sources)
        self._sprites = Kept(sprites)
        self._backdrops = Backdrops(self._sources)

    def render(self, inputs: Inputs, shots: Sequence[Shot]) -> Iterator[Rendered]:
        """The image of each shot, (H, W, 3) RGB, in the order of ``shots``."""
        for shot in shots:
            sprite = self.sprite(inputs, shot)
            yield shot, self._backdrops.image(inputs, shot, sprite), sprite.measured(shot)

    def encoded(
        self, inputs: Inputs, shots: Sequence[Shot], encoding: Encoding = JPEG_75
    ) -> Iterator[Encoded]:
        """The file of each shot's image. JPEG files decode to what Pillow's file would."""
        return self._backdrops.files(inputs, shots, encoding, self.sprite)

    def sprite(self, inputs: Inputs, shot: Shot) -> Sprite:
        """The object of a shot, scaled and turned; its ``pixels`` are (h, w, 4), straight alpha."""
        name = f"{inputs.cutouts[shot.foreground].sha256}{'' if inputs.exif else '-as-stored'}"
        return self._sprites.get(
            (name, shot.sprite, shot.rotation % 360.0), lambda: self._made(name, inputs, shot)
        )

    def _made(self, name: str, inputs: Inputs, shot: Shot) -> Sprite:
        source = self._sources.get(
            (name, "source"), lambda: premultiplied(inputs.cutout(shot.foreground))
        )
        pyramid = Pyramid(source, name=name, kept=self._sources)
        return Sprite(pyramid.turned(shot.sprite, shot.rotation))
