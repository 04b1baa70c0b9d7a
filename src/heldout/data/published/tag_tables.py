"""Tables of tags, keywords from tags to classes, and lists of images such as DomainNet's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import read_json, sha256_file
from heldout.core.tables import read_table_file, require_column, typed_text
from heldout.core.workspace import slug
from heldout.data.images import check_id
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.wordnet import BUILT_IN
from heldout.data.published.annotations import clean_names, text_lines
from heldout.data.published.json_stream import Progress
from heldout.data.published.pool_builder import PoolBuilder, Problems, RowStream, pixels
from heldout.data.published.requests import DomainListsRequest, TagTableRequest
from heldout.data.testset.columns import is_list, plain_column
from heldout.data.testset.tables import IMAGE_COLUMNS, image_schema

if TYPE_CHECKING:
    pass


FLAGS = "tag"


def read_tags(
    paths: Sequence[Path], builder: PoolBuilder, options: TagTableRequest, progress: Progress
) -> None:
    """Gather tables; rows of one image, in one file or several, are merged."""
    tags: dict[str, str] = {}  # column of the table -> membership, "" where none is named
    for text in options.tags:
        column, _, name = text.partition("=")
        if not column or column in tags:
            raise UserError(
                f"--tag {text!r} names no column, or one twice", fix="write COLUMN or COLUMN=NAME"
            )
        tags[column] = name
    for path in paths:
        progress(str(path), 0, None)
        _read(path, tags, builder, options)


def _read(
    path: Path, tags: Mapping[str, str], builder: PoolBuilder, options: TagTableRequest
) -> None:
    import pyarrow as pa

    table = read_table_file(path)
    for column in tags:
        require_column(table, column, path, "tags")
    ids = require_column(table, options.id_column, path, "image ids")
    if not (pa.types.is_integer(ids.type) or str(ids.type) in ("string", "large_string")):
        raise BadFile(path, f"has ids of type {ids.type}", fix="give ids as text")
    further = [name for name in table.column_names if name != options.id_column]
    tags = {**{name: "" for name in further if is_list(table[name])}, **tags}
    if not tags:
        raise BadFile(path, "has no tags", fix=f"name them with --tag; it has {', '.join(further)}")
    places = [
        builder.image(image_id, f"{path.name} row {row:,}")
        for row, image_id in enumerate(ids.to_pylist(), 1)
    ]
    for column in further:
        if column not in tags:
            _gather_single(table[column], column, places, path, builder)
            continue
        name, cells = _tags_of(table[column], column, path, (options.separators or {}).get(column))
        for place, values in zip(places, cells, strict=True):
            if place >= 0:
                builder.add(tags[column] or name, place, clean_names(values))


def _tags_of(
    column: Any, title: str, path: Path, separator: str | None
) -> tuple[str, list[list[str]]]:
    """The membership that a column of tags becomes unless another is named, and each row's tags.

    A column of true and false, or of 1 and 0, is a tag itself, of the images where it is true.
    """
    import pyarrow as pa

    values = typed_text(column).to_pylist()
    if not is_list(column) and {*values} <= {0, 1, None}:
        return FLAGS, [[title] if value else [] for value in values]
    kind = column.type.value_type if is_list(column) else column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_integer(kind) or str(kind) in ("string", "large_string", "null")):
        raise BadFile(
            path, f"column {title!r} holds {kind}, not tags", fix="give text or lists of text"
        )
    cells = []
    for value in column.to_pylist():
        if separator and isinstance(value, str):
            value = value.split(separator)
        listed = value if isinstance(value, list) else [value]
        cells.append([str(tag) for tag in listed if tag is not None])
    return title, cells


def _gather_single(
    column: Any, name: str, places: Sequence[int], path: Path, builder: PoolBuilder
) -> None:
    kind = str(image_schema().field(name).type) if name in IMAGE_COLUMNS else None
    for place, stated in zip(places, plain_column(column, name, path).to_pylist(), strict=True):
        if place < 0 or stated is None:
            continue
        value = stated
        if name in ("width", "height"):
            value = pixels(stated)
        elif kind == "double":
            value = float(stated) if isinstance(stated, int | float) else None
        elif kind is not None:
            value = str(stated)
        if value is None:
            builder.problems.add(f"{name} that is no {kind}, left empty", path.name)
        else:
            builder.state(name, place, value, f"{path.name} {name}")


@dataclass(frozen=True, eq=False)
class Keywords:
    """Classes and the words by which a tag means them.

    ``words``  folded keyword → positions of its classes in ``space``; several for a homonym
    ``facts``  where they came from
    """

    space: LabelSpace
    words: Mapping[str, tuple[int, ...]]
    facts: Mapping[str, Any]

    def classes_of(self, tags: Sequence[str]) -> list[str]:
        """The class ids of a photo's decoded tags, in the order of the label space, each once.

        A tag counts where it *equals* a keyword; case, underscores and spaces around it do not matter.
        """
        found = {place for tag in tags for place in self.words.get(_folded(tag), ())}
        return [self.space.ids[place] for place in sorted(found)]


def _folded(tag: str) -> str:
    return tag.lower().replace("_", " ").strip()


def read_keywords(argument: str) -> Keywords:
    """Keywords from a label space (its names), or a file.

    ``argument``  a built-in label space; or a JSON file: a label space; ``{class id: [keyword, …]}``;
                  or GeoYFCC's ``in5k_map.json``, a list of ``{"label_id": …, "label_name": wnid}``,
                  whose keywords are WordNet's names. As GeoYFCC did, classes of ``imagenet-1k``
                  are left out of the last
    """
    path = Path(argument)
    space = LabelSpace.load(argument) if argument in BUILT_IN else None
    facts: dict[str, Any] = {"from": path.name}
    if space is None:
        space = _keyword_classes(path)
        facts["sha256"] = sha256_file(path)
    words: dict[str, list[int]] = {}
    for position, item in enumerate(space):
        for word in dict.fromkeys(filter(None, map(_folded, item.names))):
            words.setdefault(word, []).append(position)
    several = sum(len(positions) > 1 for positions in words.values())
    facts |= {"classes": len(space), "keywords": len(words), "of_several_classes": several}
    return Keywords(space, {word: tuple(words[word]) for word in words}, facts)


def _keyword_classes(path: Path) -> LabelSpace:
    value = read_json(path)
    if isinstance(value, dict) and "classes" in value and "schema_version" in value:
        return LabelSpace.read(path)
    name = slug(path.name.partition(".")[0]).lower()
    try:
        if isinstance(value, list):
            wnids = [entry.label_name for entry in msgspec.convert(value, list[_MapEntry])]
            nodes, left_out = LabelSpace.load("wordnet-nodes"), LabelSpace.load("imagenet-1k")
            classes = [nodes.get(wnid) for wnid in dict.fromkeys(wnids) if wnid not in left_out]
        else:
            listed = msgspec.convert(value, dict[str, tuple[str, ...]])
            classes = [Class(key, words) for key, words in listed.items() if words]
    except msgspec.ValidationError:
        fix = 'write {"class id": ["keyword", …]}'
        raise BadFile(path, "holds no keywords", fix=fix) from None
    if not classes:
        raise LabelError(f"{path} has no class with keywords", fix="name one class at least")
    # A file that is called as a built-in space is not that one.
    return LabelSpace(f"{name}-keywords" if name in BUILT_IN else name, tuple(classes))


class _MapEntry(msgspec.Struct):
    """One class of GeoYFCC's ``in5k_map.json``; it has further fields."""

    label_name: str


