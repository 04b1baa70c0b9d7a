"""SI-SCORE's published layout, and sets of that shape: with images, or metadata alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.core.files import sha256_file, sha256_text
from heldout.core.tables import csv_header, read_table_file, require_column
from heldout.core.workspace import slug
from heldout.data.images import FolderSource, ImageInfo, examine
from heldout.data.images.sources import is_image_name
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.siscore import CITATION, SUSPECT, released_sets, siscore_names
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import truth_table
from heldout.data.testset.testset import TestSet, imported

METADATA = "metadata.csv"
_FACTORS = {"x": "x_coord", "y": "y_coord", "size": "area", "rotation": "rotation"}
_WHOLE = {
    "number": "image_id",
    "class_index": "foreground_class",
    "instance": "foreground_instance",
    "background": "background",
    "width": "bg_resolution_width",
    "height": "bg_resolution_height",
}
_COLUMNS = {**_WHOLE, **_FACTORS, "inside": "pct_inside_image"}
_DIGITS = 10  # 0.15000000000000002 is 0.15
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


@dataclass(slots=True, kw_only=True)
class SiscoreImage:
    """One row of ``metadata.csv``, and the file of its image where there is one.

    ``class_index`` and ``background`` are places in the lists beside the file; ``inside`` is as it
    stands in the file; ``name`` is the class, ``found`` what the file of the image holds. What is
    not known is None.
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
    name: str = ""
    path: str | None = None
    sha256: str | None = None
    found: ImageInfo | None = None

    @property
    def shape(self) -> tuple[int | None, int | None]:
        """Width and height of the file, or as metadata say where there is none."""
        if self.found is not None:
            return self.found.width, self.found.height
        return (self.width, self.height) if self.path is None else (None, None)


def is_metadata(path: Path) -> bool:
    """Whether a file is SI-SCORE's metadata, judged by its first line."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        header = set(csv_header(path))
    except BadFile:
        return False
    return header.issuperset(_COLUMNS.values())


def _read_metadata(path: Path) -> list[SiscoreImage]:
    """The rows of ``metadata.csv`` by number; a number twice is refused."""
    table = read_table_file(path)
    columns = {}
    for key, name in _COLUMNS.items():
        column = require_column(table, name, path, "SI-SCORE's metadata")
        columns[key] = _numbers(column, name, path, whole=key in _WHOLE)
    for key in _FACTORS:
        columns[key] = [round(value, _DIGITS) for value in columns[key]]
    _refuse_repeats(columns["number"], path)
    cells = zip(*columns.values(), strict=True)
    rows = [SiscoreImage(**dict(zip(columns, row, strict=True))) for row in cells]
    return sorted(rows, key=lambda row: row.number)


def _refuse_repeats(values: Sequence[object], path: Path) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise BadFile(path, f"has {twice[0]!r} twice", fix="keep one row of it")


def _numbers(column: Any, name: str, path: Path, *, whole: bool) -> list[Any]:
    """A column as numbers; the first cell that is not one is an error that names its line."""
    values: list[float] = []
    for line, cell in enumerate(column.to_pylist(), 2):
        try:
            value = float(cell)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value) or (whole and (value < 0 or not value.is_integer())):
            fix = "give a whole number" if whole else "give a number"
            raise BadFile(path, f"line {line} has {cell!r} as {name}", fix=fix)
        values.append(int(value) if whole else value)
    return values


def _rows_of_ids(name: str, numbers: Sequence[int], where: Path) -> list[SiscoreImage]:
    """Rows of a published set from its ids alone: an id's place in the grid says what was varied."""
    known = released_sets()[name]
    if len(numbers) != known.images:
        raise BadFile(
            where,
            f"has {len(numbers):,} images, the published set {name} has {known.images:,}: ids of "
            "another set do not tell what was varied",
            fix="give its metadata.csv with --metadata",
        )
    outside = [number for number in numbers if number >= known.candidates]
    if outside:
        raise BadFile(
            where,
            f"has image {outside[0]}, and ids of the published set {name} end at "
            f"{known.candidates - 1}",
            fix="name the right set, or give its metadata.csv with --metadata",
        )
    factors: list[tuple[int, dict[str, Any]]]
    factors = [(number, dict(known.values_of(number))) for number in sorted(numbers)]
    return [SiscoreImage(number=number, **values) for number, values in factors]


def _read_list(name: str, folders: Sequence[Path]) -> dict[int, str]:
    """Labels by number from the first of these folders that has the list; empty where none has."""
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        return {}
    table = read_table_file(path)
    column = require_column(table, "int", path, "the numbers of classes")
    numbers = _numbers(column, "int", path, whole=True)
    labels = require_column(table, "label", path, "their names").to_pylist()
    _refuse_repeats(numbers, path)
    if name == _INDICES:  # two classes of the grid may not share a class either
        _refuse_repeats(labels, path)
    return dict(zip(numbers, labels, strict=True))


