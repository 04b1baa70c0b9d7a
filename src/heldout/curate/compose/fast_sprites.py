"""Sprites by OpenCV: the exact renderer's images up to a little sharpness, in far less time.

The exact path reduces the whole cut-out again for each size, with a filter as wide as the
reduction. Here a cut-out is halved once into levels, a level is blurred once for every quarter of
an octave, and a sprite is two taps per pixel out of that. A turned sprite is sampled out of its
upright self at twice the size, with Pillow's own matrix. A background's JPEG file is made once for
all the objects on it (:mod:`heldout.curate.compose.jpeg_splice`).

Boxes, sizes and places are the plan's, so that metadata equal those of the exact renderer. Import
it only where OpenCV is installed.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.inputs import MemoryCache
from heldout.curate.compose.jpeg_splice import Overlay, Splicer, Tiled, TileGrid, cv2
from heldout.curate.compose.plan import Size, rotated_size, rotation_matrix
from heldout.curate.compose.render import Encoding, Sprite, encode

if TYPE_CHECKING:
    from PIL.Image import Image

    from heldout.curate.compose.inputs import Inputs, Pixels
    from heldout.curate.compose.plan import ImagePlan

SOURCES = 256 << 20
"""Bytes of cut-outs, levels and backgrounds that are kept."""
SPRITES = 12 << 20
"""Bytes of sprites that are kept: few, so that they stay in the processor's caches."""
STEPS = 4
"""Blurs in an octave of reduction. Twice as many change the result by 0.1 dB."""
_PHASES = 16
_SMALL = 32
"""Pixels of a side under which a sprite is made with Pillow."""
_MAX_SIDE = 32766
"""OpenCV counts the pixels of a side that it warps from in 16 bits."""


class FastSprite(Sprite):
    """Pixels (h, w, 4) BGRA, premultiplied, with what was made ready of them for the last place.

    Images that follow each other mostly differ in the background alone.
    """

    def __init__(self, bgra: Pixels) -> None:
        self._bgra = bgra
        self.size = (bgra.shape[1], bgra.shape[0])
        self.total = int(cv2.sumElems(bgra)[3])
        self.nbytes = 4 * int(bgra.nbytes)  # memory that it may come to take
        self._overlay: tuple[tuple[slice, slice], Overlay] | None = None
        self._tiled: tuple[tuple[int, int, TileGrid], Tiled] | None = None

    def mask_within(self, part: tuple[slice, slice]) -> int:
        """The sum of alpha in a part."""
        return int(cv2.sumElems(self._bgra[part])[3])

    def blend(self, image: Pixels, shot: ImagePlan) -> None:
        """Lay it on the background of a shot, (H, W, 3) BGR, in place."""
        window = self.window(shot)
        if window.empty:
            return
        within = window.within(*shot.box[:2])
        known = self._overlay
        if known is None or known[0] != within:
            part = self._bgra[within]
            colour = cv2.cvtColor(part, cv2.COLOR_BGRA2BGR)
            known = self._overlay = (within, Overlay(colour, cv2.extractChannel(part, 3)))
        below = image[window.slices].copy()
        known[1].onto(below)
        image[window.slices] = below

    def file(self, splicer: Splicer, shot: ImagePlan) -> bytes:
        """The JPEG file of the splicer's background with it on top."""
        left, top = shot.box[:2]
        key = (left, top, splicer.grid)
        known = self._tiled
        if known is None or known[0] != key:
            window = self.window(shot)
            tiled = Tiled(self._bgra[window.within(left, top)], window, splicer.grid)
            known = self._tiled = (key, tiled)
        return known[1].file(splicer)


