"""Factors by key: built in, installed as plug-ins, or in the user's own file.

A plug-in is an entry point of the group ``heldout.factors`` whose object is a factor, or several::

    [project.entry-points."heldout.factors"]
    vignette = "my_package.vignette:vignette"

A configuration names a file instead: ``files = ["vignette.py:vignette"]``.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heldout.core.errors import ExistsError, UserError
from heldout.core.plugins import plugins
from heldout.curate.compose.factors.geometry import Outline
from heldout.curate.compose.factors.protocol import Factor, Stock
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.scene import Shot, Value
from heldout.data.testset.columns import ColumnType

GROUP = "heldout.factors"
MEASURED = "_measured"
RESERVED = (
    "x", "y", "size", "rotation", "resolution", "object", "background", "inside", "image_id",
    "path", "uri", "sha256", "width", "height", "source", "licence", "attribution", "weight",
    "mask_fraction", "visible_fraction",
)  # fmt: skip
"""Columns that a set has anyway."""
_KEY = re.compile(r"(?:(?:foreground|background)\.)?[a-z][a-z0-9_]*(?<!_measured)")
_PARTS = ("key", "neutral", "values", "column", "stage", "measured", "needs", "help")
_CALLS = ("check", "apply", "measure", "uses")
_MODULES = (
    "outlines",
    "texture",
    "backgrounds",
    "photometry",
    "sensor",
    "shadow",
    "composition",
    "occlusion",
    "joining",
)
"""Modules with built-in factors, in the order in which those of one stage act."""


@dataclass(frozen=True, eq=False)
class Factors:
    """All factors that a configuration may name; see :meth:`load`.

    ``identity``  what the plug-ins are, for cards and for the keys of work: names and hashes
    """

    by_key: Mapping[str, Factor]
    identity: Mapping[str, str]

    @classmethod
    def load(cls, files: Sequence[str] = (), *, base: Path | None = None) -> Factors:
        """Built-in factors, plug-ins, and those in files: ``path/to/file.py:object``.

        Relative paths start at ``base``. Naming a file is the user's word to run it.
        """
        found: dict[str, Factor] = {}
        _add(found, built_in(), "heldout")
        identity: dict[str, str] = {}
        for point in plugins(GROUP, "factor").values():
            _add(found, as_factors(point.load(), point.value), point.value)
            version = point.dist.version if point.dist else ""
            identity[point.value] = version
        for spec in files:
            made, digest = _from_file(spec, base)
            _add(found, made, spec)
            name = f"{Path(spec.rpartition(':')[0]).name}:{spec.rpartition(':')[2]}"
            identity[spec if name in identity else name] = digest
        return cls(found, identity)

    def __iter__(self) -> Iterator[Factor]:
        return iter(self.by_key.values())

    def __contains__(self, key: object) -> bool:
        return key in self.by_key

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

    def grid(self, table: Mapping[str, Any]) -> dict[str, tuple[Value, ...]]:
        """The values of each factor that a TOML table names, checked, by canonical key.

        A key is dotted or a table of its own (``[factors.foreground]``); a value is a list, a
        single value, or ``"default"`` for the factor's own list. The order is that in which
        factors act, whatever the table's.
        """
        given: dict[str, tuple[Value, ...]] = {}
        for name, raw in _flat(table):
            key = self.canonical(name)
            if key in given:
                raise UserError(f"factor {key!r} is given twice", fix="give it once")
            one = self.by_key[key]
            values = one.values if raw in ("default", ["default"]) else raw
            listed = list(values) if isinstance(values, list | tuple) else [values]
            if not listed:
                raise UserError(f"factor {key} has no values", fix="give one or more")
            checked = tuple(one.check(value) for value in listed)
            if len(set(checked)) != len(checked):
                raise UserError(f"factor {key} has a value twice", fix="give each once")
            given[key] = checked
        for key in given:
            needs = self.by_key[key].needs
            if needs and not set(needs) & set(given):
                raise UserError(
                    f"factor {key} says nothing without {' or '.join(needs)}",
                    fix="add that factor, or leave this one out",
                )
        return {key: given[key] for key in self.by_key if key in given}

    def neutral(self, key: str) -> Value | None:
        """The value that changes nothing; None where only leaving the factor out does."""
        return self[key].neutral

    def without_neutral(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values that change something."""
        return {
            self.canonical(key): value
            for key, value in values.items()
            if value != self.neutral(key)
        }

    def columns(self, keys: Iterable[str]) -> dict[str, ColumnType]:
        """The columns of a set with these factors: each factor, then what is measured of it."""
        made: dict[str, ColumnType] = {}
        for key in keys:
            one = self[key]
            made[one.key] = one.column
            if one.measured:
                made[one.key + MEASURED] = ColumnType(kind="ordered", unit=one.measured)
        return made

    @cached_property
    def outlines(self) -> tuple[Outline, ...]:
        """The factors that change the object's outline, in the order in which they act."""
        return tuple(one for one in self if isinstance(one, Outline))

    def of_stage(self, stage: Stage) -> tuple[Factor, ...]:
        """The factors of one stage, in the order in which they act."""
        return self._stages.get(stage, ())

    @cached_property
    def _stages(self) -> dict[Stage, tuple[Factor, ...]]:
        return {stage: tuple(one for one in self if one.stage == stage) for stage in Stage}

    @cached_property
    def _acting(self) -> dict[str, int]:
        """The place of each factor in the order in which they act."""
        ordered = sorted(self, key=lambda one: one.stage)
        return {one.key: place for place, one in enumerate(ordered)}

    def used(self, shot: Shot, stock: Stock) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Indices of the cut-outs and of the backgrounds that an image shows, the object first.

        Inputs that a factor lacks are a user's error here, before any pixels. What one factor put
        behind the object, another that acts later may replace.
        """
        cutouts, backgrounds = [shot.foreground], [shot.background]
        for key in sorted(shot.values, key=self._acting.__getitem__):
            extra = self.by_key[key].uses(shot, stock, shot.values[key])
            cutouts += extra.cutouts
            backgrounds = [*(backgrounds if extra.keeps_background else ()), *extra.backgrounds]
        return tuple(dict.fromkeys(cutouts)), tuple(dict.fromkeys(backgrounds))


def built_in() -> list[Factor]:
    """The factors of this package, in the order in which those of one stage act."""
    made: list[Factor] = []
    for name in _MODULES:
        module = importlib.import_module(f"heldout.curate.compose.factors.{name}")
        for found in (*module.FACTORS, *getattr(module, "SETTINGS", ())):
            made += as_factors(found, name)
    return made


def as_factors(found: Any, where: str) -> list[Factor]:
    """A factor, a class of one, or several factors, as a list; anything else is refused."""
    if isinstance(found, type):
        found = found()
    members = [found] if hasattr(found, "key") else found
    if isinstance(members, str) or not isinstance(members, Iterable):
        raise UserError(
            f"{where} is no factor", fix="decorate a function with @factor, or give it a key"
        )
    listed = list(members)
    for one in listed:
        lacking = [p for p in (*_PARTS, *_CALLS) if not hasattr(one, p)]
        if lacking:
            raise UserError(
                f"{where} is no factor: it lacks {', '.join(lacking)}",
                fix="add them, or inherit from heldout.curate.compose.factors.Plain",
            )
        if not isinstance(one.key, str) or not _KEY.fullmatch(one.key) or one.key in RESERVED:
            raise UserError(
                f"{where}: {one.key!r} cannot be a factor's key",
                fix="use small letters, digits and _, and no name of another column",
            )
        for value in (*one.values, *(() if one.neutral is None else (one.neutral,))):
            one.check(value)
    return listed


def _add(found: dict[str, Factor], made: Iterable[Factor], where: str) -> None:
    for one in made:
        if one.key in found:
            raise ExistsError(
                f"{where}: there is a factor {one.key!r} already", fix="give yours another name"
            )
        found[one.key] = one


def _from_file(spec: str, base: Path | None) -> tuple[list[Factor], str]:
    """The factors that ``path/to/file.py:object`` names, and the hash of the file."""
    from heldout.core.files import existing_file, sha256_file
    from heldout.models.adapters.user_code import load_object

    name, colon, attribute = spec.rpartition(":")
    if not colon or not name.endswith(".py") or not attribute:
        raise UserError(f"{spec!r} names no factor", fix="write path/to/file.py:object")
    path = existing_file((base or Path()) / name, "Python file")
    return as_factors(load_object(path, attribute), spec), sha256_file(path)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of nested tables, dotted."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value
