"""Small folders of plain-coloured images, as the fake encoder knows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.data.labels import Class, LabelSpace

PAINTS = {
    "red": (230, 10, 10),
    "green": (10, 230, 10),
    "blue": (10, 10, 230),
    "yellow": (230, 230, 10),
    "white": (250, 250, 250),
}


@pytest.fixture
def colour_folder(tmp_path: Path) -> Path:
    """Four images of each of five colours."""
    folder = tmp_path / "colours"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, paint in PAINTS.items():
        for number in range(4):
            noise = generator.integers(-5, 6, (20, 24, 3))
            pixels = np.clip(np.array(paint) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}-{number}.png")
    return folder


@pytest.fixture
def colours() -> LabelSpace:
    """Five colours and a class that shares the text of one of them."""
    names = {**{f"c-{name}": (name,) for name in PAINTS}, "a-red": ("red",)}
    return LabelSpace("colours", tuple(Class(key, names[key]) for key in sorted(names)))
