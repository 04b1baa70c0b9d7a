"""Factors beyond SI-SCORE: what else of an image can be set on purpose, and measured.

A factor has a key, a neutral value that changes nothing, values to try, a stage at which it acts,
and a measured column. :class:`Factors` knows them all, plug-ins included; :func:`finish` makes an
image of layers.

A plug-in is an entry point of the group ``heldout.factors`` whose object is a factor, or several::

    [project.entry-points."heldout.factors"]
    vignette = "my_package.vignette:vignette"

A configuration names a file instead: ``factor_files = ["vignette.py:vignette"]``.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.errors import ExistsError, UserError
from heldout.core.plugins import plugins
from heldout.core.request import unused
from heldout.curate.compose.factors.factor import (
    Draw,
    Factor,
    FactorInputs,
    Frame,
    Layers,
    Stage,
    visible,
)
from heldout.curate.compose.factors.layers import PixelFactor, Region, factor
from heldout.data.testset.columns import ColumnType

if TYPE_CHECKING:
    from heldout.curate.compose.inputs import Pixels
    from heldout.curate.compose.plan import ImagePlan, Matrix, Size, Value
    from heldout.curate.compose.requests import ComposeParameters

__all__ = [
    "Draw",
    "Factor",
    "FactorInputs",
    "Factors",
    "Frame",
    "Layers",
    "PixelFactor",
    "Region",
    "Stage",
    "factor",
    "finish",
]

GROUP = "heldout.factors"
MEASURED = "_measured"
RESERVED = (
    "x", "y", "size", "rotation", "resolution", "object", "background", "inside", "image_id",
    "path", "uri", "sha256", "width", "height", "source", "licence", "attribution", "weight",
    "mask_fraction", "visible_fraction",
)  # fmt: skip
"""Columns that a set has anyway."""
_KEY = re.compile(r"(?:(?:foreground|background)\.)?[a-z][a-z0-9_]*(?<!_measured)")
_PIXEL_STAGES = tuple(Stage)[Stage.FOREGROUND : Stage.ENCODING]
_MODULES = ("shape", "objects", "background", "colour", "camera", "blending")
"""Modules with built-in factors, in the order in which those of one stage act."""


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors that a configuration may name, and those that it does name.

    ``identity``  what the plug-ins are, for cards and for the keys of work: versions and hashes
    ``grid``      the values of the factors that a set varies or fixes, in the order configured
    ``made_by``   the parameters that :meth:`of` was given
    """

    by_key: Mapping[str, Factor] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    made_by: ComposeParameters | None = None

    @classmethod
    def load(cls, files: Sequence[str] = (), *, base: Path | None = None) -> Factors:
        """Built-in factors, plug-ins, and those in files: ``path/to/file.py:object``.

        Relative paths start at ``base``. Naming a file is the user's word to run it.
        """
        found: dict[str, Factor] = {}
        for name in _MODULES:
            module = importlib.import_module(f"{__name__}.{name}")
            _add(found, module.FACTORS, name)
        identity: dict[str, str] = {}
        for point in plugins(GROUP, "factor").values():
            _add(found, point.load(), point.value)
            identity[point.value] = point.dist.version if point.dist else ""
        for spec in files:
            made, digest = _from_file(spec, base)
            _add(found, made, spec)
            path, _, attribute = spec.rpartition(":")
            name = f"{Path(path).name}:{attribute}"
            identity[spec if name in identity else name] = digest
        return cls(found, identity)

    @classmethod
    def of(cls, parameters: ComposeParameters) -> Factors:
        """Those that parameters name; an unknown factor or value is a user error.

        Without any, none is even loaded.
        """
        asked = parameters.extra_factors
        if not asked:
            unused(parameters, "the built-in factors alone", "factor_files")
            return cls(made_by=parameters)
        known = cls.load(parameters.factor_files)
        given = {known.canonical(key): list(values) for key, values in asked.items()}
        if len(given) < len(asked):
            raise UserError("a factor is given under two names", fix="give it once")
        if "jpeg_quality" in given and parameters.format != "jpeg":
            raise UserError(
                f"jpeg_quality is varied and images are {parameters.format}", fix="use jpeg"
            )
        return replace(known, grid=known.checked(given), made_by=parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        # Factors of a user's file cannot be sent to another process: they are loaded there again.
        return Factors.of, (self.made_by,)

    def __iter__(self) -> Iterator[Factor]:
        return iter(self.by_key.values())

    def __getitem__(self, key: str) -> Factor:
        return self.by_key[self.canonical(key)]

    def canonical(self, key: str) -> str:
        """The key as columns have it: ``image.blur`` is ``blur``; an unknown one is refused."""
        plain = key.removeprefix("image.")
        if plain in self.by_key:
            return plain
        near = difflib.get_close_matches(plain, self.by_key, 1)
        fix = f"did you mean {near[0]}" if near else f"there is {', '.join(self.by_key)}"
        raise UserError(f"no factor {key!r}", fix=fix)

    def checked(self, table: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
        """The values of each factor that a table names, checked, by canonical key.

        A value is a list, a single value, or ``"default"`` for the factor's own list.
        """
        given: dict[str, tuple[Value, ...]] = {}
        for name, raw in table.items():
            one = self[name]
            values = one.values if raw in ("default", ["default"]) else raw
            listed = values if isinstance(values, list | tuple) else [values]
            checked = tuple(one.check(value) for value in listed)
            if not checked:
                raise UserError(f"factor {one.key} has no values", fix="give one or more")
            if len(set(checked)) != len(checked):
                raise UserError(f"factor {one.key} has a value twice", fix="give each once")
            if one.key in given:
                raise UserError(f"factor {one.key!r} is given twice", fix="give it once")
            given[one.key] = checked
        for key in given:
            needs = self.by_key[key].needs
            if needs and not set(needs) & set(given):
                raise UserError(
                    f"factor {key} has no effect without {' or '.join(needs)}",
                    fix="add that factor, or leave this one out",
                )
        return given

    def combinations(self) -> Iterator[Mapping[str, Value]]:
        """Every combination of values, without those that change nothing; the last one fastest."""
        for combination in product(*self.grid.values()):
            yield self.without_neutral(dict(zip(self.grid, combination, strict=True)))

    def without_neutral(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values that change something."""
        named = ((self[key], value) for key, value in values.items())
        return {one.key: value for one, value in named if value != one.neutral}

    def columns(self, keys: Iterable[str]) -> dict[str, ColumnType]:
        """The columns of a set with these factors: each factor, then what is measured of it."""
        made: dict[str, ColumnType] = {}
        for one in map(self.__getitem__, keys):
            made[one.key] = one.column
            if one.measured:
                made[one.key + MEASURED] = ColumnType(kind="ordered", unit=one.measured)
        return made

    def matrix(self, size: Size, values: Mapping[str, Value]) -> Matrix | None:
        """What the factors of outline make of an object of this size, in one map."""
        made = None
        for one in self.of_stage(Stage.GEOMETRY):
            own = one.matrix(size, values[one.key]) if one.key in values else None
            if own is not None:
                made = own if made is None else own @ made
        return made

    def of_stage(self, stage: Stage) -> tuple[Factor, ...]:
        """The factors of one stage, in the order in which they act."""
        return self._stages[stage]

    @cached_property
    def _stages(self) -> dict[Stage, tuple[Factor, ...]]:
        return {stage: tuple(one for one in self if one.stage == stage) for stage in Stage}

    def used(
        self, shot: ImagePlan, inputs: FactorInputs
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Indices of the cut-outs and of the backgrounds that an image shows, the object first.

        Inputs that a factor lacks are a user error here, before any pixels. What one factor put
        behind the object, another that acts later may replace.
        """
        cutouts, backgrounds = [shot.foreground], [shot.background]
        acting = (one for stage in Stage for one in self.of_stage(stage) if one.key in shot.values)
        for one in acting if shot.values else ():
            extra = one.uses(shot, inputs, shot.values[one.key])
            cutouts += extra.cutouts
            backgrounds = [*(backgrounds if extra.keeps_background else ()), *extra.backgrounds]
        return tuple(dict.fromkeys(cutouts)), tuple(dict.fromkeys(backgrounds))


def _add(found: dict[str, Factor], made: Any, where: str) -> None:
    """Add a factor, or several, each of them checked."""
    several = isinstance(made, Iterable) and not isinstance(made, str)
    for one in made if several else [made]:
        if not isinstance(one, Factor):
            raise UserError(
                f"{where} is not a factor",
                fix="decorate a function with @factor, or give an instance of Factor",
            )
        if not isinstance(one.key, str) or not _KEY.fullmatch(one.key) or one.key in RESERVED:
            raise UserError(
                f"{where}: {one.key!r} cannot be the key of a factor",
                fix="use lower-case letters, digits and _, and no name of another column",
            )
        for value in (*one.values, *(() if one.neutral is None else (one.neutral,))):
            one.check(value)
        if one.key in found:
            raise ExistsError(
                f"{where}: there is a factor {one.key!r} already", fix="give yours another name"
            )
        found[one.key] = one


def _from_file(spec: str, base: Path | None) -> tuple[Any, str]:
    """The object that ``path/to/file.py:object`` names, and the hash of the file."""
    from heldout.core.files import existing_file, sha256_file
    from heldout.models.adapters.user_code import load_object

    name, colon, attribute = spec.rpartition(":")
    if not colon or not name.endswith(".py") or not attribute:
        raise UserError(f"{spec!r} does not name a factor", fix="write path/to/file.py:object")
    path = existing_file((base or Path()) / name, "Python file")
    return load_object(path, attribute), sha256_file(path)


def finish(
    layers: Layers,
    shot: ImagePlan,
    inputs: FactorInputs,
    *,
    factors: Factors,
    keys: Iterable[str] = (),
) -> tuple[Pixels, dict[str, float]]:
    """The image (H, W, 3) of a shot, and its measured columns.

    ``layers``  the sprite after size and rotation at its place, and the background
    ``keys``    the factors that the set varies: each is measured on every image, neutral or not

    Measured are ``mask_fraction`` (the object's mask in sight over the image), ``visible_fraction``
    (the mask in sight over the whole mask), and ``<key>_measured`` for each key.
    """
    from heldout.curate.compose.factors.blending import blended
    from heldout.curate.compose.factors.shape import warp
    from heldout.curate.compose.inputs import mask_sum

    wanted = {factors.canonical(key) for key in keys} | set(shot.values)
    frame = Frame(shot=shot, inputs=inputs, layers=layers, shape=layers.alpha)
    measured: dict[str, float] = {}
    whole = seen = 0.0
    for stage in _PIXEL_STAGES:
        acting = [one for one in factors.of_stage(stage) if one.key in wanted]
        if stage == Stage.GEOMETRY:
            sprite = frame.layers.foreground
            if shot.warp is not None:
                sprite = warp(sprite, shot.warp, shot.box[2:])
            frame = replace(frame.with_layers(foreground=sprite), shape=sprite[..., 3])
        for one in acting:
            if shot.values.get(one.key, one.neutral) != one.neutral:
                frame = one.apply(frame, shot.values[one.key])
        if stage == Stage.GEOMETRY:
            whole = mask_sum(frame.layers.alpha)
            # What the plan decided is measured on the object in its final outline.
            acting = [one for one in factors.of_stage(Stage.PLAN) if one.key in wanted] + acting
        if stage == Stage.BLEND:
            frame = replace(frame, image=blended(frame))
            seen = visible(frame.layers.alpha, frame.layers, frame.layers.extras)
        for one in acting:
            if one.measured:
                measured[one.key + MEASURED] = one.measure(frame)
    shares = {
        "mask_fraction": seen / (shot.width * shot.height),
        "visible_fraction": seen / whole if whole else 0.0,
    }
    return frame.pixels, shares | measured
