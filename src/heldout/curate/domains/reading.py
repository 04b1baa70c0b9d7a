"""What the recipe reads of each row: id, similarity, class and domain, from columns of any names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import NotFound, UserError
from heldout.curate.domains.keys import Keys, similarity_keys
from heldout.curate.domains.rows import Rows
from heldout.data.testset.tables import IMAGE_COLUMNS

T = TypeVar("T")
Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]
CLASS = "class_id"
"""The column of classes where none is named, and what it is called among the chosen rows."""
POOL_CLASS = "pool_class_id"
"""What a column ``class_id`` is called among the chosen rows where classes come from elsewhere."""
IDS = ("image_id", "row_id", "yfcc_row_id", "id")
"""Columns that are taken for the ids of rows where none is named."""


class Coder:
    """Values of a column as codes, the same in every batch; ``names`` by code, in any order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Any = None
        self._recent = threading.local()
        self.names: list[str] = []

    def codes(self, column: Any) -> Codes:
        """The code of every value; -1 for null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        table = self._table(coded.dictionary)
        indices = coded.indices
        if indices.null_count:
            indices = pc.fill_null(indices.cast(pa.int64()), -1)
        codes: Codes = table[indices.to_numpy(zero_copy_only=False)]
        return codes

    def _table(self, values: Any) -> Codes:
        """The codes of a dictionary, the last one for null; batches in turn often share theirs."""
        known = getattr(self._recent, "values", None)
        if known is None or not known.equals(values):
            self._recent.table = np.append(self._codes_of(values), np.int64(-1))
            self._recent.values = values
        table: Codes = self._recent.table
        return table

    def _codes_of(self, values: Any) -> Codes:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = values.cast(pa.string())
        with self._lock:
            if self._known is None:
                self._known = pa.array([], pa.string())
            found = pc.index_in(texts, value_set=self._known)
            if found.null_count:
                fresh = texts.filter(pc.is_null(found)).unique().drop_null()
                self.names.extend(fresh.to_pylist())
                self._known = pa.concat_arrays([self._known, fresh])
                found = pc.index_in(texts, value_set=self._known)
        codes: Codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes


@dataclass(frozen=True, eq=False)
class Seen:
    """One batch as the recipe sees it; ``complete`` rows have an id, a class, a domain, a similarity.

    ``keys``  of their similarities; None where the pass does not read them
    """

    complete: Mask
    keys: Keys | None
    batch: Any


@dataclass(frozen=True, eq=False)
class Reader:
    """The rows with the names of the columns that matter. Make one with :func:`reader`.

    ``kept``        all columns of the rows that are taken
    ``maybe_null``  columns that decide and may have rows without a value
    """

    rows: Rows
    id: str
    class_column: str
    domain: str
    similarity: str | None
    kept: tuple[str, ...] = ()
    maybe_null: frozenset[str] = frozenset()
    classes: Coder = field(default_factory=Coder)
    domains: Coder = field(default_factory=Coder)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide."""
        similarity = () if self.similarity is None else (self.similarity,)
        return (self.id, self.class_column, self.domain, *similarity)

    def scan(self, columns: Sequence[str], work: Callable[[Seen], T]) -> Iterator[T]:
        """One pass over all rows with these columns and what tells complete rows."""
        wanted = dict.fromkeys([*columns, *sorted(self.maybe_null)])

        def on_batch(batch: Any) -> T:
            return work(self._seen(batch))

        return self.rows.scan(list(wanted), on_batch)

    def _seen(self, batch: Any) -> Seen:
        import pyarrow.compute as pc

        complete = np.ones(len(batch), dtype=bool)
        for name in self.maybe_null:
            column = batch.column(name)
            if column.null_count:
                complete &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        keys = None
        if self.similarity is not None and self.similarity in batch.schema.names:
            column = batch.column(self.similarity)
            values = column.fill_null(0) if column.null_count else column
            numbers = values.to_numpy(zero_copy_only=False)
            if numbers.dtype.kind == "f":
                nan = np.isnan(numbers)
                if nan.any():
                    complete &= ~nan
            keys = similarity_keys(numbers)
        return Seen(complete, keys, batch)


def reader(
    rows: Rows,
    *,
    id_column: str | None,
    class_column: str,
    domain: str,
    similarity: str | None,
    where: str,
    keep: Sequence[str] = (),
) -> Reader:
    """A reader of these columns; ones that are missing or cannot serve are a user's error.

    ``keep``  further columns of the rows that are taken; all but lists by default
    """
    import pyarrow as pa

    names = rows.schema.names
    chosen = id_column or next((name for name in IDS if name in names), None)
    if chosen is None:
        raise NotFound(
            f"{where} has no column of ids", fix=f"name one with --id: it has {', '.join(names)}"
        )
    wanted = {"--id": chosen, "--class": class_column, "--domain": domain}
    if similarity is not None:
        wanted["--similarity"] = similarity
    for option, name in wanted.items():
        if name not in names:
            raise NotFound(
                f"{where} has no column {name!r}", fix=f"{option} takes one of {', '.join(names)}"
            )
        kind = rows.schema.field(name).type
        held = kind.value_type if pa.types.is_dictionary(kind) else kind
        number = pa.types.is_integer(held) or pa.types.is_floating(held)
        if option == "--similarity":
            if not number:
                raise UserError(
                    f"{where}: column {name!r} is {held}", fix="similarities are numbers"
                )
        elif not (
            pa.types.is_integer(held) or pa.types.is_string(held) or pa.types.is_large_string(held)
        ):
            raise UserError(
                f"{where}: column {name!r} is {held}",
                fix="ids, classes and domains are texts or whole numbers, one a row",
            )
    if len(set(wanted.values())) < len(wanted):
        raise UserError(f"{where}: one column serves twice", fix="name different columns")
    unsure = frozenset(name for name in wanted.values() if rows.facts(name).nulls != 0)
    kept = _kept(rows, [*wanted.values()], keep, where)
    return Reader(rows, chosen, class_column, domain, similarity, kept, unsure)


def _kept(rows: Rows, needed: list[str], keep: Sequence[str], where: str) -> tuple[str, ...]:
    """The columns of the rows that are taken, in the order of the files."""
    import pyarrow as pa

    missing = [name for name in keep if name not in rows.schema.names]
    if missing:
        raise NotFound(
            f"{where} has no column {missing[0]!r}",
            fix=f"--keep takes some of {', '.join(rows.schema.names)}",
        )
    wanted = {*needed, *IMAGE_COLUMNS, *keep}
    return tuple(
        field.name
        for field in rows.schema
        if field.name in needed
        or (not pa.types.is_nested(field.type) and (not keep or field.name in wanted))
    )
