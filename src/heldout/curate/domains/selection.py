"""Choosing rows: passes over any number of them, in memory that holds a batch and what is chosen.

1. the best by similarity: two passes over that column, a third where ties are cut;
2. one pass counts classes by domains; rules on these counts choose domains and classes;
3. where domains are capped, one pass finds each one's limit, and another counts again;
4. one pass takes the rows of the chosen classes that their caps can reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import UserError
from heldout.curate.domains.caching import cached
from heldout.curate.domains.capping import (
    Hashes,
    domain_limits,
    id_texts,
    lowest_in_groups,
    range_for,
)
from heldout.curate.domains.choosing import Step, keep_classes, keep_domains, make_step
from heldout.curate.domains.counting import Counts, count_cells
from heldout.curate.domains.digest import Digest
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.reading import CLASS, POOL_CLASS, Codes, Mask, Reader, Seen
from heldout.curate.domains.rows import FileRows, plain_allocation
from heldout.curate.domains.top import Boundary, find_boundary
from heldout.curate.domains.watching import WatchedRows, expected_passes
from heldout.data.testset.hashing import derived_seed, row_hash

if TYPE_CHECKING:
    import pyarrow as pa


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
        table = _plain(seen.batch.take(rows[within]), reader)
        return _Taken(table, place[classes[within]], hashes[within])

    parts = list(reader.scan(reader.kept, take))
    return _Taken(
        _concat([part.rows for part in parts]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.hashes for part in parts]),
    )


def _plain(batch: Any, reader: Reader) -> Any:
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
