"""Tables of tags, keywords from tags to classes, and lists of images such as DomainNet's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import existing_file, read_json, sha256_file
from heldout.core.tables import read_table_file, require_column, typed_text
from heldout.core.workspace import slug
from heldout.data.images import check_id
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.wordnet import BUILT_IN
from heldout.data.published.annotations import Words
from heldout.data.published.coco import COLUMN, fold_plurals
from heldout.data.published.json_stream import Progress
from heldout.data.published.pool_builder import Found, PoolBuilder, Problems, RowStream, pixels
from heldout.data.published.requests import DomainLists, TagTable
from heldout.data.testset.columns import is_list, plain_column
from heldout.data.testset.tables import IMAGE_COLUMNS, image_schema

if TYPE_CHECKING:
    import pyarrow as pa


FLAGS = "tag"


def read_tags(
    paths: Sequence[Path], builder: PoolBuilder, options: TagTable, progress: Progress
) -> None:
    """Gather tables; rows of one image, in one file or several, are merged."""
    tags = _tag_columns(options.tags)
    for path in paths:
        progress(str(path), 0, None)
        _read(path, tags, builder, options)
    fold_plurals(builder, options)


def _tag_columns(stated: Sequence[str]) -> dict[str, str]:
    """Table column → membership column."""
    found: dict[str, str] = {}
    for text in stated:
        column, _, name = text.partition("=")
        if not column or column in found:
            raise UserError(
                f"--tag {text!r} names no column, or one twice", fix="write COLUMN or COLUMN=NAME"
            )
        found[column] = name or column
    return found


def _read(path: Path, tags: Mapping[str, str], builder: PoolBuilder, options: TagTable) -> None:
    table = read_table_file(path)
    for column in (*tags, *options.words):
        require_column(table, column, path, "tags")
    ids = require_column(table, options.id_column, path, "image ids")
    lists = {name: name for name in table.column_names if is_list(table[name])}
    lists.pop(options.id_column, None)
    tags = {**lists, **tags}
    flags = _flag_columns(table, options.flags, path, {options.id_column, *tags})
    if not (tags or flags or options.words):
        shown = ", ".join(name for name in table.column_names if name != options.id_column)
        raise BadFile(path, "has no tags", fix=f"name them with --tag; it has {shown}")
    places = _places(ids, path, builder)
    separators = options.separators or {}
    for column, name in tags.items():
        separator = separators.get(column)
        _gather_tags(table[column], column, name, places, path, builder, separator)
    for column, values in flags.items():
        rows = np.flatnonzero(np.array([value is True for value in values], dtype=bool))
        at = places[rows]
        at = at[at >= 0]
        builder.add_codes(FLAGS, at, np.zeros(len(at), dtype=np.int64), [column])
    words = Words(options.vocabulary, fold_plurals=options.fold_plurals)
    for column in options.words:
        for place, sentence in zip(places, table[column].to_pylist(), strict=True):
            if place >= 0 and isinstance(sentence, str):
                builder.add(COLUMN, int(place), words.of(sentence))
    used = {options.id_column, *tags, *flags, *options.words}
    for column in table.column_names:
        if column not in used:
            _gather_single(table[column], column, places, path, builder)


def _places(ids: Any, path: Path, builder: PoolBuilder) -> NDArray[np.int64]:
    """The image of each row; -1 for a row without a usable id."""
    import pyarrow as pa

    if pa.types.is_integer(ids.type) or pa.types.is_large_string(ids.type):
        ids = ids.cast(pa.string())
    if not pa.types.is_string(ids.type):
        raise BadFile(path, f"has ids of type {ids.type}", fix="give ids as text")
    coded = ids.combine_chunks().dictionary_encode()
    known = np.array(
        [
            builder.image(image_id, f"{path.name}: {image_id!r:.60}")
            for image_id in coded.dictionary.to_pylist()
        ],
        dtype=np.int64,
    )
    rows = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if (rows < 0).any():
        builder.problems.add(
            "row without an image id, left out",
            f"{path.name} row {int(np.flatnonzero(rows < 0)[0]) + 1:,}",
            times=int((rows < 0).sum()),
            image_lost=True,
        )
    places: NDArray[np.int64] = np.append(known, -1)[rows]
    return places


def _gather_tags(
    column: Any,
    title: str,
    name: str,
    places: NDArray[np.int64],
    path: Path,
    builder: PoolBuilder,
    separator: str | None,
) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = column.combine_chunks()
    if pa.types.is_large_string(cells.type):
        cells = cells.cast(pa.string())
    if pa.types.is_string(cells.type) and separator:
        cells = pc.split_pattern(cells, separator)
    if is_list(cells):
        rows = pc.list_parent_indices(cells).to_numpy(zero_copy_only=False)
        values = pc.list_flatten(cells)
    else:
        rows, values = np.arange(len(cells)), cells
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_integer(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.string())
    if pa.types.is_null(values.type):
        return
    if not pa.types.is_string(values.type):
        raise BadFile(
            path,
            f"column {title!r} holds {values.type}, not tags",
            fix="give text or lists of text; true and false are --flags",
        )
    builder.add_texts(name, places[rows], values)


def _flag_columns(
    table: Any, patterns: Sequence[str], path: Path, without: set[str]
) -> dict[str, list[bool | None]]:
    """The columns of truth values that are named, or match a pattern such as ``*``."""
    import pyarrow as pa

    found: dict[str, list[bool | None]] = {}
    for pattern in patterns:
        named = [name for name in table.column_names if name == pattern]
        matched = named or [
            name
            for name in table.column_names
            if fnmatchcase(name, pattern) and name not in without
        ]
        for name in matched:
            column = typed_text(table[name])
            if pa.types.is_integer(column.type) and set(column.to_pylist()) <= {0, 1, None}:
                column = column.cast(pa.bool_())
            if pa.types.is_boolean(column.type):
                found[name] = column.to_pylist()
            elif named:
                raise BadFile(
                    path, f"column {name!r} is not true or false", fix="name it with --tags"
                )
        if not matched:
            require_column(table, pattern, path, "flags")
    return found


def _gather_single(
    column: Any, name: str, places: NDArray[np.int64], path: Path, builder: PoolBuilder
) -> None:
    kind = image_schema().field(name).type if name in IMAGE_COLUMNS else None
    values = plain_column(column, name, path).to_pylist()
    for place, stated in zip(places.tolist(), values, strict=True):
        if place < 0 or stated is None:
            continue
        value = stated
        if name in ("width", "height"):
            value = pixels(stated)
        elif str(kind) == "double":
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

    @cached_property
    def _table(self) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
        """The keywords as an Arrow array, one row per class of each; the classes in that order;
        and how many each keyword has."""
        import pyarrow as pa

        counts = np.array([len(classes) for classes in self.words.values()], dtype=np.int64)
        flat = [position for classes in self.words.values() for position in classes]
        return pa.array(list(self.words), pa.string()), np.array(flat, dtype=np.int64), counts

    def classes_of(self, tags: Any) -> Any:
        """The class ids of lists of tags, as lists in the order of the label space, each once.

        ``tags`` is an Arrow list array of decoded texts without nulls. A tag counts where it *equals*
        a keyword; case, underscores and spaces around it do not matter.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        words, classes, counts = self._table
        place = pc.index_in(folded_tags(tags.flatten()), value_set=words).fill_null(-1)
        codes = place.to_numpy(zero_copy_only=False).astype(np.int64)
        hit = np.flatnonzero(codes >= 0)
        codes = codes[hit]
        rows = np.repeat(pc.list_parent_indices(tags).to_numpy()[hit], counts[codes])
        # The classes of a keyword stand side by side: count on from where its first one is.
        ends = np.cumsum(counts[codes])
        begin = (np.cumsum(counts) - counts)[codes] - (ends - counts[codes])
        at = np.repeat(begin, counts[codes]) + np.arange(len(rows))
        rows, found = np.divmod(np.unique(rows * len(self.space) + classes[at]), len(self.space))
        ids = pa.array(self.space.ids, pa.string()).take(pa.array(found, pa.int64()))
        ends = np.cumsum(np.bincount(rows, minlength=len(tags)))
        return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), ids)


