"""SI-SCORE's published layout, and sets of that shape: with images, or metadata alone.

Djolonga et al.: On robustness and transferability of convolutional neural networks, CVPR 2021.

An image is joined with its row by its number, never by place. Its class is what its folder's name
means (``foreground_classes.csv``, else the 112 names), never the folder's place in a sorted list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from heldout.core.files import sha256_file, sha256_text
from heldout.core.workspace import slug
from heldout.data.images import Examined, FolderSource, ImageInfo, examine
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.siscore import (
    CITATION,
    SUSPECT,
    released_names,
    released_sets,
    siscore_names,
)
from heldout.data.published.siscore_classes import class_ids, class_names
from heldout.data.published.siscore_files import METADATA, Given, Lists, Row, find_siscore
from heldout.data.testset.card import Card
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_testset

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
