"""How an object meets its background: hard, feathered, seamless, or matched in colour."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.gaussian import gaussian
from heldout.curate.compose.poisson import membrane
from heldout.curate.compose.scene import Layers, Pixels

Blending = Literal["hard", "feather", "poisson", "match"]
BLENDINGS: tuple[Blending, ...] = get_args(Blending)


def blend(
    layers: Layers,
    *,
    blending: Blending = "hard",
    radius: float = 3.0,
    strength: float = 0.5,
) -> Pixels:
    """The image (H, W, 3) that the layers make: the object, then the extras, lowest first.

    ``blending``  of the object; extras are always pasted hard
    ``radius``    of a feather, in pixels
    ``strength``  of a match of colours, 0 to 1
    """
    sprite = layers.foreground
    image = layers.background
    if blending == "poisson":
        image = _cloned(image, sprite, layers.left, layers.top)
    else:
        if blending == "feather":
            sprite = feathered(sprite, radius)
        elif blending == "match":
            sprite = matched(sprite, image, strength)
        image = pasted(image, sprite, layers.left, layers.top)
    for extra in layers.extras:
        image = pasted(image, extra.pixels, extra.left, extra.top)
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
    if radius <= 0:
        return sprite
    alpha = sprite[..., 3]
    outline = np.minimum(alpha, 1).astype(np.float32)
    fade = np.clip(2.0 * gaussian(outline, radius, beyond="nothing") - 1.0, 0.0, 1.0)
    made = sprite.copy()
    made[..., 3] = np.rint(alpha * fade).astype(np.uint8)
    return made


def matched(sprite: Pixels, background: Pixels, strength: float) -> Pixels:
    """The sprite with its mean colour and its contrast moved towards the background's.

    After Reinhard et al. (Color transfer between images, 2001), in sRGB: the means of the three
    channels, and one gain for their common spread, kept between 1/2 and 2 so that a plain sky
    does not wash the object out.
    """
    alpha = sprite[..., 3].astype(np.float64)
    total = float(alpha.sum())
    if not total or not strength:
        return sprite
    own = sprite[..., :3].astype(np.float64)
    mean = np.einsum("hwc,hw->c", own, alpha) / total
    spread = math.sqrt(float(np.einsum("hwc,hw->", (own - mean) ** 2, alpha)) / total)
    goal, wanted = _mean_and_spread(background)
    gain = min(2.0, max(0.5, wanted / spread)) if spread else 1.0
    moved = goal + (own - mean) * gain
    mixed = np.clip(np.rint(own + strength * (moved - own)), 0, 255).astype(np.uint8)
    made = sprite.copy()
    np.copyto(made[..., :3], mixed, where=sprite[..., 3:] > 0)
    return made


def _mean_and_spread(pixels: Pixels) -> tuple[NDArray[np.float64], float]:
    """The mean of each channel, and the root of the sum of their variances."""
    from PIL import Image

    counts = np.asarray(Image.fromarray(pixels).histogram(), dtype=np.float64).reshape(3, 256)
    shares, levels = counts / counts[0].sum(), np.arange(256.0)
    mean = shares @ levels
    return mean, math.sqrt(max(0.0, float((shares @ levels**2 - mean**2).sum())))


def _cloned(image: Pixels, sprite: Pixels, left: int, top: int) -> Pixels:
    """The object cloned seamlessly: its gradients, and the background along its edge.

    The edge is the outermost ring of the object's own pixels, so that what lies under alpha 0 has
    no say. At the edge of the image the object is simply cut off.
    """
    height, width = image.shape[:2]
    # One pixel around the sprite belongs to the background, unless the image ends there.
    x0, x1 = max(0, left - 1), min(width, left + sprite.shape[1] + 1)
    y0, y1 = max(0, top - 1), min(height, top + sprite.shape[0] + 1)
    if x0 >= x1 or y0 >= y1:
        return image
    source = np.zeros((y1 - y0, x1 - x0, 4), dtype=np.uint8)
    sx0, sx1 = max(0, left), min(width, left + sprite.shape[1])
    sy0, sy1 = max(0, top), min(height, top + sprite.shape[0])
    if sx0 >= sx1 or sy0 >= sy1:
        return image
    source[sy0 - y0 : sy1 - y0, sx0 - x0 : sx1 - x0] = sprite[
        sy0 - top : sy1 - top, sx0 - left : sx1 - left
    ]
    mask = source[..., 3] >= 128
    region = _eroded(mask)
    target = image[y0:y1, x0:x1].astype(np.float64)
    own = source[..., :3].astype(np.float64)
    offset = membrane(target - own, region=region, border=mask & ~region)
    cloned = np.clip(np.rint(own + offset), 0, 255).astype(np.uint8)
    made = image.copy()
    made[y0:y1, x0:x1][mask] = cloned[mask]
    return made


def _eroded(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pixels of a mask whose four neighbours are in it too; none is missed over the edge."""
    made = mask.copy()
    made[1:] &= mask[:-1]
    made[:-1] &= mask[1:]
    made[:, 1:] &= mask[:, :-1]
    made[:, :-1] &= mask[:, 1:]
    return made
