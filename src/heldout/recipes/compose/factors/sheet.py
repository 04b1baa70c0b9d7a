"""A contact sheet of one factor: the same object at each of its values, in one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from heldout.recipes.compose.factors.geometry import placed_box
from heldout.recipes.compose.factors.outlines import sprite_size
from heldout.recipes.compose.factors.pipeline import finish
from heldout.recipes.compose.factors.protocol import Stock
from heldout.recipes.compose.factors.registry import MEASURED, Factors
from heldout.recipes.compose.scene import Layers, Pixels, Shot, Value

if TYPE_CHECKING:
    from PIL.Image import Image

_GAP = 8
_CAPTION = 34


def factor_sheet(
    key: str,
    stock: Stock,
    *,
    values: Sequence[Value] | None = None,
    others: Mapping[str, Value] | None = None,
    foreground: int = 0,
    background: int = 0,
    side: int = 256,
    x: float = 0.5,
    y: float = 0.5,
    area: float = 0.35,
    rotation: float = 0.0,
    seed: int = 0,
    factors: Factors | None = None,
) -> Image:
    """One row of images, ``side`` pixels each, of a factor at its values; each with its caption.

    ``values``  those to show, else the factor's own list; ``others`` other factors, held fixed.
    A caption names the value, and what was measured.
    """
    from PIL import Image, ImageDraw, ImageFont

    known = factors or Factors.load()
    one = known[key]
    shown = [one.check(value) for value in (one.values if values is None else values)]
    if values is None and one.neutral is not None and one.neutral not in shown:
        shown.insert(0, one.neutral)
    fixed = {known.canonical(k): known[k].check(v) for k, v in (others or {}).items()}
    width = len(shown) * side + (len(shown) + 1) * _GAP
    sheet = Image.new("RGB", (width, side + 2 * _CAPTION + _GAP), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=12)
    for i, value in enumerate(shown):
        made, measured = show(
            stock,
            known.without_neutral({**fixed, one.key: value}),
            foreground=foreground,
            background=background,
            size=(side, side),
            x=x,
            y=y,
            area=area,
            rotation=rotation,
            seed=seed,
            factors=known,
            keys=[one.key],
        )
        left = _GAP + i * (side + _GAP)
        if one.key == "jpeg_quality":
            made = _encoded(made, value)
        sheet.paste(Image.fromarray(made), (left, _CAPTION))
        text = value if isinstance(value, str) else f"{value:g}"
        pen.text((left, side + _CAPTION + 4), text, fill="black", font=font)
        if one.key + MEASURED in measured:
            below = f"measured {measured[one.key + MEASURED]:.3g}"
            pen.text((left, side + _CAPTION + 19), below, fill="#555555", font=font)
    held = ", ".join(f"{k} = {v}" for k, v in fixed.items())
    title = f"{one.key}{f'  ({held})' if held else ''}"
    pen.text((_GAP, _GAP), title, fill="black", font=ImageFont.load_default(size=16))
    return sheet


def stacked(sheets: Sequence[Image]) -> Image:
    """Contact sheets one below the other."""
    from PIL import Image

    width = max((sheet.width for sheet in sheets), default=1)
    made = Image.new("RGB", (width, sum(sheet.height for sheet in sheets) or 1), "white")
    top = 0
    for sheet in sheets:
        made.paste(sheet, (0, top))
        top += sheet.height
    return made


def show(
    stock: Stock,
    values: Mapping[str, Value],
    *,
    foreground: int = 0,
    background: int = 0,
    size: tuple[int, int] = (512, 512),
    x: float = 0.5,
    y: float = 0.5,
    area: float = 0.35,
    rotation: float = 0.0,
    seed: int = 0,
    factors: Factors | None = None,
    keys: Sequence[str] = (),
) -> tuple[Pixels, dict[str, float]]:
    """One image with these values, by Pillow, and what was measured: to look at a factor."""
    from PIL import Image

    known = factors or Factors.load()
    cutout = stock.cutout(foreground)
    fill = float(cutout[..., 3].sum(dtype=np.int64)) / 255.0 / (cutout.shape[0] * cutout.shape[1])
    shape = (cutout.shape[1], cutout.shape[0])
    scaled = sprite_size(shape, area, size, values, fill=fill)
    sprite = Image.fromarray(cutout).resize(scaled, Image.Resampling.BILINEAR)
    sprite = sprite.rotate(rotation, Image.Resampling.BICUBIC, expand=True)
    shot = Shot(
        number=0,
        foreground=foreground,
        background=background,
        width=size[0],
        height=size[1],
        x=x,
        y=y,
        area=area,
        rotation=rotation,
        sprite=scaled,
        box=(0, 0, 0, 0),
        inside=1.0,
        values=dict(values),
        seed=seed,
    )
    box = placed_box(sprite.size, values, x=x, y=y, resolution=size, outlines=known.outlines)
    layers = Layers(
        foreground=np.asarray(sprite),
        left=box[0],
        top=box[1],
        background=stock.background(background, *size),
    )
    return finish(layers, replace(shot, box=box), stock, factors=known, keys=keys)


def _encoded(pixels: Pixels, quality: Value) -> Pixels:
    """The pixels after a JPEG of this quality."""
    import io

    from PIL import Image

    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "JPEG", quality=int(quality))
        with Image.open(io.BytesIO(file.getvalue())) as image:
            return np.asarray(image.convert("RGB"))