def folded_tags(values: Any) -> Any:
    """Tags and keywords as they are compared: lower case, underscores as spaces, trimmed."""
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(pc.replace_substring(pc.utf8_lower(values), "_", " "))


def read_keywords(argument: str, *, without: str | None = None) -> Keywords:
    """Keywords from a label space (its names), or a file.

    ``argument``  a built-in label space; or a file: a label space; ``{class id: [keyword, …]}``;
                  GeoYFCC's ``in5k_map.json``, a list of ``{"label_id": …, "label_name": wnid}``, whose
                  keywords are WordNet's names; a CSV with ``class_id,keyword``
    ``without``   a label space whose classes do not count: GeoYFCC leaves out ``imagenet-1k``
    """
    path = Path(argument)
    facts: dict[str, Any] = {"from": path.name}
    if argument in BUILT_IN:
        named = [(item, item.names) for item in LabelSpace.load(argument)]
        name = argument
    else:
        named, name = _of_file(path)
        facts["sha256"] = sha256_file(path)
    if without is not None:
        left_out = set(LabelSpace.load(without).ids)
        named = [(item, words) for item, words in named if item.id not in left_out]
        facts["without"] = Path(without).name
        name = f"{name}-without-{slug(Path(without).stem)}".lower()
    if not named:
        raise LabelError(f"{argument} has no class with keywords", fix="name one class at least")
    return _keywords(named, name, facts)


