"""From what images show to subsets: which images show which subject with which context."""

from __future__ import annotations

import difflib
import fnmatch
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.request import given
from heldout.curate.contexts.requests import ContextsParameters
from heldout.curate.contexts.vocabulary import (
    Counts,
    ancestors,
    groups,
    normalise_vocabulary,
    read_hierarchy,
)
from heldout.data.published.metashift import SubsetName, join_subset_name, split_subset_name
from heldout.data.testset.testset import TestSet

COLUMN = "subset"
"""The membership that says which subsets an image is in."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Subsets:
    """Which images are in which subsets.

    ``names``      full names, sorted, n of them
    ``image_ids``  sorted, m of them; every one is in some subset
    ``images``     int64 (k,): a position in ``image_ids`` for each membership, sorted by subset,
                   then image
    ``starts``     int64 (n + 1,): where the memberships of each subset begin in ``images``
    """

    names: tuple[str, ...]
    image_ids: npt.NDArray[np.object_]
    images: IntArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def sizes(self) -> IntArray:
        """Images of each subset, int64 (n,)."""
        return np.diff(self.starts)

    @cached_property
    def subject_of(self) -> tuple[str, ...]:
        """The subject of each subset."""
        return tuple(split_subset_name(name).subject for name in self.names)

    @cached_property
    def context_of(self) -> tuple[str, ...]:
        """The context of each subset."""
        return tuple(split_subset_name(name).context for name in self.names)

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """All subjects, sorted."""
        return tuple(sorted(set(self.subject_of)))

    @cached_property
    def matrix(self) -> Any:
        """The same as a scipy ``csc_array`` of int32 ones, (m, n)."""
        from scipy.sparse import csc_array

        ones = np.ones(len(self.images), dtype=np.int32)
        return csc_array((ones, self.images, self.starts), shape=(len(self.image_ids), len(self)))

    def members(self, name: str) -> IntArray:
        """The images of a subset as sorted positions in ``image_ids``."""
        place = self.position(name)
        return self.images[self.starts[place] : self.starts[place + 1]]

    def position(self, name: str) -> int:
        """Where a subset stands; an unknown one is refused with the nearest names."""
        if name not in self._places:
            split_subset_name(name)  # says what is wrong with a name that is none
            raise NotFound(f"no subset {name!r} of enough images", fix=hint(name, self.names))
        return self._places[name]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def take(self, places: Sequence[int] | IntArray) -> Subsets:
        """Some subsets, with the images that are in them."""
        chosen = np.sort(np.asarray(places, dtype=np.int64)).tolist()
        parts = [self.images[self.starts[p] : self.starts[p + 1]] for p in chosen]
        return subsets_of_parts([self.names[p] for p in chosen], parts, self.image_ids)

    def of(self, subject: str) -> Subsets:
        """The subsets of one class; an unknown class is refused with the nearest names."""
        places = [p for p, name in enumerate(self.subject_of) if name == subject]
        if not places:
            raise NotFound(f"no class {subject!r}", fix=hint(subject, self.subjects))
        return self.take(places)

    def at_least(self, minimum: int) -> Subsets:
        """The subsets of at least ``minimum`` images; none is refused."""
        places = np.nonzero(self.sizes >= minimum)[0]
        if len(self) and not len(places):
            most = int(np.argmax(self.sizes))
            raise NotApplicable(
                f"no subset reaches {minimum} images: the largest is {self.names[most]} with "
                f"{int(self.sizes[most])}",
                fix="give a smaller minimum",
            )
        return self.take(places)


def subsets_of_parts(
    names: Sequence[str], parts: Sequence[IntArray], image_ids: npt.NDArray[np.object_]
) -> Subsets:
    """Subsets from the images of each, sorted positions in ``image_ids``; unused images go."""
    images = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    known, renumbered = np.unique(images, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return Subsets(tuple(names), image_ids[known], renumbered.reshape(-1).astype(np.int64), starts)


def read_subsets(testset: TestSet) -> Subsets:
    """The subsets of a test set."""
    import pyarrow.compute as pc

    table: Any = testset.memberships
    rows = table.filter(pc.equal(table["column"], COLUMN))
    if not len(rows):
        there = ", ".join(sorted(set(table["column"].to_pylist()))) or "none"
        raise NotApplicable(
            f"{testset.name} has no membership {COLUMN!r} (it has {there})",
            fix="make a set with heldout build contexts",
        )
    return make_subsets(rows["image_id"], rows["value"])


def make_subsets(image_ids: Any, names: Any) -> Subsets:
    """Subsets from two columns of equal length, texts or Arrow arrays; repeated rows count once."""
    images, known = encode(image_ids)
    subsets, titles = encode(names)
    of, images = np.divmod(np.unique(subsets * len(known) + images), max(len(known), 1))
    starts = np.searchsorted(of, np.arange(len(titles) + 1))
    return Subsets(tuple(titles.tolist()), known, images, starts)


def encode(values: Any) -> tuple[IntArray, npt.NDArray[np.object_]]:
    """Positions of values in the sorted list of distinct ones, and that list."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values)
    array = array.cast(pa.string())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    known = pc.unique(array)
    known = known.take(pc.sort_indices(known))
    codes = pc.index_in(array, value_set=known).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), np.array(known.to_pylist(), dtype=np.object_)


