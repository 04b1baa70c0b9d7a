"""Small cut-outs and backgrounds of every kind, drawn here; sources for the conformance suite."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from heldout.curate.compose.inputs import (
    Inputs,
    gather_backgrounds,
    gather_foregrounds,
    inputs_of,
)
from heldout.curate.recipe import Sources

EXIF_TURNED = 6


def noise(width: int, height: int, bands: int, seed: int) -> np.ndarray:
    """Smooth colours with some noise, uint8 (height, width, bands)."""
    random = np.random.default_rng(seed)
    rows = np.linspace(0, 6, height)[:, None, None] + np.arange(bands)
    columns = np.linspace(0, 9, width)[None, :, None]
    wave = 127 + 90 * np.sin(rows + seed) * np.cos(columns)
    return np.clip(wave + random.normal(0, 12, (height, width, bands)), 0, 255).astype(np.uint8)


def cutout(width: int, height: int, seed: int = 0, *, soft: bool = False) -> Image.Image:
    """An ellipse of noise; the photograph stays under alpha 0. ``soft`` fades to its edge."""
    y, x = np.mgrid[:height, :width]
    radius = ((x + 0.5) / width * 2 - 1) ** 2 + ((y + 0.5) / height * 2 - 1) ** 2
    alpha = np.clip(1.4 - radius, 0, 1) * 255 if soft else (radius < 1) * 255.0
    alpha[height // 2, width // 2] = 255
    pixels = np.dstack([noise(width, height, 3, seed), alpha.astype(np.uint8)])
    return Image.fromarray(pixels)


def psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Peak signal to noise in dB; 100 for equal images."""
    error = float(np.mean((ours.astype(np.float64) - theirs) ** 2))
    return 100.0 if error == 0 else min(100.0, 10 * math.log10(255**2 / error))


def save(image: Image.Image, path: Path, **options: object) -> Path:
    """Save an image, folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def make_foregrounds(folder: Path) -> Path:
    """Several classes and instances, of every size and kind that the original takes."""
    save(cutout(70, 50, 1), folder / "bagel" / "b2.png")
    save(cutout(33, 47, 2, soft=True), folder / "bagel" / "b10.png")
    save(cutout(300, 210, 3), folder / "lemon" / "large.png")
    save(cutout(24, 24, 4, soft=True).convert("LA"), folder / "vase" / "grey.png")
    return folder


def make_odd_foregrounds(folder: Path) -> Path:
    """Cut-outs of shapes and modes that the original stumbles over or has never seen."""
    save(cutout(3, 2, 5), folder / "bagel" / "tiny.png")
    save(cutout(400, 9, 6), folder / "banana" / "wide.png")
    save(cutout(7, 300, 7, soft=True), folder / "flute" / "tall.png")
    palette = cutout(40, 40, 8).convert("P")
    palette.info["transparency"] = int(np.asarray(palette)[0, 0])
    save(palette, folder / "lemon" / "palette.png", transparency=palette.info["transparency"])
    grey = Image.fromarray(noise(30, 40, 1, 9)[..., 0])
    save(grey, folder / "orange" / "key.png", transparency=int(np.asarray(grey)[0, 0]))
    exif = Image.Exif()
    exif[0x0112] = EXIF_TURNED
    save(cutout(60, 30, 10), folder / "pig" / "turned.png", exif=exif)
    opaque = np.dstack([noise(31, 17, 3, 11), np.full((17, 31), 255, np.uint8)])
    save(Image.fromarray(opaque), folder / "zebra" / "opaque.png")
    save(cutout(44, 61, 12, soft=True), folder / "zebra" / "soft.webp", lossless=True)
    return folder


def make_backgrounds(folder: Path) -> Path:
    """Plain backgrounds of several shapes."""
    save(Image.fromarray(noise(120, 90, 3, 20)), folder / "a.jpg")
    save(Image.fromarray(noise(90, 140, 3, 21)), folder / "b.png")
    save(Image.fromarray(noise(100, 100, 3, 22)), folder / "c.jpeg")
    return folder


def make_odd_backgrounds(folder: Path) -> Path:
    """Backgrounds of every mode."""
    save(Image.fromarray(noise(90, 70, 1, 30)[..., 0]), folder / "grey.png")
    save(Image.fromarray(noise(80, 70, 4, 31), "CMYK"), folder / "cmyk.jpg")
    save(cutout(70, 90, 32, soft=True), folder / "rgba.png")
    save(Image.fromarray(noise(64, 64, 3, 33)).quantize(64), folder / "palette.png")
    sixteen = (noise(60, 80, 1, 34)[..., 0].astype(np.uint16) << 8) + 77
    save(Image.fromarray(sixteen), folder / "sixteen.png")
    exif = Image.Exif()
    exif[0x0112] = EXIF_TURNED
    save(Image.fromarray(noise(120, 60, 3, 35)), folder / "turned.jpg", exif=exif)
    return folder


def read_inputs(foregrounds: Path, backgrounds: Path, *, exif: bool = True) -> Inputs:
    """The inputs of two folders."""
    pools = gather_foregrounds(foregrounds)[0], gather_backgrounds(backgrounds)[0]
    return inputs_of(*pools, exif=exif)


ATTRIBUTIONS = """file,licence,attribution,source
a.jpg,CC-BY-2.0,Ann,https://example.org/a
b,CC0-1.0,,
"""


def make_sources() -> Sources:
    """Two small pools with licences, made anew; the same each time."""
    folder = Path(tempfile.mkdtemp())
    foregrounds = make_foregrounds(folder / "cutouts")
    backgrounds = make_backgrounds(folder / "scenes")
    (backgrounds / "attributions.csv").write_text(ATTRIBUTIONS)
    return {
        "foregrounds": gather_foregrounds(foregrounds, licence="CC-BY-4.0")[0],
        "backgrounds": gather_backgrounds(backgrounds)[0],
    }