_INDICES = "foreground_classes.csv"


def _find_images(folder: Path) -> tuple[dict[int, str], int]:
    """Paths ``<class>/<id>.<ending>`` below a folder by number, and how many other files there are.

    A number in two places is refused.
    """
    files: dict[int, str] = {}
    other = 0
    for item in sorted(folder.glob("[!.]*/*")):
        stem = item.stem
        number = int(stem) if stem.isascii() and stem.isdigit() else -1
        if not item.is_file() or not is_image_name(item.name) or stem != str(number):
            other += 1
            continue
        path = item.relative_to(folder).as_posix()
        if files.setdefault(number, path) != path:
            raise BadFile(
                folder,
                f"has image {number} as {files[number]} and as {path}",
                fix="keep one of them",
            )
    return files, other


def _name_classes(rows: Sequence[SiscoreImage], listed: Mapping[int, str], where: Path) -> None:
    """Give each row its class by name; where an image's folder says another one, a user's error."""
    folders = {row.number: (row.path or "").rpartition("/")[0] for row in rows}
    places = dict(listed) or {
        row.class_index: folders[row.number]
        for row in reversed(rows)
        if row.class_index is not None and row.path is not None
    }
    for row in rows:
        folder = folders[row.number]
        row.name = folder if row.class_index is None else places.get(row.class_index, "")
        if not row.name:
            raise BadFile(
                where,
                f"image {row.number} has the class {row.class_index}, which has no name",
                fix="put foreground_classes_metadata_indices.csv beside it",
            )
        if folder not in ("", row.name):
            raise BadFile(
                where,
                f"image {row.number} is of {row.name!r}, and lies in {row.path}",
                fix="give the metadata.csv of these images",
            )


def _class_ids(
    names: Sequence[str], listed: Mapping[int, str], space: LabelSpace, where: Path
) -> dict[str, str]:
    """Class ids by name: from ``foreground_classes.csv``, else the 112 names, else the space's own."""
    known = siscore_names()
    imagenet = LabelSpace.load("imagenet-1k").ids
    indices = {label: index for index, label in listed.items()}
    found = {}
    for name in names:
        index = indices.get(name)
        named = imagenet[known[name].index] if name in known else None
        if index is not None:
            said = f"{where}: {_INDICES} has the index {index} for {name!r}"
            if index >= len(space):
                raise LabelError(
                    f"{said}, outside {space.name}",
                    fix="name the right label space with --classes",
                )
            found[name] = space.ids[index]
            if named in space and named != found[name]:
                raise LabelError(
                    f"{said}, which is {known[name].index} in {space.name}",
                    fix="give places in the label space, not places in the list of folders",
                )
        elif named is not None and named in space:
            found[name] = named
        else:
            found[name] = name if name in space else space.by_name(name).id
    return found


