"""What a composed set is asked for: its parameters, the published grids, and the TOML file.

Requests come as mappings: the values of a file, of flags, or of both together.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from heldout.core.errors import BadFile, UserError
from heldout.core.schema import read_plain
from heldout.curate.compose.inputs import FOLDERS, SISCORE
from heldout.curate.parameters import from_dict

PLACED = ("x", "y", "size", "rotation")
"""The factors of SI-SCORE; all others are registered ones."""
MOST_SIDE = 8192
MOST_VALUES = 100_000
"""A range of more values than this is taken for a slip."""
_RESOLUTION = re.compile(r"([0-9]+)(?:x([0-9]+))?\Z")


_COMMON = {
    "x": (0.5,),
    "y": (0.5,),
    "rotation": (0,),
    "resolution": ("512x512",),
    "min_inside": 0.95,
}
# Multiplied, not divided: 0.15000000000000002 is what the published metadata have.
_LOCATIONS = tuple(i * 0.05 for i in range(21))
_LOCATION = {"x": _LOCATIONS, "y": _LOCATIONS, "resolution": ("500x500",), "min_inside": 0.0}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "size": {**_COMMON, "size": tuple(i / 100 for i in range(1, 101))},
    "demo": {**_COMMON, "size": tuple(i / 10 for i in range(1, 9))},
    "rotation": {
        **_COMMON,
        "size": (0.2, 0.5, 0.8, 1.0),
        "rotation": tuple(range(1, 342, 20)),
    },
    "location": {**_COMMON, **_LOCATION, "size": (0.2,)},
    "custom": {**_COMMON, "size": (0.25,)},
}
"""SI-SCORE's three sets and its demonstration; ``custom`` is one image per pair, to start from.

