"""Choosing rows: passes over any number of them, in memory that holds a batch and what is chosen.

1. the best by similarity: two passes over that column, a third where ties are cut;
2. one pass counts classes by domains; rules on these counts choose domains and classes;
3. where domains are capped, one pass chooses the rows of each, and another counts again;
4. one pass takes the rows of the chosen classes.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import NotFound, UserError
from heldout.core.files import canonical_json
from heldout.core.records import Table
from heldout.curate.domains.parquet_scan import Rows, held_type
from heldout.curate.domains.requests import DomainsParameters
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.data.testset.tables import IMAGE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Keys = NDArray[np.unsignedinteger[Any]]
CLASS = "class_id"
"""The column of classes where none is named, and what it is called among the chosen rows."""
POOL_CLASS = "pool_class_id"
"""What a column ``class_id`` is called among the chosen rows where classes come from elsewhere."""
IDS = ("image_id", "row_id", "yfcc_row_id", "id")
"""Columns that are taken for the ids of rows where none is named."""
MOST_CELLS = 1 << 24
"""Classes times domains that are counted; a column with more values does not name domains."""
BUCKET_BITS = 16
"""Bits of a similarity that one pass decides."""
FEW = 1 << 20
"""Keys that are sorted in memory instead of counted once more."""
SPARE = 8.0
"""Standard deviations by which a pass looks beyond where a cap is expected to cut."""


class CategoryCodes:
    """Values of a column as codes, the same in every batch; ``names`` by code."""

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._seed = seed
        self._values: Any = None
        self._table = np.zeros(0, dtype=np.int64)
        self._hashes = np.zeros(0, dtype=np.uint64)
        self.names: list[str] = []

    def codes(self, column: Any) -> Codes:
        """The code of every value; -1 for null."""
        import pyarrow as pa

        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        with self._lock:
            # Batches in turn often share their dictionary.
            if self._values is None or not self._values.equals(coded.dictionary):
                self._table = self._codes_of(coded.dictionary)
                self._values = coded.dictionary
            table = self._table
        indices = coded.indices
        if indices.null_count:
            indices = indices.cast(pa.int64()).fill_null(-1)
        codes: Codes = table[indices.to_numpy(zero_copy_only=False)]
        return codes

    def _codes_of(self, values: Any) -> Codes:
        """The codes of the values of a dictionary, then that of null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = values.cast(pa.string())
        known = pa.array(self.names, pa.string())
        fresh = texts.filter(pc.invert(pc.is_in(texts, value_set=known))).unique().drop_null()
        self.names.extend(fresh.to_pylist())
        self._hashes = np.append(row_hash(self.names, seed=self._seed), np.uint64(0))
        found = pc.index_in(texts, value_set=pa.array(self.names, pa.string())).fill_null(-1)
        return np.append(found.to_numpy(), -1).astype(np.int64)

    def hashes(self, codes: Codes) -> Hashes:
        """The hash of the name of every code; 0 for null."""
        return self._hashes[codes]

    def sort(self) -> None:
        """From now on codes are in the order of the names, whatever the order they came in."""
        self.names.sort()
        self._values = None


