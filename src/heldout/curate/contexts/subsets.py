"""From what images show to subsets: which images show which subject with which context."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.curate.contexts.parameters import ContextsParameters
from heldout.curate.contexts.vocabulary import Counts, ancestors, count_as, groups, read_hierarchy
from heldout.data.published.metashift import SubsetName, join_subset_name, split_subset_name
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa

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
        if minimum < 1:
            raise UserError(f"a minimum of {minimum} images", fix="give 1 or more")
        places = np.nonzero(self.sizes >= minimum)[0]
        if len(self) and not len(places):
            most = int(np.argmax(self.sizes))
            raise NotApplicable(
                f"no subset reaches {minimum} images: the largest is {self.names[most]} with "
                f"{int(self.sizes[most])}",
                fix="give a smaller minimum",
            )
        return self if len(places) == len(self) else self.take(places)


def subsets_of_parts(
    names: Sequence[str], parts: Sequence[IntArray], image_ids: npt.NDArray[np.object_]
) -> Subsets:
    """Subsets from the images of each, sorted positions in ``image_ids``; unused images go."""
    images = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    known, renumbered = np.unique(images, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return Subsets(tuple(names), image_ids[known], renumbered.reshape(-1).astype(np.int64), starts)


def read_subsets(source: TestSet | pa.Table | Subsets) -> Subsets:
    """The subsets of a test set, or of a memberships table (image_id, column, value)."""
    import pyarrow.compute as pc

    if isinstance(source, Subsets):
        return source
    name = getattr(source, "name", "the memberships table")
    table: Any = getattr(source, "memberships", source)
    rows = table.filter(pc.equal(table["column"], COLUMN))
    if not len(rows):
        there = ", ".join(sorted(set(table["column"].to_pylist()))) or "none"
        raise NotApplicable(
            f"{name} has no membership {COLUMN!r} (it has {there})",
            fix="make a set with heldout build contexts",
        )
    return make_subsets(rows["image_id"], rows["value"])


def make_subsets(image_ids: Any, names: Any) -> Subsets:
    """Subsets from two columns of equal length, texts or Arrow arrays; repeated rows count once."""
    images, known = encode(image_ids)
    subsets, titles = encode(names)
    keys = np.unique(subsets * max(len(known), 1) + images)
    sizes = np.bincount(keys // max(len(known), 1), minlength=len(titles))
    return Subsets(
        tuple(titles.tolist()),
        known,
        keys % max(len(known), 1),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )


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


def hint(name: str, names: Iterable[str]) -> str:
    """What a user may have meant, for an error's fix."""
    known = sorted(names)
    folded = {text.casefold(): text for text in known}
    near = difflib.get_close_matches(name.casefold(), list(folded), 3, 0.6)
    if near:
        return f"did you mean {', '.join(folded[text] for text in near)}"
    shown = ", ".join(known[:5]) + (f" and {len(known) - 5:,} more" if len(known) > 5 else "")
    return f"there is {shown or 'none'}"


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


def read_shown(pool: TestSet, parameters: ContextsParameters) -> Shown:
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


def _pairs(pool: TestSet, columns: Sequence[str], values: Sequence[str]) -> list[SubsetName]:
    """Stated pairs taken apart; a value that is none is refused by name."""
    try:
        return [split_subset_name(value) for value in values]
    except UserError as error:
        raise UserError(
            f"pool {pool.name}, memberships {', '.join(columns)}: {error.message}", fix=error.fix
        ) from None


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


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Policy:
    """What is allowed, over a sorted vocabulary of n words.

    ``subjects``  bool (n,): words that may be subjects
    ``contexts``  bool (n,): words that may be contexts
    ``barred``    (subjects, contexts) masks: pairs that are left out
    ``reserved``  (subjects, contexts) masks: these contexts with these subjects only
    ``kin``       word -> positions of what it is a kind of, or that are kinds of it
    """

    subjects: Mask
    contexts: Mask
    barred: tuple[tuple[Mask, Mask], ...]
    reserved: tuple[tuple[Mask, Mask], ...]
    kin: Mapping[int, tuple[int, ...]]

    def with_subject(self, subject: int, *, itself: bool = False) -> Mask:
        """The contexts that may stand with a subject, bool (n,).

        ``itself``  whether the subject's own word is one: an orange may be stated to be orange,
                    but that an image with an orange shows an orange says nothing
        """
        if not self.subjects[subject]:
            return np.zeros_like(self.contexts)
        allowed = self.contexts.copy()
        for subjects, contexts in self.barred:
            if subjects[subject]:
                allowed &= ~contexts
        for subjects, contexts in self.reserved:
            if not subjects[subject]:
                allowed &= ~contexts
        allowed[subject] &= itself
        allowed[list(self.kin.get(subject, ()))] = False
        return allowed