def names_in(text: str, known: Collection[str] = ()) -> list[str]:
    """Names joined by plus signs or commas; those inside parentheses belong to a name.

    A known name that holds one of them itself is taken whole.

    >>> names_in("cat(sofa)+cat(red, old)"), names_in("c++(pc)+cat(bed)", ["c++(pc)"])
    (['cat(sofa)', 'cat(red, old)'], ['c++(pc)', 'cat(bed)'])
    """
    ends, depth = [], 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter in ",+" and depth == 0:
            ends.append(place)
    ends.append(len(text))
    found, start = [], 0
    for end in ends:
        name = text[start:end].strip()
        whole = (text[start:later].strip() for later in ends if later > end)
        if name in known or not any(longer in known for longer in whole):
            found.append(name)
            start = end + 1
    return [name for name in found if name]


def hint(name: str, names: Iterable[str]) -> str:
    """What a user may have meant, for an error's fix."""
    known = sorted(names)
    folded = {text.casefold(): text for text in known}
    near = difflib.get_close_matches(name.casefold(), list(folded), 3, 0.6)
    if near:
        return f"did you mean {', '.join(folded[text] for text in near)}"
    return f"there is {', '.join(known[:5]) or 'none'}{' and more' * (len(known) > 5)}"


STATED = ("attribute", "subset")
"""Memberships whose values are pairs, subject(context)."""
Text = npt.NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class StatedPairs:
    """Pairs that a source states: subject, context and image of each, int64 (k,), sorted."""

    subjects: IntArray
    contexts: IntArray
    images: IntArray

    def of(self, subject: int) -> tuple[IntArray, IntArray]:
        """Images and contexts that are stated of a subject."""
        mine = slice(*np.searchsorted(self.subjects, [subject, subject + 1]))
        return self.images[mine], self.contexts[mine]


@dataclass(frozen=True, eq=False)
class ImageContents:
    """What images show, over one sorted vocabulary of n words.

    ``objects``, ``general``  ``csr_array`` of bool, (images, n)
    ``merged``                words of the source that count as others
    """

    images: Text
    words: Text
    objects: Any
    general: Any
    stated: StatedPairs
    merged: Counts


