"""What the images of a pool show, as numbers: names, general contexts, and stated pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.contexts.names import SubsetName, parse_subset
from heldout.curate.contexts.parameters import ContextsParameters
from heldout.curate.contexts.subsets import IntArray, encode
from heldout.curate.contexts.words import Counts, count_as
from heldout.data.testset.pool import Pool

Text = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Stated:
    """Pairs that a source states: image, subject and context of each, int64 (k,), none twice."""

    images: IntArray
    subjects: IntArray
    contexts: IntArray


@dataclass(frozen=True, eq=False)
class Shown:
    """What images show, over one sorted vocabulary of n words.

    ``objects``, ``general``  ``csr_array`` of bool, (images, n)
    ``merged``                words of the source that count as others
    """

    images: Text
    words: Text
    objects: Any
    general: Any
    stated: Stated
    merged: Counts


def read_shown(pool: Pool, parameters: ContextsParameters) -> Shown:
    """Read the memberships (and general columns) that the parameters name, words merged."""
    objects = _values(pool, parameters.objects)
    general = _values(pool, parameters.general if "general" in parameters.kinds else ())
    stated = _values(pool, parameters.stated if "stated" in parameters.kinds else ())
    if not len(stated[0]) and not len(objects[0]):
        columns = sorted(set(pool.memberships["column"].to_pylist()))
        raise NotApplicable(
            f"pool {pool.name} says of no image what it shows: there is no "
            f"{', '.join((*parameters.objects, *parameters.stated))}",
            fix=f"name a membership with --objects; it has {', '.join(columns) or 'none'}",
        )
    image_codes, images = encode(np.concatenate([objects[0], general[0], stated[0]]))
    names = _pairs(pool, parameters.stated, stated[2].tolist())
    vocabulary = {*objects[2].tolist(), *general[2].tolist(), *(pair.subject for pair in names)}
    merged = count_as(
        vocabulary,
        synonyms=parameters.synonyms,
        plurals=parameters.plurals,
        hierarchy=parameters.hierarchy,
        roll_up=parameters.roll_up,
    )
    listed = {pair.context for pair in names}
    for word in vocabulary:
        listed.update(merged.get(word, (word,)))
    words = np.array(sorted(listed), dtype=np.object_)
    places = {word: place for place, word in enumerate(words.tolist())}
    ends = np.cumsum([len(objects[0]), len(general[0])])
    of_objects, of_general, of_stated = np.split(image_codes, ends)
    shape = (len(images), len(words))
    return Shown(
        images,
        words,
        _table(of_objects, objects, merged, places, shape),
        _table(of_general, general, merged, places, shape),
        _stated(of_stated, stated[1], names, merged, places, both=parameters.both_ways),
        merged,
    )


def _pairs(pool: Pool, columns: Sequence[str], values: Sequence[str]) -> list[SubsetName]:
    """Stated pairs taken apart; a value that is none is refused by name."""
    try:
        return [parse_subset(value) for value in values]
    except UserError as error:
        raise UserError(
            f"pool {pool.name}, memberships {', '.join(columns)}: {error.message}", fix=error.fix
        ) from None


def _values(pool: Pool, columns: Sequence[str]) -> tuple[Text, IntArray, Text]:
    """Image ids, codes of values, and the values, of memberships and single-valued columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = pool.memberships
    rows = table.filter(pc.is_in(table["column"], value_set=pa.array(columns, pa.string())))
    ids, values = [rows["image_id"]], [rows["value"]]
    for name in columns:
        if name in pool.images.column_names:
            ids.append(pool.images["image_id"])
            values.append(pool.images[name].cast(pa.string()))
    image_ids = pa.chunked_array([c for part in ids for c in part.chunks], pa.string())
    texts = pa.chunked_array([c for part in values for c in part.chunks], pa.string())
    full = pc.and_(pc.is_valid(texts), pc.not_equal(texts, ""))
    codes, known = encode(texts.filter(full))
    return _array(image_ids.filter(full)), codes, known


def _array(texts: Any) -> Text:
    found: Text = np.asarray(texts.to_numpy(), dtype=np.object_)
    return found


def _table(
    images: IntArray,
    values: tuple[Text, IntArray, Text],
    merged: Counts,
    places: Mapping[str, int],
    shape: tuple[int, int],
) -> Any:
    from scipy.sparse import csr_array

    _, codes, known = values
    meant = [[places[word] for word in merged.get(value, (value,))] for value in known.tolist()]
    rows, columns = _expanded(images, codes, meant)
    made = csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape)
    made.sum_duplicates()
    return made


def _stated(
    images: IntArray,
    codes: IntArray,
    names: Sequence[SubsetName],
    merged: Counts,
    places: Mapping[str, int],
    *,
    both: bool,
) -> Stated:
    """Stated pairs; the words of objects are merged, those of attributes are left alone."""
    n = len(places)
    meant: list[list[int]] = []
    for subject, context in names:
        subjects = [places[word] for word in merged.get(subject, (subject,))]
        contexts = [places[word] for word in merged.get(context, (context,))]
        pairs = {(s, c) for s in subjects for c in contexts}
        pairs |= {(c, s) for s, c in pairs} if both else set()
        meant.append(sorted(s * n + c for s, c in pairs))
    rows, pairs_of = _expanded(images, codes, meant)
    most = max(n * n, 1)
    keys = np.unique(rows * most + pairs_of)
    rows, pairs_of = np.divmod(keys, most)
    subjects_of, contexts_of = np.divmod(pairs_of, max(n, 1))
    return Stated(rows, subjects_of, contexts_of)


def _expanded(
    images: IntArray, codes: IntArray, meant: Sequence[Sequence[int]]
) -> tuple[IntArray, IntArray]:
    """Each (image, code) as the (image, number) rows that its code stands for."""
    lengths = np.array([len(numbers) for numbers in meant], dtype=np.int64)
    flat = np.array([number for numbers in meant for number in numbers], dtype=np.int64)
    if not len(codes):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    times = lengths[codes]
    inside = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    return np.repeat(images, times), flat[np.repeat(starts[codes], times) + inside]