def _keywords(
    named: list[tuple[Class, tuple[str, ...]]], name: str, facts: dict[str, Any]
) -> Keywords:
    import pyarrow as pa

    words: dict[str, list[int]] = {}
    for position, (_, listed) in enumerate(named):
        folded = folded_tags(pa.array(list(listed), pa.string())).to_pylist()
        for word in dict.fromkeys(filter(None, folded)):
            words.setdefault(word, []).append(position)
    several = sum(len(positions) > 1 for positions in words.values())
    facts |= {"classes": len(named), "keywords": len(words), "of_several_classes": several}
    classes = tuple(item for item, _ in named)
    if name in BUILT_IN and LabelSpace.load(name).ids != tuple(item.id for item in classes):
        name = f"{name}-keywords"  # a file that is called as a built-in space is not that one
    space = LabelSpace.load(name) if name in BUILT_IN else LabelSpace(name, classes)
    return Keywords(space, {word: tuple(words[word]) for word in words}, facts)


def _of_file(path: Path) -> tuple[list[tuple[Class, tuple[str, ...]]], str]:
    name = slug(path.name.partition(".")[0]).lower()
    listed: dict[str, list[str]] = {}
    if path.suffix.lower() in (".csv", ".tsv"):
        table = read_table_file(path)
        ids = require_column(table, "class_id", path, "the class").to_pylist()
        words = require_column(table, "keyword", path, "its keywords").to_pylist()
        for class_id, word in zip(ids, words, strict=True):
            if class_id and word:
                listed.setdefault(class_id, []).append(word)
    else:
        value = read_json(path)
        if isinstance(value, dict) and "classes" in value and "schema_version" in value:
            space = LabelSpace.read(path)
            return [(item, item.names) for item in space], space.name
        try:
            if isinstance(value, list):
                return _synsets(msgspec.convert(value, list[_MapEntry]), path), name
            listed = msgspec.convert(value, dict[str, list[str]])
        except msgspec.ValidationError:
            raise BadFile(
                path,
                "holds no keywords",
                fix='write {"class id": ["keyword", …]} or a CSV with class_id,keyword',
            ) from None
    return [(Class(k, tuple(words)), tuple(words)) for k, words in listed.items() if words], name


class _MapEntry(msgspec.Struct):
    """One class of GeoYFCC's ``in5k_map.json``; it has further fields."""

    label_name: str


def _synsets(entries: list[_MapEntry], path: Path) -> list[tuple[Class, tuple[str, ...]]]:
    nodes = LabelSpace.load("wordnet-nodes")
    wnids = dict.fromkeys(entry.label_name for entry in entries)
    unknown = [wnid for wnid in wnids if wnid not in nodes]
    if unknown:
        raise BadFile(
            path, f"names {unknown[0]!r}, which is not a known WordNet id", fix="remove it"
        )
    return [(nodes.get(wnid), nodes.get(wnid).names) for wnid in wnids]