def read_contents(pool: TestSet, parameters: ContextsParameters) -> ImageContents:
    """Read the memberships (and general columns) that the parameters name, words merged."""
    kinds = parameters.context_kinds
    objects = _values(pool, parameters.objects)
    general = _values(pool, parameters.general if "general" in kinds else ())
    stated = _values(pool, STATED if "stated" in kinds else ())
    if not len(stated[0]) and not len(objects[0]):
        columns = sorted(set(pool.memberships["column"].to_pylist()))
        raise NotApplicable(
            f"pool {pool.name} says of no image what it shows: there is no "
            f"{', '.join((*parameters.objects, *STATED))}",
            fix=f"name a membership with --object; it has {', '.join(columns) or 'none'}",
        )
    here = {*pool.memberships["column"].unique().to_pylist(), *pool.images.column_names}
    for name in given(parameters).get("general", ()):
        if name not in here:
            raise NotFound(
                f"pool {pool.name} has no column {name!r} for --general",
                fix=f"it has {', '.join(sorted(here)) or 'none'}",
            )
    image_codes, images = encode(np.concatenate([objects[0], general[0], stated[0]]))
    try:
        names = [split_subset_name(value) for value in stated[2].tolist()]
    except UserError as error:
        raise UserError(
            f"pool {pool.name}, memberships {', '.join(STATED)}: {error.message}", fix=error.fix
        ) from None
    vocabulary = {*objects[2].tolist(), *general[2].tolist(), *(pair.subject for pair in names)}
    merged = normalise_vocabulary(
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
    return ImageContents(
        images,
        words,
        _table(of_objects, objects, merged, places, shape),
        _table(of_general, general, merged, places, shape),
        _stated(of_stated, stated[1], names, merged, places),
        merged,
    )


def _values(pool: TestSet, columns: Sequence[str]) -> tuple[Text, IntArray, Text]:
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
    return np.asarray(image_ids.filter(full).to_numpy(), dtype=np.object_), codes, known


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
) -> StatedPairs:
    """Stated pairs; the words of objects are merged, those of attributes are left alone."""
    m, n = int(images.max(initial=0)) + 1, max(len(places), 1)
    meant: list[list[int]] = []
    for pair in names:
        subjects, contexts = ([places[w] for w in merged.get(word, (word,))] for word in pair)
        meant.append([s * n + c for s in subjects for c in contexts])
    rows, pairs = _expanded(images, codes, meant)
    pairs, rows = np.divmod(np.unique(pairs * m + rows), m)
    return StatedPairs(*np.divmod(pairs, n), rows)


