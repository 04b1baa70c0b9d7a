"""The plan of a set: every image placed, counted and filtered before any pixel work.

Every formula of SI-SCORE's geometry keeps the original's order of operations and its truncations,
so that sizes and corners agree to the pixel.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.data.images.decode import MAX_PIXELS

if TYPE_CHECKING:
    from heldout.curate.compose.factors import Factors
    from heldout.curate.compose.inputs import Cutout, Inputs
    from heldout.curate.compose.requests import ComposeParameters

WORK = "compose-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""
FEWEST, MOST = 16, 128
"""Images of a unit of work, at least and at most."""
Size = tuple[int, int]
Box = tuple[int, int, int, int]
Matrix = NDArray[np.float64]
Value = float | str
"""A factor's value: a number, or one of a few words."""
CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))
_MASK = 0xFFFFFFFFFFFFFFFF


class Window(NamedTuple):
    """Pixels of the image that a sprite's box has in common with it; right and bottom are the
    first ones past it."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def empty(self) -> bool:
        """Whether nothing of the sprite is in the image."""
        return self.right <= self.left or self.bottom <= self.top

    @property
    def size(self) -> Size:
        """Width and height."""
        return self.right - self.left, self.bottom - self.top

    @property
    def slices(self) -> tuple[slice, slice]:
        """Where it is in the image's array: rows, columns."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def within(self, left: int, top: int) -> tuple[slice, slice]:
        """Where it is in the array of a sprite whose corner is at ``left``, ``top``."""
        return (
            slice(self.top - top, self.bottom - top),
            slice(self.left - left, self.right - left),
        )


def window_of(left: int, top: int, size: Size, frame: Size) -> Window:
    """Where a sprite of ``size`` (width, height) at ``left``, ``top`` is in ``frame``.

    >>> window_of(-2, 3, (5, 5), (10, 6))
    Window(left=0, top=3, right=3, bottom=6)
    """
    x, y = max(left, 0), max(top, 0)
    right, bottom = min(left + size[0], frame[0]), min(top + size[1], frame[1])
    return Window(x, y, max(x, right), max(y, bottom))


class Warp(NamedTuple):
    """How an object is resampled for factors of its outline.

    ``matrix``    from centred coordinates of the object to those of its outline's own box
    ``size``      of that outline's box before a part of a pixel is added
    ``fraction``  parts of a pixel by which it is moved to the right and down, 0 to 1
    """

    matrix: Matrix
    size: Size
    fraction: tuple[float, float]


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """One image, decided in closed form.

    ``number``      its place among all candidates, those that were filtered out included
    ``foreground``  index into ``Inputs.cutouts``; ``background`` into ``Inputs.backgrounds``
    ``width``       of the image in pixels, and ``height``
    ``x``, ``y``    the object's centre, as fractions of width and height
    ``area``        bounding-box area of the object before rotation over the area of the image
    ``rotation``    degrees, counter-clockwise
    ``sprite``      (width, height) of the object after scaling, before rotation
    ``box``         (left, top, width, height) of the object in the image, after rotation and
                    after factors that change its outline; it may be outside in part
    ``inside``      the share of the box inside the image, 0 to 1, not rounded
    ``warp``        how factors change its outline, None where they do not
    ``values``      factors beyond SI-SCORE by key; those at their neutral value are left out
    ``seed``        of random numbers for this image: a hash of the set's seed and ``number``
    """

    number: int
    foreground: int
    background: int
    width: int
    height: int
    x: float
    y: float
    area: float
    rotation: float
    sprite: Size
    box: Box
    inside: float
    warp: Warp | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 0

    def __reduce__(self) -> tuple[type[ImagePlan], tuple[Any, ...]]:
        # Thousands travel to worker processes: half the time of what dataclasses do by themselves.
        return ImagePlan, tuple(getattr(self, name) for name in self.__slots__)


