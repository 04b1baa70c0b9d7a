"""What ``build compose`` is asked: the inputs, the published grids, and the TOML file of a set."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from heldout.core.errors import BadFile, UserError
from heldout.core.request import (
    Classes,
    Name,
    Out,
    Plan,
    Replace,
    Request,
    RequestError,
    Seed,
    Workers,
    argument,
    by_field,
    fields,
    make,
    option,
    unused,
)
from heldout.core.schema import read_plain
from heldout.curate.requests import Preset, preset_values

PLACED = ("x", "y", "size", "rotation")
"""The factors of SI-SCORE; all others are registered ones."""
MOST_SIDE = 8192
MOST_VALUES = 100_000
"""A range of more values than this is a mistake."""
_LARGEST = 1e6
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


class ComposeParameters(Request, frozen=True, kw_only=True):
    """What is varied and how images are made; the preset fills in what is left out."""

    preset: Preset = "custom"
    factors: Annotated[
        Mapping[str, tuple[int | float | str, ...]],
        option(
            "KEY=VALUES, such as size=0.1,0.2, x=0:1:0.05 or blur=0,2; repeatable; x, y, size, "
            "rotation and every registered factor.",
            "-f",
            flag="factor",
        ),
    ] = {}
    factor_files: Annotated[
        tuple[str, ...],
        option(
            "Python file with factors of your own: FILE.py:object; repeatable; it is run.",
            flag="factor-file",
            rare=True,
        ),
    ] = ()
    backgrounds_per_object: Annotated[
        int, option("Backgrounds that each object is put on.", ge=1)
    ] = 2
    min_inside: (
        Annotated[
            float,
            option(
                "Drop images with less of the object's box inside; 0.95, for location 0.",
                ge=0,
                le=1,
            ),
        ]
        | None
    ) = None
    keep_empty: Annotated[bool, option("Keep images without any of the object.", rare=True)] = False
    resolution: Annotated[
        tuple[str, ...],
        option("Size of images, 512 or 640x480; repeatable; 512, for location 500."),
    ] = ()
    renderer: Annotated[
        Literal["exact", "fast"], option("exact: the original's pixels; fast: close to them.")
    ] = "exact"
    layout: Annotated[
        Literal["plain", "siscore"],
        option("siscore: the original's folders and CSV files.", rare=True),
    ] = "plain"
    format: Annotated[Literal["jpeg", "png", "webp"], option("Format of the files.", rare=True)] = (
        "jpeg"
    )
    quality: Annotated[int, option("Of JPEG and WebP.", ge=1, le=100, rare=True)] = 75
    exif: Annotated[bool, option("Turn inputs as their EXIF says.", rare=True)] = True

    @classmethod
    def filled(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Fill in the preset's grid; ranges and texts become lists of values."""
        grid = preset_values(PRESETS, given, "custom")
        return {
            "min_inside": grid["min_inside"],
            **given,
            "factors": {key: grid[key] for key in PLACED} | _values(given.get("factors", {})),
            "resolution": [
                _resolution(text) for text in given.get("resolution") or grid["resolution"]
            ],
        }

    def check(self) -> None:
        """Numbers must be finite, and no value may be asked for twice."""
        for name in PLACED:
            for value in self.factors[name]:
                _check_number(name, value)
        for name, values in (*self.factors.items(), ("resolution", self.resolution)):
            if not values:
                raise RequestError(f"{name} has no values", fix="give one or more")
            if len(set(values)) < len(values):
                twice = next(v for i, v in enumerate(values) if v in values[:i])
                raise RequestError(f"{name} has {twice} twice", fix="give each value once")
        if len({angle % 360 for angle in self.rotation}) < len(self.rotation):
            raise RequestError(
                "rotation has values that are one or more full turns apart",
                fix="give each angle once, from 0 to 359",
            )

    @property
    def x(self) -> tuple[float, ...]:
        """Centres of the object, as fractions of the width."""
        return tuple(map(float, self.factors["x"]))

    @property
    def y(self) -> tuple[float, ...]:
        """Centres of the object, as fractions of the height."""
        return tuple(map(float, self.factors["y"]))

    @property
    def size(self) -> tuple[float, ...]:
        """Areas of the object's bounding box over that of the image."""
        return tuple(map(float, self.factors["size"]))

    @property
    def rotation(self) -> tuple[int | float, ...]:
        """Degrees, counter-clockwise."""
        return self.factors["rotation"]  # type: ignore[return-value]

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """The sizes of images, (width, height)."""
        sides = (text.split("x") for text in self.resolution)
        return tuple((int(width), int(height)) for width, height in sides)

    @property
    def extra_factors(self) -> dict[str, tuple[int | float | str, ...]]:
        """Factors beyond SI-SCORE with their values, in the order given."""
        return {key: values for key, values in self.factors.items() if key not in PLACED}

    def recorded(self) -> dict[str, Any]:
        """The parameters as cards have them: factors beyond SI-SCORE as ``key=[values]`` texts."""
        own = {name: getattr(self, name) for name in ComposeParameters.__struct_fields__}
        texts = [f"{key}={_JSON.encode(values)}" for key, values in self.extra_factors.items()]
        own |= {name: getattr(self, name) for name in PLACED} | {"factors": texts}
        order = ("preset", *PLACED, "resolution", "factors", "factor_files", *own)
        listed = {name: own[name] for name in dict.fromkeys(order)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in listed.items()}


