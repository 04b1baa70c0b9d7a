"""What a factor is: a property of an image that is set on purpose, and measured afterwards."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.curate.compose.inputs import Pixels
from heldout.curate.compose.plan import ImagePlan, Matrix, Size, Value, Window, window_of
from heldout.data.testset.columns import ColumnType

Alpha = NDArray[np.uint8]


class Stage(IntEnum):
    """When a factor acts; the order is fixed, whatever the order in a configuration.

    ``PLAN``         the size of the sprite, decided before any pixels
    ``FOREGROUND``   colours of the object, in its own frame
    ``GEOMETRY``     outline and place of the object
    ``COMPOSITION``  further sprites: copies, distractors, occluders
    ``BACKGROUND``   what is behind the object, and its colours
    ``BLEND``        how the object meets the background
    ``IMAGE``        the whole image
    ``ENCODING``     the bytes of the file

    Within a stage, built-in factors act as the documentation lists them, then plug-ins by name.
    """

    PLAN = 0
    FOREGROUND = 1
    GEOMETRY = 2
    COMPOSITION = 3
    BACKGROUND = 4
    BLEND = 5
    IMAGE = 6
    ENCODING = 7


class Draw:
    """A stream of random numbers, named by an image's seed and a factor's key.

    No other image, no other factor and no order of work can change what is drawn. The raw bits of
    PCG64 are frozen by NumPy's promise; everything on top of them is made here, because NumPy may
    change its distributions.

    >>> Draw(7, "blur").below(100) == Draw(7, "blur").below(100)
    True
    """

    def __init__(self, seed: int, key: str) -> None:
        name = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=16).digest()
        self._bits = np.random.PCG64(int.from_bytes(name, "little"))

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1), float64 (count,)."""
        raw = np.asarray(self._bits.random_raw(count), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def words(self, count: int) -> NDArray[np.uint16]:
        """Numbers of 16 bits, uint16 (count,)."""
        raw = np.asarray(self._bits.random_raw(-(-count // 4)), dtype="<u8")
        return raw.view("<u2")[:count].astype(np.uint16, copy=False)

    def levels(self, shape: Sequence[int]) -> Pixels:
        """Noise: every level from 0 to 255 equally likely."""
        return (self.words(math.prod(shape)) >> 8).astype(np.uint8).reshape(shape)

    def below(self, high: int) -> int:
        """A whole number from 0 to ``high`` - 1."""
        return int(self.uniform(1)[0] * high)

    def normal(self, count: int) -> NDArray[np.float32]:
        """Standard normal numbers, float32 (count,), as 65,536 equally likely quantiles.

        The largest is 4.3; the variance of the table is 1 to four digits.
        """
        return _normal_quantiles()[self.words(count)]

    def some(self, options: int, count: int) -> list[int]:
        """``count`` of ``options`` things in random order, none twice before all were taken."""
        taken: list[int] = []
        while options and len(taken) < count:
            taken += np.argsort(self.uniform(options), kind="stable").tolist()
        return taken[:count]


@cache
def _normal_quantiles() -> NDArray[np.float32]:
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(65536) + 0.5) / 65536), dtype=np.float32)


class FactorInputs(Protocol):
    """The inputs as factors see them: other cut-outs and backgrounds, by index."""

    @property
    def cutout_classes(self) -> Sequence[str]:
        """The class of each cut-out."""
        ...

    @property
    def background_classes(self) -> Sequence[str | None]:
        """The class of the photo that each background comes from, where it is known."""
        ...

    def cutout(self, index: int) -> Pixels:
        """A cut-out as it was read, (h, w, 4), straight alpha."""
        ...

    def background(self, index: int, width: int, height: int) -> Pixels:
        """A background as images of this size have it, (height, width, 3)."""
        ...


class Used(NamedTuple):
    """The inputs that an image shows beside its own: indices of cut-outs and of backgrounds.

    ``keeps_background``  whether what was behind the object before is still shown
    """

    cutouts: tuple[int, ...] = ()
    backgrounds: tuple[int, ...] = ()
    keeps_background: bool = True


class Extra(NamedTuple):
    """A further sprite on top of the object: a distractor, or something that hides it.

    ``pixels``  (h, w, 4) straight alpha; its corner at ``left``, ``top`` in the image
    """

    pixels: Pixels
    left: int
    top: int


@dataclass(frozen=True, eq=False)
class Layers:
    """What an image is composed of. Arrays are never changed in place, only replaced.

    ``foreground``  (h, w, 4) the sprite after size and rotation, straight alpha
    ``left``        where its corner is in the image, and ``top``; may be negative
    ``background``  (H, W, 3)
    ``extras``      further sprites, from the lowest to the topmost
    """

    foreground: Pixels
    left: int
    top: int
    background: Pixels
    extras: Sequence[Extra] = ()

    @property
    def alpha(self) -> Alpha:
        """The object's mask, (h, w)."""
        return self.foreground[..., 3]

    @property
    def window(self) -> Window:
        """The part of the image that the object's box covers."""
        height, width = self.background.shape[:2]
        size = (self.foreground.shape[1], self.foreground.shape[0])
        return window_of(self.left, self.top, size, (width, height))


def laid(alpha: Alpha, left: int, top: int, shape: tuple[int, ...]) -> Alpha:
    """A mask at its place in an empty plane of ``shape`` (height, width)."""
    made = np.zeros(shape, dtype=np.uint8)
    window = window_of(left, top, (alpha.shape[1], alpha.shape[0]), (shape[1], shape[0]))
    made[window.slices] = alpha[window.within(left, top)]
    return made


def visible(alpha: Alpha, layers: Layers, extras: Sequence[Extra] = ()) -> float:
    """The part of the object's mask in sight, in pixels; a pixel of alpha a counts a/255, less what
    ``extras`` cover."""
    seen = alpha.astype(np.float32)
    for extra in extras:
        at = (extra.left - layers.left, extra.top - layers.top)
        hidden = laid(extra.pixels[..., 3], *at, seen.shape).astype(np.float32)
        seen = seen * (1 - hidden / np.float32(255))
    inside = seen[layers.window.within(layers.left, layers.top)]
    return float(inside.sum(dtype=np.float64)) / 255.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """An image in the making. Nothing in it is changed in place; factors give a new one.

    ``shape``  the object's alpha (h, w) after ``GEOMETRY``, before anything hides it
    ``image``  (H, W, 3), from the stage ``BLEND`` on
    ``noted``  what a factor saw while it acted, by key, for its measured column
    """

    shot: ImagePlan
    inputs: FactorInputs
    layers: Layers
    shape: Alpha
    image: Pixels | None = None
    noted: Mapping[str, float] = field(default_factory=dict)

    @property
    def pixels(self) -> Pixels:
        """The blended image."""
        if self.image is None:
            raise ValueError("the layers are not blended yet")
        return self.image

    def draw(self, key: str) -> Draw:
        """Random numbers for one factor on this image."""
        return Draw(self.shot.seed, key)

    def value(self, key: str, neutral: Value) -> Value:
        """The value of another factor, such as an option of this one."""
        return self.shot.values.get(key, neutral)

    def with_layers(self, **changes: object) -> Self:
        """The frame with some layers replaced."""
        return replace(self, layers=replace(self.layers, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, kw_only=True)
class Factor:
    """One property of an image that is set on purpose. A subclass says what it does.

    ``key``       its name, with ``foreground.`` or ``background.`` where it acts on one layer
    ``neutral``   the value that changes nothing, or None where only leaving it out does
    ``values``    severities, for those who name none
    ``stage``     when it acts
    ``low``       numbers from ``low`` to ``high``; ``above`` leaves ``low`` out
    ``whole``     whole numbers only
    ``period``    numbers from 0 to below it, where they come round
    ``options``   words instead of numbers; ``colours`` also takes ``#rrggbb``
    ``unit``      of its column
    ``measured``  what its measured column holds, such as ``mean luminance``; empty for none
    ``needs``     for an option of other factors: those without which it has no effect
    ``help``      one line for people
    """

    key: str
    neutral: Value | None
    values: tuple[Value, ...]
    stage: Stage
    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    period: float | None = None
    options: tuple[str, ...] = ()
    colours: bool = False
    unit: str | None = None
    measured: str = ""
    needs: tuple[str, ...] = ()
    help: str = ""

    @property
    def column(self) -> ColumnType:
        """The type of its column."""
        if self.options:
            return ColumnType(kind="categorical", order=self.options)
        kind = "circular" if self.period else "ordered"
        return ColumnType(kind=kind, unit=self.unit, period=self.period)  # type: ignore[arg-type]

    def check(self, value: object) -> Value:
        """The value in its canonical form; any other is a user error that names the factor."""
        if self.options:
            return self._word(value)
        rule = self._range()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"factor {self.key}: {value!r} is not a number", fix=f"give {rule}")
        number = float(value)
        low, high = (0.0, self.period) if self.period else (self.low, self.high)
        fits = math.isfinite(number) and low <= number <= high
        if not fits or (self.above and number == low) or (self.period and number == high):
            raise UserError(f"factor {self.key}: {value!r} is out of range", fix=f"give {rule}")
        if self.whole and number != int(number):
            raise UserError(f"factor {self.key}: {value!r} is out of range", fix=f"give {rule}")
        return int(number) if self.whole else number

    def _word(self, value: object) -> Value:
        listed = ", ".join(self.options) + (", or #rrggbb" if self.colours else "")
        if value in self.options:
            return str(value)
        if not isinstance(value, str):
            raise UserError(
                f"factor {self.key}: {value!r} is not a word", fix=f"give one of {listed}"
            )
        if self.colours and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
            return value.lower()
        near = difflib.get_close_matches(value, self.options, 1)
        fix = f"did you mean {near[0]}" if near else f"give one of {listed}"
        raise UserError(f"factor {self.key}: no value {value!r}", fix=fix)

    def _range(self) -> str:
        """The numbers it takes, in words."""
        if self.period:
            return f"a number from 0 to below {self.period:g}"
        low = "" if math.isinf(self.low) else f" {'above' if self.above else 'from'} {self.low:g}"
        high = "" if math.isinf(self.high) else f" to {self.high:g}"
        return f"a {'whole ' if self.whole else ''}number{low}{high}"

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the factor at this value, which is never the neutral one."""
        return frame

    def matrix(self, size: Size, value: Value) -> Matrix | None:
        """The projective map of the outline of an object of this size, 3 x 3 on coordinates about
        its centre; it must keep all corners in front. None where the outline stays."""
        return None

    def measure(self, frame: Frame) -> float:
        """The measured column, read off the frame after the factor's stage, at any value."""
        return math.nan

    def uses(self, shot: ImagePlan, inputs: FactorInputs, value: Value) -> Used:
        """Further inputs that the image shows at this value; refuses inputs that lack them."""
        return Used()


def colour_of(word: str) -> tuple[int, int, int]:
    """The colour that ``black``, ``white``, ``grey`` or ``#rrggbb`` names.

    >>> colour_of("#0a141e")
    (10, 20, 30)
    """
    word = {"black": "#000000", "white": "#ffffff", "grey": "#808080"}.get(word, word)
    return int(word[1:3], 16), int(word[3:5], 16), int(word[5:7], 16)
