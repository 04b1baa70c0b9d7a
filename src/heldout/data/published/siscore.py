"""SI-SCORE's published layout, and sets of that shape: with images, or metadata alone."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.core.files import sha256_file, sha256_text
from heldout.core.tables import csv_header, read_table_file
from heldout.core.workspace import slug
from heldout.data.images import Examined, FolderSource, ImageInfo, examine
from heldout.data.images.sources import is_image_name
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.siscore import (
    CITATION,
    SUSPECT,
    released_names,
    released_sets,
    siscore_names,
)
from heldout.data.testset.card import Card
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_testset

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


def class_names(given: Given) -> dict[int, str]:
    """The class of each row by name; where an image's folder says another one, a user's error."""
    files = given.images.files
    places = dict(given.lists.classes)
    if not places:
        for row in given.rows:  # what folders say of the rows that have an image
            if row.number in files and row.class_index is not None:
                places.setdefault(row.class_index, files[row.number][0])
        unknown = {r.class_index for r in given.rows if r.class_index not in places} - {None}
        # Only what has all 61 classes is taken for a published set: numbers alone name no class.
        if not files and unknown == set(range(len(released_names()))):
            places = dict(enumerate(released_names()))
    where = given.metadata or given.root
    found = {}
    for row in given.rows:
        folder = files[row.number][0] if row.number in files else None
        said = folder if row.class_index is None else places.get(row.class_index)
        if said is None:
            raise BadFile(
                where,
                f"image {row.number} has the class {row.class_index}, which has no name",
                fix="put foreground_classes_metadata_indices.csv beside it",
            )
        if folder is not None and folder != said:
            raise BadFile(
                where,
                f"image {row.number} is of {said!r}, and lies in {files[row.number][1]}",
                fix="give the metadata.csv of these images",
            )
        found[row.number] = said
    return found


def class_ids(names: Sequence[str], lists: Lists, space: LabelSpace, where: Path) -> dict[str, str]:
    """Class ids by name: from ``foreground_classes.csv``, else the 112 names, else the space's own."""
    known = siscore_names()
    imagenet = LabelSpace.load("imagenet-1k").ids
    found = {}
    for name in names:
        index = lists.indices.get(name)
        named = imagenet[known[name].index] if name in known else None
        if index is not None and not 0 <= index < len(space):
            raise LabelError(
                f"{where}: foreground_classes.csv has the index {index} for {name!r}, outside "
                f"{space.name}",
                fix="name the right label space with --classes",
            )
        if index is not None:
            found[name] = space.ids[index]
            if named in space and named != found[name]:
                raise LabelError(
                    f"{where}: foreground_classes.csv has the index {index} for {name!r}, which is "
                    f"{known[name].index} in {space.name}",
                    fix="give places in the label space, not places in the list of folders",
                )
        elif named in space and named is not None:
            found[name] = named
        else:
            try:
                found[name] = name if name in space else space.by_name(name).id
            except LabelError:
                raise LabelError(
                    f"{where}: class {name!r} is none of SI-SCORE's names and not in {space.name}",
                    fix="add foreground_classes.csv, or name the label space with --classes",
                ) from None
    return found


_TYPES = {
    "x": ColumnType(kind="grid", grid="location", axis="x"),
    "y": ColumnType(kind="grid", grid="location", axis="y"),
    "size": ColumnType(kind="ordered", unit="share of the image"),
    "rotation": ColumnType(kind="circular", unit="degrees", period=360),
    "object": ColumnType(kind="categorical"),
    "background": ColumnType(kind="categorical"),
    "inside": ColumnType(kind="ordered"),
    "resolution": ColumnType(kind="categorical"),
}