Rotations avoid multiples of 90 degrees on purpose: these need no resampling, so that the object
would be sharper there than at all other angles.
"""


@dataclass(frozen=True, kw_only=True)
class ComposeParameters:
    """Parameters of :class:`~heldout.curate.compose.build.ComposeRecipe`.

    What is left out comes from the preset, and is filled in afterwards.
    """

    preset: Literal["custom", "size", "rotation", "location", "demo"] = field(
        default="custom", metadata={"help": "the grid to start from"}
    )
    x: tuple[float, ...] = field(
        default=(), metadata={"help": "centres, as fractions of the width"}
    )
    y: tuple[float, ...] = field(
        default=(), metadata={"help": "centres, as fractions of the height"}
    )
    size: tuple[float, ...] = field(
        default=(), metadata={"help": "bounding-box areas of the object over that of the image"}
    )
    rotation: tuple[int | float, ...] = field(
        default=(), metadata={"help": "degrees, counter-clockwise"}
    )
    resolution: tuple[str, ...] = field(
        default=(), metadata={"help": "sizes of images, WIDTHxHEIGHT"}
    )
    factors: tuple[str, ...] = field(
        default=(), metadata={"help": "further factors, as key=[values] in JSON"}
    )
    factor_files: tuple[str, ...] = field(
        default=(), metadata={"help": "Python files with factors of your own, FILE.py:object"}
    )
    backgrounds_per_object: int = field(
        default=2, metadata={"help": "how many backgrounds each object is put on"}
    )
    min_inside: float | None = field(
        default=None, metadata={"help": "drop images with less of the object's box inside"}
    )
    keep_empty: bool = field(
        default=False, metadata={"help": "keep images that the object lies outside of"}
    )
    renderer: Literal["exact", "fast"] = field(
        default="exact", metadata={"help": "exact: the original's pixels; fast: close to them"}
    )
    layout: Literal["plain", "siscore"] = field(
        default="plain", metadata={"help": "siscore: the original's folders and CSV files"}
    )
    format: Literal["jpeg", "png", "webp"] = field(
        default="jpeg", metadata={"help": "how images are encoded"}
    )
    quality: int = field(default=75, metadata={"help": "of JPEG and WebP, 1 to 100"})
    exif: bool = field(default=True, metadata={"help": "turn inputs as their EXIF says"})

    def __post_init__(self) -> None:
        for name, value in PRESETS[self.preset].items():
            if getattr(self, name) in ((), None):
                object.__setattr__(self, name, value)
        for name in PLACED:
            _check_numbers(name, getattr(self, name))
        if len({angle % 360 for angle in self.rotation}) < len(self.rotation):
            raise UserError(
                "rotation has values that are one or more full turns apart",
                fix="give each angle once, from 0 to 359",
            )
        object.__setattr__(self, "resolution", tuple(map(_resolution, self.resolution)))
        _check_different("resolution", self.resolution)
        if not 0 <= (self.min_inside or 0) <= 1:
            raise UserError(f"min_inside is {self.min_inside}", fix="give 0 to 1")
        if not 1 <= self.quality <= 100:
            raise UserError(f"quality is {self.quality}", fix="give 1 to 100")
        if self.backgrounds_per_object < 1:
            raise UserError(
                f"backgrounds_per_object is {self.backgrounds_per_object}", fix="give 1 or more"
            )
        parsed = [parse_factor(text) for text in self.factors]
        _check_different("factors", [key for key, _ in parsed])
        object.__setattr__(self, "factors", tuple(factor_text(k, v) for k, v in parsed))

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """The sizes of images, (width, height)."""
        sides = (text.split("x") for text in self.resolution)
        return tuple((int(width), int(height)) for width, height in sides)

    @property
    def extra_factors(self) -> tuple[tuple[str, tuple[Any, ...]], ...]:
        """Factors beyond SI-SCORE with their values, in the order given."""
        return tuple((key, tuple(values)) for key, values in map(parse_factor, self.factors))


def factor_text(key: str, values: Sequence[Any]) -> str:
    """A factor beyond SI-SCORE as one text: ``key=[values]`` in JSON."""
    return f"{key}={json.dumps(list(values), ensure_ascii=False, separators=(',', ':'))}"


def parse_factor(text: str) -> tuple[str, list[Any]]:
    """The key and values of :func:`factor_text`."""
    key, equals, rest = text.partition("=")
    try:
        values = json.loads(rest) if equals else None
    except ValueError:
        values = None
    if not key.strip() or not isinstance(values, list) or not values:
        raise UserError(f"factor {text!r} has no values", fix="write key=[1, 2, 3]")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise UserError(f"factor {key}: {value!r} is not a value", fix="give numbers or words")
    _check_different(f"factor {key}", values)
    return key.strip(), values


def _check_numbers(name: str, values: Sequence[float]) -> None:
    above = name == "size"
    for value in values:
        if not math.isfinite(value) or abs(value) > 1e6 or (above and value <= 0):
            raise UserError(
                f"{name} has the value {value}",
                fix=f"give numbers {'above 0, ' if above else ''}up to a million",
            )
    _check_different(name, values)


def _check_different(name: str, values: Sequence[Any]) -> None:
    if len(set(values)) < len(values):
        twice = next(v for i, v in enumerate(values) if v in values[:i])
        raise UserError(f"{name} has {twice} twice", fix="give each value once")


def _resolution(text: str) -> str:
    match = _RESOLUTION.match(str(text))
    sides = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not all(1 <= side <= MOST_SIDE for side in sides):
        raise UserError(
            f"resolution {text!r}", fix=f"write 512 or 640x480, each side 1 to {MOST_SIDE}"
        )
    return f"{sides[0]}x{sides[1]}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A whole request: where the inputs are, what their classes mean, and the parameters."""

    foregrounds: Path
    backgrounds: Path
    parameters: ComposeParameters
    seed: int = 0
    labels: str = SISCORE
    classes: str = "imagenet-1k"
    foregrounds_licence: str | None = None
    backgrounds_licence: str | None = None
    foregrounds_attributions: Path | None = None
    backgrounds_attributions: Path | None = None
    name: str | None = None

    @property
    def title(self) -> str:
        """What the set is called where no folder names it."""
        return self.name or f"compose-{self.parameters.preset}"


_OWN = tuple(f.name for f in dataclasses.fields(Request) if f.name != "parameters")
_PATHS = tuple(f.name for f in dataclasses.fields(Request) if "Path" in str(f.type))


def read_config(path: Path) -> dict[str, Any]:
    """The values of a TOML file; paths in it are taken from where it is."""
    given = read_plain(path)
    values = {key.replace("-", "_"): value for key, value in given.items()}
    if len(values) < len(given):
        raise BadFile(path, "has a key in two spellings", fix="keep one")
    for key in _PATHS:
        if isinstance(values.get(key), str):
            values[key] = (path.parent / values[key]).as_posix()
    files = values.get("factor_files")
    if isinstance(files, str | list):
        listed = [files] if isinstance(files, str) else files
        values["factor_files"] = [(path.parent / str(file)).as_posix() for file in listed]
    for key in ("labels", "classes"):
        text = values.get(key)
        if isinstance(text, str) and text not in (SISCORE, FOLDERS):
            beside = path.parent / text
            if beside.is_file():
                values[key] = beside.as_posix()
    return values