class RowBatch:
    """One batch of a pass; ``start`` is the number of its first row.

    What follows from its columns is computed once, where it is needed.
    """

    def __init__(self, reader: Reader, columns: pa.RecordBatch, start: int) -> None:
        self.reader = reader
        self.columns = columns
        self.start = start

    @property
    def ids(self) -> Any:
        """The column of ids."""
        return self.columns.column(self.reader.id)

    @cached_property
    def classes(self) -> Codes:
        """The class of every row."""
        return self.reader.classes.codes(self.columns.column(self.reader.class_column))

    @cached_property
    def domains(self) -> Codes:
        """The domain of every row."""
        return self.reader.domains.codes(self.columns.column(self.reader.domain))

    @cached_property
    def _similarities(self) -> NDArray[Any] | None:
        name = self.reader.similarity
        if name is None or name not in self.columns.schema.names:
            return None
        numbers: NDArray[Any] = (
            self.columns.column(name).fill_null(0).to_numpy(zero_copy_only=False)
        )
        return numbers

    @cached_property
    def keys(self) -> Keys:
        """The keys of similarities, in a pass that reads them; zeros in others."""
        numbers = self._similarities
        if numbers is None:
            return np.zeros(len(self.columns), dtype=np.uint32)
        return similarity_keys(numbers)

    @cached_property
    def complete(self) -> Mask:
        """Rows with an id, a class, a domain and a similarity, bool (n,)."""
        import pyarrow.compute as pc

        complete = np.ones(len(self.columns), dtype=bool)
        for name in self.reader.maybe_null:
            column = self.columns.column(name)
            if column.null_count:
                complete &= pc.is_valid(column).to_numpy(zero_copy_only=False)
        if self._similarities is not None and self._similarities.dtype.kind == "f":
            complete &= ~np.isnan(self._similarities)
        return complete

    def among(self, numbers: NDArray[np.int64]) -> Mask:
        """Which rows have one of these numbers, which are sorted."""
        among = np.zeros(len(self.columns), dtype=bool)
        ends = np.searchsorted(numbers, [self.start, self.start + len(among)])
        among[numbers[slice(*ends)] - self.start] = True
        return among


Rule = Callable[[RowBatch], Mask]


@dataclass(frozen=True, eq=False)
class Reader:
    """The rows with the names of the columns that matter. Make one with :func:`read_columns`.

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
    classes: CategoryCodes = field(default_factory=lambda: CategoryCodes(1))
    domains: CategoryCodes = field(default_factory=lambda: CategoryCodes(2))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide."""
        similarity = () if self.similarity is None else (self.similarity,)
        return (self.id, self.class_column, self.domain, *similarity)

    def scan(self, columns: Iterable[str], work: Callable[[RowBatch], T]) -> Iterator[T]:
        """One pass over all rows with these columns and those that say which rows are complete."""
        wanted = list(dict.fromkeys([*columns, *sorted(self.maybe_null)]))
        return self.rows.scan(wanted, lambda batch, start: work(RowBatch(self, batch, start)))


def read_columns(rows: Rows, parameters: DomainsParameters, *, where: str) -> Reader:
    """A reader of the columns that the parameters name; ones that cannot serve are a user's error.

    Of the rows that are taken all columns but lists are kept, or those that are named and those that
    splits and intervals need.
    """
    import pyarrow as pa

    names = rows.schema.names
    chosen = parameters.id or next((name for name in IDS if name in names), None)
    if chosen is None:
        raise NotFound(
            f"{where} has no column of ids",
            fix=f"name one with --id-column: it has {', '.join(names)}",
        )
    wanted = {
        "--id-column": chosen,
        "--class-column": parameters.class_column,
        "--domain": parameters.domain,
    }
    if parameters.similarity is not None:
        wanted["--similarity-column"] = parameters.similarity
    needed = set(wanted.values())
    keep = (*parameters.keep, *parameters.split_columns) if parameters.keep else ()
    for option, name in (*wanted.items(), *(("--keep-column", name) for name in keep)):
        if name not in names:
            raise NotFound(
                f"{where} has no column {name!r}", fix=f"{option} takes one of {', '.join(names)}"
            )
    for option, name in wanted.items():
        held = held_type(rows.schema.field(name).type)
        if option == "--similarity-column":
            fits, fix = pa.types.is_floating(held), "similarities are numbers"
        else:
            fits = held in (pa.string(), pa.large_string())
            fix = "ids, classes and domains are texts or whole numbers, one per row"
        if not fits and not pa.types.is_integer(held):
            raise UserError(f"{where}: column {name!r} is {held}", fix=fix)
    if len(needed) < len(wanted):
        raise UserError(f"{where}: one column serves twice", fix="name different columns")
    return Reader(
        rows,
        chosen,
        parameters.class_column,
        parameters.domain,
        parameters.similarity,
        kept=tuple(
            column.name
            for column in rows.schema
            if column.name in needed
            or (
                not pa.types.is_nested(column.type)
                and (not keep or column.name in {*IMAGE_COLUMNS, *keep})
            )
        ),
        maybe_null=frozenset(name for name in needed if not rows.without_nulls(name)),
    )


