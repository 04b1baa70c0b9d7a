"""The demonstration: photographs, outlines of what they show, and backgrounds to put it on.

The photographs install with scikit-image and are in the public domain or under CC0. Labels and
outlines are ours: ImageNet-1k classes, and polygons in ``data/outlines.json``. The sets that are
composed of them show how results read against a factor, not how good a model is: there are four
objects.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.extras import require
from heldout.core.files import csv_text, write_bytes
from heldout.core.schema import convert, read_plain

_SIDE = 512
Colour = tuple[int, int, int]
Polygon = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DemoBackdrop:
    """A background: a grey texture between two colours, or a sky from top to bottom.

    ``file``  the texture in scikit-image; None for a sky
    """

    name: str
    file: str | None
    colours: tuple[Colour, Colour]
    source: str
    attribution: str


BACKDROPS = (
    DemoBackdrop(
        "dusk", None, ((36, 50, 96), (232, 164, 120)), "computed", "the authors of heldout"
    ),
    DemoBackdrop(
        "gravel", "gravel.png", ((44, 38, 34), (222, 212, 198)), "scikit-image gravel.png",
        "CC0Textures",
    ),
    DemoBackdrop(
        "meadow", "grass.png", ((18, 38, 12), (196, 214, 132)), "scikit-image grass.png",
        "linolafett",
    ),
    DemoBackdrop("sky", None, ((72, 128, 206), (214, 232, 246)), "computed", "the authors of heldout"),
)  # fmt: skip
"""All of them show no object of ImageNet; all are under CC0."""


def backdrop(ground: DemoBackdrop, photos: Path) -> Any:
    """The background as an image of 512 × 512 pixels; ``photos`` is scikit-image's folder."""
    from PIL import Image

    if ground.file is None:
        share = _sky()
    else:
        with Image.open(photos / ground.file) as image:
            grey = image.convert("L").resize((_SIDE, _SIDE))
        share = np.asarray(grey, dtype=np.float64) / 255
    first, last = (np.array(colour, dtype=np.float64) for colour in ground.colours)
    pixels = first + share[:, :, None] * (last - first)
    return Image.fromarray(np.rint(pixels).astype(np.uint8))


def _sky() -> np.ndarray:
    """From 0 at the top to 1 at the bottom, with soft bands of cloud: sums of a few waves."""
    down, across = np.mgrid[0 : 1 : _SIDE * 1j, 0 : 1 : _SIDE * 1j]
    waves = sum(
        np.sin(2 * np.pi * (a * across + b * down) + c) / (k + 2)
        for k, (a, b, c) in enumerate(((1.3, 3.1, 0.4), (2.1, -5.2, 1.9), (4.7, 9.4, 3.0)))
    )
    share: np.ndarray = np.clip(down**1.2 + 0.06 * waves, 0, 1)
    return share


COMPOSED = ("demo-size-1", "demo-location-1", "demo-rotation-1")
"""The sets that are composed; each has its configuration beside the outlines."""

_DATA = Path(__file__).with_name("data")
_FINE = 4  # masks are drawn so much larger, so that their edges come out smooth


@dataclass(frozen=True)
class Outlined:
    """An object of a photograph: the file in scikit-image, classes (the first names it), outline.

    ``parts`` and ``holes`` are polygons of (x, y) in pixels; parts are joined, holes taken away.
    """

    photo: str
    name: str
    classes: tuple[str, ...]
    licence: str
    attribution: str
    parts: tuple[Polygon, ...]
    holes: tuple[Polygon, ...]


def outlines() -> tuple[Outlined, ...]:
    """What the photographs show: a cat, a cup, a space shuttle, a camera on a tripod."""
    path = _DATA / "outlines.json"
    return convert(read_plain(path)["outlines"], tuple[Outlined, ...], where=path)


def photo_folder() -> Path:
    """Where scikit-image keeps its photographs."""
    skimage = require("skimage", extra="demo", purpose="the demonstration")
    return Path(str(skimage.__file__)).parent / "data"


def write_inputs(folder: Path) -> Path:
    """Write what the public verbs start from; what is there already is left alone.

    ::

        photos/<name>/<file>   photographs         photos.csv   whose they are
        masks/<name>/<file>    outlines, drawn     labels.toml  what each name means
        backgrounds/<file>     with attributions   <set>.toml   a configuration a composed set
    """
    place = photo_folder()
    rows = [("file", "licence", "attribution", "source")]
    labels = []
    for entry in outlines():
        file = f"{entry.name}/{Path(entry.photo).stem}.png"
        _keep(folder / "photos" / file, _png(_photo(place / entry.photo)))
        _keep(folder / "masks" / file, _png(mask_of(entry, _photo(place / entry.photo).size)))
        rows.append((file, entry.licence, entry.attribution, f"scikit-image {entry.photo}"))
        labels.append(f"{entry.name} = {json.dumps(list(entry.classes))}\n")
    _keep(folder / "photos.csv", csv_text(rows[0], rows[1:]).encode())
    _keep(folder / "labels.toml", "".join(labels).encode())
    whose = [rows[0]]
    for ground in BACKDROPS:
        _keep(folder / "backgrounds" / f"{ground.name}.png", _png(backdrop(ground, place)))
        whose.append((f"{ground.name}.png", "CC0-1.0", ground.attribution, ground.source))
    _keep(folder / "backgrounds" / "attributions.csv", csv_text(whose[0], whose[1:]).encode())
    for name in COMPOSED:
        _keep(folder / f"{name}.toml", (_DATA / f"{name}.toml").read_bytes())
    return folder


def mask_of(entry: Outlined, size: tuple[int, int]) -> Any:
    """The outline as a greyscale image of a photograph's size; its edges are smooth."""
    from PIL import Image, ImageDraw

    large = Image.new("L", (size[0] * _FINE, size[1] * _FINE))
    draw = ImageDraw.Draw(large)
    for polygons, value in ((entry.parts, 255), (entry.holes, 0)):
        for polygon in polygons:
            draw.polygon([(x * _FINE, y * _FINE) for x, y in polygon], fill=value)
    return large.resize(size, Image.Resampling.BOX)


def _photo(path: Path) -> Any:
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def _png(image: Any) -> bytes:
    handle = io.BytesIO()
    image.save(handle, "PNG")
    return handle.getvalue()


def _keep(path: Path, data: bytes) -> None:
    """Write a file unless it is there: a second run must find the same inputs, unchanged."""
    if not (path.is_file() and path.read_bytes() == data):
        write_bytes(path, data)
