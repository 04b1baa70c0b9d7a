"""The exact renderer against the slow one: names, numbers, lists and bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.curate.compose.build import build_compose
from heldout.curate.compose.request import make_request
from heldout.data.labels.siscore import siscore_names
from tests.curate.compose import compose_examples as examples
from tests.curate.compose import oracle

LABELS = {name: entry.index for name, entry in siscore_names().items()}


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of the original's layout, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".jpg", ".csv")
    }


def check_equal(ours: Path, theirs: Path) -> int:
    """Every file with its bytes; how many there are."""
    mine, other = files_of(ours), files_of(theirs)
    assert sorted(mine) == sorted(other)
    for name in other:
        if name.endswith(".csv"):
            assert mine[name] == other[name], name
    for name in other:
        if mine[name] != other[name]:
            pixels = [np.asarray(Image.open(io.BytesIO(d))) for d in (mine[name], other[name])]
            assert np.array_equal(*pixels), name
            raise AssertionError(f"{name}: pixels are equal and bytes are not")
    return len(other)


def both(
    tmp_path: Path, foregrounds: Path, backgrounds: Path, grid: oracle.Grid, **values: Any
) -> int:
    seed, per_object = values.get("seed", 0), values.get("backgrounds_per_object", 2)
    oracle.generate(
        foregrounds,
        backgrounds,
        tmp_path / "theirs",
        grid,
        seed=seed,
        per_object=per_object,
        labels=LABELS,
    )
    request = make_request(
        {
            "foregrounds": foregrounds,
            "backgrounds": backgrounds,
            "layout": "siscore",
            "renderer": "exact",
            **values,
        }
    )
    build_compose(request, tmp_path / "ours", runs=tmp_path / "runs", workers=1)
    return check_equal(tmp_path / "ours", tmp_path / "theirs")


@pytest.mark.parametrize("preset", ["size", "rotation", "location", "demo"])
def test_every_preset_is_the_originals_byte_for_byte(preset: str, tmp_path: Path) -> None:
    foregrounds = examples.make_foregrounds(tmp_path / "f")
    for path in [*(foregrounds / "vase").iterdir(), *(foregrounds / "lemon").iterdir()]:
        if preset != "demo":  # enough is as good: two objects of one class
            path.unlink()
            path.parent.rmdir()
    backgrounds = examples.make_backgrounds(tmp_path / "b")
    one = {"backgrounds_per_object": 1} if preset == "location" else {}
    count = both(tmp_path, foregrounds, backgrounds, oracle.preset(preset), preset=preset, **one)
    assert count > 30


def test_odd_cutouts_and_backgrounds(tmp_path: Path) -> None:
    centres = [(0.5, 0.5), (0.5, 0.9), (0.07, 0.5), (0.07, 0.9)]
    grid = oracle.Grid(centres, [0.0004, 0.05, 0.6, 1.3], [0, 33, 90], [(96, 96)], 0.3)
    count = both(
        tmp_path,
        examples.make_odd_foregrounds(tmp_path / "f"),
        examples.make_odd_backgrounds(tmp_path / "b"),
        grid,
        backgrounds_per_object=6,
        min_inside=0.3,
        resolution="96",
        factors={"x": [0.5, 0.07], "y": [0.5, 0.9], "size": grid.areas, "rotation": grid.rotations},
    )
    assert count > 500


def test_several_resolutions_and_images_that_are_not_square(tmp_path: Path) -> None:
    grid = oracle.Grid([(0.4, 0.6)], [0.1, 0.7], [0, 200], [(64, 64), (90, 50), (33, 71)], 0.5)
    both(
        tmp_path,
        examples.make_foregrounds(tmp_path / "f"),
        examples.make_backgrounds(tmp_path / "b"),
        grid,
        seed=7,
        backgrounds_per_object=3,
        min_inside=0.5,
        resolution=["64", "90x50", "33x71"],
        factors={"x": 0.4, "y": 0.6, "size": [0.1, 0.7], "rotation": [0, 200]},
    )


def test_a_cutout_used_at_its_own_size_is_not_premultiplied(tmp_path: Path) -> None:
    """Pillow copies an image that has the wanted size; soft edges show the difference."""
    examples.save(examples.cutout(32, 32, 3, soft=True), tmp_path / "f" / "bagel" / "a.png")
    grid = oracle.Grid([(0.5, 0.5)], [0.25], [0, 10], [(64, 64)])
    both(
        tmp_path,
        tmp_path / "f",
        examples.make_backgrounds(tmp_path / "b"),
        grid,
        resolution="64",
        factors={"size": [0.25], "rotation": [0, 10]},
    )


@pytest.mark.shared
@pytest.mark.parametrize("preset", ["demo", "rotation"])
def test_the_published_samples(preset: str, tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "siscore"
    grid = oracle.preset(preset)
    if preset == "rotation":
        grid.rotations, grid.areas = [21, 181], [0.2, 1.0]
    both(
        tmp_path,
        folder / "foreground_samples",
        folder / "background_samples",
        grid,
        preset=preset,
        factors={} if preset == "demo" else {"rotation": [21, 181], "size": [0.2, 1.0]},
    )
