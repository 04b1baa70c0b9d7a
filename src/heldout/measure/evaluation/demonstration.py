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


ORIGINALS, CANDIDATES = 30, 90
"""Images of a class in the original set of the replication, and among its candidates."""
_UNRELATED = ("brick.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "rocket.jpg")
_SHOWN, _CLEAR = 320, 0.8


def write_crops(folder: Path, seed: int = 0) -> Path:
    """Write what a replication starts from: parts of the photographs, by ImageNet class.

    ::

        originals/<class>/val-<n>.jpg     parts that show most of the object
        candidates/<class>/photo-<n>.jpg  any parts, as a search finds them: one in six is of another
                                          photograph, and a few are originals, a little brighter
        frequency.csv                     image, class, and how often people would select it for the
                                          class: by the share of the object that it shows

    What is there already is left alone.
    """
    place = photo_folder()
    unrelated = [_photo(place / name) for name in _UNRELATED]
    rows: list[tuple[str, str, str]] = []

    def write(where: str, label: str, name: str, image: Any, seen: float) -> None:
        _keep(folder / where / label / name, _jpeg(image))
        rows.append((f"{label}/{name}", label, f"{seen:.3f}"))

    for number, entry in enumerate(outlines()):
        random = np.random.default_rng([seed, number])
        photo = _photo(place / entry.photo)
        mask = np.asarray(mask_of(entry, photo.size), dtype=np.float64) / 255
        label = entry.classes[0]
        originals: list[Any] = []
        while len(originals) < ORIGINALS:
            image, seen = _crop(photo, mask, random)
            if seen > _CLEAR:
                originals.append(image)
                write("originals", label, f"val-{len(originals):02d}.jpg", image, seen)
        for at in range(1, CANDIDATES + 1):
            if at % 6 == 0:
                image = unrelated[int(random.integers(len(unrelated)))]
                image, seen = _crop(image, np.zeros((image.height, image.width)), random)
            elif at % 31 == 0:
                image, seen = originals[int(random.integers(ORIGINALS))], _CLEAR
                image = image.point([min(255, value + 6) for value in range(256)] * 3)
            else:
                image, seen = _crop(photo, mask, random)
            write("candidates", label, f"photo-{at:02d}.jpg", image, seen)
    table = csv_text(("image_id", "class_id", "frequency"), rows)
    _keep(folder / "frequency.csv", table.encode())
    return folder


def _crop(photo: Any, mask: np.ndarray, random: np.random.Generator) -> tuple[Any, float]:
    """A square part of a photograph around its object, and how often people would select it.

    It is smaller than the object or larger, beside its middle, mirrored or not, sharp or blurred.
    """
    from PIL import ImageFilter, ImageOps

    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):  # nothing to be seen: anywhere
        rows, columns = (np.arange(length) for length in mask.shape)
    box = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    extent = max(box[2] - box[0], box[3] - box[1])
    side = int(min(random.uniform(0.5, 1.8) * extent, *photo.size))
    left, top = (
        int(np.clip(random.normal((low + high) / 2, extent / 4) - side / 2, 0, length - side))
        for low, high, length in zip(box[:2], box[2:], photo.size, strict=True)
    )
    part = photo.crop((left, top, left + side, top + side)).resize((_SHOWN, _SHOWN))
    if random.random() < 0.5:
        part = ImageOps.mirror(part)
    blur = max(0.0, random.normal(0, 3))
    part = part.filter(ImageFilter.GaussianBlur(blur))
    whole = float(mask.sum())
    seen = float(mask[top : top + side, left : left + side].sum()) / whole if whole else 0.0
    return part, 0.02 + 0.96 * min(max((seen - 0.1) / 0.5, 0.0), 1.0) / (1 + blur / 12)


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


def _jpeg(image: Any) -> bytes:
    handle = io.BytesIO()
    image.save(handle, "JPEG", quality=90)
    return handle.getvalue()


def _keep(path: Path, data: bytes) -> None:
    """Write a file unless it is there: a second run must find the same inputs, unchanged."""
    if not (path.is_file() and path.read_bytes() == data):
        write_bytes(path, data)
