"""From what images show to subsets: which images show which subject with which context.

Subjects are gone through one by one: what stands beside a subject is counted, and only subsets of
enough images are written out. The cost grows with the pairs of names that images show together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.curate.contexts.names import subset_name
from heldout.curate.contexts.parameters import ContextsParameters
from heldout.curate.contexts.policy import Mask, Policy, ambiguous_pairs, make_policy
from heldout.curate.contexts.shown import Shown, Stated, read_shown
from heldout.curate.contexts.subsets import IntArray, Subsets, hint
from heldout.curate.contexts.words import Counts, ancestors, read_hierarchy
from heldout.data.testset.pool import Pool

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


def find_candidates(pool: Pool, parameters: ContextsParameters) -> Candidates:
    """All subsets that the parameters allow; none at all, or none large enough, is refused."""
    shown = read_shown(pool, parameters)
    policy = make_policy(parameters, shown.words.tolist())
    found = _pairs(shown, policy, parameters, _ambiguous(shown, policy, parameters))
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


def _pairs(
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
            names += [subset_name(word, shown.words[context]) for context in large.tolist()]
    counts = {
        "candidate_images": int(before.sum()),
        "subsets": total,
        "subjects": len(sizes_of),
        "contexts": int(contexts_seen.sum()),
        "images": int(after.sum()),
    }
    return _Pairs(_assembled(names, parts, shown.images), counts, sizes_of, largest)


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


def _assembled(
    names: Sequence[str], parts: Sequence[IntArray], image_ids: npt.NDArray[np.object_]
) -> Subsets:
    order = sorted(range(len(names)), key=lambda place: names[place])
    images = np.concatenate([parts[p] for p in order]) if order else np.empty(0, dtype=np.int64)
    known, renumbered = np.unique(images, return_inverse=True)
    return Subsets(
        tuple(names[p] for p in order),
        image_ids[known],
        renumbered.astype(np.int64).reshape(-1),
        np.concatenate([[0], np.cumsum([len(parts[p]) for p in order])]).astype(np.int64),
    )


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
