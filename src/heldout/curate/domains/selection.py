"""Choosing rows: passes over any number of them, in memory that holds a batch and what is chosen.

1. the best by similarity: two passes over that column, a third where ties are cut;
2. one pass counts classes by domains; rules on these counts choose domains and classes;
3. where domains are capped, one pass finds each one's limit, and another counts again;
4. one pass takes the rows of the chosen classes that their caps can reach.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import NotFound, UserError
from heldout.core.files import canonical_json
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.parquet_scan import (
    FileRows,
    Rows,
    WatchedRows,
    cached,
    expected_passes,
    plain_allocation,
)
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.data.testset.tables import IMAGE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
Keys = NDArray[np.unsignedinteger[Any]]
_MOST_32, _MOST_64 = (1 << 31) - 1, (1 << 63) - 1
BUCKETS = 16
"""Bits that one pass decides."""
FEW = 1 << 20
"""Keys that are rather sorted in memory than counted once more."""


def similarity_keys(values: NDArray[Any]) -> Keys:
    """Numbers as unsigned keys, greatest first; equal numbers (also 0.0 and -0.0) have equal keys.

    float16, float32 -> uint32, float64 and whole numbers -> uint64. NaN has no place in the order.
    """
    if values.dtype.kind in "iu":
        if values.dtype.kind == "u":
            return ~values.astype(np.uint64)
        signed = values.astype(np.int64)
        return ~(signed.view(np.uint64) ^ np.uint64(1 << 63))
    if values.dtype.kind != "f":
        raise UserError(f"similarities are {values.dtype}", fix="give a column of numbers")
    # Adding zero turns -0.0 into 0.0. Positive numbers have their order turned, negative ones do not.
    if values.dtype.itemsize > 4:
        wide = (values.astype(np.float64) + np.float64(0)).view(np.int64)
        return (wide ^ (~(wide >> np.int64(63)) & np.int64(_MOST_64))).view(np.uint64)
    bits = (values.astype(np.float32) + np.float32(0)).view(np.int32)
    return (bits ^ (~(bits >> np.int32(31)) & np.int32(_MOST_32))).view(np.uint32)


def similarity_of(key: int, dtype: np.dtype[Any]) -> float:
    """The number that has a key, for columns of this type."""
    if dtype.kind == "u":
        return float(~np.uint64(key))
    if dtype.kind == "i":
        return float((~np.uint64(key) ^ np.uint64(1 << 63)).astype(np.int64))
    if dtype.itemsize > 4:
        bits = key if key > _MOST_64 else key ^ _MOST_64
        return float(np.uint64(bits).view(np.float64))
    bits = key if key > _MOST_32 else key ^ _MOST_32
    return float(np.uint32(bits).view(np.float32))


class Found(NamedTuple):
    """A key by its rank: how many keys are smaller, how many equal to it, how many there are."""

    key: int
    smaller: int
    equal: int
    total: int


class Pass(Protocol):
    """One pass over all keys from ``low`` to ``high``."""

    def __call__(self, low: int, high: int, work: Callable[[Keys], T]) -> Iterable[T]:
        """``work`` on every array of such keys, perhaps in several threads."""
        ...


def nth_key(scan: Pass, rank: int, *, low: int, high: int) -> Found:
    """The key of this rank (1 is the smallest) among all that ``scan`` finds.

    A rank beyond the last gives the last key, so compare it with ``total``.
    """
    smaller = total = 0
    while True:
        shift = max(0, (high - low).bit_length() - BUCKETS)
        counts = _histogram(scan, low, high, shift)
        ends = np.cumsum(counts)
        total = total or int(ends[-1])
        if not total:
            return Found(high, 0, 0, 0)
        rank = min(rank, total)
        bucket = int(np.searchsorted(ends, rank - smaller))
        smaller += int(ends[bucket] - counts[bucket])
        low, high = low + (bucket << shift), min(high, low + ((bucket + 1) << shift) - 1)
        if low == high:
            return Found(low, smaller, int(counts[bucket]), total)
        if counts[bucket] <= FEW:
            ordered = np.sort(np.concatenate(list(scan(low, high, np.array))))
            key = ordered[rank - smaller - 1]
            first = int(np.searchsorted(ordered, key, "left"))
            last = int(np.searchsorted(ordered, key, "right"))
            return Found(int(key), smaller + first, last - first, total)


def _histogram(scan: Pass, low: int, high: int, shift: int) -> NDArray[np.int64]:
    size = ((high - low) >> shift) + 1
    total = np.zeros(size, dtype=np.int64)

    def count(keys: Keys) -> NDArray[np.int64]:
        kind = keys.dtype.type
        places = ((keys - kind(low)) >> kind(shift)).astype(np.int64)
        found: NDArray[np.int64] = np.bincount(places, minlength=size)
        return found

    for counts in scan(low, high, count):
        total += counts
    return total


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


@dataclass(frozen=True)
class Boundary:
    """Where the best rows end.

    ``key``        of the last similarity that is kept (:func:`similarity_keys`)
    ``last_id``    the last id kept among rows of that similarity; None where all of them are
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

    def keeps(self, seen: Seen, ids: Any) -> Mask:
        """Which complete rows of a batch are kept; ``ids`` may be None where no tie is cut."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = seen.keys
        if keys is None:
            raise ValueError("the pass reads no similarity")
        kept: Mask = seen.complete & (keys <= keys.dtype.type(self.key))
        if self.last_id is not None:
            tied = np.flatnonzero(seen.complete & (keys == keys.dtype.type(self.key)))
            if len(tied):
                theirs = _plain(ids).take(pa.array(tied))
                kept[tied] = pc.less_equal(theirs, self.last_id).to_numpy(zero_copy_only=False)
        return kept


def find_boundary(reader: Reader, top: int) -> Boundary:
    """The boundary of the ``top`` best of all complete rows; fewer of them are a user's error."""
    if reader.similarity is None:
        raise UserError("--top without a similarity", fix="name its column with --similarity")
    column = reader.similarity
    dtype = _number_type(reader.rows.schema.field(column).type)
    found, complete = _best(reader, top, _stated_range(reader, column, dtype))
    if found.total < complete:  # what the files state of themselves is not so
        found, complete = _best(reader, top, _whole_range(dtype))
    if complete < top:
        raise UserError(
            f"--top {top:,} of {complete:,} rows with an id, class, domain and similarity",
            fix=f"ask for {complete:,} or fewer" if complete else "check the names of the columns",
        )
    kept = top - found.smaller
    last = None
    if kept < found.equal:
        last = _last_id(reader, found.key, kept)
    return Boundary(found.key, last, similarity_of(found.key, dtype), found.equal, kept, complete)