def sprite_size(
    size: Size, area: float, frame: Size, values: Mapping[str, Value], *, fill: float = 1.0
) -> Size:
    """Width and height of the sprite for a cut-out of ``size`` in an image of size ``frame``.

    ``area``  a share of the image: the box's (``size_by`` box, the original's rule), the mask's
              (``mask``), or that of a square with the box's longest side (``side``)
    ``fill``  mask pixels over box pixels of the cut-out
    ``aspect`` widens by its square root and lowers by as much, so that the area stays.

    A side may come out as 0: such an object is too small to be drawn.

    >>> sprite_size((200, 100), 0.2, (512, 512), {}, fill=0.5)
    (323, 161)
    """
    width, height = size
    by = values.get("size_by", "box")
    covered = float(width * height)
    if by == "mask":
        if not 0 < fill <= 1:
            raise UserError(
                f"a cut-out whose mask fills {fill:g} of its box cannot be sized by its mask",
                fix="leave it out, or size by box",
            )
        covered *= fill
    elif by == "side":
        covered = float(max(size)) ** 2
    scale = math.sqrt(area / (covered / (frame[0] * frame[1])))
    if "aspect" not in values:
        return int(width * scale), int(height * scale)
    stretch = math.sqrt(float(values["aspect"]))
    return int(width * scale * stretch), int(height * scale / stretch)


def rotation_matrix(size: Size, rotation: float) -> Matrix:
    """(2, 3) that carries a point of the rotated image back, about the centre, as Pillow has it."""
    radians = -math.radians(rotation)
    cosine, sine = round(math.cos(radians), 15), round(math.sin(radians), 15)
    x, y = size[0] / 2, size[1] / 2
    return np.array(
        [
            [cosine, sine, cosine * -x + sine * -y + x],
            [-sine, cosine, -sine * -x + cosine * -y + y],
        ]
    )


def rotated_size(size: Size, rotation: float) -> Size:
    """The box of a rotated rectangle, as Pillow's ``rotate(..., expand=True)`` has it.

    Multiples of 90 degrees keep or swap the sides. Otherwise the corners are turned about the
    centre with a matrix rounded to 15 digits, and the box spans floor to ceiling.
    """
    width, height = size
    angle = rotation % 360.0
    if angle % 90 == 0:
        return size if angle % 180 == 0 else (height, width)
    spans = []
    for a, b, c in rotation_matrix(size, angle).tolist():
        ends = [a * x + b * y + c for x in (0, width) for y in (0, height)]
        spans.append(math.ceil(max(ends)) - math.floor(min(ends)))
    return spans[0], spans[1]


def place(
    size: Size,
    frame: Size,
    *,
    x: float,
    y: float,
    values: Mapping[str, Value],
    factors: Factors | None = None,
) -> tuple[Box, Warp | None]:
    """Where an object of ``size`` (after rotation) with its centre at ``x``, ``y`` comes to be.

    Without factors its corner is the original's: ``int(int(x * W) - 0.5 * w)``, truncated towards
    zero, twice. With factors of outline, the new box is the smallest that holds the four corners,
    and it is centred where the object was to be.
    """
    width, height = size
    matrix = factors.matrix(size, values) if factors and values else None
    if matrix is not None:
        corners = np.array([[sx * width / 2, sy * height / 2, 1.0] for sx, sy in CORNERS])
        mapped = corners @ matrix.T
        mapped = mapped[:, :2] / mapped[:, 2:]
        low, high = mapped.min(axis=0), mapped.max(axis=0)
        width, height = (max(1, math.ceil(span - 1e-6)) for span in (high - low).tolist())
        middle = (low + high) / 2
        matrix = moved(-float(middle[0]), -float(middle[1])) @ matrix
    corner, fraction = [], []
    for letter, share, side, whole in zip("xy", (x, y), (width, height), frame, strict=True):
        first = int(int(share * whole) - 0.5 * side)
        move = _move(letter, first + side / 2, values) if values else 0.0
        corner.append(first + math.floor(move))
        fraction.append(move - math.floor(move))
    box = (corner[0], corner[1], width + (fraction[0] > 0), height + (fraction[1] > 0))
    warp = None
    if matrix is not None or any(fraction):
        own = np.eye(3) if matrix is None else matrix
        warp = Warp(own, (width, height), (fraction[0], fraction[1]))
    return box, warp


def moved(across: float, down: float) -> Matrix:
    """The matrix of a shift."""
    return np.array([[1.0, 0.0, across], [0.0, 1.0, down], [0.0, 0.0, 1.0]])