class FastSprites:
    """Sprites and images of shots, keeping what the next shots may share.

    Shots that follow each other should share their cut-out, then size, rotation and place. Equal
    shots give equal bytes on one machine, whatever was rendered before.
    """

    def __init__(self, *, sources: int = SOURCES, sprites: int = SPRITES) -> None:
        # Images are small and the engine has its own workers: OpenCV's threads only cost.
        cv2.setNumThreads(1)
        self.sources, self.sprites = MemoryCache(sources), MemoryCache(sprites)

    def sprite(self, inputs: Inputs, shot: ImagePlan) -> FastSprite:
        """The object of a shot, scaled and turned."""
        name = f"{inputs.cutouts[shot.foreground].sha256}{inputs.exif}"

        def make() -> FastSprite:
            source = self.sources.get(
                (name, "source"), lambda: premultiplied(inputs.cutout_image(shot.foreground))
            )
            pyramid = Pyramid(source, name=name, cache=self.sources)
            return FastSprite(pyramid.turned(shot.sprite, shot.rotation))

        key = (name, shot.sprite, shot.rotation % 360.0)
        return cast("FastSprite", self.sprites.get(key, make))

    def image(self, inputs: Inputs, shot: ImagePlan, sprite: FastSprite) -> Image:
        """The image of a shot."""
        from PIL.Image import fromarray

        image = self._background(inputs, shot).copy()
        sprite.blend(image, shot)
        return fromarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))

    def file(
        self, inputs: Inputs, shot: ImagePlan, sprite: FastSprite, encoding: Encoding
    ) -> bytes:
        """The file of a shot's image. JPEG files decode to what Pillow's file would."""
        if encoding.format != "jpeg":
            return encode(self.image(inputs, shot, sprite), encoding)
        behind = (inputs.backgrounds[shot.background].sha256, inputs.exif)
        splicer = self.sources.get(
            (*behind, "file", shot.width, shot.height, encoding),
            lambda: Splicer(self._background(inputs, shot), quality=encoding.quality),
        )
        return sprite.file(splicer, shot)

    def _background(self, inputs: Inputs, shot: ImagePlan) -> Pixels:
        def make() -> Pixels:
            rgb = inputs.background(shot.background, shot.width, shot.height)
            return cast("Pixels", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))

        behind = (inputs.backgrounds[shot.background].sha256, inputs.exif)
        key = (*behind, "background", shot.width, shot.height)
        return cast("Pixels", self.sources.get(key, make))


def premultiplied(straight: Image) -> Pixels:
    """RGBA with straight alpha as BGRA premultiplied by alpha, rounded as Pillow does it."""
    return cast("Pixels", cv2.cvtColor(_array(straight.convert("RGBa")), cv2.COLOR_RGBA2BGRA))


def _image(premultiplied: Pixels) -> Image:
    """An array as an image of Pillow; its channels are treated alike, whatever their order."""
    from PIL.Image import frombuffer

    height, width = premultiplied.shape[:2]
    return frombuffer("RGBa", (width, height), np.ascontiguousarray(premultiplied))


def _array(image: Image) -> Pixels:
    return np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width, 4)


def turn_of(size: Size, degrees: float) -> tuple[NDArray[np.float64], Size]:
    """The matrix and size of ``Image.rotate(degrees, expand=True)`` for an image of ``size``.

    The matrix (2, 3) leads from positions in the turned image to positions in the upright one,
    where the corner of an image is (0, 0) and the centre of its first pixel (0.5, 0.5). For a
    multiple of 90 degrees Pillow only moves pixels; that is not for this function.
    """
    matrix = rotation_matrix(size, degrees % 360.0)
    turned = rotated_size(size, degrees)
    # The turned image has another centre: half of what it has grown, turned back.
    grown = np.array([(size[0] - turned[0]) / 2, (size[1] - turned[1]) / 2])
    matrix[:, 2] = matrix[:, 0] * grown[0] + matrix[:, 1] * grown[1] + matrix[:, 2]
    return matrix, turned