def make_policy(parameters: ContextsParameters, vocabulary: Sequence[str]) -> Policy:
    """The policy that parameters state, for the words there are.

    An include list that names a word which is not there is refused: the set would silently lack
    it. An exclusion that matches nothing is no error.
    """
    known = groups(parameters.hierarchy)
    everything = np.ones(len(vocabulary), dtype=bool)

    def words(pattern: str) -> Mask:
        if pattern.startswith("@"):
            group = pattern[1:]
            if group not in known:
                raise UserError(f"no group {pattern!r}", fix=hint(group, known))
            return np.array([word in known[group] for word in vocabulary], dtype=bool)
        if any(letter in pattern for letter in "*?["):
            return np.array([fnmatch.fnmatchcase(w, pattern) for w in vocabulary], dtype=bool)
        return np.array([word == pattern for word in vocabulary], dtype=bool)

    def listed(patterns: Sequence[str], what: str) -> Mask:
        if not patterns:
            return everything
        masks = [words(pattern) for pattern in patterns]
        for pattern, mask in zip(patterns, masks, strict=True):
            if not mask.any():
                raise UserError(
                    f"no {what} {pattern!r} in the source", fix=hint(pattern, vocabulary)
                )
        found: Mask = np.any(masks, axis=0)
        return found

    def pair(pattern: str) -> tuple[Mask, Mask]:
        if not pattern.endswith(")"):
            return words(pattern), everything
        subject, context = split_subset_name(pattern)
        return words(subject), words(context)

    return Policy(
        subjects=listed(parameters.subjects, "subject"),
        contexts=listed(parameters.contexts, "context"),
        barred=tuple(map(pair, parameters.exclude)),
        reserved=tuple(map(pair, parameters.only)),
        kin=_kin(parameters, vocabulary) if parameters.roll_up == "add" else {},
    )