def read_siscore(
    path: Path,
    *,
    name: str | None = None,
    metadata: str | None = None,
    label_space: LabelSpace | None = None,
) -> TestSet:
    """A test set from a folder ``<class>/<id>.jpg``, from ``metadata.csv``, or from both.

    ``path``         the folder, or the file; images are looked for beside the file
    ``metadata``     where ``metadata.csv`` lies if it is not in the folder; or ``size``,
                     ``rotation`` or ``location``: the published set whose ids these are, so that
                     what was varied is inferred from the ids alone
    ``label_space``  what the places in ``foreground_classes.csv`` count; ImageNet-1k by default

    Image ids are ``<class>/<id>``. Columns are those of a composed set: x, y (a grid), size,
    rotation (circular), object, background, inside. A row without its image stays, without a path;
    an image without a row is left out; both are counted and named in the card's notes.
    """
    if not path.exists():
        raise NotFound(f"no file or folder {path}", fix="check the path")
    root = path if path.is_dir() else path.parent
    files, other_files = _find_images(root)
    file = None
    derived = metadata if metadata in released_sets() and not Path(str(metadata)).exists() else None
    if derived is None:
        file = path if path.is_file() else path / METADATA
        file = Path(metadata) if metadata is not None else file
        if metadata is None and not file.is_file():
            raise BadFile(
                root,
                f"has no {METADATA}",
                fix="give it with --metadata FILE; for a published set, --metadata size, rotation "
                "or location tells what was varied from the ids",
            )
        rows = _read_metadata(file)
    elif files:
        rows = _rows_of_ids(derived, list(files), root)
    else:
        raise BadFile(root, "has no images <class>/<id>.jpg", fix="give the folder of images")
    folders = [root] if file is None else [file.parent, root]
    listed = _read_list("foreground_classes_metadata_indices.csv", folders)
    backgrounds = _read_list("backgrounds.csv", folders)
    for row in rows:
        row.path = files.get(row.number)
    _name_classes(rows, listed, file or root)
    names = Counter(row.name for row in rows)
    space = label_space or LabelSpace.load("imagenet-1k")
    class_ids = _class_ids(sorted(names), _read_list(_INDICES, folders), space, root)
    _examine(rows, root)
    left = sorted(files.keys() - {row.number for row in rows})
    notes = list(_notes(rows, files, left))
    if derived is not None:
        notes.append(
            f"what was varied is told from the ids, as those of the published set {derived}"
        )
    elif not listed:
        notes.append("class names are those of the image folders")
    notes += [
        f"class {one} ({names[one]:,} images) is doubtful: {why}"
        for one, why in SUSPECT.items()
        if one in names
    ]
    ids = [f"{row.name}/{row.number}" for row in rows]
    columns = _columns(rows, ids, backgrounds)
    # Where no file says what was varied, the ids stand for it.
    digest = sha256_text("\n".join(ids)) if file is None else sha256_file(file)
    return imported(
        name or slug(root.resolve().name),
        label_space=space,
        images=columns,
        truth=truth_table(ids, [class_ids[row.name] for row in rows]),
        source=root.resolve().name,
        sha256=digest,
        recipe={
            "name": "import/siscore",
            "parameters": {"factors": derived or METADATA},
            "seed": None,
        },
        parents=({"file": (file or root).name, "sha256": digest},),
        counts={
            "without_image": sum(row.path is None for row in rows),
            "without_row": len(left),
            "broken": len(_broken(rows)),
            "other_files": other_files,
        },
        columns={key: kind for key, kind in _TYPES.items() if key in columns},
        citation=CITATION,
        notes=tuple(notes),
        images_root=root.resolve().as_posix() if files else None,
        factors=_factors(columns),
        clusters="object" if "object" in columns else None,
        units=("object", "background") if {"object", "background"} <= columns.keys() else (),
    )


def _examine(rows: Sequence[SiscoreImage], root: Path) -> None:
    """Hash and header of every image."""
    there = [row for row in rows if row.path is not None]
    source = FolderSource(root)
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and reading leave the interpreter
        looks = pool.map(lambda row: examine(source, str(row.path), decode=False), there)
        for row, look in zip(there, looks, strict=True):
            row.sha256 = look.sha256 or None
            row.found = look.result if isinstance(look.result, ImageInfo) else None


def _columns(
    rows: Sequence[SiscoreImage], ids: list[str], backgrounds: Mapping[int, str]
) -> dict[str, list[Any]]:
    """The columns of the images table, without those that are empty."""
    columns: dict[str, list[Any]] = {
        "image_id": ids,
        "path": [row.path for row in rows],
        "sha256": [row.sha256 for row in rows],
        "width": [row.shape[0] for row in rows],
        "height": [row.shape[1] for row in rows],
        **{key: [getattr(row, key) for row in rows] for key in _FACTORS},
        "object": [None if row.instance is None else f"{row.name}/{row.instance}" for row in rows],
        "background": [
            None if row.background is None else backgrounds.get(row.background, str(row.background))
            for row in rows
        ],
        # The original writes 2.97 where the object lies wholly outside a corner.
        "inside": [
            row.inside if row.inside is None or 0 <= row.inside <= 1 else 0.0 for row in rows
        ],
    }
    if len({(row.width, row.height) for row in rows}) > 1:
        columns["resolution"] = [f"{row.width}x{row.height}" for row in rows]
    return {key: values for key, values in columns.items() if set(values) != {None}}


def _broken(rows: Sequence[SiscoreImage]) -> list[int]:
    return [row.number for row in rows if row.path is not None and row.found is None]


def _factors(columns: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """What varies; places that vary in both directions are one factor."""
    varied = [key for key in (*_FACTORS, "resolution") if len(set(columns.get(key, ()))) > 1]
    if {"x", "y"} <= {*varied}:
        varied = ["x&y", *varied[2:]]
    return tuple(varied)


def _notes(
    rows: Sequence[SiscoreImage], files: Mapping[int, str], left: Sequence[int]
) -> Iterator[str]:
    """What does not fit together."""

    def some(numbers: Sequence[int]) -> str:
        return ", ".join(map(str, numbers[:3]))

    lost = [row.number for row in rows if row.path is None]
    if not files:
        yield "no images: predictions are joined by image id"
    elif lost:
        yield f"{len(lost):,} rows have no image, such as {some(lost)}: they stay, without a path"
    if left:
        shown = ", ".join(files[number] for number in left[:3])
        yield f"{len(left):,} images have no row in {METADATA} and were left out, such as {shown}"
    if broken := _broken(rows):
        yield f"{len(broken):,} images cannot be read, such as {some(broken)}"