class Pyramid:
    """One cut-out, premultiplied BGRA, from which sprites of any size are taken.

    Its arrays are in ``cache`` under keys that begin with ``name``, and are made again when they
    were dropped from there.
    """

    def __init__(self, source: Pixels, *, name: str, cache: MemoryCache) -> None:
        self.source = source
        self.name = name
        self.cache = cache

    def upright(self, size: Size) -> Pixels:
        """The sprite of ``size`` (width, height), (h, w, 4)."""
        width, height = size
        if size == (self.source.shape[1], self.source.shape[0]):
            return self.source
        reduction = min(self.source.shape[1] / width, self.source.shape[0] / height)
        octaves = math.floor(math.log2(max(reduction, 1.0)))
        if min(size) < _SMALL:  # few pixels, where the border counts: Pillow's own filter
            from PIL.Image import Resampling

            level = self._level(max(0, octaves - 2))
            return _array(_image(level).resize(size, Resampling.BILINEAR))
        # From pixels half as wide as those of the sprite, or less, two taps after a blur are as
        # good as Pillow's whole filter; from coarser ones they lose 5 to 10 dB.
        number = max(0, octaves - 1)
        level_height, level_width = self._level_shape(number)
        steps = (step_of(level_width / width), step_of(level_height / height))
        key = (self.name, "blurred", number, steps)
        blurred = self.cache.get(key, partial(self._blurred, number, steps))
        return cast("Pixels", cv2.resize(blurred, size, interpolation=cv2.INTER_LINEAR))

    def turned(self, size: Size, degrees: float) -> Pixels:
        """The sprite of ``size`` turned counter-clockwise, its box grown to hold it, (h', w', 4)."""
        degrees = degrees % 360.0
        if degrees % 90.0 == 0:
            return np.ascontiguousarray(np.rot90(self.upright(size), int(degrees // 90)))
        if min(size) < _SMALL:
            from PIL.Image import Resampling

            turned = _image(self.upright(size)).rotate(degrees, Resampling.BICUBIC, expand=True)
            return _array(turned)
        matrix, box = turn_of(size, degrees)
        fine = self.cache.get((self.name, "fine", size), partial(self._fine, size))
        # Positions of pixel centres, on both sides: from (column, row) to (column, row).
        matrix[:, 2] += matrix[:, :2] @ [0.5, 0.5]
        matrix *= np.array([[fine.shape[1] / size[0]], [fine.shape[0] / size[1]]])
        matrix[:, 2] -= 0.5
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return cast(
            "Pixels",
            cv2.warpAffine(fine, matrix, box, flags=flags, borderMode=cv2.BORDER_CONSTANT),
        )

    def _level_shape(self, level: int) -> tuple[int, int]:
        height, width = self.source.shape[:2]
        return max(1, round(height / 2**level)), max(1, round(width / 2**level))

    def _level(self, level: int) -> Pixels:
        """The cut-out reduced by 2 ** level, each level out of the one before."""
        if level == 0:
            return self.source
        height, width = self._level_shape(level)

        def make() -> Pixels:
            before = self._level(level - 1)
            return cast("Pixels", cv2.resize(before, (width, height), interpolation=cv2.INTER_AREA))

        return cast("Pixels", self.cache.get((self.name, "level", level), make))

    def _blurred(self, level: int, steps: tuple[int, int]) -> Pixels:
        source = self._level(level)
        if steps == (0, 0):
            return source
        across, down = map(blur_of, steps)
        border = cv2.BORDER_REPLICATE
        return cast("Pixels", cv2.sepFilter2D(source, -1, across, down, borderType=border))

    def _fine(self, size: Size) -> Pixels:
        """The upright sprite at twice its size: OpenCV's sharp cubic, then linear interpolation,
        come nearer to Pillow's softer cubic than a fitted filter of the same cost."""
        upright = self.upright(size)
        if 2 * max(size) > _MAX_SIDE:
            return upright
        twice = (2 * size[0], 2 * size[1])
        return cast("Pixels", cv2.resize(upright, twice, interpolation=cv2.INTER_CUBIC))


def step_of(reduction: float) -> int:
    """The number of the blur for a reduction: 0 for none, :data:`STEPS` more for each octave."""
    return max(0, round(math.log2(max(reduction, 1.0)) * STEPS))


@lru_cache(maxsize=256)
def blur_of(step: int) -> NDArray[np.float32]:
    """The blur of a reduction of 2 ** (step / STEPS): odd length, symmetric, sum 1.

    Pillow's bilinear reduction by a factor r weighs source pixels with a triangle of half-width r.
    Two taps of linear interpolation cannot do that, but they can after a blur: this one comes
    nearest to the triangle, over all positions between two pixels, and serves every sprite of
    about that size.

    Its ``k`` minimises the sum, over offsets p in [0, 1) and source pixels n, of
    ((1 - p) k[n] + p k[n - 1] - triangle((n - p) / r))², where the triangle is normalised as Pillow
    does it.
    """
    reduction = 2.0 ** (step / STEPS)
    reach = 0 if step == 0 else max(1, math.ceil(reduction) - 1)
    pixels = np.arange(-reach - math.ceil(reduction) - 1, reach + math.ceil(reduction) + 3)
    unknowns = np.arange(reach + 1)
    rows, targets = [], []
    for offset in (np.arange(_PHASES) + 0.5) / _PHASES:
        target = np.maximum(0.0, 1.0 - np.abs(pixels - offset) / reduction)
        left = np.abs(pixels)[:, None] == unknowns
        right = np.abs(pixels - 1)[:, None] == unknowns
        rows.append((1.0 - offset) * left + offset * right)
        targets.append(target / target.sum())
    half = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0]
    whole = np.concatenate([half[:0:-1], half])
    return np.asarray(whole / whole.sum(), np.float32)