_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class ComposeRequest(ComposeParameters, frozen=True, kw_only=True):
    """Put objects on backgrounds, factor by factor (SI-SCORE).

    Presets: size, rotation, location, demo (SI-SCORE's grids), custom. The same request again
    changes nothing; a build that was stopped goes on where it was.
    """

    config: (
        Annotated[Path, argument("TOML file: keys equal flags, factors in [factors]; flags win.")]
        | None
    ) = None
    foregrounds: Annotated[Path, option("Folder of cut-outs with alpha: CLASS/FILE.")]
    backgrounds: Annotated[Path, option("Folder of backgrounds.")]
    labels: Annotated[
        str,
        option(
            "What folders stand for: siscore (its 112 names, then ids and names of --classes), "
            "folders (classes of their own), or a TOML or JSON file of name and class ids."
        ),
    ] = "siscore"
    classes: Classes = "imagenet-1k"
    foregrounds_licence: (
        Annotated[
            str, option("Licence of cut-outs without one in their attributions.csv.", rare=True)
        ]
        | None
    ) = None
    backgrounds_licence: (
        Annotated[
            str, option("Licence of backgrounds without one in their attributions.csv.", rare=True)
        ]
        | None
    ) = None
    seed: Seed = 0
    out: Out | None = None
    name: Name | None = None
    workers: Workers | None = None
    replace: Replace = False
    plan: Plan = False

    @classmethod
    def filled(cls, given: dict[str, Any]) -> dict[str, Any]:
        """What was given over the file that it names, factor by factor."""
        if "config" in given:
            file = _read_file(Path(given["config"]))
            own, more = (_flat(values.get("factors", {})) for values in (file, given))
            plain = {key.removeprefix("image.") for key in more}
            kept = {k: v for k, v in own.items() if k.removeprefix("image.") not in plain}
            given = {**file, **given, "factors": {**kept, **more}}
        return ComposeParameters.filled(given)

    def check(self) -> None:
        """Folders that are classes of their own are not looked up."""
        super().check()
        if self.labels == "folders":
            unused(self, "{labels} folders", "classes")

    @property
    def title(self) -> str:
        """The name of the set where no folder is given."""
        return self.name or (self.config.stem if self.config else f"compose-{self.preset}")


