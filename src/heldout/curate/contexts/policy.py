"""Which pairs of subject and context may be subsets: include lists, exclusions, reserved contexts."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.curate.contexts.names import parse_subset
from heldout.curate.contexts.parameters import ContextsParameters
from heldout.curate.contexts.subsets import hint
from heldout.curate.contexts.words import ancestors, groups, read_hierarchy

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
        subject, context = parse_subset(pattern)
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