def _expanded(
    images: IntArray, codes: IntArray, meant: Sequence[Sequence[int]]
) -> tuple[IntArray, IntArray]:
    """Each (image, code) as the (image, number) rows that its code stands for."""
    lengths = np.array([len(numbers) for numbers in meant], dtype=np.int64)
    flat = np.array([number for numbers in meant for number in numbers], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    times = lengths[codes]
    inside = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
    return np.repeat(images, times), flat[np.repeat(starts[codes], times) + inside]


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Policy:
    """What is allowed, over a sorted vocabulary of n words.

    ``subjects``  bool (n,): words that may be subjects
    ``contexts``  bool (n,): words that may be contexts
    ``barred``    (subjects, contexts) masks: pairs that are left out
    ``kin``       for a word, those that it is a kind of and those that are a kind of it
    """

    subjects: Mask
    contexts: Mask
    barred: tuple[tuple[Mask, Mask], ...]
    kin: Mapping[int, list[int]]

    def with_subject(self, subject: int) -> Mask:
        """The contexts that may stand with a subject, bool (n,)."""
        allowed = self.contexts.copy()
        for subjects, contexts in self.barred:
            if subjects[subject]:
                allowed &= ~contexts
        # With added parents a cat is always with an animal, which says nothing.
        allowed[self.kin.get(subject, [])] = False
        return allowed


def make_policy(parameters: ContextsParameters, vocabulary: Sequence[str]) -> Policy:
    """The policy that parameters state, for the words there are.

    An include list that names a word which is not there is refused: the set would silently lack
    it. An exclusion may match nothing.
    """
    known = groups(parameters.hierarchy, parameters.synonyms)
    everything = np.ones(len(vocabulary), dtype=bool)

    def words(pattern: str) -> Mask:
        if pattern.startswith("@"):
            group = pattern[1:]
            if group not in known:
                raise UserError(f"no group {pattern!r}", fix=hint(group, known))
            return np.array([word in known[group] for word in vocabulary], dtype=bool)
        return np.array([fnmatch.fnmatchcase(w, pattern) for w in vocabulary], dtype=bool)

    def listed(patterns: Sequence[str], what: str) -> Mask:
        found = np.zeros_like(everything) if patterns else everything
        for pattern in patterns:
            mask = words(pattern)
            if not mask.any():
                raise UserError(
                    f"no {what} {pattern!r} in the source", fix=hint(pattern, vocabulary)
                )
            found = found | mask
        return found

    def pair(pattern: str) -> tuple[Mask, Mask]:
        if not pattern.endswith(")"):
            return words(pattern), everything
        subject, context = split_subset_name(pattern)
        return words(subject), words(context)

    kin: dict[int, list[int]] = {}
    if parameters.roll_up:
        parents = read_hierarchy(parameters.hierarchy, parameters.synonyms)
        places = {word: place for place, word in enumerate(vocabulary)}
        for word, place in places.items():
            for above in ancestors(word, parents):
                if above in places:
                    kin.setdefault(place, []).append(places[above])
                    kin.setdefault(places[above], []).append(place)
    reserved = map(pair, parameters.only)
    return Policy(
        subjects=listed(parameters.subjects, "subject"),
        contexts=listed(parameters.contexts, "context"),
        barred=(*map(pair, parameters.exclude), *((~others, words) for others, words in reserved)),
        kin=kin,
    )


@dataclass(frozen=True, eq=False)
class Candidates:
    """The subsets of enough images, and how many there were of everything before.

    ``kept``     the subsets of at least the minimum of images, in classes with more than the asked
                 number of them
    ``counts``   ``candidate_images``: images with a subject and a context, before ambiguity;
                 ``subsets``, ``subjects``, ``contexts``, ``images`` of all candidate subsets;
                 ``subsets_at_minimum``, ``subjects_at_minimum``, ``images_at_minimum``;
                 ``classes_above_minimum``, ``subsets_kept``, ``images_kept``
    ``merged``   words of the source that count as others
    ``images``   images of each kept class with any context, candidates of any size included
    """

    kept: Subsets
    counts: Mapping[str, int]
    merged: Counts
    images: Mapping[str, int]


def find_candidates(pool: TestSet, parameters: ContextsParameters) -> Candidates:
    """All subsets that the parameters allow; none at all, or none large enough, is refused."""
    shown = read_contents(pool, parameters)
    m, n = len(shown.images), len(shown.words)
    before, after = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool)
    contexts_seen = np.zeros(n, dtype=bool)
    total = largest = 0
    sizes_of: dict[str, int] = {}
    large: dict[str, IntArray] = {}
    for subject, had, contexts, images in _pairs_by_subject(shown, parameters):
        before[had] = True
        if not len(images):
            continue
        word = shown.words[subject]
        sizes = np.bincount(contexts, minlength=n)
        after[images] = True
        contexts_seen |= sizes > 0
        total += int((sizes > 0).sum())
        largest = max(largest, int(sizes.max()))
        sizes_of[word] = len(np.unique(images))
        enough = np.flatnonzero(sizes >= parameters.minimum)
        kept = sizes[contexts] >= parameters.minimum
        parts = np.split(images[kept], np.cumsum(sizes[enough])[:-1])
        names = (join_subset_name(word, shown.words[context]) for context in enough)
        large |= dict(zip(names, parts, strict=False))
    if not total:
        raise NotApplicable(
            f"pool {pool.name} gives no subset of a subject with a context",
            fix="look at the lists of subjects, contexts, exclusions and ambiguous pairs",
        )
    if not large:
        raise NotApplicable(
            f"no subset reaches {parameters.minimum} images: the largest of {total:,} has "
            f"{largest}",
            fix="give a smaller --minimum",
        )
    ordered = sorted(large)
    subsets = subsets_of_parts(ordered, [large[name] for name in ordered], shown.images)
    number = Counter(subsets.subject_of)
    most = max(number, key=lambda subject: (number[subject], subject))
    if number[most] <= parameters.more_than:
        raise NotApplicable(
            f"no class has more than {parameters.more_than} subsets of {parameters.minimum} "
            f"images: {most} has {number[most]}",
            fix="give a smaller --minimum or --more-than",
        )
    of = [number[subject] for subject in subsets.subject_of]
    chosen = subsets.take(np.flatnonzero(np.array(of) > parameters.more_than))
    counts = {
        "candidate_images": int(before.sum()),
        "subsets": total,
        "subjects": len(sizes_of),
        "contexts": int(contexts_seen.sum()),
        "images": int(after.sum()),
        "subsets_at_minimum": len(subsets),
        "subjects_at_minimum": len(subsets.subjects),
        "images_at_minimum": len(subsets.image_ids),
        "classes_above_minimum": len(chosen.subjects),
        "subsets_kept": len(chosen),
        "images_kept": len(chosen.image_ids),
    }
    whole = {subject: sizes_of[subject] for subject in chosen.subjects}
    return Candidates(chosen, counts, shown.merged, whole)