# The best k by similarity.


def similarity_keys(values: NDArray[Any]) -> Keys:
    """Numbers as unsigned keys, greatest first; equal numbers (also 0.0 and -0.0) have equal keys.

    float16, float32 -> uint32, float64 and whole numbers (as float64) -> uint64. NaN has no place in
    the order.
    """
    # Adding zero turns -0.0 into 0.0. Positive numbers have their order turned, negative ones do not.
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4:
        bits = (values.astype(np.float32) + np.float32(0)).view(np.int32)
        return (bits ^ (~(bits >> 31) & ((1 << 31) - 1))).view(np.uint32)
    wide = (values.astype(np.float64) + 0.0).view(np.int64)
    return (wide ^ (~(wide >> 63) & ((1 << 63) - 1))).view(np.uint64)


@dataclass(frozen=True)
class TopKThreshold:
    """Where the best rows end.

    ``key``        of the last similarity that is kept (:func:`similarity_keys`)
    ``last_id``    the last id kept among rows of that similarity; None where all of them are. Ids
                   rise: whole numbers by size, texts by their bytes
    ``threshold``  that similarity
    ``tied``       complete rows that have it, ``kept_tied`` of which are kept
    ``complete``   rows with an id, a class, a domain and a similarity
    """

    key: int
    last_id: Any
    threshold: float
    tied: int
    kept_tied: int
    complete: int

    def keeps(self, batch: RowBatch) -> Mask:
        """Which complete rows of a batch are kept."""
        import pyarrow.compute as pc

        keys = batch.keys
        kept: Mask = batch.complete & (keys <= keys.dtype.type(self.key))
        if self.last_id is not None:
            tied = np.flatnonzero(kept & (keys == keys.dtype.type(self.key)))
            ids = _decoded(batch.ids).take(tied)
            kept[tied] = pc.less_equal(ids, self.last_id).to_numpy(zero_copy_only=False)
        return kept


def top_threshold(reader: Reader, top: int) -> TopKThreshold:
    """The threshold of the ``top`` best of all complete rows; fewer of them are a user's error.

    A radix selection: a pass counts how many keys lie in each of 65,536 equal parts of the range,
    the next looks only at the part where the best rows end, and the last sorts the few rows that
    are left, so that memory does not grow with the rows.
    """
    import pyarrow as pa

    column = reader.similarity or ""
    dtype = reader.rows.schema.field(column).type.to_pandas_dtype()
    low, bits = 0, 8 * similarity_keys(np.zeros(0, dtype=dtype)).dtype.itemsize
    better = complete = 0
    while True:
        shift = max(0, bits - BUCKET_BITS)
        size = 1 << (bits - shift)

        def count(batch: RowBatch, low: int = low, shift: int = shift, size: int = size) -> Any:
            # Keys below the range wrap around, and so lie above it too.
            parts = (batch.keys[batch.complete] - batch.keys.dtype.type(low)) >> shift
            return np.bincount(parts[parts < size].astype(np.int64), minlength=size)

        counts = sum(reader.scan([column], count), np.zeros(size, dtype=np.int64))
        complete = complete or int(counts.sum())
        if complete < top:
            raise UserError(
                f"--top {top:,} of {complete:,} rows with an id, class, domain and similarity",
                fix=f"ask for {complete:,} or fewer"
                if complete
                else "check the names of the columns",
            )
        ends = np.cumsum(counts)
        bucket = int(np.searchsorted(ends, top - better))
        better += int(ends[bucket] - counts[bucket])
        low, bits = low + (bucket << shift), shift
        if not shift or counts[bucket] <= FEW:
            break

    def near(batch: RowBatch) -> pa.Table:
        inside = (batch.keys - batch.keys.dtype.type(low)) >> bits == 0
        rows = np.flatnonzero(batch.complete & inside)
        similarities = batch.columns.column(column).take(rows)
        return pa.table([batch.keys[rows], _decoded(batch.ids).take(rows), similarities], _NEAR)

    ranked = pa.concat_tables(list(reader.scan([column, reader.id], near))).sort_by(
        [("key", "ascending"), ("id", "ascending")]
    )
    keys, ids, last = ranked["key"].to_numpy(), ranked["id"], top - better - 1
    first, end = (int(np.searchsorted(keys, keys[last], side)) for side in ("left", "right"))
    if last + 1 < end and ids[last] == ids[last + 1]:
        raise UserError(
            f"two rows have the id {str(ids[last])!r}", fix="give every row an id of its own"
        )
    return TopKThreshold(
        key=int(keys[last]),
        last_id=None if last + 1 == end else ids[last],
        threshold=float(ranked["similarity"][last].as_py()) + 0.0,  # 0, not -0
        tied=end - first,
        kept_tied=last + 1 - first,
        complete=complete,
    )


