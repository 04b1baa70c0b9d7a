"""CSV, TSV, JSON lines and Parquet as one Arrow table; errors name the file and the line.

Text formats are read as text and typed afterwards over whole columns, so that what a value means
never depends on how far a reader looked ahead, and identifiers such as ``007`` stay what they are.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.errors import BadFile, NotFound
from heldout.core.files import FORMULA, csv_text_of, parse_json

if TYPE_CHECKING:
    import pyarrow as pa

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
SUFFIXES = (*_DELIMITERS, *_JSON_LINES, *_PARQUET)
"""The file endings that :func:`read_table_file` reads."""

_WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,15})(\.[0-9]+)?([eE][+-]?[0-9]+)?$"  # longer ones lose digits
_TRUTH_VALUE = r"^([Tt]rue|[Ff]alse)$"


def read_table_file(path: Path, *, types: Mapping[str, Any] | None = None) -> pa.Table:
    """Read a table by its file ending. At least one row; column names are unique and not empty.

    CSV and TSV columns come as text, empty cells as null, unless ``types`` gives an Arrow type
    for a column; JSON lines and Parquet keep the types they have.
    """
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise BadFile(path, f"has the ending {suffix!r}", fix=f"give one of {', '.join(SUFFIXES)}")
    if path.stat().st_size == 0:
        raise BadFile(path, "is empty", fix="write or fetch it again")
    if suffix in _DELIMITERS:
        table = _read_delimited(path, _DELIMITERS[suffix], types or {})
    elif suffix in _JSON_LINES:
        table = table_from_rows(_read_json_lines(path), path)
    else:
        table = _read_parquet(path)
    if len(table) == 0:
        raise BadFile(path, "has no rows", fix="write or fetch it again")
    if "" in table.column_names:
        raise BadFile(path, "has a column without a name", fix="name every column")
    return table


def csv_header(path: Path) -> list[str]:
    """The column names of a CSV or TSV file; they must be unique and not empty."""
    return [csv_text_of(name) for name in _csv_header(path)]


def _csv_header(path: Path) -> list[str]:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            names = next(csv.reader(handle, delimiter=_DELIMITERS[path.suffix.lower()]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadFile(path, f"is not text in UTF-8 ({error})", fix="save it as UTF-8") from None
    if not names or not all(names):
        raise BadFile(
            path, "has a column without a name", fix="name every column in the first line"
        )
    plain = [csv_text_of(name) for name in names]
    repeated = sorted({name for name in plain if plain.count(name) > 1})
    if repeated:
        raise BadFile(path, f"has two columns {repeated[0]!r}", fix="give each its own name")
    return names


def _read_delimited(path: Path, delimiter: str, types: Mapping[str, Any]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = _csv_header(path)
    try:
        table = arrow_csv.read_csv(
            path,
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: types.get(csv_text_of(name), pa.string()) for name in names},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowException as error:
        raise BadFile(
            path, f"cannot be read as CSV ({_first_line(error)})", fix="correct that line"
        ) from None
    columns = [_without_marks(column) for column in table.columns]
    return pa.table(columns, names=[csv_text_of(name) for name in names])


def _without_marks(column: Any) -> Any:
    """A column of CSV with its texts as they were before :func:`csv_cells`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type) or not pc.any(pc.starts_with(column, "'")).as_py():
        return column
    return pc.replace_substring_regex(column, rf"\A'({FORMULA})", r"\1")


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8-sig") as handle:
            for number, line in enumerate(handle, start=1):
                if not line.strip():
                    continue
                try:
                    row = parse_json(line)
                except ValueError as error:
                    raise BadFile(
                        path, f"line {number} is not valid JSON ({error})", fix="correct that line"
                    ) from None
                if not isinstance(row, dict):
                    raise BadFile(
                        path, f"line {number} is not a JSON object", fix="write one per line"
                    )
                rows.append(row)
    except UnicodeDecodeError as error:
        raise BadFile(path, f"is not text in UTF-8 ({error})", fix="save it as UTF-8") from None
    return rows


