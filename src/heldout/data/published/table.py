"""Any table with an id column and tags: CSV, TSV, JSON lines, Parquet.

Columns named as tags become memberships: lists as they are, text split at a separator where one is
given. Lists that nobody named become memberships of their own name. Columns of true and false named
as flags become values of ``tag``; sentences become ``caption_word``. All other columns stay
single-valued columns of the images, with their types. Several rows of one image are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, UserError
from heldout.core.tables import read_table_file, require_column, typed_text
from heldout.data.published.captions import COLUMN, fold_plurals
from heldout.data.published.documents import Progress
from heldout.data.published.gathering import Gathering, pixels
from heldout.data.published.names import Names
from heldout.data.published.options import ReaderOptions
from heldout.data.published.words import Words
from heldout.data.testset.manifest_columns import is_list, plain_column
from heldout.data.testset.tables import IMAGE_COLUMNS, image_schema

FLAGS = "tag"


def read_tags(
    paths: Sequence[Path], gathering: Gathering, options: ReaderOptions, progress: Progress
) -> None:
    """Gather tables; rows of one image, in one file or several, are merged."""
    tags = _tag_columns(options.tags)
    for path in paths:
        progress(str(path), 0, None)
        _read(path, tags, gathering, options)
    fold_plurals(gathering, options)


def _tag_columns(stated: Sequence[str]) -> dict[str, str]:
    """Table column → membership column."""
    found: dict[str, str] = {}
    for text in stated:
        column, _, name = text.partition("=")
        if not column or column in found:
            raise UserError(
                f"--tags {text!r} names no column, or one twice", fix="write COLUMN or COLUMN=NAME"
            )
        found[column] = name or column
    return found


def _read(
    path: Path, tags: Mapping[str, str], gathering: Gathering, options: ReaderOptions
) -> None:
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
        raise BadFile(path, "has no tags", fix=f"name them with --tags; it has {shown}")
    places = _places(ids, path, gathering)
    for column, name in tags.items():
        _gather_tags(table[column], column, name, places, path, gathering, options.separator)
    for column, values in flags.items():
        rows = np.flatnonzero(np.array([value is True for value in values], dtype=bool))
        at = places[rows]
        at = at[at >= 0]
        gathering.add_codes(FLAGS, at, np.zeros(len(at), dtype=np.int64), [column])
    words = Words(options.vocabulary, fold_plurals=options.fold_plurals)
    for column in options.words:
        for place, sentence in zip(places, table[column].to_pylist(), strict=True):
            if place >= 0 and isinstance(sentence, str):
                gathering.add(COLUMN, int(place), words.of(sentence))
    used = {options.id_column, *tags, *flags, *options.words}
    for column in table.column_names:
        if column not in used:
            _gather_single(table[column], column, places, path, gathering)


def _places(ids: Any, path: Path, gathering: Gathering) -> NDArray[np.int64]:
    """The image of each row; -1 for a row without a usable id."""
    import pyarrow as pa

    if pa.types.is_integer(ids.type) or pa.types.is_large_string(ids.type):
        ids = ids.cast(pa.string())
    if not pa.types.is_string(ids.type):
        raise BadFile(path, f"has ids of type {ids.type}", fix="give ids as text")
    coded = ids.combine_chunks().dictionary_encode()
    known = np.array(
        [
            gathering.image(image_id, f"{path.name}: {image_id!r:.60}")
            for image_id in coded.dictionary.to_pylist()
        ],
        dtype=np.int64,
    )
    rows = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if (rows < 0).any():
        gathering.problems.add(
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
    gathering: Gathering,
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
    coded = values.dictionary_encode()
    clean = Names()
    words = [clean.clean(word) for word in coded.dictionary.to_pylist()]
    used = np.array([bool(word) for word in words] + [False], dtype=bool)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    at = places[rows]
    keep = used[codes] & (at >= 0)
    gathering.add_codes(name, at[keep], codes[keep], [word or "-" for word in words])


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
    column: Any, name: str, places: NDArray[np.int64], path: Path, gathering: Gathering
) -> None:
    values = plain_column(column, name, path).to_pylist()
    fixed = name in IMAGE_COLUMNS
    kind = image_schema().field(name).type if fixed else None
    for place, value in zip(places.tolist(), values, strict=True):
        if place < 0 or value is None:
            continue
        if fixed:
            value = _fixed(name, value, str(kind))
            if value is None:
                gathering.problems.add(f"{name} that is no {kind}, left empty", path.name)
                continue
        gathering.state(name, place, value, f"{path.name} {name}")


def _fixed(name: str, value: Any, kind: str) -> Any:
    """A value of a fixed column as that column's type; None where it cannot be."""
    if name in ("width", "height"):
        return pixels(value)
    if kind == "double":
        return float(value) if isinstance(value, int | float) else None
    return str(value)
