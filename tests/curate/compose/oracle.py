"""A slow, obvious renderer of SI-SCORE's sets, written from the description of the original.

Nothing is shared or cached: for every image the background is copied, the object scaled and
rotated anew, and the filter is asked after that, as the original does. It imports nothing of the
package. It differs from the original only where that fails or is wrong: inputs of other modes are
brought to RGBA and RGB first, EXIF orientations are applied, the inside fraction is 0 for an
object that lies outside, and such images are left out, as are objects under a pixel.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

COLUMNS = [
    "image_id",
    "x_coord",
    "y_coord",
    "area",
    "rotation",
    "foreground_class",
    "foreground_instance",
    "background",
    "bg_resolution_width",
    "bg_resolution_height",
    "pct_inside_image",
]


@dataclass
class Grid:
    """A set of factors as the original's scripts have them."""

    coords: list[tuple[float, float]]
    areas: list[float]
    rotations: list[float]
    resolutions: list[tuple[int, int]] = field(default_factory=lambda: [(512, 512)])
    min_pct: float = 0.95


def preset(name: str) -> Grid:
    """The published grids."""
    middle = [(0.5, 0.5)]
    if name == "size":
        return Grid(middle, [i / 100 for i in range(1, 101)], [0])
    if name == "demo":
        return Grid(middle, [i / 10 for i in range(1, 9)], [0])
    if name == "rotation":
        return Grid(middle, [0.2, 0.5, 0.8, 1.0], list(range(1, 360, 20)))
    coords = [(i * 0.05, j * 0.05) for i in range(21) for j in range(21)]
    return Grid(coords, [0.2], [0], [(500, 500)], 0.0)


def load_foreground(path: Path) -> Image.Image:
    """A cut-out; alpha of any kind."""
    image = ImageOps.exif_transpose(Image.open(path))
    return image if image.mode in ("RGBA", "LA") else image.convert("RGBA")


def load_background(path: Path) -> Image.Image:
    """A background as three channels."""
    image = Image.open(path)
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    image = ImageOps.exif_transpose(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def crop_square(image: Image.Image) -> Image.Image:
    """The largest square at the top left corner."""
    side = min(image.size)
    return image.crop((0, 0, side, side))


def resize(image: Image.Image, area: float, resolution: tuple[int, int]) -> Image.Image | None:
    """The object with its box at ``area`` of the background's; None under a pixel."""
    width, height = image.size
    share = (width * height) / (resolution[0] * resolution[1])
    scale = math.sqrt(area / share)
    size = (int(width * scale), int(height * scale))
    if 0 in size:
        return None
    return image.resize(size, Image.Resampling.BILINEAR)


def rotate(image: Image.Image, angle: float) -> Image.Image:
    """Counter-clockwise; the box grows."""
    return image.rotate(angle, Image.Resampling.BICUBIC, expand=True)


def top_left(
    coord: tuple[float, float], size: tuple[int, int], resolution: tuple[int, int]
) -> tuple[int, int]:
    """The corner for an object with its centre at ``coord``."""
    centre = (int(coord[0] * resolution[0]), int(coord[1] * resolution[1]))
    return (int(centre[0] - 0.5 * size[0]), int(centre[1] - 0.5 * size[1]))


def pct_inside(
    corner: tuple[int, int], size: tuple[int, int], resolution: tuple[int, int]
) -> float:
    """The share of the box's pixels inside, counted."""
    columns = sum(1 for x in range(corner[0], corner[0] + size[0]) if 0 <= x < resolution[0])
    rows = sum(1 for y in range(corner[1], corner[1] + size[1]) if 0 <= y < resolution[1])
    return (columns * rows) / (size[0] * size[1])


def compose(background: Image.Image, sprite: Image.Image, corner: tuple[int, int]) -> Image.Image:
    """The object pasted with its own alpha."""
    image = background.copy()
    image.paste(sprite, corner, sprite)
    return image


def write_list(path: Path, rows: list[tuple[int, str]]) -> None:
    """A list of numbers and names."""
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["int", "label"])
        writer.writerows(rows)


def generate(
    foregrounds: Path,
    backgrounds: Path,
    out: Path,
    grid: Grid,
    *,
    seed: int = 0,
    per_object: int = 2,
    labels: dict[str, int] | None = None,
) -> int:
    """Write a set to ``out``; the number of candidates."""
    classes = sorted(folder.name for folder in foregrounds.iterdir() if folder.is_dir())
    objects = []
    for position, name in enumerate(classes):
        files = sorted(path.name for path in (foregrounds / name).iterdir())
        for instance, file in enumerate(files):
            image = load_foreground(foregrounds / name / file)
            objects.append((name, position, instance, image))
    names = sorted(path.name for path in backgrounds.iterdir())
    scenes = [crop_square(load_background(backgrounds / name)) for name in names]
    if len(grid.resolutions) == 1:
        scenes = [s.resize(grid.resolutions[0], Image.Resampling.BILINEAR) for s in scenes]
    np.random.seed(seed)
    pairs = []
    for entry in objects:
        for chosen in np.random.choice(len(scenes), per_object, replace=False):
            pairs.append((entry, int(chosen)))
    for name in classes:
        (out / name).mkdir(parents=True)
    rows: list[list[Any]] = []
    number = -1
    for coord, area, angle, pair, resolution in itertools.product(
        grid.coords, grid.areas, grid.rotations, pairs, grid.resolutions
    ):
        number += 1
        (name, position, instance, image), chosen = pair
        scene = scenes[chosen]
        if len(grid.resolutions) > 1:
            scene = scene.resize(resolution, Image.Resampling.BILINEAR)
        sprite = resize(image, area, resolution)
        if sprite is None:
            continue
        sprite = rotate(sprite, angle)
        corner = top_left(coord, sprite.size, resolution)
        inside = pct_inside(corner, sprite.size, resolution)
        if inside < grid.min_pct or inside == 0:
            continue
        compose(scene, sprite, corner).save(out / name / f"{number}.jpg")
        row = [number, *coord, area, angle, position, instance, chosen, *resolution]
        rows.append([*row, round(inside, 4)])
    with (out / "metadata.csv").open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    write_list(out / "backgrounds.csv", list(enumerate(names)))
    write_list(out / "foreground_classes_metadata_indices.csv", list(enumerate(classes)))
    if labels is not None:
        write_list(out / "foreground_classes.csv", [(labels[name], name) for name in classes])
    return number + 1


def read_labels(path: Path) -> dict[str, int]:
    """The published map of names to ImageNet indices."""
    found: dict[str, int] = json.loads(path.read_text())
    return found
