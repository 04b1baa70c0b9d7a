"""The demonstration: real photographs, and copies of them with one thing changed at a time.

The photographs install with scikit-image and are in the public domain or under CC0. Their labels
are ours, in ImageNet-1k, written down below; where a photograph shows what several classes name,
all of these are correct. The copies vary size and place, rotation, and light; they show how
results read against a factor, not how good a model is.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.extras import require
from heldout.files import write_bytes
from heldout.images import sha256_bytes
from heldout.labels import LabelSpace
from heldout.testset import Card, ColumnType, TestSet, image_table, make_testset, save, truth_table
from heldout.workspace import Workspace

PHOTOS_SET = "demo-photos-1"
COPIES_SET = "demo-copies-1"
SIDE = 320
SIZES = (0.2, 0.35, 0.5, 0.65, 0.8)
PLACES = (0.0, 0.5, 1.0)
ANGLES = tuple(range(0, 360, 30))
LIGHTS = (0.2, 0.4, 0.7, 1.0, 1.6)


@dataclass(frozen=True)
class Photo:
    """A photograph: its file in scikit-image, the classes it shows (the first names it), its terms."""

    file: str
    classes: tuple[str, ...]
    licence: str
    attribution: str


PHOTOS = (
    Photo("chelsea.png", ("n02124075", "n02123159", "n02123045"), "CC0-1.0", "Stefan van der Walt"),
    Photo("coffee.png", ("n07920052", "n07930864"), "CC0-1.0", "Rachel Michetti"),
    Photo("rocket.jpg", ("n04008634", "n03773504"), "public domain", "SpaceX"),
    Photo("camera.png", ("n04485082", "n04069434"), "CC0-1.0", "Lav Varshney"),
    Photo("clock_motion.png", ("n04548280", "n02708093"), "public domain", "Stefan van der Walt"),
)
"""Cat (Egyptian cat, tiger cat, tabby); coffee (espresso, cup); rocket (projectile, missile);
photographer (tripod, reflex camera); clock (wall clock, analog clock)."""


def photo_folder() -> Path:
    """Where scikit-image keeps its photographs."""
    skimage = require("skimage", extra="demo", purpose="the demonstration")
    return Path(str(skimage.__file__)).parent / "data"


def make_demonstration(workspace: Workspace) -> list[TestSet]:
    """Write the photographs and their copies as two test sets with images."""
    folder = photo_folder()
    rows: list[dict[str, Any]] = []
    copies: list[dict[str, Any]] = []
    for photo in PHOTOS:
        data = (folder / photo.file).read_bytes()
        rows.append(_row(workspace, PHOTOS_SET, photo, photo.file, data, {}))
        for name, factors, rendered in _copies(data, Path(photo.file).stem):
            copies.append(_row(workspace, COPIES_SET, photo, name, rendered, factors))
    return [_testset(workspace, PHOTOS_SET, rows), _testset(workspace, COPIES_SET, copies)]


def _copies(data: bytes, stem: str) -> Iterator[tuple[str, dict[str, Any], bytes]]:
    """Names, factors and JPEG bytes of all copies of one photograph."""
    from PIL import Image, ImageEnhance

    photo = Image.open(io.BytesIO(data)).convert("RGB")
    ground = tuple(int(v) for v in photo.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0)))  # type: ignore[union-attr]

    def placed(size: float, x: float, y: float, image: Image.Image = photo) -> Image.Image:
        scale = size**0.5 * SIDE / max(image.size)
        small = image.resize(
            (max(1, round(image.width * scale)), max(1, round(image.height * scale))),
            Image.Resampling.BICUBIC,
        )
        canvas = Image.new("RGB", (SIDE, SIDE), ground)
        canvas.paste(small, (round(x * (SIDE - small.width)), round(y * (SIDE - small.height))))
        return canvas

    for size in SIZES:
        for x in PLACES:
            for y in PLACES:
                factors = {"vary": "size and place", "size": size, "x": x, "y": y}
                yield f"{stem}-size-{size:g}-{x:g}-{y:g}.jpg", factors, _jpeg(placed(size, x, y))
    for angle in ANGLES:
        turned = photo.rotate(-angle, Image.Resampling.BICUBIC, expand=True, fillcolor=ground)
        factors = {"vary": "rotation", "angle": float(angle)}
        yield f"{stem}-angle-{angle:03d}.jpg", factors, _jpeg(placed(1.0, 0.5, 0.5, turned))
    for light in LIGHTS:
        lit = ImageEnhance.Brightness(placed(1.0, 0.5, 0.5)).enhance(light)
        yield f"{stem}-light-{light:g}.jpg", {"vary": "light", "light": light}, _jpeg(lit)


def _jpeg(image: Any) -> bytes:
    handle = io.BytesIO()
    image.save(handle, "JPEG", quality=95, subsampling=0)
    return handle.getvalue()


def _row(
    workspace: Workspace, name: str, photo: Photo, file: str, data: bytes, factors: dict[str, Any]
) -> dict[str, Any]:
    from PIL import Image

    path = workspace.root / "images" / name / file
    if not (path.is_file() and path.read_bytes() == data):
        write_bytes(path, data)
    with Image.open(io.BytesIO(data)) as image:
        width, height = image.size
    return {
        "image_id": file,
        "path": file,
        "sha256": sha256_bytes(data),
        "width": width,
        "height": height,
        "source": f"scikit-image {photo.file}",
        "licence": photo.licence,
        "attribution": photo.attribution,
        "classes": photo.classes,
        "photo": Path(photo.file).stem,
        **factors,
    }


def _testset(workspace: Workspace, name: str, rows: list[dict[str, Any]]) -> TestSet:
    space = LabelSpace.load("imagenet-1k")
    ids = [row["image_id"] for row in rows]
    names = list(dict.fromkeys(key for row in rows for key in row if key != "classes"))
    columns = {key: [row.get(key) for row in rows] for key in names}
    types = {
        "photo": ColumnType(kind="categorical"),
        "vary": ColumnType(kind="categorical"),
        "size": ColumnType(kind="ordered", unit="share of the image"),
        "x": ColumnType(kind="grid", grid="place", axis="x"),
        "y": ColumnType(kind="grid", grid="place", axis="y"),
        "angle": ColumnType(kind="circular", unit="degrees", period=360),
        "light": ColumnType(kind="ordered", unit="times the photograph's"),
    }
    card = Card(
        name=name,
        label_space=space.name,
        recipe={"name": "demonstration", "parameters": {"side": SIDE}, "seed": None},
        counts={"photographs": len(PHOTOS), "images": len(rows)},
        columns={key: kind for key, kind in types.items() if key in columns},
        truths={"original": {"kind": "single", "source": "labels by the authors of heldout"}},
        citation="van der Walt et al.: scikit-image: image processing in Python. PeerJ 2014",
        notes=("a demonstration on five photographs, not a measure of any model",),
        images_root=f"../../images/{name}",
    )
    truth = truth_table(
        ids, [row["classes"][0] for row in rows], correct=[row["classes"] for row in rows]
    )
    made = make_testset(
        card, images=image_table(columns), truths={"original": truth}, label_space=space
    )
    return save(made, workspace.testsets / name)