def read_siscore(
    path: Path,
    *,
    name: str | None = None,
    metadata: Path | str | None = None,
    label_space: LabelSpace | None = None,
) -> TestSet:
    """A test set from a folder ``<class>/<id>.jpg``, from ``metadata.csv``, or from both.

    ``path``         the folder, or the file; images are looked for beside the file
    ``metadata``     where ``metadata.csv`` lies if it is not in the folder; or ``size``,
                     ``rotation`` or ``location``: the published set whose ids these are, so that
                     what was varied is told from the ids alone
    ``label_space``  what the places in ``foreground_classes.csv`` count; ImageNet-1k by default

    Image ids are ``<class>/<id>``. Columns are those of a composed set: x, y (a grid), size,
    rotation (circular), object, background, inside. A row without its image stays, without a path;
    an image without a row is left out; both are counted and named in the card's notes.
    """
    given = find_siscore(path, metadata)
    space = label_space or LabelSpace.load("imagenet-1k")
    classes = class_names(given)
    ids_of = class_ids(sorted(set(classes.values())), given.lists, space, given.root)
    rows = given.rows
    ids = [f"{classes[row.number]}/{row.number}" for row in rows]
    looks = _look(given, rows)
    variant = _variant(rows, set(classes.values()))
    files = given.images.files
    columns: dict[str, Sequence[Any]] = {
        "image_id": ids,
        "path": [files[row.number][1] if row.number in files else None for row in rows],
        "sha256": [
            looks[row.number].sha256 or None if row.number in looks else None for row in rows
        ],
        "width": [_side(looks.get(row.number), row, "width") for row in rows],
        "height": [_side(looks.get(row.number), row, "height") for row in rows],
        "x": [row.x for row in rows],
        "y": [row.y for row in rows],
        "size": [row.size for row in rows],
        "rotation": [row.rotation for row in rows],
        "object": [_object(classes[row.number], row) for row in rows],
        "background": [_background(given.lists, row) for row in rows],
        "inside": [None if row.inside is None else _inside(row.inside) for row in rows],
    }
    sizes = {(row.width, row.height) for row in rows}
    if len(sizes) > 1:
        columns["resolution"] = [f"{row.width}x{row.height}" for row in rows]
    empty = {key for key, values in columns.items() if all(value is None for value in values)}
    columns = {key: values for key, values in columns.items() if key not in empty}
    truth = truth_table(ids, [ids_of[classes[row.number]] for row in rows])
    known = _counts(given, classes, looks)
    digest = _digest(given, ids)
    told = "object" in columns
    card = Card(
        name=name or _title(path, variant),
        label_space=space.name,
        recipe={
            "name": "import/siscore",
            "parameters": {"factors": given.derived or METADATA},
            "seed": None,
        },
        parents=({"file": (given.metadata or given.root).name, "sha256": digest},),
        counts=known,
        columns={key: kind for key, kind in _TYPES.items() if key in columns},
        truths={
            "original": {
                "kind": "single",
                "source": given.root.resolve().name,
                "sha256": digest,
                "version": "unknown",
                "counts": {"images": len(ids), "classes": known["classes"]},
            }
        },
        citation=CITATION,
        notes=tuple(_notes(given, classes, looks, variant)),
        images_root=given.root.resolve().as_posix() if files else None,
        factors=_factors(rows, several_sizes=len(sizes) > 1),
        clusters="object" if told else None,
        units=("object", "background") if told and "background" in columns else (),
    )
    return make_testset(
        card, images=image_table(columns), truths={"original": truth}, label_space=space
    )


def _look(given: Given, rows: Sequence[Row]) -> dict[int, Examined]:
    """Hash and header of every image that has a row."""
    files = given.images.files
    numbers = [row.number for row in rows if row.number in files]
    source = FolderSource(given.root)
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and reading leave the interpreter
        looks = pool.map(lambda n: examine(source, files[n][1], decode=False), numbers)
        return dict(zip(numbers, looks, strict=True))


def _side(look: Examined | None, row: Row, side: str) -> int | None:
    if look is not None and isinstance(look.result, ImageInfo):
        return int(getattr(look.result, side))
    return None if look is not None else getattr(row, side)


def _object(name: str, row: Row) -> str | None:
    return None if row.instance is None else f"{name}/{row.instance}"


def _background(lists: Lists, row: Row) -> str | None:
    if row.background is None:
        return None
    return lists.backgrounds.get(row.background, str(row.background))


