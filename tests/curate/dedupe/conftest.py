"""Small folders of pictures, among them copies, and test sets of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.core.workspace import Workspace
from heldout.curate.pool_images import folder_pool
from heldout.data.testset.testset import TestSet

MakeSet = Callable[[str, Mapping[str, int]], TestSet]


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """A smooth picture of its own: a few blobs of colour."""
    generator = np.random.default_rng(seed)
    small = generator.integers(0, 256, (5, 4, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def make_set(tmp_path: Path) -> MakeSet:
    """Makes a set of pictures from ``file name: seed``; equal seeds are equal files."""

    def make(name: str, pictures: Mapping[str, int]) -> TestSet:
        folder = tmp_path / name
        for file, seed in pictures.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / file).exists():
                picture(seed).save(folder / file)
        return folder_pool(folder, name=name)

    return make


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty workspace."""
    return Workspace(tmp_path / "workspace")