def _kin(parameters: ContextsParameters, vocabulary: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """With added parents a cat is always with an animal, which says nothing."""
    parents = read_hierarchy(parameters.hierarchy)
    places = {word: place for place, word in enumerate(vocabulary)}
    found: dict[int, set[int]] = {}
    for word, place in places.items():
        for above in ancestors(word, parents):
            if above in places:
                found.setdefault(place, set()).add(places[above])
                found.setdefault(places[above], set()).add(place)
    return {place: tuple(sorted(others)) for place, others in found.items()}


def ambiguous_pairs(pairs: Sequence[str]) -> list[tuple[str, str]]:
    """``cat+dog`` as two words each; anything else is refused."""
    found: list[tuple[str, str]] = []
    for text in pairs:
        parts: Any = [part.strip() for part in text.split("+")]
        if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
            raise UserError(f"{text!r} is no pair of classes", fix="write cat+dog")
        found.append((parts[0], parts[1]))
    return found


EVERY = -1
"""Stands for every subject in a table of what ambiguity leaves out."""


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
    shown = read_shown(pool, parameters)
    policy = make_policy(parameters, shown.words.tolist())
    found = _candidates_pairs(shown, policy, parameters, _ambiguous(shown, policy, parameters))
    if not found.counts["subsets"]:
        raise NotApplicable(
            f"pool {pool.name} gives no subset of a subject with a context",
            fix="look at the lists of subjects, contexts, exclusions and ambiguous pairs",
        )
    subsets = found.subsets
    if not len(subsets):
        raise NotApplicable(
            f"no subset reaches {parameters.minimum} images: the largest of "
            f"{found.counts['subsets']:,} has {found.largest}",
            fix="give a smaller --minimum",
        )
    places: dict[str, list[int]] = {}
    for place, subject in enumerate(subsets.subject_of):
        places.setdefault(subject, []).append(place)
    large = [each for each in places.values() if len(each) > parameters.more_than]
    if not large:
        most = max(places, key=lambda subject: (len(places[subject]), subject))
        raise NotApplicable(
            f"no class has more than {parameters.more_than} subsets of {parameters.minimum} "
            f"images: {most} has {len(places[most])}",
            fix="give a smaller --minimum or --more-than",
        )
    kept = subsets.take(sorted(place for each in large for place in each))
    counts = {
        **found.counts,
        "subsets_at_minimum": len(subsets),
        "subjects_at_minimum": len(subsets.subjects),
        "images_at_minimum": len(subsets.image_ids),
        "classes_above_minimum": len(large),
        "subsets_kept": len(kept),
        "images_kept": len(kept.image_ids),
    }
    sizes = {subject: found.sizes[subject] for subject in kept.subjects}
    return Candidates(kept, counts, shown.merged, sizes)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """``subsets`` of enough images; ``counts`` of all; ``sizes``: images of each subject."""

    subsets: Subsets
    counts: Mapping[str, int]
    sizes: Mapping[str, int]
    largest: int


def _candidates_pairs(
    shown: Shown, policy: Policy, parameters: ContextsParameters, lost: Mapping[int, Mask]
) -> _Pairs:
    """Count every allowed pair, and write out those of enough images."""
    m, n = len(shown.images), len(shown.words)
    beside = _beside(shown, parameters)
    # Only then can a pair come twice.
    again = len(beside) > 1 or (beside and len(shown.stated.images))
    stated = _BySubject(shown.stated, n)
    before, after = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool)
    contexts_seen = np.zeros(n, dtype=bool)
    total = largest = 0
    sizes_of: dict[str, int] = {}
    names: list[str] = []
    parts: list[IntArray] = []
    for subject in np.nonzero(policy.subjects)[0].tolist():
        images, contexts = stated.of(subject)
        fit = policy.with_subject(subject, itself=True)[contexts]
        images, contexts = images[fit], contexts[fit]
        for table, by_subject in beside:
            start, end = by_subject.indptr[subject : subject + 2]
            rows = by_subject.indices[start:end]
            near = table[rows]
            fit = policy.with_subject(subject)[near.indices]
            images = np.concatenate([images, np.repeat(rows, np.diff(near.indptr))[fit]])
            contexts = np.concatenate([contexts, near.indices[fit]])
        before[images] = True
        for left_out in (lost.get(EVERY), lost.get(subject)):
            if left_out is not None:
                fit = ~left_out[images]
                images, contexts = images[fit], contexts[fit]
        if not len(images):
            continue
        keys = contexts.astype(np.int64) * m + images
        if again:
            keys = np.unique(keys)
        contexts, images = np.divmod(keys, m)
        sizes = np.bincount(contexts, minlength=n)
        after[images] = True
        contexts_seen |= sizes > 0
        total += int((sizes > 0).sum())
        largest = max(largest, int(sizes.max()))
        word = shown.words[subject]
        sizes_of[word] = len(np.unique(images))
        large = np.nonzero(sizes >= parameters.minimum)[0]
        if len(large):
            keys = np.sort(keys[sizes[contexts] >= parameters.minimum])
            parts += np.split(keys % m, np.cumsum(sizes[large])[:-1])
            names += [join_subset_name(word, shown.words[context]) for context in large.tolist()]
    order = sorted(range(len(names)), key=names.__getitem__)
    counts = {
        "candidate_images": int(before.sum()),
        "subsets": total,
        "subjects": len(sizes_of),
        "contexts": int(contexts_seen.sum()),
        "images": int(after.sum()),
    }
    return _Pairs(
        subsets_of_parts([names[p] for p in order], [parts[p] for p in order], shown.images),
        counts,
        sizes_of,
        largest,
    )


