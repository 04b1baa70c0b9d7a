"""Small inputs for tests of factors: objects with a mask that is no rectangle, and hidden colours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors import Factors, Layers
from heldout.curate.compose.plan import ImagePlan, Value, place
from heldout.testing.compose import InMemoryInputs

Pixels = NDArray[np.uint8]
FACTORS = Factors.load()
SIZE = (96, 80)
SIZES = ((40, 32), (30, 44), (40, 32), (50, 20))


def cutout(seed: int, size: tuple[int, int] = (40, 32), hidden: int = 0) -> Pixels:
    """An object: smooth colours, a bean-shaped soft mask; under alpha 0 colours of ``hidden``."""
    width, height = size
    rng = np.random.default_rng(seed)
    ys, xs = np.mgrid[:height, :width].astype(float)
    xs, ys = (xs + 0.5) / width * 2 - 1, (ys + 0.5) / height * 2 - 1
    turn = rng.uniform(-0.5, 0.5, 3)
    waves = [127 + 110 * np.sin((3 + i) * xs + turn[i] * 9 + (2 + i) * ys) for i in range(3)]
    colours = np.stack(waves, axis=-1) + rng.normal(0, 6, (height, width, 3))
    distance = np.hypot(xs, ys - 0.4 * xs**2) + turn[0] * 0.2 * xs
    alpha = np.clip((0.85 - distance) * 12, 0, 1) * 255
    made = np.dstack([np.clip(colours, 0, 255), alpha]).astype(np.uint8)
    below = np.random.default_rng(1000 + hidden).integers(0, 256, (height, width, 3))
    made[..., :3][made[..., 3] == 0] = below[made[..., 3] == 0]
    return made


def background(seed: int, size: tuple[int, int] = SIZE) -> Pixels:
    width, height = size
    rng = np.random.default_rng(50 + seed)
    ys, xs = np.mgrid[:height, :width] / 20.0
    waves = [127 + 100 * np.sin(xs * (1 + i) + seed + i) * np.cos(ys + i) for i in range(3)]
    noisy = np.stack(waves, axis=-1) + rng.normal(0, 5, (height, width, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def stock(hidden: int = 0) -> InMemoryInputs:
    return InMemoryInputs(
        cutouts=[cutout(i, size, hidden=hidden) for i, size in enumerate(SIZES)],
        cutout_classes=["ant", "bee", "bee", "cow"],
        backgrounds=[background(i) for i in range(5)],
        background_classes=["ant", "bee", None, "bee", "cow"],
    )


def shot(values: dict[str, Value] | None = None, **changes: object) -> ImagePlan:
    fields: dict[str, object] = {
        "number": 0,
        "foreground": 0,
        "background": 2,
        "width": SIZE[0],
        "height": SIZE[1],
        "x": 0.5,
        "y": 0.5,
        "area": 0.1,
        "rotation": 0.0,
        "sprite": (40, 32),
        "box": (28, 24, 40, 32),
        "inside": 1.0,
        "values": values or {},
        "seed": 7,
    }
    return placed(ImagePlan(**{**fields, **changes}))  # type: ignore[arg-type]


def placed(one: ImagePlan, factors: Factors = FACTORS) -> ImagePlan:
    """An image with its object where its place and its factors put it."""
    size, frame = SIZES[one.foreground], (one.width, one.height)
    box, warp = place(size, frame, x=one.x, y=one.y, values=one.values, factors=factors)
    return replace(one, box=box, warp=warp)


def layers(one: ImagePlan, inputs: InMemoryInputs) -> Layers:
    behind = inputs.background(one.background, one.width, one.height)
    return Layers(inputs.cutout(one.foreground), *one.box[:2], behind)


def settings_for(key: str) -> dict[str, Value]:
    """Other values that a setting needs to say anything."""
    needs = FACTORS[key].needs
    if not needs:
        return {}
    other = FACTORS[needs[0]]
    return {other.key: next(v for v in other.values[::-1] if v != other.neutral)}


ALL_KEYS = list(FACTORS.by_key)
CASES = [
    (key, value)
    for key in ALL_KEYS
    for value in (*FACTORS[key].values, *FACTORS[key].options)
    if value != FACTORS[key].neutral
]
