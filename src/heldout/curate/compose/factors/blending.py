"""How an object meets its background: shadow, hard or soft edges, matched colours; and the file.

Seamless cloning (Pérez, Gangnet, Blake: Poisson image editing, 2003) asks for an image whose
gradients are the object's and whose border is the background's. Less the object itself, that is a
function whose Laplacian is zero: a membrane spanned over the border. The five-point equations are
solved directly, by a sparse factorisation that images with the same outline share.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors.factor import Factor, Frame, Layers, Stage, laid
from heldout.curate.compose.factors.layers import (
    as_pixels,
    gaussian,
    luma,
    luminance,
    recoloured,
    region_of,
)
from heldout.curate.compose.inputs import Pixels
from heldout.curate.compose.plan import Value

BLENDINGS = ("hard", "feather", "poisson", "match")
REACH = 0.08
"""How far a shadow falls, and twice how soft it is, in diagonals of the object's box."""
_STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))
Planes = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Shadow(Factor):
    """The object's outline, moved away from the light and blurred, darkens the background."""

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with a shadow of this strength."""
        layers = frame.layers
        reach = REACH * math.hypot(*layers.alpha.shape)
        angle = math.radians(float(frame.value("shadow_angle", 135.0)))
        left = layers.left - round(reach * math.cos(angle))
        top = layers.top + round(reach * math.sin(angle))
        outline = laid(layers.alpha, left, top, layers.background.shape[:2]).astype(np.float32)
        dark = gaussian(outline, reach / 2, endless=True)
        gain = 1.0 - np.float32(value) / np.float32(255) * dark
        made = np.rint(layers.background * gain[:, :, None]).astype(np.uint8)
        return frame.with_layers(background=made)

    def measure(self, frame: Frame) -> float:
        """Mean luminance of the background."""
        return luminance(region_of(frame, "background", self.key))


class Blending(Factor):
    """How the object meets the background: see :func:`blended`."""

    def measure(self, frame: Frame) -> float:
        """Mean absolute difference between neighbours in and out of the mask, 0 to 1."""
        layers, grey = frame.layers, luma(frame.pixels).astype(np.int16)
        mask = laid(layers.alpha, layers.left, layers.top, grey.shape) >= 128
        down, across = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
        steps = np.concatenate(
            [np.abs(grey[1:] - grey[:-1])[down], np.abs(grey[:, 1:] - grey[:, :-1])[across]]
        )
        return float(steps.mean()) / 255.0 if len(steps) else 0.0


def blended(frame: Frame) -> Pixels:
    """The image (H, W, 3) that the layers make: the object, then the extras, lowest first.

    Only the object is blended in another way than pasted hard.
    """
    blending = frame.value("blending", "hard")
    if blending == "feather":
        soft = feathered(frame.layers.foreground, float(frame.value("feather_radius", 3.0)))
        frame = frame.with_layers(foreground=soft)
    elif blending == "match":
        frame = matched(frame, float(frame.value("match_strength", 0.5)))
    layers = frame.layers
    if blending == "poisson":
        image = _cloned(layers)
    else:
        image = pasted(layers.background, layers.foreground, layers.left, layers.top)
    for extra in layers.extras:
        image = pasted(image, *extra)
    return image


def pasted(image: Pixels, sprite: Pixels, left: int, top: int) -> Pixels:
    """The sprite pasted with its own alpha as the mask: Pillow's rounding, bit for bit."""
    from PIL import Image

    canvas = Image.fromarray(image)  # copies: the layers stay as they are
    over = Image.fromarray(sprite)
    canvas.paste(over, (left, top), over)
    return np.asarray(canvas)


def feathered(sprite: Pixels, radius: float) -> Pixels:
    """The sprite with an edge that fades inwards over about two radii.

    A blurred outline is 1/2 at a straight edge; twice the blur less 1 is 0 there and 1 well inside.
    Alpha is multiplied by it and only falls, so nothing that was hidden comes to light.
    """
    alpha = sprite[..., 3]
    outline = np.minimum(alpha, 1).astype(np.float32)
    fade = np.clip(2.0 * gaussian(outline, radius, endless=False) - 1.0, 0.0, 1.0)
    return np.dstack([sprite[..., :3], np.rint(alpha * fade).astype(np.uint8)])


def matched(frame: Frame, strength: float) -> Frame:
    """The frame with the object's mean colour and contrast moved towards the background's.

    After Reinhard et al. (Color transfer between images, 2001), in sRGB: the means of the three
    channels, and one gain for their common spread, kept between 1/2 and 2 so that a plain sky
    does not wash the object out.
    """
    alpha = frame.layers.alpha.astype(np.float64)
    total = float(alpha.sum())
    if not total or not strength:
        return frame
    own = frame.layers.foreground[..., :3].astype(np.float64)
    mean = np.einsum("hwc,hw->c", own, alpha) / total
    spread = math.sqrt(float(np.einsum("hwc,hw->", (own - mean) ** 2, alpha)) / total)
    goal, wanted = _mean_and_spread(frame.layers.background)
    gain = min(2.0, max(0.5, wanted / spread)) if spread else 1.0
    moved = goal + (own - mean) * gain
    return recoloured(frame, as_pixels(own + strength * (moved - own)))


def _mean_and_spread(pixels: Pixels) -> tuple[Planes, float]:
    """The mean of each channel, and the root of the sum of their variances."""
    from PIL import Image

    counts = np.asarray(Image.fromarray(pixels).histogram(), dtype=np.float64).reshape(3, 256)
    shares, levels = counts / counts[0].sum(), np.arange(256.0)
    mean = shares @ levels
    return mean, math.sqrt(max(0.0, float((shares @ levels**2 - mean**2).sum())))


