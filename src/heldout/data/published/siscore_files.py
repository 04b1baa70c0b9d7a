"""SI-SCORE's own files: ``metadata.csv``, the three lists beside it, images ``<class>/<id>.jpg``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from heldout.core.errors import BadFile, NotFound
from heldout.core.tables import csv_header, read_table_file
from heldout.data.images.sources import is_image_name
from heldout.data.labels.siscore import released_sets

METADATA = "metadata.csv"
_FACTORS = {"x": "x_coord", "y": "y_coord", "size": "area", "rotation": "rotation"}
_WHOLE = ("image_id", "foreground_class", "foreground_instance", "background")
_COLUMNS = (*_WHOLE, *_FACTORS.values(), "pct_inside_image")
_SIDES = ("bg_resolution_width", "bg_resolution_height")
_DIGITS = 10  # 0.15000000000000002 is 0.15


class Row(NamedTuple):
    """One row of ``metadata.csv``: keys rounded, so that 0.15000000000000002 is 0.15.

    ``class_index`` and ``background`` are places in the lists beside the file; ``inside`` is as it
    stands in the file. What is not known is None.
    """

    number: int
    x: float
    y: float
    size: float
    rotation: float
    class_index: int | None = None
    instance: int | None = None
    background: int | None = None
    width: int | None = None
    height: int | None = None
    inside: float | None = None


@dataclass(frozen=True, kw_only=True)
class Lists:
    """The three lists: names by place; ``indices``: places in the label space by name."""

    classes: Mapping[int, str]
    indices: Mapping[str, int]
    backgrounds: Mapping[int, str]


def is_metadata(path: Path) -> bool:
    """Whether a file is SI-SCORE's metadata, told from its first line."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        return set(_COLUMNS) <= set(csv_header(path))
    except BadFile:
        return False


def read_metadata(path: Path) -> list[Row]:
    """The rows of ``metadata.csv`` by number; a number twice is refused."""
    table = read_table_file(path)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise BadFile(path, f"has no column {missing[0]!r}", fix="give SI-SCORE's metadata.csv")
    sides = [name for name in _SIDES if name in table.column_names]
    wanted = (*_COLUMNS, *sides)
    whole = (*_WHOLE, *sides)
    columns = {
        name: _numbers(table[name].to_pylist(), name, path, whole=name in whole) for name in wanted
    }
    numbers = [int(value) for value in columns["image_id"]]
    if len(set(numbers)) < len(numbers):
        first: dict[int, int] = {}
        for line, number in enumerate(numbers, 2):
            if first.setdefault(number, line) != line:
                raise BadFile(
                    path,
                    f"has image {number} in lines {first[number]} and {line}",
                    fix="keep one row an image",
                )
    factors = {
        key: [round(value, _DIGITS) for value in columns[name]] for key, name in _FACTORS.items()
    }
    lost = [None] * len(numbers)

    def places(name: str) -> list[Any]:
        return [int(value) for value in columns[name]] if name in columns else lost

    rows = map(
        Row,
        numbers,
        *factors.values(),
        places("foreground_class"),
        places("foreground_instance"),
        places("background"),
        places(_SIDES[0]),
        places(_SIDES[1]),
        columns["pct_inside_image"],
    )
    return sorted(rows)


def rows_of_ids(name: str, numbers: Sequence[int], *, where: Path) -> list[Row]:
    """Rows of a published set from its ids alone: an id's place in the grid says what was varied."""
    known = released_sets()[name]
    outside = [number for number in numbers if not 0 <= number < known.candidates]
    if outside:
        raise BadFile(
            where,
            f"has image {outside[0]}, and ids of the published set {name} end at "
            f"{known.candidates - 1}",
            fix="name the right set, or give its metadata.csv with --metadata",
        )
    found = []
    for number in sorted(numbers):
        at = known.values_of(number)
        found.append(
            Row(number=number, x=at["x"], y=at["y"], size=at["size"], rotation=at["rotation"])
        )
    return found


def read_lists(folders: Sequence[Path]) -> Lists:
    """The lists that lie in the first of these folders that has them; empty where none has."""

    def read(name: str) -> tuple[dict[int, str], Path]:
        for folder in folders:
            if (folder / name).is_file():
                return _read_list(folder / name), folder / name
        return {}, Path(name)

    indices, path = read("foreground_classes.csv")
    by_name: dict[str, int] = {}
    for index, label in indices.items():
        if label in by_name:
            raise BadFile(path, f"has {label!r} twice", fix="keep one row a class")
        by_name[label] = index
    return Lists(
        classes=read("foreground_classes_metadata_indices.csv")[0],
        indices=by_name,
        backgrounds=read("backgrounds.csv")[0],
    )