_SPLITS = ("train", "test", "val", "valid", "validation", "labeled", "unlabeled")


def read_domainnet(
    paths: Sequence[Path], problems: Problems, options: DomainListsRequest, progress: Progress
) -> RowStream:
    """The rows of lists: path, class, domain, split.

    Numbers of classes must mean one folder each, in all lists; else classes are named by number.
    """
    import pyarrow as pa

    entries = [entry for path in paths for entry in _entries(path, problems)]
    if not entries:
        raise BadFile(paths[0], "lists no image", fix="write 'folder/file.jpg 0' on each line")
    names: dict[int, set[str]] = {}
    for name, number, _, _ in entries:
        names.setdefault(number, set()).add(Path(name).parent.name)
    numbers = sorted(names)
    folders = {folder for listed in names.values() for folder in listed if folder}
    one_to_one = sum(map(len, names.values())) == len(numbers) == len(folders)
    if not one_to_one:
        unclear = next((n for n in numbers if len(names[n]) > 1), numbers[0])
        problems.add(
            "lists whose class numbers are not one folder each; classes are named by number",
            f"class {unclear}: {', '.join(sorted(names[unclear])[:3])}",
        )
    ids = {n: next(iter(names[n])) if one_to_one else str(n) for n in numbers}
    classes = [Class(i, (i.replace("_", " "),) if one_to_one else ()) for i in ids.values()]
    images = [name for name, *_ in entries]
    columns: dict[str, Any] = {"image_id": images}
    if options.images is not None:
        columns["path"] = images
    columns |= {
        "domain": [domain for _, _, domain, _ in entries],
        "split": pa.array([split for *_, split in entries], pa.string()),
        "class_index": [number for _, number, _, _ in entries],
        "class_ids": [[ids[number]] for _, number, _, _ in entries],
    }
    return RowStream(
        iter([pa.table(columns)]),
        space=LabelSpace("listed-classes", tuple(classes)),
        truth="original",
        facts={"class_numbers": {ids[n]: n for n in numbers}},
        counts={"domains": len({domain for _, _, domain, _ in entries}), "classes": len(ids)},
    )


def _entries(path: Path, problems: Problems) -> Iterator[tuple[str, int, str, str | None]]:
    """Path, class number, domain and split of each line of a list such as ``clipart_train.txt``.

    The domain is the first of two folders, else what the list is called.
    """
    domain, split = path.stem, None
    for known in _SPLITS:
        if domain.lower().endswith((f"_{known}", f"-{known}", f".{known}")):
            domain, split = domain[: -len(known) - 1], known
            break
    for line, entry in enumerate(text_lines(path, "list of images"), 1):
        if not entry or entry.startswith("#"):
            continue
        name, _, number = entry.rpartition(" ")
        name = name.strip()
        try:
            check_id(name)
            usable = number.isdecimal() and len(number) <= 9
        except UserError:
            usable = False
        if usable:
            folder = name.split("/")[0] if name.count("/") >= 2 else domain
            yield name, int(number), folder, split
        else:
            problems.add(
                "line that is no path and class number, left out",
                f"{path.name} line {line}",
                image_lost=True,
            )