def _cloned(layers: Layers) -> Pixels:
    """The object cloned seamlessly: its gradients, and the background along its edge.

    The edge is the outermost ring of the object's own pixels, so that what is under alpha 0 has
    no say. At the edge of the image the object is simply cut off.
    """
    image, window = layers.background, layers.window
    if window.empty:
        return image
    # One pixel around the sprite belongs to the background, unless the image ends there.
    box = (
        slice(max(0, window.top - 1), window.bottom + 1),
        slice(max(0, window.left - 1), window.right + 1),
    )
    source = np.zeros((*image.shape[:2], 4), dtype=np.uint8)
    source[window.slices] = layers.foreground[window.within(layers.left, layers.top)]
    source = source[box]
    mask = source[..., 3] >= 128
    region = mask.copy()
    for step in _STEPS:  # over the edge of the array no neighbour is missed
        region &= _shifted(mask, step) | ~_shifted(np.ones_like(mask), step)
    own = source[..., :3].astype(np.float64)
    target = image[box].astype(np.float64)
    offset = membrane(target - own, region=region, border=mask & ~region)
    made = image.copy()
    made[box][mask] = as_pixels(own + offset)[mask]
    return made


def membrane(values: Planes, *, region: Mask, border: Mask) -> Planes:
    """The harmonic function on ``region`` with ``values`` on ``border``; float64 (h, w, c).

    ``values``  (h, w, c); only those on ``border`` count, which the result repeats
    ``region``  (h, w); each of its pixels has its neighbours (up, down, left, right) in ``region``,
                in ``border`` or outside the array. Over the edge of the array nothing flows.

    A part of the region that touches no border has no solution of its own; it is zero.
    """
    made = np.where(border[:, :, None], values, 0.0)
    inside = _anchored(region & ~border, border)
    if inside.any():
        right = np.sum([_shifted(made, step)[inside] for step in _STEPS], axis=0)
        made[inside] = _factors(inside.shape, np.packbits(inside).tobytes()).solve(right)
    return made


def _anchored(region: Mask, border: Mask) -> Mask:
    """The parts of a region that touch its border."""
    from scipy.ndimage import label

    parts, count = label(region)
    if not count:
        return region
    touching = np.zeros(count + 1, dtype=bool)
    for step in _STEPS:
        touching[parts[_shifted(border, step)]] = True
    touching[0] = False
    anchored: Mask = touching[parts]
    return anchored


def _shifted(array: NDArray[Any], step: tuple[int, int]) -> NDArray[Any]:
    """The neighbour of each pixel in one direction; zero beyond the edge."""
    down, across = step
    height, width = array.shape[:2]
    made = np.zeros_like(array)
    made[max(0, -down) : height - max(0, down), max(0, -across) : width - max(0, across)] = array[
        max(0, down) : height - max(0, -down), max(0, across) : width - max(0, -across)
    ]
    return made


@lru_cache(maxsize=2)
def _factors(shape: tuple[int, int], packed: bytes) -> Any:
    """The factorised equations of one region: each pixel has its number of neighbours on the
    diagonal, and -1 for each of them that is in the region."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=shape[0] * shape[1])
    inside = bits.reshape(shape).astype(bool)
    count = int(inside.sum())
    number = np.zeros(shape, dtype=np.int64)  # from 1 on; 0 is outside
    number[inside] = np.arange(1, count + 1)
    near = np.array([_shifted(number, step)[inside] for step in _STEPS])
    frame = np.ones(shape, dtype=np.int64)
    degree = np.sum([_shifted(frame, step)[inside] for step in _STEPS], axis=0)
    link, row = np.nonzero(near)
    own = np.arange(count)
    rows, columns = np.concatenate([own, row]), np.concatenate([own, near[link, row] - 1])
    entries = np.concatenate([degree, np.full(len(row), -1)]).astype(np.float64)
    matrix = coo_array((entries, (rows, columns)), shape=(count, count)).tocsc()
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})


FACTORS = (
    Shadow(
        key="shadow",
        neutral=0.0,
        values=(0.0, 0.25, 0.5, 0.75),
        low=0.0,
        high=1.0,
        stage=Stage.BACKGROUND,
        measured="mean luminance of the background",
        help="a soft shadow of the object on the background, of this strength",
    ),
    Factor(
        key="shadow_angle",
        neutral=135.0,
        values=(45.0, 90.0, 135.0),
        period=360.0,
        unit="degrees",
        stage=Stage.BACKGROUND,
        needs=("shadow",),
        help="where its light comes from: 0 the right, 90 above",
    ),
    Blending(
        key="blending",
        neutral="hard",
        values=BLENDINGS,
        options=BLENDINGS,
        stage=Stage.BLEND,
        measured="mean step of luminance across the object's edge",
        help="how the object meets the background: pasted, faded, cloned, matched in colour",
    ),
    Factor(
        key="feather_radius",
        neutral=3.0,
        values=(1.0, 3.0, 6.0),
        low=0.0,
        high=200.0,
        stage=Stage.BLEND,
        needs=("blending",),
        unit="pixels",
        help="standard deviation of a feathered edge",
    ),
    Factor(
        key="match_strength",
        neutral=0.5,
        values=(0.25, 0.5, 1.0),
        low=0.0,
        high=1.0,
        stage=Stage.BLEND,
        needs=("blending",),
        help="how far colours are moved to the background's",
    ),
    Factor(
        key="jpeg_quality",
        neutral=None,
        values=(75, 50, 25, 18, 10, 5),
        low=1,
        high=95,
        whole=True,
        stage=Stage.ENCODING,
        measured="bits a pixel of the file",
        help="quality of the image's JPEG, in place of the set's own",
    ),
)