def _best(reader: Reader, top: int, ends: tuple[int, int]) -> tuple[Found, int]:
    """The key of the last of the best, and how many complete rows there are."""
    complete: list[int] = []

    def scan(low: int, high: int, work: Callable[[Keys], T]) -> Iterator[T]:
        first = (low, high) == ends

        def on_batch(seen: Seen) -> T:
            if first:
                complete.append(int(seen.complete.sum()))
            return work(_within(_keys(seen), seen.complete, low, high))

        return reader.scan([reader.similarity or ""], on_batch)

    found = nth_key(scan, top, low=ends[0], high=ends[1])
    return found, sum(complete)


def _number_type(kind: Any) -> np.dtype[Any]:
    """The NumPy type of an Arrow column of numbers."""
    import pyarrow as pa

    found: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return found


def _keys(seen: Seen) -> Keys:
    if seen.keys is None:
        raise ValueError("the pass reads no similarity")
    return seen.keys


def _within(keys: Keys, rows: Mask, low: int, high: int) -> Keys:
    kind = keys.dtype.type
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    if low > least or high < most:
        rows = rows & (keys >= kind(max(low, least))) & (keys <= kind(min(high, most)))
    return keys if rows.all() else keys[rows]


def _stated_range(reader: Reader, column: str, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Bounds of all keys, by what the files state of the column, else those of the type."""
    facts = reader.rows.facts(column)
    if facts.low is not None and np.isfinite([facts.low, facts.high]).all():
        ends = similarity_keys(np.array([facts.high, facts.low], dtype=dtype))
        return int(ends[0]), int(ends[1])
    return _whole_range(dtype)


def _whole_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    kind = similarity_keys(np.zeros(1, dtype=dtype)).dtype
    return 0, int(np.iinfo(kind).max)


def _last_id(reader: Reader, key: int, rank: int) -> Any:
    """The id of this rank among the rows with ``key``."""
    import pyarrow as pa

    def ids(seen: Seen) -> Any:
        keys = _keys(seen)
        rows = np.flatnonzero(seen.complete & (keys == keys.dtype.type(key)))
        return _plain(seen.batch.column(reader.id)).take(pa.array(rows))

    parts = reader.scan([reader.similarity or "", reader.id], ids)
    return _nth(pa.chunked_array([part for part in parts if len(part)]).combine_chunks(), rank)


def _nth(ids: Any, rank: int) -> Any:
    """The id of this rank; equal ids on both sides of it have no order."""
    import pyarrow.compute as pc

    ordered = ids.take(pc.array_sort_indices(ids))
    if rank < len(ordered) and ordered[rank - 1] == ordered[rank]:
        raise UserError(
            f"two rows have the id {str(ordered[rank])!r}", fix="give every row an id of its own"
        )
    return ordered[rank - 1]


def _plain(column: Any) -> Any:
    """A column of ids without dictionary."""
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


MOST_CELLS = 1 << 24
"""Classes times domains that are counted; more would be no domains any more."""


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
    def by_class(self) -> NDArray[np.int64]:
        """Rows of each class, int64 (classes,)."""
        counts: NDArray[np.int64] = self.cells.sum(axis=1)
        return counts

    @property
    def by_domain(self) -> NDArray[np.int64]:
        """Rows of each domain, int64 (domains,)."""
        counts: NDArray[np.int64] = self.cells.sum(axis=0)
        return counts

    def only(self, *, classes: Mask | None = None, domains: Mask | None = None) -> Counts:
        """The same table with no rows in classes or domains that are left out."""
        cells = self.cells
        if classes is not None:
            cells = cells * classes[:, None]
        if domains is not None:
            cells = cells * domains[None, :]
        return Counts(self.classes, self.domains, cells)


def count_cells(reader: Reader, keeps: Callable[[Seen], Mask], columns: tuple[str, ...]) -> Counts:
    """Count the rows that ``keeps`` keeps, in one pass over class, domain and ``columns``."""

    def count(seen: Seen) -> tuple[Codes, NDArray[np.int64]]:
        kept = keeps(seen)
        classes = reader.classes.codes(seen.batch.column(reader.class_column))
        domains = reader.domains.codes(seen.batch.column(reader.domain))
        if not kept.all():
            classes, domains = classes[kept], domains[kept]
        width = int(domains.max(initial=0)) + 1
        counted = np.bincount(classes * width + domains)
        cells = np.flatnonzero(counted)
        # Classes and domains apart: the next batch may know more domains.
        return np.stack(np.divmod(cells, width)), counted[cells]

    totals = np.zeros((0, 0), dtype=np.int64)
    for places, counts in reader.scan((reader.class_column, reader.domain, *columns), count):
        if places.size:
            needed = places.max(axis=1) + 1
            if (needed > totals.shape).any():
                totals = _grown(totals, needed)
            totals[places[0], places[1]] += counts
    return _sorted(reader, totals)


def _grown(totals: NDArray[np.int64], needed: NDArray[np.int64]) -> NDArray[np.int64]:
    shape = [
        have if have >= need else max(int(need), 2 * have)
        for have, need in zip(totals.shape, needed.tolist(), strict=True)
    ]
    if needed[0] * needed[1] > MOST_CELLS:
        raise UserError(
            f"{needed[0]:,} classes times {needed[1]:,} domains are too many to count",
            fix="name a column with fewer values with --domain, such as a country or a continent",
        )
    grown = np.zeros(shape, dtype=np.int64)
    grown[: totals.shape[0], : totals.shape[1]] = totals
    return grown


def _sorted(reader: Reader, totals: NDArray[np.int64]) -> Counts:
    """Codes come in the order in which threads met the names; names are put in their own order."""
    classes, domains = reader.classes.names, reader.domains.names
    rows = sorted(range(len(classes)), key=classes.__getitem__)
    columns = sorted(range(len(domains)), key=domains.__getitem__)
    cells = np.zeros((len(classes), len(domains)), dtype=np.int64)
    high, wide = min(len(classes), totals.shape[0]), min(len(domains), totals.shape[1])
    cells[:high, :wide] = totals[:high, :wide]
    return Counts(
        tuple(classes[code] for code in rows),
        tuple(domains[code] for code in columns),
        cells[np.ix_(rows, columns)],
    )


@dataclass(frozen=True)
class Step:
    """One rule: what came in and what went out; ``details`` say what else there is to know.

    Classes and domains are None where nobody counted them: before the first pass over them.
    """

    name: str
    rows_in: int
    rows_out: int
    classes_in: int | None
    classes_out: int | None
    domains_in: int | None
    domains_out: int | None
    details: Mapping[str, object]


def make_step(name: str, before: Counts, after: Counts, **details: object) -> Step:
    """The step from one table of counts to the next."""
    return Step(
        name,
        before.total,
        after.total,
        int((before.by_class > 0).sum()),
        int((after.by_class > 0).sum()),
        int((before.by_domain > 0).sum()),
        int((after.by_domain > 0).sum()),
        details,
    )


def keep_domains(counts: Counts, parameters: DomainsParameters) -> tuple[Counts, list[Step]]:
    """Drop domains with less than a share of the rows, or with too few of them.

    The share is of the rows that the step is given (after ``top``), and a domain of exactly that
    share stays.
    """
    sizes = counts.by_domain
    kept = sizes > 0
    if parameters.domains:
        missing = [name for name in parameters.domains if name not in counts.domains]
        if missing:
            raise UserError(
                f"no rows in domain {missing[0]!r}", fix=f"there is {_listed(counts.domains)}"
            )
        kept &= np.isin(counts.domains, parameters.domains)
    # Whole numbers over whole numbers: 0.04 of 25 rows is one row, however 0.04 is rounded.
    least = _ceiling(parameters.min_domain_share, counts.total)
    kept &= sizes >= max(least, parameters.min_domain)
    if not kept.any():
        raise UserError(
            f"no domain has {max(least, parameters.min_domain):,} of {counts.total:,} rows",
            fix="ask for a smaller --min-domain-share or --min-domain",
        )
    after = counts.only(domains=kept)
    dropped = {
        name: int(size)
        for name, size, stays in zip(counts.domains, sizes, kept, strict=True)
        if size and not stays
    }
    least_rows = max(least, parameters.min_domain)
    return after, [make_step("domain_minimum", counts, after, least=least_rows, dropped=dropped)]


def keep_classes(counts: Counts, parameters: DomainsParameters) -> tuple[Counts, list[Step]]:
    """Exclusions, spread over domains, minimum size, the largest ones; in this order.

    Sizes are counted after the domains were dropped; of equally large classes those with the
    smaller id are kept.
    """
    steps: list[Step] = []
    names = np.array(counts.classes, dtype=object)

    def step(name: str, before: Counts, kept: object, **details: object) -> Counts:
        after = before.only(classes=np.asarray(kept, dtype=bool))
        steps.append(make_step(name, before, after, **details))
        if not after.total:
            raise UserError(
                f"no class is left after the rule {name!r}", fix="ask for less: see --plan"
            )
        return after

    reasons = parameters.reasons
    if reasons:
        absent = sorted(
            set(reasons) - {n for n, s in zip(names, counts.by_class, strict=True) if s}
        )
        counts = step("exclusions", counts, [name not in reasons for name in names], absent=absent)
    if parameters.min_class_domains > 1:
        spread = (counts.cells > 0).sum(axis=1)
        counts = step("class_domains", counts, spread >= parameters.min_class_domains)
    if parameters.max_class_share < 1:
        largest = counts.cells.max(axis=1, initial=0).tolist()
        share = _exact(parameters.max_class_share)
        within = [
            most <= share * n for most, n in zip(largest, counts.by_class.tolist(), strict=True)
        ]
        counts = step("class_share", counts, np.array(within) & (counts.by_class > 0))
    if parameters.min_class > 1:
        counts = step("class_minimum", counts, counts.by_class >= parameters.min_class)
    if parameters.classes is not None:
        sizes = counts.by_class
        order = sorted(range(len(names)), key=lambda code: (-sizes[code], names[code]))
        chosen = [code for code in order if sizes[code]]
        kept = np.zeros(len(names), dtype=bool)
        kept[chosen[: parameters.classes]] = True
        cut = sizes[chosen[parameters.classes - 1 : parameters.classes + 1]]
        tied = len(cut) == 2 and cut[0] == cut[1]
        counts = step(
            "largest_classes",
            counts,
            kept,
            asked=parameters.classes,
            smallest=int(sizes[kept].min()),
            tie_cut=bool(tied),
        )
    return counts, steps


def _ceiling(share: float, total: int) -> int:
    """The least whole number that is at least ``share`` of ``total``, as the decimal share says."""
    exact = _exact(share) * total
    return -(-exact.numerator // exact.denominator)


def _exact(share: float) -> Fraction:
    """A share as the decimal that was written: 0.29 of 100 rows are 29."""
    return Fraction(repr(float(share)))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


Hashes = NDArray[np.uint64]
MOST = (1 << 64) - 1


def id_texts(column: Any) -> Any:
    """Ids as texts, as which they are hashed: 7 and "7" are drawn alike."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def range_for(sizes: NDArray[np.int64], cap: int | None, *, spare: float = 8.0) -> Hashes:
    """The greatest number to look at in each group, uint64: some way beyond ``cap`` of its rows."""
    if cap is None:
        return np.full(len(sizes), MOST, dtype=np.uint64)
    wanted = cap + spare * np.sqrt(cap) + 16
    share = wanted / np.maximum(sizes, 1)
    whole = (sizes <= cap) | (share >= 1)
    limits = np.where(whole, 0.0, share) * 2.0**64
    return np.where(whole, np.uint64(MOST), limits.astype(np.uint64))


def lowest_in_groups(groups: Codes, hashes: Hashes, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the ``wanted`` smallest numbers in each group; int64, in no order.

    A group that has no more rows than are wanted keeps all, and its numbers do not matter.
    """
    order = np.argsort(
        groups.astype(np.uint16 if len(wanted) < 1 << 16 else np.int64), kind="stable"
    )
    ends = np.cumsum(np.bincount(groups, minlength=len(wanted)))
    kept = [order[:0]]
    for group in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        rows = order[ends[group - 1] if group else 0 : ends[group]]
        count = int(wanted[group])
        if len(rows) > count:
            rows = rows[hashes[rows] <= _limit(hashes[rows], count)]
        kept.append(rows)
    return np.concatenate(kept)


def _limit(hashes: Hashes, count: int) -> np.uint64:
    """The ``count``-th smallest number; it must not be that of the next row too."""
    last: np.uint64 = np.partition(hashes, count - 1)[count - 1]
    if np.count_nonzero(hashes <= last) > count:
        raise UserError(
            "two rows have the same id, or ids of the same hash, where a cap cuts",
            fix="give every row an id of its own, or use another --seed",
        )
    return last


def domain_limits(
    reader: Reader,
    counts: Counts,
    keeps: Callable[[Seen], Mask],
    columns: tuple[str, ...],
    *,
    cap: int,
    seed: int,
) -> Hashes:
    """The greatest number that each domain keeps, uint64, in the order of ``counts.domains``."""
    sizes = counts.by_domain
    limits = np.full(len(sizes), MOST, dtype=np.uint64)
    waiting = sizes > cap
    wanted = tuple(dict.fromkeys((*columns, reader.domain, reader.id)))
    place = np.full(len(reader.domains.names) + 1, -1, dtype=np.int64)
    for code, name in enumerate(reader.domains.names):
        place[code] = counts.domains.index(name)
    spare = 8.0
    while waiting.any():
        reach = range_for(sizes, cap, spare=spare)
        looked_at = np.append(waiting, False)[place]

        def look(
            seen: Seen, reach: Hashes = reach, looked_at: Mask = looked_at
        ) -> tuple[Codes, Hashes]:
            codes = reader.domains.codes(seen.batch.column(reader.domain))
            rows = np.flatnonzero(keeps(seen) & looked_at[codes])
            hashes = row_hash(id_texts(seen.batch.column(reader.id).take(rows)), seed=seed)
            domains = place[codes[rows]]
            within = hashes <= reach[domains]
            return domains[within], hashes[within]

        found = list(reader.scan(wanted, look))
        domains = np.concatenate([part for part, _ in found])
        hashes = np.concatenate([part for _, part in found])
        for domain in np.flatnonzero(waiting).tolist():
            inside = hashes[domains == domain]
            if len(inside) > cap or (len(inside) == cap and reach[domain] < MOST):
                limits[domain] = _limit(inside, cap)
                waiting[domain] = False
            elif reach[domain] == MOST:
                raise UserError("rows changed while they were read", fix="build again")
        spare *= 64
    return limits


_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64)
Numbers = NDArray[np.uint64]


class Digest:
    """The running hash of a pass; batches may come from several threads, in any order."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._sums = [0, 0]
        self._rows = 0
        self._names: dict[int, Numbers] = {}

    def add(self, seen: Seen, classes: Codes, domains: Codes) -> None:
        """Take in one batch with the codes of its classes and domains."""
        numbers = _id_numbers(seen.batch.column(self._reader.id))
        numbers += self._named(self._reader.classes, 1)[classes]
        numbers += self._named(self._reader.domains, 2)[domains]
        if seen.keys is not None:
            keys = seen.keys if seen.complete.all() else np.where(seen.complete, seen.keys, 0)
            numbers += keys.astype(np.uint64) * _ODD[1]
        _mix(numbers)
        first = int(numbers.sum(dtype=np.uint64))
        numbers *= _ODD[2]
        numbers ^= numbers >> np.uint64(29)
        second = int(numbers.sum(dtype=np.uint64))
        with self._lock:
            self._sums[0] += first
            self._sums[1] += second
            self._rows += len(numbers)

    def hexdigest(self) -> str:
        """The hash, 64 hexadecimal digits."""
        reader = self._reader
        columns = [reader.id, reader.class_column, reader.domain, reader.similarity]
        sums = [f"{total % (1 << 64):016x}" for total in self._sums]
        text = canonical_json([columns, self._rows, sums])
        return hashlib.sha256(text.encode()).hexdigest()

    def _named(self, coder: Coder, seed: int) -> Numbers:
        """The number of each name of a column, by code; the last one is for null."""
        known = self._names.get(seed)
        if known is None or len(known) <= len(coder.names):
            known = np.append(row_hash(list(coder.names), seed=seed), np.uint64(0))
            self._names[seed] = known
        return known


def _id_numbers(column: Any) -> Numbers:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        whole = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers: Numbers = whole.view(np.uint64) * _ODD[0]
        return numbers
    return row_hash(id_texts(column).fill_null(""), seed=0)


def _mix(numbers: Numbers) -> None:
    """The finaliser of SplitMix64, in place."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)


_NEEDED = "an id, a class, a domain and a similarity"


@dataclass(frozen=True, eq=False, kw_only=True)
class Outlook:
    """What is chosen, before any row is taken.

    ``candidates``  rows by class and domain after ``top``
    ``chosen``      those of the chosen classes and domains, before the cap a class
    ``steps``       what every rule was given and kept, the cap included
    """

    candidates: Counts
    chosen: Counts
    steps: tuple[Step, ...]
    boundary: Boundary | None
    limits: Hashes | None
    notes: tuple[str, ...]

    @property
    def images(self) -> int:
        """How many rows are taken in the end."""
        return self.steps[-1].rows_out


@dataclass(frozen=True, eq=False, kw_only=True)
class Selection:
    """The chosen rows with all their columns, in no order that means anything.

    ``rows``     the id as text in ``image_id``, the class in ``class_id``, then all other columns
    ``outlook``  how they came to be chosen
    ``digest``   hash of all rows that were read, whatever their order
    """

    rows: pa.Table
    outlook: Outlook
    digest: str


def plan(
    reader: Reader,
    parameters: DomainsParameters,
    *,
    seed: int,
    progress: Progress = no_progress,
) -> Outlook:
    """Which rows are chosen, and how many each rule keeps; no row is taken.

    ``progress`` is told the rows that were read, over all passes.
    """
    passes = expected_passes(parameters, take=False)
    with plain_allocation(len(reader.rows)):
        return _plan(_prepared(reader, passes, progress), parameters, seed)


def _plan(reader: Reader, parameters: DomainsParameters, seed: int) -> Outlook:
    boundary = None
    if parameters.top is not None:
        boundary = find_boundary(reader, parameters.top)
    keeps, columns = _first_rule(reader, boundary)
    candidates = count_cells(reader, keeps, columns)
    if not candidates.total:
        needed = "an id, a class and a domain" if reader.similarity is None else _NEEDED
        raise UserError(
            f"none of {len(reader.rows):,} rows has {needed}", fix="check the names of the columns"
        )
    steps = _first_steps(reader, candidates, boundary)
    counts, more = keep_domains(candidates, parameters)
    steps += more
    limits = None
    if parameters.domain_cap is not None:
        counts, limits, more = _cap_domains(reader, counts, keeps, columns, parameters, seed)
        steps += more
    chosen, more = keep_classes(counts, parameters)
    steps += more
    steps.append(_cap_step(chosen, parameters.cap))
    return Outlook(
        candidates=candidates,
        chosen=chosen,
        steps=tuple(steps),
        boundary=boundary,
        limits=limits,
        notes=_notes(parameters, steps, boundary),
    )


def select(
    reader: Reader,
    parameters: DomainsParameters,
    *,
    seed: int,
    progress: Progress = no_progress,
) -> Selection:
    """Choose the rows and take them; ``progress`` as for :func:`plan`."""
    with plain_allocation(len(reader.rows)):
        return _select(reader, parameters, seed, progress)


def _select(
    reader: Reader, parameters: DomainsParameters, seed: int, progress: Progress
) -> Selection:
    reader = _prepared(reader, expected_passes(parameters, take=True), progress)
    outlook = _plan(reader, parameters, seed)
    digest = Digest(reader)
    sizes = outlook.chosen.by_class
    wanted = sizes if parameters.cap is None else np.minimum(sizes, parameters.cap)
    parts: list[Any] = []
    waiting = sizes > 0
    spare = 8.0
    while waiting.any():
        reach = range_for(sizes, parameters.cap, spare=spare)
        drawn = sizes > wanted
        taken = _gather(reader, outlook, waiting, drawn, reach, seed, None if parts else digest)
        short = waiting & (np.bincount(taken.classes, minlength=len(sizes)) < wanted)
        if short.any() and bool((reach[short] == np.iinfo(np.uint64).max).any()):
            raise UserError("rows changed while they were read", fix="build again")
        kept = lowest_in_groups(taken.classes, taken.hashes, wanted)
        parts.append(taken.rows.take(kept[~short[taken.classes[kept]]]))
        waiting, spare = short, spare * 64
    return Selection(rows=_concat(parts), outlook=outlook, digest=digest.hexdigest())


def _prepared(reader: Reader, passes: int, progress: Progress) -> Reader:
    """The reader with its deciding columns decoded once, as far as they are small, and watched."""
    rows = reader.rows
    if isinstance(rows, FileRows):
        similarity = [] if reader.similarity is None else [reader.similarity]
        # Those that most passes read come first.
        rows = cached(rows, [*similarity, reader.id, reader.class_column, reader.domain])
    return replace(reader, rows=WatchedRows(rows, passes, progress))


def _first_rule(
    reader: Reader, boundary: Boundary | None
) -> tuple[Callable[[Seen], Mask], tuple[str, ...]]:
    """The rule on single rows: complete, and among the best; and the columns that it reads."""
    similarity = () if reader.similarity is None else (reader.similarity,)
    if boundary is None:
        return (lambda seen: seen.complete), similarity
    cut = boundary.last_id is not None

    def keeps(seen: Seen) -> Mask:
        return boundary.keeps(seen, seen.batch.column(reader.id) if cut else None)

    return keeps, (*similarity, reader.id) if cut else similarity


def _first_steps(reader: Reader, candidates: Counts, boundary: Boundary | None) -> list[Step]:
    rows = len(reader.rows)
    classes = int((candidates.by_class > 0).sum())
    domains = int((candidates.by_domain > 0).sum())
    if boundary is None:
        missing = {"incomplete": rows - candidates.total}
        return [Step("complete", rows, candidates.total, None, classes, None, domains, missing)]
    complete = boundary.complete
    cut = {
        "threshold": boundary.threshold,
        "tied": boundary.tied,
        "tied_cut": boundary.tied - boundary.kept_tied,
    }
    missing = {"incomplete": rows - complete}
    return [
        Step("complete", rows, complete, None, None, None, None, missing),
        Step("top", complete, candidates.total, None, classes, None, domains, cut),
    ]


def _cap_domains(
    reader: Reader,
    counts: Counts,
    keeps: Callable[[Seen], Mask],
    columns: tuple[str, ...],
    parameters: DomainsParameters,
    seed: int,
) -> tuple[Counts, Hashes, list[Step]]:
    """Thin out large domains; counts of what is left."""
    cap = parameters.domain_cap or 0
    purpose = derived_seed("domain cap", seed)
    limits = domain_limits(reader, counts, keeps, columns, cap=cap, seed=purpose)
    capped = _domain_rule(reader, counts, keeps, limits, purpose)
    wanted = tuple(dict.fromkeys((*columns, reader.id)))
    after = count_cells(reader, capped, wanted)
    at_cap = int((counts.by_domain > cap).sum())
    return after, limits, [make_step("domain_cap", counts, after, cap=cap, at_cap=at_cap)]


def _domain_rule(
    reader: Reader,
    counts: Counts,
    keeps: Callable[[Seen], Mask],
    limits: Hashes,
    purpose: int,
) -> Callable[[Seen], Mask]:
    """The rule on single rows with the cap of domains; dropped domains keep none."""
    most = np.uint64(np.iinfo(np.uint64).max)
    by_code = _by_code(reader.domains.names, counts.domains, limits)
    stays = _by_code(reader.domains.names, counts.domains, counts.by_domain > 0)

    def rule(seen: Seen) -> Mask:
        domains = reader.domains.codes(seen.batch.column(reader.domain))
        kept: Mask = keeps(seen) & stays[domains]
        rows = np.flatnonzero(kept & (by_code[domains] < most))
        hashes = row_hash(id_texts(seen.batch.column(reader.id).take(rows)), seed=purpose)
        kept[rows] = hashes <= by_code[domains[rows]]
        return kept

    return rule


def _by_code(names: list[str], ordered: tuple[str, ...], values: Any, *, missing: int = 0) -> Any:
    """Values in the order of sorted names, by the codes of a reader; the last one for null."""
    place = {name: number for number, name in enumerate(ordered)}
    table = np.full(len(names) + 1, missing, dtype=values.dtype)
    for code, name in enumerate(names):
        if name in place:
            table[code] = values[place[name]]
    return table


@dataclass(frozen=True, eq=False)
class _Taken:
    """Rows of a pass with the place of their class and, where it is capped, their number."""

    rows: Any
    classes: Codes
    hashes: Hashes


def _gather(
    reader: Reader,
    outlook: Outlook,
    wanted: Mask,
    drawn: Mask,
    reach: Hashes,
    seed: int,
    digest: Digest | None,
) -> _Taken:
    """All columns of the rows of ``wanted`` classes; of those ``drawn``, within reach."""
    keeps, _ = _first_rule(reader, outlook.boundary)
    chosen = outlook.chosen
    if outlook.limits is not None:
        keeps = _domain_rule(
            reader, chosen, keeps, outlook.limits, derived_seed("domain cap", seed)
        )
    names = reader.classes.names
    places = np.arange(len(wanted))
    place = _by_code(names, chosen.classes, np.where(wanted, places, -1), missing=-1)
    stays = place >= 0
    is_drawn = _by_code(names, chosen.classes, drawn)
    limits = _by_code(names, chosen.classes, reach)
    domain_stays = _by_code(reader.domains.names, chosen.domains, chosen.by_domain > 0)

    def take(seen: Seen) -> _Taken:
        classes = reader.classes.codes(seen.batch.column(reader.class_column))
        domains = reader.domains.codes(seen.batch.column(reader.domain))
        if digest is not None:
            digest.add(seen, classes, domains)
        rows = np.flatnonzero(keeps(seen) & stays[classes] & domain_stays[domains])
        classes = classes[rows]
        some = np.flatnonzero(is_drawn[classes])
        hashes = np.zeros(len(rows), dtype=np.uint64)
        ids = seen.batch.column(reader.id)
        hashes[some] = row_hash(id_texts(ids.take(rows[some])), seed=seed)
        within = hashes <= limits[classes]
        table = _selection_plain(seen.batch.take(rows[within]), reader)
        return _Taken(table, place[classes[within]], hashes[within])

    parts = list(reader.scan(reader.kept, take))
    return _Taken(
        _concat([part.rows for part in parts]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.hashes for part in parts]),
    )


def _selection_plain(batch: Any, reader: Reader) -> Any:
    """A batch as a table: ids and classes as texts under their fixed names, no dictionaries."""
    import pyarrow as pa

    arrays: dict[str, Any] = {
        "image_id": id_texts(batch.column(reader.id)),
        CLASS: id_texts(batch.column(reader.class_column)),
    }
    for name in batch.schema.names:
        column = batch.column(name)
        if name in (reader.id, reader.class_column, "image_id"):
            continue
        if name == CLASS:
            name = POOL_CLASS
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        arrays[name] = id_texts(column) if name == reader.domain else column
    return pa.table(arrays)


def _concat(parts: list[Any]) -> Any:
    import pyarrow as pa

    return pa.concat_tables(parts).combine_chunks()


def _cap_step(chosen: Counts, cap: int | None) -> Step:
    sizes = chosen.by_class
    classes, domains = int((sizes > 0).sum()), int((chosen.by_domain > 0).sum())
    taken = int(sizes.sum()) if cap is None else int(np.minimum(sizes, cap).sum())
    details: dict[str, object] = {
        "smallest": int(sizes[sizes > 0].min()),
        "largest": int(sizes.max()),
    }
    if cap is not None:
        details |= {"cap": cap, "at_cap": int((sizes >= cap).sum())}
    return Step("cap", chosen.total, taken, classes, classes, domains, domains, details)


def _notes(
    parameters: DomainsParameters, steps: list[Step], boundary: Boundary | None
) -> tuple[str, ...]:
    notes = []
    incomplete = steps[0].details["incomplete"]
    if incomplete:
        notes.append(
            f"{incomplete:,} rows lack an id, class, domain or similarity and are left out"
        )
    if boundary is not None and boundary.tied > boundary.kept_tied:
        notes.append(
            f"{boundary.tied:,} rows have the last similarity {boundary.threshold:.9g}; "
            f"{boundary.tied - boundary.kept_tied:,} of them, those of the last ids, are left out"
        )
    for step in steps:
        if step.name == "domain_minimum" and step.details["dropped"]:
            dropped: Any = step.details["dropped"]
            listed = ", ".join(f"{name} ({size:,})" for name, size in dropped.items())
            notes.append(f"domains under {step.details['least']:,} rows are left out: {listed}")
        if step.name == "exclusions":
            listed = "; ".join(f"{name} ({why})" for name, why in parameters.reasons.items())
            notes.append(f"{step.rows_in - step.rows_out:,} rows of excluded classes: {listed}")
        if step.name == "exclusions" and step.details["absent"]:
            absent: Any = step.details["absent"]
            notes.append(f"excluded classes without rows: {', '.join(absent)}")
        if step.name == "largest_classes" and parameters.classes is not None:
            if (step.classes_out or 0) < parameters.classes:
                notes.append(
                    f"{step.classes_out} classes are left of {parameters.classes} asked for"
                )
            if step.details["tie_cut"]:
                notes.append("the last class has as many rows as one that is left out")
    return tuple(notes)