def _beside(shown: Shown, parameters: ContextsParameters) -> list[tuple[Any, Any]]:
    """What stands beside what: contexts by image (csr) with images by subject (csc)."""
    objects, general = shown.objects, shown.general
    if "general" not in parameters.kinds or not general.nnz:
        return [(objects.tocsr(), objects.tocsc())] if "object" in parameters.kinds else []
    both = objects + general
    if "object" in parameters.kinds:
        return [(both.tocsr(), (both if parameters.both_ways else objects).tocsc())]
    found = [(general.tocsr(), objects.tocsc())]  # two objects in one image are no pair here
    if parameters.both_ways:
        found.append((both.tocsr(), general.tocsc()))
    return found


class _BySubject:
    """Stated pairs, found by subject."""

    def __init__(self, stated: Stated, n: int) -> None:
        order = np.argsort(stated.subjects, kind="stable")
        self._images, self._contexts = stated.images[order], stated.contexts[order]
        self._starts = np.searchsorted(stated.subjects[order], np.arange(n + 1))

    def of(self, subject: int) -> tuple[IntArray, IntArray]:
        """Images and contexts that are stated of a subject."""
        start, end = self._starts[subject], self._starts[subject + 1]
        return self._images[start:end], self._contexts[start:end]


def _above(words: Sequence[str], parameters: ContextsParameters) -> Any:
    """``csr_array`` (words, words): ones where the second is what the first is a kind of."""
    from scipy.sparse import csr_array

    parents = read_hierarchy(parameters.hierarchy)
    places = {word: place for place, word in enumerate(words)}
    pairs = [
        (place, places[parent])
        for word, place in places.items()
        for parent in ancestors(word, parents)
        if parent in places
    ]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    shape = (len(words), len(words))
    return csr_array((np.ones(len(pairs), dtype=np.int64), (rows, columns)), shape=shape)


def _ambiguous(
    shown: Shown, policy: Policy, parameters: ContextsParameters
) -> dict[int, npt.NDArray[np.bool_]]:
    """Images to leave out, by subject: those of two classes, as the parameters say."""
    from scipy.sparse import csr_array

    if parameters.ambiguity == "keep":
        return {}
    m, n = len(shown.images), len(shown.words)
    stated = shown.stated
    spoken = csr_array(
        (np.ones(len(stated.images), dtype=bool), (stated.images, stated.subjects)), shape=(m, n)
    )
    present = (shown.objects + spoken).tocsc()
    if parameters.ambiguity == "drop":
        classes = present[:, np.nonzero(policy.subjects)[0]].astype(np.int64).tocsr()
        if parameters.roll_up == "add":  # a cat that counts as an animal too is of one class
            above = _above(shown.words[policy.subjects].tolist(), parameters)
            classes = classes - classes.multiply((classes @ above) > 0)
        return {EVERY: np.asarray(classes.sum(axis=1)).reshape(-1) > 1}
    places = {word: place for place, word in enumerate(shown.words.tolist())}
    lost: dict[int, npt.NDArray[np.bool_]] = {}
    for pair in ambiguous_pairs(parameters.pairs):
        for word in pair:
            if word not in places:
                raise NotApplicable(f"no class {word!r} in the source", fix=hint(word, places))
        columns = [
            present.indices[present.indptr[places[w]] : present.indptr[places[w] + 1]] for w in pair
        ]
        both = np.intersect1d(*columns)
        for word in pair:
            lost.setdefault(places[word], np.zeros(m, dtype=bool))[both] = True
    return lost
