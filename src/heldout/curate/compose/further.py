"""The seam to factors past the paper: their values in a grid, and what they change in a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from heldout.core.errors import UserError
from heldout.curate.compose.placing import Box, Size, rotated_size
from heldout.curate.compose.scene import Shot, Value
from heldout.data.testset.columns import ColumnType

if TYPE_CHECKING:
    from heldout.curate.compose.config import ComposeParameters
    from heldout.curate.compose.factors import Factors
    from heldout.curate.compose.inputs import Cutout, Inputs


@dataclass(frozen=True, eq=False)
class Further:
    """The factors past the paper that a set varies or fixes, checked, in the order configured.

    ``values``  by key. Without any, nothing of the factors' package is even imported.
    """

    parameters: ComposeParameters
    values: Mapping[str, tuple[Value, ...]]
    known: Factors | None = None

    @classmethod
    def of(cls, parameters: ComposeParameters) -> Further:
        """Those of parameters; an unknown factor or value is a user's error."""
        if not parameters.factors:
            return cls(parameters, {})
        from heldout.curate.compose.factors import Factors

        known = Factors.load(parameters.factor_files)
        given = {known.canonical(key): list(values) for key, values in parameters.further}
        if len(given) < len(parameters.further):
            raise UserError("a factor is given under two names", fix="give it once")
        checked = known.grid(given)
        if "jpeg_quality" in checked and parameters.format != "jpeg":
            raise UserError(
                f"jpeg_quality is varied and images are {parameters.format}", fix="use jpeg"
            )
        return cls(parameters, {key: checked[key] for key in given}, known)

    def __reduce__(self) -> tuple[Any, ...]:
        # Factors of a user's file cannot be sent to another process: they are loaded there again.
        return Further.of, (self.parameters,)

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def factors(self) -> Factors:
        """The registry that the factors are of."""
        if self.known is None:
            raise ValueError("a set without further factors needs no registry")
        return self.known

    @property
    def keys(self) -> tuple[str, ...]:
        """The factors, in the order configured."""
        return tuple(self.values)

    @property
    def identity(self) -> Mapping[str, str]:
        """What the plug-ins are, by name: versions, or hashes of files."""
        return {} if self.known is None else self.known.identity

    def combinations(self) -> Iterator[Mapping[str, Value]]:
        """Every combination of values, without those that change nothing; the last one fastest."""
        for combination in product(*self.values.values()):
            given = dict(zip(self.values, combination, strict=True))
            yield self.factors.without_neutral(given) if given else {}

    def sprite_size(
        self, cutout: Cutout, frame: Size, area: float, values: Mapping[str, Value]
    ) -> Size:
        """The size of the object before rotation."""
        from heldout.curate.compose.factors import sprite_size

        fill = cutout.mask_pixels / (cutout.size[0] * cutout.size[1])
        return sprite_size(cutout.size, area, frame, values, fill=fill)

    def box(
        self,
        sprite: Size,
        frame: Size,
        x: float,
        y: float,
        rotation: float,
        values: Mapping[str, Value],
    ) -> Box:
        """The box of the object after rotation and after factors of its outline."""
        from heldout.curate.compose.factors import placed_box

        turned = rotated_size(sprite, rotation)
        return placed_box(
            turned, values, x=x, y=y, resolution=frame, outlines=self.factors.outlines
        )

    def check_inputs(self, inputs: Inputs, shots: Iterable[Shot]) -> None:
        """Refuse inputs that a factor cannot work with."""
        if self.values:
            for shot in shots:
                self.factors.used(shot, inputs)

    def listed(self) -> list[tuple[str, tuple[Value, ...]]]:
        """Each factor's key with its values."""
        return list(self.values.items())

    def neutral(self, key: str) -> Value | None:
        """The value of a factor that an image was not changed by."""
        return self.factors.neutral(key)

    def columns(self) -> dict[str, ColumnType]:
        """The typed column of each factor, and of what is measured of it."""
        return self.factors.columns(self.keys) if self.values else {}

    def used(self, inputs: Inputs, shot: Shot) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The cut-outs and the backgrounds that an image shows, by index."""
        if not self.values:
            return (shot.foreground,), (shot.background,)
        return self.factors.used(shot, inputs)