def patch_grid(values: Mapping[str, Value]) -> tuple[float, float]:
    """Origin and side of the patch grid, in pixels of the image."""
    return float(values.get("patch_origin", 0.0)), float(values.get("patch_size", 32.0))


def _move(letter: str, centre: float, values: Mapping[str, Value]) -> float:
    """By how much the factors move an object whose box has this centre, along one axis."""
    shift = 0.0
    phase = values.get(f"patch_phase_{letter}", values.get("patch_phase"))
    if phase is not None:
        origin, patch = patch_grid(values)
        first = origin + patch * (0.5 + float(phase))
        # The nearest place of that phase; of two as near, the lower.
        steps = math.ceil((centre - first) / patch - 0.5)
        shift = first + patch * steps - centre
    shift += float(values.get(f"offset_{letter}", 0.0))
    nearest = round(shift)
    return float(nearest) if abs(shift - nearest) < 1e-9 else shift


def inside_fraction(box: Box, frame: Size) -> float:
    """The share of a box that is in the image: 0 where it is outside altogether."""
    width, height = window_of(*box[:2], box[2:], frame).size
    return (width * height) / (box[2] * box[3])


def pair_backgrounds(
    foregrounds: int, backgrounds: int, *, per_object: int, seed: int
) -> tuple[tuple[int, int], ...]:
    """(foreground, background) pairs: ``per_object`` different backgrounds for each foreground.

    For each foreground in turn ``choice(backgrounds, per_object, replace=False)`` of NumPy's
    legacy generator, whose numbers are frozen; ``seed`` is what ``numpy.random.seed`` is given
    (from 2**32 on, its words of 32 bits).
    """
    if per_object > backgrounds:
        raise UserError(
            f"{per_object} backgrounds for each object were asked for, and there are {backgrounds}",
            fix=f"give --backgrounds-per-object {backgrounds} or fewer, or add backgrounds",
        )
    if seed < 0:
        raise UserError(f"--seed is {seed}", fix="give 0 or more")
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 1), 32)]
    random = np.random.RandomState(words[0] if len(words) == 1 else words)
    return tuple(
        (foreground, int(background))
        for foreground in range(foregrounds)
        for background in random.choice(backgrounds, per_object, replace=False)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """A set before rendering: inputs checked, and all images in the order of their numbers.

    ``candidates``  how many the grid has in all; numbers count them, so they have gaps
    ``too_small``   candidates dropped because a side of the object is under a pixel
    ``empty``       those dropped because the object is outside
    ``filtered``    those dropped because less than ``min_inside`` of its box is inside
    ``pairs``       (foreground, background) in the order of numbers
    """

    inputs: Inputs
    parameters: ComposeParameters
    factors: Factors
    seed: int
    shots: tuple[ImagePlan, ...]
    pairs: tuple[tuple[int, int], ...]
    candidates: int
    too_small: int
    empty: int
    filtered: int

    def __len__(self) -> int:
        return len(self.shots)

    def image_id(self, shot: ImagePlan) -> str:
        """The id of an image: ``<class>/<number>``."""
        return f"{self.inputs.cutouts[shot.foreground].class_name}/{shot.number}"

    @cached_property
    def key(self) -> str:
        """The hash of everything that rendered files depend on, the libraries that make them
        included."""
        import PIL
        from PIL import features

        values = self.parameters.recorded()
        libraries = {"pillow": PIL.__version__, "jpeg": features.version("jpg") or ""}
        if self.parameters.renderer == "fast" or self.parameters.factors:
            from importlib.metadata import PackageNotFoundError, version

            with contextlib.suppress(PackageNotFoundError):
                libraries["opencv"] = version("opencv-python-headless")
        return sha256_text(
            canonical_json(
                {
                    "work": WORK,
                    "inputs": self.inputs.key,
                    "parameters": {k: values[k] for k in values if k not in ("preset", "layout")},
                    "seed": self.seed,
                    "libraries": libraries,
                    "plugins": dict(self.factors.identity),
                }
            )
        )


def make_plan(inputs: Inputs, parameters: ComposeParameters, *, seed: int) -> Plan:
    """Place every candidate and keep those that the filter lets through.

    Order, from the slowest to the fastest: centre (x, then y), size, rotation, other factors as
    configured, (foreground, background) pair, resolution. A number is the place in that order.
    """
    from heldout.curate.compose.factors import Factors

    factors = Factors.of(parameters)
    pairs = pair_backgrounds(
        len(inputs.cutouts),
        len(inputs.backgrounds),
        per_object=parameters.backgrounds_per_object,
        seed=seed,
    )
    counts = {"too_small": 0, "empty": 0, "filtered": 0}
    least, frames = parameters.min_inside or 0.0, parameters.sizes
    shots: list[ImagePlan] = []
    number = -1
    for x, y, area, rotation, values in product(
        parameters.x, parameters.y, parameters.size, parameters.rotation, factors.combinations()
    ):
        # One object is at the same place on all of its backgrounds.
        known: dict[tuple[int, Size], _Placed | None] = {}
        for (foreground, background), frame in product(pairs, frames):
            key = foreground, frame
            if key not in known:
                cutout = inputs.cutouts[foreground]
                known[key] = _placed(cutout, frame, x, y, area, rotation, values, factors)
            placed = known[key]
            number += 1
            if placed is None:
                counts["too_small"] += 1
            elif placed.inside <= 0 and not parameters.keep_empty:
                counts["empty"] += 1
            elif placed.inside < least:
                counts["filtered"] += 1
            else:
                at = (number, foreground, background, *frame, x, y, area, rotation)
                shots.append(ImagePlan(*at, *placed, values, shot_seed(seed, number)))
    if not shots:
        words = {"too_small": "too small", "empty": "outside the image", "filtered": "filtered out"}
        reasons = ", ".join(f"{n:,} {words[name]}" for name, n in counts.items() if n)
        raise UserError(
            f"none of the {number + 1:,} images would be kept ({reasons or 'no candidates'})",
            fix="lower --min-inside, or change the sizes and places",
        )
    for shot in shots:  # refuses inputs that a factor cannot work with
        factors.used(shot, inputs)
    return Plan(
        inputs=inputs,
        parameters=parameters,
        factors=factors,
        seed=seed,
        shots=tuple(shots),
        pairs=pairs,
        candidates=number + 1,
        **counts,
    )


class _Placed(NamedTuple):
    """Fields of an :class:`ImagePlan` that its object and grid point decide."""

    sprite: Size
    box: Box
    inside: float
    warp: Warp | None


def _placed(
    cutout: Cutout,
    frame: Size,
    x: float,
    y: float,
    area: float,
    rotation: float,
    values: Mapping[str, Value],
    factors: Factors,
) -> _Placed | None:
    """Where an object is, or None where it is too small to be drawn."""
    fill = cutout.mask_pixels / (cutout.size[0] * cutout.size[1])
    sprite = sprite_size(cutout.size, area, frame, values, fill=fill)
    if min(sprite) < 1:
        return None
    box, warp = place(
        rotated_size(sprite, rotation), frame, x=x, y=y, values=values, factors=factors
    )
    for width, height in (sprite, box[2:]):
        if width * height > MAX_PIXELS:
            raise UserError(
                f"{cutout.id} at size {area:g} would be {width} x {height} pixels",
                fix="use smaller sizes",
            )
    return _Placed(sprite, box, inside_fraction(box, frame), warp)


def shot_seed(seed: int, number: int) -> int:
    """The seed of one image: 63 bits mixed from the set's seed and the image's number.

    (The finaliser of SplitMix64: Steele, Lea and Flood, 2014.)
    """
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 1) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return (value ^ (value >> 31)) >> 1


def in_units(shots: Sequence[ImagePlan]) -> Iterator[tuple[ImagePlan, ...]]:
    """The shots in groups that share as much work as can be: one object, size, rotation, place.

    About 64 units per set, so that workers end together, each of 16 to 128 images; whoever runs
    them, they are the same.
    """
    size = min(max(len(shots) // 64, FEWEST), MOST)

    def order(s: ImagePlan) -> tuple[Any, ...]:
        same = (s.foreground, s.sprite, s.rotation, s.width, s.height, s.box)
        return (*same, s.background, s.number)

    group: list[ImagePlan] = []
    for shot in sorted(shots, key=order):
        if group and (len(group) >= size or shot.foreground != group[0].foreground):
            yield tuple(group)
            group = []
        group.append(shot)
    if group:
        yield tuple(group)
