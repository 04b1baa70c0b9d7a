# %% [markdown]
# # A contact sheet of one factor
#
# The same object at each value of a factor of `heldout build compose`, with the value and what was
# measured below each image.

# %%
from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from heldout.curate.compose.factors import FactorInputs, Factors, Layers, finish
from heldout.curate.compose.plan import ImagePlan, Value, place, sprite_size
from heldout.testing.compose import InMemoryInputs

SIDE, GAP = 256, 8


def show(
    inputs: FactorInputs, values: Mapping[str, Value], *, foreground: int = 0, background: int = 0,
    side: int = SIDE, area: float = 0.35, seed: int = 0, factors: Factors, keys: tuple[str, ...] = (),
) -> tuple[np.ndarray, dict[str, float]]:  # fmt: skip
    """One image of an object with these values, and what was measured on it."""
    cutout, size = inputs.cutout(foreground), (side, side)
    shape = (cutout.shape[1], cutout.shape[0])
    fill = float(cutout[..., 3].sum(dtype=np.int64)) / 255.0 / (shape[0] * shape[1])
    scaled = sprite_size(shape, area, size, values, fill=fill)
    sprite = Image.fromarray(cutout).resize(scaled, Image.Resampling.BILINEAR)
    box, warp = place(scaled, size, x=0.5, y=0.5, values=values, factors=factors)
    layers = Layers(np.asarray(sprite), *box[:2], inputs.background(background, *size))
    shot = ImagePlan(
        0, foreground, background, side, side, 0.5, 0.5, area, 0.0, scaled, box, 1.0, warp, dict(values),
        seed,
    )  # fmt: skip
    return finish(layers, shot, inputs, factors=factors, keys=keys)


def factor_sheet(key: str, inputs: FactorInputs, factors: Factors, **others: Value) -> Image.Image:
    """One row of images of a factor at its own values; ``others`` are held fixed."""
    one = factors[key]
    shown = list(dict.fromkeys([*(() if one.neutral is None else (one.neutral,)), *one.values]))
    sheet = Image.new("RGB", (len(shown) * (SIDE + GAP) + GAP, SIDE + 60), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=12)
    pen.text(
        (GAP, GAP // 2), ", ".join([key, *(f"{k} = {v}" for k, v in others.items())]), "black", font
    )
    for i, value in enumerate(shown):
        given = factors.without_neutral({**others, key: value})
        image, measured = show(inputs, given, factors=factors, keys=(key,))
        left = GAP + i * (SIDE + GAP)
        sheet.paste(Image.fromarray(image), (left, 24))
        found = measured.get(f"{key}_measured")
        text = f"{value}" if found is None else f"{value}, measured {found:.3g}"
        pen.text((left, SIDE + 30), text, "black", font)
    return sheet


# %% [markdown]
# The inputs of a set (`heldout.curate.compose.inputs.inputs_of`) can stand in place of these arrays.

# %%
if __name__ == "__main__":
    rng = np.random.default_rng(0)
    ys, xs = np.mgrid[-1:1:60j, -1:1:80j]
    disc = np.where(np.hypot(xs, ys) < 0.9, 255, 0)
    made = InMemoryInputs(
        cutouts=[np.dstack([rng.integers(0, 256, (60, 80, 3)), disc]).astype(np.uint8)],
        cutout_classes=["disc"],
        backgrounds=[np.full((64, 64, 3), 200, dtype=np.uint8)],
        background_classes=[None],
    )
    factor_sheet("occlusion", made, Factors.load(), occlusion_kind="patches").save("occlusion.png")
