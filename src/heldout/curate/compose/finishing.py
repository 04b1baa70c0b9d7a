"""Rendering with factors past the paper: the exact renderer's sprites, then every factor's stage."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from heldout.curate.compose.encode import Encoding, encode
from heldout.curate.compose.exact import ExactRenderer
from heldout.curate.compose.scene import Layers, Rendered, Shot

if TYPE_CHECKING:
    from heldout.curate.compose.further import Further
    from heldout.curate.compose.inputs import Inputs


class FactorRenderer:
    """Renders shots with further factors; those at neutral values have the exact pixels.

    Every factor of the set is measured on every image. Not to be shared between threads.
    """

    def __init__(self, further: Further) -> None:
        self._further = further
        self._exact = ExactRenderer()

    def render(self, inputs: Inputs, shots: Sequence[Shot]) -> Iterator[Rendered]:
        """The image of each shot, (H, W, 3) RGB, in the order of ``shots``."""
        from heldout.curate.compose.factors import finish

        for shot in shots:
            sprite = self._exact.sprite(inputs, shot)
            layers = Layers(
                foreground=sprite.pixels,
                left=shot.box[0],
                top=shot.box[1],
                background=inputs.background(shot.background, shot.width, shot.height),
            )
            factors, keys = self._further.factors, self._further.keys
            pixels, measured = finish(layers, shot, inputs, factors=factors, keys=keys)
            yield shot, np.ascontiguousarray(pixels), measured

    def encoded(
        self, inputs: Inputs, shots: Sequence[Shot], encoding: Encoding
    ) -> Iterator[tuple[Shot, bytes, Mapping[str, float]]]:
        """The file of each shot's image; a factor may say how it is encoded."""
        from heldout.curate.compose.factors import encoding_options, measured_encoding

        for shot, pixels, measured in self.render(inputs, shots):
            options = encoding_options(shot)
            chosen = dataclasses.replace(encoding, **options) if options else encoding
            data = encode(pixels, chosen)
            seen = measured_encoding(len(data), shot, self._further.keys)
            yield shot, data, {**measured, **seen}