def table_from_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> pa.Table:
    """An Arrow table from JSON objects; a column of mixed types is refused by name."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, OverflowError) as error:
            raise BadFile(
                path,
                f"column {name!r} mixes kinds of values ({_first_line(error)})",
                fix="give it one type in all rows",
            ) from None
    return pa.table(columns)


def read_parquet(path: Path, *, schema: Any = None, columns: Sequence[str] | None = None) -> Any:
    """A Parquet file whose values Python can hold; ``columns`` those wanted, all by default.

    ``schema``  columns that must be there, cast to its types; the others stay as they are
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise NotFound(f"no file {path}", fix="write or fetch it again")
    with _readable(path):
        for name in columns or ():
            if name not in (there := pq.read_schema(path).names):
                raise BadFile(
                    path, f"has no column {name!r}", fix=f"it has {', '.join(there[:12])}"
                )
        table = pq.read_table(path, columns=columns, partitioning=None)
        _check_values(table, path)
    for field in schema or ():
        if field.name not in table.column_names:
            needed = ", ".join(schema.names)
            raise BadFile(path, f"lacks the column {field.name}", fix=f"it needs {needed}")
        column = table[field.name]
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException:
                raise BadFile(
                    path,
                    f"has a column {field.name} that is not {field.type}",
                    fix="write it again",
                ) from None
            table = table.set_column(table.column_names.index(field.name), field, column)
    return table


def parquet_batches(path: Path, *, size: int, options: Any = None, **given: Any) -> Iterator[Any]:
    """The rows of a Parquet file, ``size`` at a time, whose values Python can hold.

    ``options``  of ``pyarrow.parquet.ParquetFile``; ``given`` goes to its ``iter_batches``
    """
    import pyarrow.parquet as pq

    with _readable(path), pq.ParquetFile(path, **(options or {})) as opened:
        for batch in opened.iter_batches(size, **given):
            _check_values(batch, path)
            yield batch


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: names of columns
        raise BadFile(
            path, f"cannot be read as Parquet ({_first_line(error)})", fix="write or fetch it again"
        ) from None


def _check_values(table: Any, path: Path) -> None:
    """Refuse two columns of one name, text that is not UTF-8, and times that Python does not have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = table.schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadFile(path, f"has two columns {twice[0]!r}", fix="give each its own name")
    table.validate(full=True)
    for field in table.schema:
        if pa.types.is_temporal(field.type):
            try:
                pc.min_max(table[field.name]).as_py()
            except (ValueError, OverflowError) as error:
                raise BadFile(
                    path, f"column {field.name!r} is out of range ({error})", fix="write it as text"
                ) from None


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow as pa

    table = read_parquet(path)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            at = table.column_names.index(name)
            table = table.set_column(at, name, column.cast(column.type.value_type))
    return table


def typed_text(column: Any) -> Any:
    """A text column as whole numbers, numbers or truth values, where *every* value is written so.

    ``007``, ``1e999`` and ``nan`` are not: a column that holds one stays text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    present = column.drop_null()
    if not pa.types.is_string(column.type) or len(present) == 0:
        return column
    for pattern, kind in (
        (_WHOLE, pa.int64()),
        (_NUMBER, pa.float64()),
        (_TRUTH_VALUE, pa.bool_()),
    ):
        if pc.all(pc.match_substring_regex(present, pattern)).as_py():
            values = column.cast(kind)
            finite = kind != pa.float64() or pc.all(pc.is_finite(values.drop_null())).as_py()
            return values if finite else column
    return column


def require_column(table: Any, name: str, path: Path, what: str) -> Any:
    """A column by name, or an error that lists the columns there are."""
    if name not in table.column_names:
        shown = ", ".join(table.column_names[:12]) + (", …" if len(table.column_names) > 12 else "")
        raise BadFile(
            path, f"has no column {name!r} for {what}", fix=f"it has {shown}; name one of these"
        )
    return table[name]


def text_ids(
    column: Any, path: Path, *, unique: bool = True, fix: str = "keep one row per image"
) -> list[str]:
    """An id column as texts: present, not empty, each once. Whole numbers become their digits.

    ``fix``  what to do about an id that is there twice
    """
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise BadFile(path, f"has ids of type {column.type}", fix="give ids as text")
    ids: list[str] = column.to_pylist()
    seen: dict[str, int] = {}
    for row, image in enumerate(ids, start=1):
        if not image:
            raise BadFile(path, f"row {row} has no image id", fix="give every row an id")
        if unique and image in seen:
            raise BadFile(
                path,
                f"has image {image!r} in rows {seen[image]} and {row}",
                fix=fix,
            )
        seen[image] = row
    return ids


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