def folded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with those of x, y, size and rotation among the factors, wherever they stood."""
    placed = {key: values[key] for key in PLACED if key in values}
    if not placed:
        return dict(values)
    factors = values.get("factors", {})
    if isinstance(factors, list | tuple):  # as cards have them
        factors = dict(text.split("=", 1) for text in factors)
    if twice := sorted(set(placed) & set(factors)):
        raise RequestError(f"{twice[0]} is given twice", fix="give it once")
    rest = {key: value for key, value in values.items() if key not in placed}
    return {**rest, "factors": {**placed, **factors}}


def _read_file(path: Path) -> dict[str, Any]:
    """The values of a TOML file by field; paths in it are taken from where it is."""
    try:
        values = by_field(ComposeRequest, folded(read_plain(path)))
    except RequestError as error:
        plain = error.spelled(str)
        raise BadFile(path, plain.message, fix=plain.fix) from None
    here = path.parent
    for key in [f.name for f in fields(ComposeRequest) if f.type is Path and f.name in values]:
        values[key] = (here / str(values[key])).as_posix()
    values["factor_files"] = [(here / f).as_posix() for f in values.get("factor_files", ())]
    for key in ("labels", "classes"):
        if key in values and (here / str(values[key])).is_file():
            values[key] = (here / str(values[key])).as_posix()
    return values


def load_request(path: Path) -> ComposeRequest:
    """The request that a TOML file holds."""
    return make(ComposeRequest, {"config": path})


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    """Keys of a table with dots for tables inside it, as TOML reads ``foreground.blur = …``."""
    if not isinstance(table, Mapping):
        raise RequestError(f"factors is {table!r}", fix="write [factors] and a line for each")
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not set(value) & {"from", "to", "step"}:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _values(table: Any) -> dict[str, list[Any]]:
    """The values of each factor: a list, one value, a text, or a range ``{from, to, step}``."""
    return {key: expand_values(value, f"factor {key}") for key, value in _flat(table).items()}


def expand_values(value: Any, where: str) -> list[Any]:
    """A list of values from a list, one value, a text or a range ``{from, to, step}``, ends included.

    >>> expand_values({"from": 0.1, "to": 0.4, "step": 0.1}, "size")
    [0.1, 0.2, 0.3, 0.4]
    >>> expand_values("0:90:30", "rotation"), expand_values("hard,poisson", "blend")
    ([0, 30, 60, 90], ['hard', 'poisson'])
    """
    if isinstance(value, str):
        return _read_values(value, where)
    if isinstance(value, Mapping):
        return _expand_range(value, where)
    values = list(value) if isinstance(value, Iterable) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, int | float | str):
            raise RequestError(f"{where}: {one!r} is not a value", fix="give numbers or words")
    return values


def _expand_range(given: Mapping[str, Any], where: str) -> list[Any]:
    if set(given) != {"from", "to", "step"} or any(
        isinstance(v, bool) or not isinstance(v, int | float) or not abs(v) <= _LARGEST
        for v in given.values()
    ):
        raise UserError(
            f"{where}: a range is {dict(given)}", fix="write {from = 0.1, to = 0.8, step = 0.1}"
        )
    start, end, step = given["from"], given["to"], given["step"]
    steps = (end - start) / step if step else -1
    if steps < 0:
        raise RequestError(f"{where}: the range never ends", fix="give a step towards its end")
    if steps >= MOST_VALUES:
        raise RequestError(f"{where}: the range has {steps:,.0f} values", fix="use a larger step")
    count = math.floor(steps + 1e-9) + 1
    if all(isinstance(v, int) for v in (start, step)):
        return [start + i * step for i in range(count)]
    # Rounded, so that values join with what people write: 0.3, not 0.30000000000000004.
    return [round(start + i * step, 12) for i in range(count)]


def _read_values(text: str, where: str) -> list[Any]:
    """Values as a command line gives them: ``0.1,0.2``, ``from:to:step``, words, or a JSON list."""
    if text.startswith("["):
        try:
            return expand_values(json.loads(text), where)
        except ValueError:
            raise RequestError(f"{where} is {text!r}", fix="write values such as 0.1,0.2") from None
    parts = [_number(part) for part in text.split(":")]
    if len(parts) == 3 and not any(isinstance(part, str) for part in parts):
        return _expand_range(dict(zip(("from", "to", "step"), parts, strict=True)), where)
    return [_number(part) for part in text.split(",") if part.strip()]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def _check_number(name: str, value: Any) -> None:
    above = name == "size"
    number = isinstance(value, int | float) and abs(value) <= _LARGEST
    if not number or (above and value <= 0):
        raise RequestError(
            f"{name} has the value {value}",
            fix=f"give numbers {'above 0, ' if above else ''}up to a million",
        )


def _resolution(text: Any) -> str:
    match = _RESOLUTION.match(str(text))
    sides: Sequence[int] = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not all(1 <= side <= MOST_SIDE for side in sides):
        raise RequestError(
            f"{{resolution}} is {text!r}", fix=f"write 512 or 640x480, each side 1 to {MOST_SIDE}"
        )
    return f"{sides[0]}x{sides[1]}"
