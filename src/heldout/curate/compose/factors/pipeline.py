"""From layers to an image: every stage in its order, and what is measured after each."""

from __future__ import annotations

from collections.abc import Iterable

from heldout.curate.compose.factors.geometry import apply_geometry
from heldout.curate.compose.factors.joining import blended
from heldout.curate.compose.factors.protocol import Frame, Stock
from heldout.curate.compose.factors.registry import MEASURED, Factors
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.factors.visibility import visible
from heldout.curate.compose.scene import Layers, Pixels, Shot, mask_sum

_PIXEL_STAGES = (
    Stage.FOREGROUND,
    Stage.GEOMETRY,
    Stage.COMPOSITION,
    Stage.BACKGROUND,
    Stage.BLEND,
    Stage.IMAGE,
)


def finish(
    layers: Layers, shot: Shot, stock: Stock, *, factors: Factors, keys: Iterable[str] = ()
) -> tuple[Pixels, dict[str, float]]:
    """The image (H, W, 3) of a shot, and its measured columns.

    ``layers``  the sprite after size and rotation, and the background; its corner is set here
    ``keys``    the factors that the set varies: each is measured on every image, neutral or not

    Measured are ``mask_fraction`` (the object's mask in sight over the image), ``visible_fraction``
    (the mask in sight over the whole mask), and ``<key>_measured`` for each key.
    """
    wanted = {factors.canonical(key) for key in keys} | set(shot.values)
    frame = Frame(shot=shot, stock=stock, layers=layers)
    measured: dict[str, float] = {}
    for stage in _PIXEL_STAGES:
        acting = [one for one in factors.of_stage(stage) if one.key in wanted]
        if stage == Stage.GEOMETRY:
            frame = apply_geometry(frame, factors.outlines)
        for one in acting:
            if shot.values.get(one.key, one.neutral) != one.neutral:
                frame = one.apply(frame, shot.values[one.key])
        if stage == Stage.BLEND:
            frame = blended(frame)
            size = (shot.height, shot.width)
            alpha = frame.layers.foreground[..., 3]
            corner = (frame.layers.left, frame.layers.top)
            seen = visible(alpha, corner, size, frame.layers.extras)
        if stage == Stage.GEOMETRY:
            whole = mask_sum(frame.layers.foreground[..., 3])
            acting = [o for o in factors.of_stage(Stage.PLAN) if o.key in wanted] + acting
        for one in acting:
            if one.measured and one.key in wanted:
                measured[one.key + MEASURED] = one.measure(frame)
    if frame.image is None:
        raise ValueError("the layers were not blended")
    pixels = shot.width * shot.height
    shares = {
        "mask_fraction": seen / pixels,
        "visible_fraction": seen / whole if whole else 0.0,
    }
    return frame.image, shares | measured