def make_request(values: Mapping[str, Any], *, where: str = "") -> Request:
    """A request from values: those of a TOML file, of flags, or of both together.

    ``factors`` is a table of factors, each a list, one value, or ``{from, to, step}``.
    """
    given = {key: value for key, value in values.items() if value is not None}
    own = {key: given.pop(key) for key in _OWN if key in given}
    prefix = f"{where}: " if where else ""
    for key, value in own.items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if not (number if key == "seed" else isinstance(value, str | Path)):
            fix = "give a number" if key == "seed" else "give text"
            raise UserError(f"{prefix}{key} is {value!r}", fix=fix)
    for key in ("foregrounds", "backgrounds"):
        if key not in own:
            raise UserError(f"{prefix}no {key} are named", fix=f"give the folder with --{key}")
    own |= {key: Path(own[key]) for key in _PATHS if key in own}
    factors = given.pop("factors", {})
    if not isinstance(factors, Mapping):
        raise UserError(f"{prefix}factors is not a table", fix="write [factors] and one line each")
    extra = []
    for key, value in _flat(factors):
        listed = expand_values(value, f"{prefix}factor {key}")
        if key not in PLACED:
            extra.append(factor_text(key, listed))
        elif key in given:
            raise UserError(f"{prefix}{key} is given twice", fix="give it once")
        else:
            given[key] = listed
    for key in PLACED:
        if key in given:
            given[key] = expand_values(given[key], f"{prefix}{key}")
            if not given[key]:
                raise UserError(f"{prefix}{key} has no values", fix="give one or more")
    if "resolution" in given:
        given["resolution"] = [str(v) for v in expand_values(given["resolution"], "resolution")]
    parameters = from_dict(ComposeParameters, {**given, "factors": extra}, where=where or "compose")
    return Request(parameters=parameters, **own)


def with_factors(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file with factors put over its own, whichever way the file spells them.

    ``given``  by key, dotted where they act on a layer: ``background.blur``
    """
    factors = values.get("factors", {})
    if not given or not isinstance(factors, Mapping):  # what is not a table is refused later
        return dict(values)
    plain = {key.removeprefix("image.") for key in given}
    kept = {key: value for key, value in _flat(factors) if key.removeprefix("image.") not in plain}
    others = {key: value for key, value in values.items() if key not in given}
    return {**others, "factors": {**kept, **given}}


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Keys of a table with dots for tables inside it, as TOML reads ``foreground.blur = …``."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) and not set(value) & {"from", "to", "step"}:
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def load_request(path: Path) -> Request:
    """The request that a TOML file holds."""
    return make_request({"name": path.stem, **read_config(path)}, where=str(path))


def expand_values(value: Any, where: str) -> list[Any]:
    """A list of values from a list, one value, or a range ``{from, to, step}``, ends included.

    >>> expand_values({"from": 0.1, "to": 0.4, "step": 0.1}, "size")
    [0.1, 0.2, 0.3, 0.4]
    """
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, Mapping):
        return [value]
    if set(value) != {"from", "to", "step"} or any(
        isinstance(v, bool) or not isinstance(v, int | float) or not math.isfinite(v)
        for v in value.values()
    ):
        raise UserError(
            f"{where}: a range is {dict(value)}", fix="write {from = 0.1, to = 0.8, step = 0.1}"
        )
    start, end, step = value["from"], value["to"], value["step"]
    if not step or (end - start) / step < 0:
        raise UserError(f"{where}: the range never ends", fix="let step lead from from to to")
    count = math.floor((end - start) / step + 1e-9) + 1
    if count > MOST_VALUES:
        raise UserError(f"{where}: the range has {count:,} values", fix="use a larger step")
    if all(isinstance(v, int) for v in (start, step)):
        return [start + i * step for i in range(count)]
    # Rounded, so that values join with what people write: 0.3, not 0.30000000000000004.
    return [round(start + i * step, 12) for i in range(count)]


def read_values(text: str, where: str) -> list[Any]:
    """Values as a command line gives them: ``0.1,0.2``, ``from:to:step``, or words.

    >>> read_values("0:90:30", "rotation"), read_values("hard,poisson", "blend")
    ([0, 30, 60, 90], ['hard', 'poisson'])
    """
    parts = text.split(":")
    if len(parts) == 3 and all(_number(part) is not None for part in parts):
        start, end, step = map(_number, parts)
        return expand_values({"from": start, "to": end, "step": step}, where)
    values = [part.strip() for part in text.split(",") if part.strip()]
    if not values:
        raise UserError(f"{where} has no values", fix="write such as 0.1,0.2 or 0:1:0.05")
    return [part if (number := _number(part)) is None else number for part in values]


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
