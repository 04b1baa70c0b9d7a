"""What a factor is: a property of an image that is set on purpose, and measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.scene import Layers, Pixels, Shot, Value
from heldout.data.testset.columns import ColumnType


class Stock(Protocol):
    """The inputs as factors see them: other cut-outs and backgrounds, by index."""

    @property
    def cutout_classes(self) -> Sequence[str]:
        """The class of each cut-out."""
        ...

    @property
    def background_classes(self) -> Sequence[str | None]:
        """The class of the photograph that each background comes from, where it is known."""
        ...

    def cutout(self, index: int) -> Pixels:
        """A cut-out as it was read, (h, w, 4), straight alpha."""
        ...

    def background(self, index: int, width: int, height: int) -> Pixels:
        """A background as images of this size have it, (height, width, 3)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Used:
    """The inputs that an image really shows: indices of cut-outs and of backgrounds.

    ``keeps_background``  whether what lay behind the object before is still shown
    """

    cutouts: tuple[int, ...] = ()
    backgrounds: tuple[int, ...] = ()
    keeps_background: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """An image in the making. Nothing in it is changed in place; factors give a new one.

    ``image``   (H, W, 3), from the stage ``BLEND`` on
    ``shape``   the object's alpha (h, w) after ``GEOMETRY``, before anything hides it
    ``corner``  left and top of ``shape`` in the image
    ``noted``   what a factor saw while it acted, by key, for its measured column
    """

    shot: Shot
    stock: Stock
    layers: Layers
    image: Pixels | None = None
    shape: NDArray[np.uint8] | None = None
    corner: tuple[int, int] = (0, 0)
    noted: Mapping[str, float] = field(default_factory=dict)

    def draw(self, key: str) -> Draw:
        """Chance for one factor on this image."""
        return Draw(self.shot.seed, key)

    def value(self, key: str, neutral: Value) -> Value:
        """The value of another factor, such as a setting of this one."""
        return self.shot.values.get(key, neutral)

    def with_layers(self, **changes: object) -> Self:
        """The frame with some layers replaced."""
        return replace(self, layers=replace(self.layers, **changes))  # type: ignore[arg-type]

    def note(self, key: str, seen: float) -> Self:
        """The frame with something noted."""
        return replace(self, noted={**self.noted, key: seen})


@runtime_checkable
class Factor(Protocol):
    """One property of an image that is set on purpose.

    ``key``       its name, with ``foreground.`` or ``background.`` where it acts on one layer
    ``neutral``   the value that changes nothing, or None where only leaving it out does
    ``values``    a list of severities, for those who name none
    ``column``    the type of its column
    ``stage``     when it acts
    ``measured``  what its measured column holds, such as ``mean luminance``; empty for none
    ``needs``     for a setting: the factors without which it says nothing
    ``help``      one line for people
    """

    @property
    def key(self) -> str:
        """Its name."""
        ...

    @property
    def neutral(self) -> Value | None:
        """The value that changes nothing."""
        ...

    @property
    def values(self) -> tuple[Value, ...]:
        """A list of severities."""
        ...

    @property
    def column(self) -> ColumnType:
        """The type of its column."""
        ...

    @property
    def stage(self) -> Stage:
        """When it acts."""
        ...

    @property
    def measured(self) -> str:
        """What its measured column holds."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """The factors that this one is a setting of."""
        ...

    @property
    def help(self) -> str:
        """One line for people."""
        ...

    def check(self, value: object) -> Value:
        """The value in its canonical form, or a user's error."""
        ...

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the factor at this value, which is never the neutral one."""
        ...

    def measure(self, frame: Frame) -> float:
        """The measured column, read off the frame after the factor's stage, at any value."""
        ...

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """Further inputs that the image shows at this value; refuses inputs that lack them."""
        ...


class Plain:
    """What most factors share: they measure nothing, need nothing, and use no further inputs."""

    measured: str = ""
    needs: tuple[str, ...] = ()

    def apply(self, frame: Frame, value: Value) -> Frame:
        """Nothing: for factors that are read elsewhere."""
        return frame

    def measure(self, frame: Frame) -> float:
        """Nothing to measure."""
        return float("nan")

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """No further inputs."""
        return Used()