def _pairs_by_subject(
    shown: ImageContents, parameters: ContextsParameters
) -> Iterator[tuple[int, IntArray, IntArray, IntArray]]:
    """For every allowed subject: its images before ambiguous ones go; contexts and images of pairs.

    Pairs are sorted by context, then image, none twice.
    """
    policy = make_policy(parameters, shown.words.tolist())
    lost = _ambiguous(shown, parameters.pairs)
    beside = shown.general
    if "object" in parameters.context_kinds:
        beside = (beside + shown.objects).tocsr()
    by_subject = shown.objects.tocsc()
    m = len(shown.images)
    for subject in np.flatnonzero(policy.subjects).tolist():
        allowed = policy.with_subject(subject)
        images, contexts = shown.stated.of(subject)
        fit = allowed[contexts]
        images, contexts = images[fit], contexts[fit]
        # An orange may be stated to be orange, but that it shows an orange says nothing.
        allowed[subject] = False
        rows = by_subject.indices[slice(*by_subject.indptr[subject : subject + 2])]
        near = beside[rows]
        fit = allowed[near.indices]
        images = np.concatenate([images, np.repeat(rows, np.diff(near.indptr))[fit]])
        contexts = np.concatenate([contexts, near.indices[fit]])
        left = images
        if subject in lost:
            fit = ~np.isin(images, lost[subject])
            left, contexts = images[fit], contexts[fit]
        yield subject, images, *np.divmod(np.unique(contexts.astype(np.int64) * m + left), m)


def _ambiguous(shown: ImageContents, pairs: Sequence[str]) -> dict[int, IntArray]:
    """Images to leave out of a subject: those that show the other class of a pair too."""
    stated = shown.stated
    places = {word: place for place, word in enumerate(shown.words.tolist())}
    lost: dict[int, IntArray] = {}
    for text in pairs:
        both = [part.strip() for part in text.split("+")]
        if len(both) != 2 or not all(both) or both[0] == both[1]:
            raise UserError(f"{text!r} is not a pair of classes", fix="write cat+dog")
        images = np.arange(len(shown.images))
        for word in both:
            if word not in places:
                raise NotApplicable(f"no class {word!r} in the source", fix=hint(word, places))
            seen = shown.objects[:, [places[word]]].nonzero()[0]
            images = np.intersect1d(images, np.union1d(seen, stated.of(places[word])[0]))
        for word in both:
            known = lost.get(places[word], np.empty(0, np.int64))
            lost[places[word]] = np.union1d(known, images)
    return lost