_SPLITS = ("train", "test", "val", "valid", "validation", "labeled", "unlabeled")


def read_domainnet(
    paths: Sequence[Path], problems: Problems, options: DomainLists, progress: Progress
) -> RowStream:
    """The rows of lists: path, class, domain, split.

    Numbers of classes must mean one folder each, in all lists; else classes are named by number.
    """
    entries = [entry for path in paths for entry in _entries(path, problems)]
    if not entries:
        raise BadFile(paths[0], "lists no image", fix="write 'folder/file.jpg 0' on each line")
    numbers = sorted({number for _, number, _, _ in entries})
    names: dict[int, set[str]] = {}
    for name, number, _, _ in entries:
        names.setdefault(number, set()).add(_folder(name))
    clear = [next(iter(listed)) for listed in names.values() if len(listed) == 1]
    one_to_one = len(clear) == len(names) == len(set(clear)) and "" not in clear
    if not one_to_one:
        unclear = next((n for n in numbers if len(names[n]) > 1), numbers[0])
        problems.add(
            "lists whose class numbers are not one folder each; classes are named by number",
            f"class {unclear}: {', '.join(sorted(names[unclear])[:3])}",
        )
    ids = {n: next(iter(names[n])) if one_to_one else str(n) for n in numbers}
    try:
        space = LabelSpace(
            "listed-classes",
            tuple(
                Class(ids[n], (ids[n].replace("_", " "),) if one_to_one else ()) for n in numbers
            ),
        )
    except LabelError as error:
        raise BadFile(paths[0], error.message, fix=error.fix) from None
    found = Found(
        space=space,
        truth="original",
        facts={"class_numbers": {ids[n]: n for n in numbers}},
    )
    return RowStream(_tables(entries, ids, found, paths=options.images is not None), found)


def _tables(
    entries: list[tuple[str, int, str, str]], ids: dict[int, str], found: Found, *, paths: bool
) -> Iterator[pa.Table]:
    import pyarrow as pa

    text = pa.string()
    columns: dict[str, Any] = {
        "image_id": pa.array([name for name, *_ in entries], text),
        "path": pa.array([name for name, *_ in entries], text),
        "domain": pa.array([domain for _, _, domain, _ in entries], text),
        "split": pa.array([split or None for *_, split in entries], text),
        "class_index": pa.array([number for _, number, _, _ in entries], pa.int64()),
        "class_ids": pa.array([[ids[number]] for _, number, _, _ in entries], pa.list_(text)),
    }
    if not paths:
        del columns["path"]
    found.counts = {
        "domains": len(set(columns["domain"].to_pylist())),
        "classes": len(ids),
    }
    yield pa.table(columns)


def _entries(path: Path, problems: Problems) -> Iterator[tuple[str, int, str, str]]:
    try:
        text = existing_file(path, "list of images").read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not text in UTF-8", fix="save it as UTF-8") from None
    domain, split = _domainnet_of_file(path.stem)
    for line, entry in enumerate(text.split("\n"), start=1):
        entry = entry.strip()
        if not entry or entry.startswith("#"):
            continue
        name, _, number = entry.rpartition(" ")
        name = name.strip()
        where = f"{path.name} line {line}"
        if not number.isdecimal() or len(number) > 9 or not _usable(name):
            problems.add("line that is no path and class number, left out", where, image_lost=True)
            continue
        inside = name.split("/")[0] if name.count("/") >= 2 else domain
        if domain and inside != domain and domain in name:
            inside = domain
        yield name, int(number), inside or domain, split


def _domainnet_of_file(stem: str) -> tuple[str, str]:
    """Domain and split of a list's name.

    >>> _domainnet_of_file("clipart_train"), _domainnet_of_file("real")
    (('clipart', 'train'), ('real', ''))
    """
    for split in _SPLITS:
        for mark in ("_", "-", "."):
            if stem.lower().endswith(f"{mark}{split}"):
                return stem[: -len(split) - 1], split
    return stem, ""


def _folder(name: str) -> str:
    parts = name.split("/")
    return parts[-2] if len(parts) > 1 else ""


def _usable(name: str) -> bool:
    try:
        check_id(name)
    except UserError:
        return False
    return True