_NEAR = ["key", "id", "similarity"]


def _decoded(column: Any) -> Any:
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def id_texts(column: Any) -> Any:
    """Ids as texts, as which they are hashed: 7 and "7" are drawn alike."""
    import pyarrow as pa

    return _decoded(column).cast(pa.string())


# Counts of classes by domains, and rules on them.


Sizes = tuple[int, int | None, int | None]
"""Rows, classes and domains; None where nobody counted them: before the first pass over them."""


@dataclass(frozen=True, eq=False)
class Counts:
    """``cells`` int64 (classes, domains), both in the order of their names, which are sorted."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]
    cells: NDArray[np.int64]

    @property
    def total(self) -> int:
        """All rows."""
        return int(self.cells.sum())

    @property
    def sizes(self) -> Sizes:
        """How many rows there are, and how many classes and domains have some."""
        return self.total, int((self.by_class > 0).sum()), int((self.by_domain > 0).sum())

    @property
    def by_class(self) -> NDArray[np.int64]:
        """Rows of each class, int64 (classes,)."""
        counts: NDArray[np.int64] = self.cells.sum(axis=1)
        return counts

    @property
    def by_domain(self) -> NDArray[np.int64]:
        """Rows of each domain, int64 (domains,)."""
        counts: NDArray[np.int64] = self.cells.sum(axis=0)
        return counts


def count_cells(reader: Reader, keeps: Rule, columns: Sequence[str] = ()) -> Counts:
    """Count the rows that ``keeps`` keeps, in one pass over class, domain and ``columns``.

    Codes of classes and domains are in the order of their names from then on.
    """

    def count(batch: RowBatch) -> tuple[Codes, NDArray[np.int64]]:
        kept = keeps(batch)
        classes, domains = batch.classes[kept], batch.domains[kept]
        width = int(domains.max(initial=0)) + 1
        counted = np.bincount(classes * width + domains)
        cells = np.flatnonzero(counted)
        # Classes and domains apart: the next batch may know more domains.
        return np.stack(np.divmod(cells, width)), counted[cells]

    totals = np.zeros((0, 0), dtype=np.int64)
    for places, counts in reader.scan((reader.class_column, reader.domain, *columns), count):
        totals = _grown(totals, places.max(axis=1, initial=-1) + 1)
        totals[places[0], places[1]] += counts
    names = [list(coder.names) for coder in (reader.classes, reader.domains)]
    totals = _grown(totals, np.array([len(names[0]), len(names[1])]))
    order = [sorted(range(len(each)), key=each.__getitem__) for each in names]
    reader.classes.sort()
    reader.domains.sort()
    return Counts(tuple(reader.classes.names), tuple(reader.domains.names), totals[np.ix_(*order)])


def _grown(totals: NDArray[np.int64], needed: NDArray[np.int64]) -> NDArray[np.int64]:
    if needed[0] * needed[1] > MOST_CELLS:
        raise UserError(
            f"{needed[0]:,} classes times {needed[1]:,} domains are too many to count",
            fix="name a column with fewer values with --domain, such as a country or a continent",
        )
    missing = np.maximum(needed - totals.shape, 0)
    return np.pad(totals, [(0, int(more)) for more in missing]) if missing.any() else totals


@dataclass(frozen=True)
class Step:
    """One rule: what came in and what went out; ``details`` say what else there is to know."""

    record: ClassVar[str] = "step"
    table: ClassVar[Table] = Table(
        "",
        (
            "rule",
            "rows in=rows_in:,",
            "rows out=rows_out:,",
            "classes=classes_out:,",
            "domains=domains_out:,",
            "details=numbers",
        ),
    )
    name: str
    rows_in: int
    rows_out: int
    classes_in: int | None
    classes_out: int | None
    domains_in: int | None
    domains_out: int | None
    details: Mapping[str, object]

    @property
    def rule(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ")

    @property
    def numbers(self) -> str:
        """The numbers among the details, in words."""
        return ", ".join(
            f"{key.replace('_', ' ')} {value:.9g}"
            for key, value in self.details.items()
            if isinstance(value, int | float)
        )


def _step(name: str, before: Sizes, after: Sizes, **details: object) -> Step:
    (rows, classes, domains), (rows_out, classes_out, domains_out) = before, after
    return Step(name, rows, rows_out, classes, classes_out, domains, domains_out, details)


def keep_domains(counts: Counts, parameters: DomainsParameters) -> tuple[Counts, Step]:
    """Drop domains with less than a share of the rows, or with too few of them.

    The share is of the rows that the step is given (after ``top``), and a domain of exactly that
    share stays.
    """
    sizes = counts.by_domain
    # The share is the decimal that was written: 0.04 of 25 rows is one row, however 0.04 is rounded.
    share = Fraction(repr(parameters.min_domain_share)) * counts.total
    least = max(math.ceil(share), parameters.min_domain)
    kept = (sizes > 0) & (sizes >= least)
    if not kept.any():
        raise UserError(
            f"no domain has {least:,} of {counts.total:,} rows",
            fix="ask for a smaller --min-domain-share or --min-domain",
        )
    after = Counts(counts.classes, counts.domains, counts.cells * kept)
    dropped = {
        name: int(size)
        for name, size, stays in zip(counts.domains, sizes, kept, strict=True)
        if size and not stays
    }
    return after, _step("domain_minimum", counts.sizes, after.sizes, least=least, dropped=dropped)


def keep_classes(counts: Counts, parameters: DomainsParameters) -> tuple[Counts, list[Step]]:
    """Exclusions, spread over domains, minimum size, the largest ones; in this order.

    Sizes are counted after the domains were dropped; of equally large classes those with the
    smaller id are kept.
    """
    steps: list[Step] = []
    names = counts.classes

    def step(name: str, before: Counts, kept: Any, **details: object) -> Counts:
        after = Counts(names, before.domains, before.cells * np.asarray(kept, dtype=bool)[:, None])
        steps.append(_step(name, before.sizes, after.sizes, **details))
        if not after.total:
            raise UserError(
                f"no class is left after the rule {name!r}", fix="ask for less: see --plan"
            )
        return after

    reasons = parameters.reasons
    if reasons:
        present = {name for name, n in zip(names, counts.by_class, strict=True) if n}
        absent = sorted(set(reasons) - present)
        counts = step("exclusions", counts, [name not in reasons for name in names], absent=absent)
    if parameters.min_class_domains > 1:
        spread = (counts.cells > 0).sum(axis=1)
        counts = step("class_domains", counts, spread >= parameters.min_class_domains)
    if parameters.min_class > 1:
        counts = step("class_minimum", counts, counts.by_class >= parameters.min_class)
    if parameters.classes is not None:
        sizes = counts.by_class
        order = sorted(np.flatnonzero(sizes), key=lambda code: (-sizes[code], names[code]))
        kept = np.zeros(len(names), dtype=bool)
        kept[order[: parameters.classes]] = True
        counts = step(
            "largest_classes",
            counts,
            kept,
            asked=parameters.classes,
            smallest=int(sizes[kept].min()),
        )
    return counts, steps


# Draws by the hash of each row's id.


def lowest_rows(
    reader: Reader,
    keeps: Rule,
    groups: Callable[[RowBatch], Codes],
    sizes: NDArray[np.int64],
    work: Callable[[RowBatch, Codes], T],
    *,
    cap: int | None,
    seed: int,
    columns: Iterable[str],
) -> tuple[Codes, Codes, list[T]]:
    """Of the rows that ``keeps`` keeps at most ``cap`` of each group: those of the smallest hashes.

    A row's hash follows from its id and the seed alone. So neither order nor files matter, a
    smaller cap keeps a part of what a larger one keeps, and leaving groups out changes nothing in
    the others. Returns the numbers of the rows, rising; their places among all rows that ``work``
    was called with; and what it gave for each batch.

    ``sizes``  rows of each group, int64; groups of 0 are left out
    ``work``   called with every batch and the rows of it that may be kept
    """
    most = len(reader.rows) if cap is None else cap
    drawn = np.append(sizes > most, False)
    some = np.append(sizes > 0, False)
    for spare in (SPARE, np.inf):
        # Hashes are spread evenly, so the cap-th smallest of n lies near cap / n of their range.
        # Only rows a little beyond that are held; if a group then has too few, all are.
        share = (most + spare * np.sqrt(most) + 16) / np.maximum(sizes, 1)
        near = (np.clip(share, 0, 1 - 2**-53) * 2.0**64).astype(np.uint64)
        reach = np.where(share < 1, near, np.uint64((1 << 64) - 1))

        def look(batch: RowBatch, reach: Hashes = reach) -> tuple[Codes, Codes, Hashes, T]:
            codes = groups(batch)
            rows = np.flatnonzero(keeps(batch) & some[codes])
            codes = codes[rows]
            hashes = np.zeros(len(rows), dtype=np.uint64)
            among = np.flatnonzero(drawn[codes])
            hashes[among] = row_hash(id_texts(batch.ids.take(rows[among])), seed=seed)
            within = np.flatnonzero(hashes <= reach[codes])
            rows = rows[within]
            return batch.start + rows, codes[within], hashes[within], work(batch, rows)

        parts = list(reader.scan((reader.id, *columns), look))
        numbers = np.concatenate([part[0] for part in parts])
        codes = np.concatenate([part[1] for part in parts])
        hashes = np.concatenate([part[2] for part in parts])
        counts = np.bincount(codes, minlength=len(sizes))
        if (counts >= np.minimum(sizes, most)).all():
            break
    order = np.argsort(hashes)
    order = order[np.argsort(codes[order], kind="stable")]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    first_out = np.flatnonzero(rank == most)
    if (hashes[order[first_out]] == hashes[order[first_out - 1]]).any():
        raise UserError(
            "two rows have the same id, or ids of the same hash, where a cap cuts",
            fix="give every row an id of its own, or use another --seed",
        )
    places = np.sort(order[rank < most])
    return numbers[places], places, [part[3] for part in parts]


_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64)


def _row_sums(batch: RowBatch) -> Hashes:
    """Two sums over the rows, uint64 (2,), that do not depend on their order.

    Each row's id, class, domain and similarity give a number of 64 bits; summed are these numbers
    and a second mix of them.
    """
    import pyarrow as pa

    if pa.types.is_integer(batch.ids.type):
        whole = batch.ids.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers: Hashes = whole.view(np.uint64) * _ODD[0]
    else:
        numbers = row_hash(id_texts(batch.ids).fill_null(""), seed=0)
    numbers += batch.reader.classes.hashes(batch.classes)
    numbers += batch.reader.domains.hashes(batch.domains)
    numbers += np.where(batch.complete, batch.keys, 0).astype(np.uint64) * _ODD[1]
    # The finaliser of SplitMix64.
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)
    first = numbers.sum(dtype=np.uint64)
    numbers *= _ODD[2]
    numbers ^= numbers >> np.uint64(29)
    return np.array([first, numbers.sum(dtype=np.uint64)])


def _digest(reader: Reader, sums: Sequence[Hashes]) -> str:
    columns = [reader.id, reader.class_column, reader.domain, reader.similarity]
    totals = [f"{total:016x}" for total in np.stack(sums).sum(axis=0, dtype=np.uint64)]
    text = canonical_json([columns, len(reader.rows), totals])
    return hashlib.sha256(text.encode()).hexdigest()


# The passes in turn.


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectionPlan:
    """What is chosen, before any row is taken.

    ``candidates``  rows by class and domain after ``top``
    ``chosen``      those of the chosen classes and domains, before the cap per class
    ``steps``       what every rule was given and kept, the cap included
    """

    candidates: Counts
    chosen: Counts
    steps: tuple[Step, ...]
    threshold: TopKThreshold | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Selection:
    """The chosen rows with all their columns, in the order of the source.

    ``rows``    the id as text in ``image_id``, the class in ``class_id``, then all other columns
    ``plan``    how they came to be chosen
    ``digest``  hash of all rows that were read, whatever their order
    """

    rows: pa.Table
    plan: SelectionPlan
    digest: str


def plan(
    reader: Reader,
    parameters: DomainsParameters,
    *,
    seed: int,
    progress: Progress = no_progress,
) -> SelectionPlan:
    """Which rows are chosen, and how many each rule keeps; no row is taken.

    ``progress`` is called with the rows that were read, over all passes.
    """
    return _plan(reader, parameters, seed, progress)[0]


def select(
    reader: Reader,
    parameters: DomainsParameters,
    *,
    seed: int,
    progress: Progress = no_progress,
) -> Selection:
    """Choose the rows and take them; ``progress`` as for :func:`plan`."""
    import pyarrow as pa

    made, keeps = _plan(reader, parameters, seed, progress)
    domain_stays = np.append(made.chosen.by_domain > 0, False)
    _, places, parts = lowest_rows(
        reader,
        lambda batch: keeps(batch) & domain_stays[batch.domains],
        lambda batch: batch.classes,
        made.chosen.by_class,
        lambda batch, rows: (_row_sums(batch), _taken(batch.columns.take(rows), reader)),
        cap=parameters.cap,
        seed=seed,
        columns=reader.kept,
    )
    sums, tables = zip(*parts, strict=True)
    rows = pa.concat_tables(tables).take(places).combine_chunks()
    return Selection(rows=rows, plan=made, digest=_digest(reader, sums))


def _plan(
    reader: Reader, parameters: DomainsParameters, seed: int, progress: Progress
) -> tuple[SelectionPlan, Rule]:
    """What is chosen, and the rule on single rows: among the best, within the cap of domains."""
    reader.rows.report(progress)
    threshold = None if parameters.top is None else top_threshold(reader, parameters.top)
    columns: tuple[str, ...] = () if reader.similarity is None else (reader.similarity,)
    if threshold is not None and threshold.last_id is not None:
        columns = (*columns, reader.id)

    def keeps(batch: RowBatch) -> Mask:
        return batch.complete if threshold is None else threshold.keeps(batch)

    candidates = count_cells(reader, keeps, columns)
    if not candidates.total:
        needed = "a class and a domain"
        if reader.similarity is not None:
            needed = "a class, a domain and a similarity"
        raise UserError(
            f"none of {len(reader.rows):,} rows has an id, {needed}",
            fix="check the names of the columns",
        )
    steps = _first_steps(len(reader.rows), candidates, threshold)
    counts, step = keep_domains(candidates, parameters)
    steps.append(step)
    if parameters.domain_cap is not None:
        before, cap = counts, parameters.domain_cap
        numbers, _, _ = lowest_rows(
            reader,
            keeps,
            lambda batch: batch.domains,
            before.by_domain,
            lambda batch, rows: None,
            cap=cap,
            seed=derived_seed("domain cap", seed),
            columns=(*columns, reader.domain),
        )

        def keeps(batch: RowBatch) -> Mask:
            return batch.among(numbers)

        counts = count_cells(reader, keeps)
        at_cap = int((before.by_domain > cap).sum())
        steps.append(_step("domain_cap", before.sizes, counts.sizes, cap=cap, at_cap=at_cap))
    chosen, more = keep_classes(counts, parameters)
    steps += [*more, _cap_step(chosen, parameters.cap)]
    made = SelectionPlan(
        candidates=candidates,
        chosen=chosen,
        steps=tuple(steps),
        threshold=threshold,
        notes=_notes(parameters, steps, threshold),
    )
    return made, keeps


def _first_steps(rows: int, candidates: Counts, threshold: TopKThreshold | None) -> list[Step]:
    complete, after = candidates.total, candidates.sizes
    if threshold is None:
        return [_step("complete", (rows, None, None), after, incomplete=rows - complete)]
    best: Sizes = (threshold.complete, None, None)
    return [
        _step("complete", (rows, None, None), best, incomplete=rows - threshold.complete),
        _step(
            "top",
            best,
            after,
            threshold=threshold.threshold,
            tied=threshold.tied,
            tied_cut=threshold.tied - threshold.kept_tied,
        ),
    ]


def _cap_step(chosen: Counts, cap: int | None) -> Step:
    sizes = chosen.by_class
    details = {"smallest": int(sizes[sizes > 0].min()), "largest": int(sizes.max())}
    if cap is not None:
        details |= {"cap": cap, "at_cap": int((sizes >= cap).sum())}
        sizes = np.minimum(sizes, cap)
    return _step("cap", chosen.sizes, (int(sizes.sum()), *chosen.sizes[1:]), **details)


def _taken(batch: Any, reader: Reader) -> Any:
    """A batch as a table: ids and classes as texts under their fixed names, no dictionaries."""
    import pyarrow as pa

    arrays: dict[str, Any] = {
        "image_id": id_texts(batch.column(reader.id)),
        CLASS: id_texts(batch.column(reader.class_column)),
    }
    for name in batch.schema.names:
        if name not in (reader.id, reader.class_column, "image_id"):
            decode = id_texts if name == reader.domain else _decoded
            arrays[POOL_CLASS if name == CLASS else name] = decode(batch.column(name))
    return pa.table(arrays)


def _notes(
    parameters: DomainsParameters, steps: list[Step], best: TopKThreshold | None
) -> tuple[str, ...]:
    details: dict[str, Any] = {step.name: step.details for step in steps}
    notes = []
    if incomplete := details["complete"]["incomplete"]:
        notes.append(
            f"{incomplete:,} rows lack an id, class, domain or similarity and are left out"
        )
    if best is not None and best.tied > best.kept_tied:
        notes.append(
            f"{best.tied:,} rows have the last similarity {best.threshold:.9g}; "
            f"{best.tied - best.kept_tied:,} of them, those of the last ids, are left out"
        )
    if dropped := details["domain_minimum"]["dropped"]:
        listed = ", ".join(f"{name} ({size:,})" for name, size in dropped.items())
        least = details["domain_minimum"]["least"]
        notes.append(f"domains under {least:,} rows are left out: {listed}")
    if absent := details.get("exclusions", {}).get("absent"):
        notes.append(f"excluded classes without rows: {', '.join(absent)}")
    left, asked = steps[-1].classes_out or 0, parameters.classes or 0
    if left < asked:
        notes.append(f"{left} classes are left of {asked} asked for")
    return tuple(notes)