def _inside(value: float) -> float:
    """In [0, 1]: the original writes 2.97 where the object lies wholly outside a corner."""
    return value if 0 <= value <= 1 else 0.0


def _factors(rows: Sequence[Row], *, several_sizes: bool) -> tuple[str, ...]:
    varied: set[str] = {
        key for key in ("x", "y", "size", "rotation") if len({getattr(r, key) for r in rows}) > 1
    }
    places = ("x&y",) if {"x", "y"} <= varied else ("x", "y")
    order = (*places, "size", "rotation", "resolution")
    varied |= {"x&y"} | ({"resolution"} if several_sizes else set())
    return tuple(key for key in order if key in varied)


def _variant(rows: Sequence[Row], names: set[str]) -> str | None:
    """Which published set this is, if its classes and what it varies are those of one."""
    if names != set(released_names()):
        return None
    factors = _factors(rows, several_sizes=False)
    kinds = {("size",): "size", ("x&y",): "location", ("size", "rotation"): "rotation"}
    return kinds.get(factors)


def _title(path: Path, variant: str | None) -> str:
    if variant is not None:
        return f"siscore-{variant}-1"
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    return slug(folder.name)


def _counts(
    given: Given, classes: Mapping[int, str], looks: Mapping[int, Examined]
) -> dict[str, int]:
    numbers = {row.number for row in given.rows}
    files = given.images.files
    return {
        "images": len(given.rows),
        "classes": len(set(classes.values())),
        "without_image": len(numbers - files.keys()),
        "without_row": len(files.keys() - numbers),
        "broken": sum(not isinstance(look.result, ImageInfo) for look in looks.values()),
        "other_files": given.images.other,
    }


def _digest(given: Given, ids: Sequence[str]) -> str:
    return sha256_text("\n".join(ids)) if given.metadata is None else sha256_file(given.metadata)


def _notes(
    given: Given,
    classes: Mapping[int, str],
    looks: Mapping[int, Examined],
    variant: str | None,
) -> Iterator[str]:
    """What a person should know, the counts of what does not fit together first."""
    files = given.images.files
    rows = given.rows
    lost = [row.number for row in rows if row.number not in files]
    if files and lost:
        yield f"{len(lost):,} rows have no image, such as {_some(lost)}: they stay, without a path"
    if not files:
        yield "no images: predictions are joined by image id"
    left = sorted(files.keys() - {row.number for row in rows})
    if left:
        shown = ", ".join(files[number][1] for number in left[:3])
        yield f"{len(left):,} images have no row in {METADATA} and were left out, such as {shown}"
    other = [
        row.number
        for row in rows
        if row.number in looks
        and isinstance(looks[row.number].result, ImageInfo)
        and (row.width, row.height) != (None, None)
        and (_side(looks[row.number], row, "width"), _side(looks[row.number], row, "height"))
        != (row.width, row.height)
    ]
    if other:
        yield f"{len(other):,} images are of another size than {METADATA} says, such as {_some(other)}"
    broken = [n for n, look in sorted(looks.items()) if not isinstance(look.result, ImageInfo)]
    if broken:
        yield f"{len(broken):,} images cannot be read, such as {_some(broken)}"
    wrong = [row.number for row in rows if row.inside is not None and not 0 <= row.inside <= 1]
    if wrong:
        yield (
            f"{len(wrong):,} images have an inside fraction outside 0 to 1, such as {_some(wrong)}: "
            "the object lies outside the image, and 0 is taken"
        )
    if given.derived is not None:
        yield f"what was varied is told from the ids, as those of the published set {given.derived}"
    elif not given.lists.classes:
        yield (
            "class names are those of the image folders"
            if files
            else "class names are the 61 of the published sets, in their order"
        )
    if variant is not None:
        published = released_sets()[variant].images
        yield (
            f"all {published:,} images of the published set {variant}"
            if len(rows) == published
            else f"{len(rows):,} images, and the published set {variant} has {published:,}"
        )
    names = Counter(classes.values())
    known = siscore_names()
    for name, why in SUSPECT.items():
        if name in names and name in known:
            yield f"class {name} ({names[name]:,} images) is doubtful: {why}"


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:3]))