def _read_list(path: Path) -> dict[int, str]:
    table = read_table_file(path)
    if not {"int", "label"} <= set(table.column_names):
        raise BadFile(path, "has no columns int and label", fix="fetch it again")
    found: dict[int, str] = {}
    cells = zip(table["int"].to_pylist(), table["label"].to_pylist(), strict=True)
    for line, (number, label) in enumerate(cells, 2):
        place = _whole(number, "int", line, path)
        if place in found or not label:
            what = f"has {place} twice" if place in found else f"line {line} has no label"
            raise BadFile(path, what, fix="fetch it again")
        found[place] = label
    return found


@dataclass(frozen=True, kw_only=True)
class ImageFiles:
    """Files ``<class>/<id>.<ending>`` below a folder: (class, path) by number, and what is none."""

    files: Mapping[int, tuple[str, str]]
    other: int


def find_images(folder: Path) -> ImageFiles:
    """All images of the layout below a folder; a number in two places is refused."""
    files: dict[int, tuple[str, str]] = {}
    other = 0
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        if not entry.is_dir() or entry.name.startswith("."):
            continue
        for item in sorted(os.scandir(entry.path), key=lambda item: item.name):
            stem = Path(item.name).stem
            path = f"{entry.name}/{item.name}"
            if not item.is_file() or not is_image_name(item.name) or not _is_number(stem):
                other += 1
                continue
            number = int(stem)
            if number in files:
                raise BadFile(
                    folder,
                    f"has image {number} as {files[number][1]} and as {path}",
                    fix="keep one of them",
                )
            files[number] = entry.name, path
    return ImageFiles(files=files, other=other)


@dataclass(frozen=True, eq=False)
class Given:
    """What was found: rows by number, images, lists, and where from.

    ``derived``  the published set whose ids say what was varied, where no metadata do
    """

    rows: list[Row]
    images: ImageFiles
    lists: Lists
    root: Path
    metadata: Path | None
    derived: str | None


def find_siscore(path: Path, metadata: Path | str | None) -> Given:
    """Rows, images and lists of a folder or a ``metadata.csv``; see ``read_siscore``."""
    if not path.exists():
        raise NotFound(f"no file or folder {path}", fix="check the path")
    root = path if path.is_dir() else path.parent
    file = None if path.is_dir() else path
    derived = None
    if metadata is not None and str(metadata) in released_sets() and not Path(metadata).exists():
        derived = str(metadata)
    elif metadata is not None:
        file = Path(metadata)
    elif file is None and (path / METADATA).is_file():
        file = path / METADATA
    images = find_images(root)
    if derived is not None:
        if not images.files:
            raise BadFile(root, "has no images <class>/<id>.jpg", fix="give the folder of images")
        rows = rows_of_ids(derived, sorted(images.files), where=root)
    elif file is not None:
        rows = read_metadata(file)
    else:
        raise BadFile(
            root,
            f"has no {METADATA}",
            fix="give it with --metadata FILE; for a published set, --metadata size, rotation or "
            "location tells what was varied from the ids",
        )
    folders = [root] if file is None else [file.parent, root]
    return Given(rows, images, read_lists(folders), root, file, derived)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text))


def _numbers(cells: Sequence[Any], name: str, path: Path, *, whole: bool) -> list[float]:
    """A column as numbers; the first cell that is none is an error that names its line."""
    read = _whole if whole else _number
    try:
        values = [float(cell) for cell in cells]
    except (TypeError, ValueError):
        values = []
    fine = values and all(map(math.isfinite, values))
    if not fine or (whole and not all(v >= 0 and v.is_integer() for v in values)):
        return [read(cell, name, line, path) for line, cell in enumerate(cells, 2)]
    return values


def _whole(cell: Any, name: str, line: int, path: Path) -> int:
    value = _number(cell, name, line, path)
    if value != int(value) or value < 0:
        raise BadFile(path, f"line {line} has {cell!r} as {name}", fix="give a whole number")
    return int(value)


def _number(cell: Any, name: str, line: int, path: Path) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise BadFile(path, f"line {line} has {cell!r} as {name}", fix="give a number")
    return value
