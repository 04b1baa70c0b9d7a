"""Selectors: which candidates of a domain, or of all, are to be labelled next.

========================== =========================================================================
``random``                 drawn evenly
``least-confidence``       lowest highest probability first
``margin``                 lowest difference of the two highest probabilities first
``logit-margin``           lowest difference of the two highest logits first
``entropy``                highest entropy first
``atc[:SCORE]``            drawn evenly among predicted errors: below the threshold that, on
                           validation images, has as many below it as are wrong. SCORE is one of the
                           four above, least-confidence if left out. Too few: the lowest scores next
``atc[:SCORE]:by-domain``  the same with a threshold for every domain
``k-centre``               always the candidate farthest from what is labelled or chosen
``badge``                  drawn far apart in the space of gradients
========================== =========================================================================

Chance comes from hashes of image ids, and equal scores are ordered by them: nothing depends on the
order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.spreading import badge, k_centre
from heldout.curate.active.threshold import atc_threshold, group_thresholds
from heldout.curate.active.uncertainty import SCORES
from heldout.data.testset.rowhash import derived_seed, row_hash

SELECTORS = ("random", *SCORES, "atc", "k-centre", "badge")
_BY_DOMAIN = "by-domain"


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What a selector sees: candidates (n), labelled images (m), validation images (v).

    ``ids``       of candidates, an Arrow array of texts; ``groups`` their domains, int64 (n,)
    ``logits``    (n, classes), ``features`` (n, d) of candidates; None where there is no such thing
    ``labelled``  (m, d), features of the labelled
    ``validation_*``  logits (v, classes), labels (v,) and domains (v,)
    ``domains``   how many domains there are
    ``seed``      of this round
    """

    ids: Any
    groups: np.ndarray
    domains: int
    seed: int
    logits: np.ndarray | None = None
    features: np.ndarray | None = None
    labelled: np.ndarray | None = None
    validation_logits: np.ndarray | None = None
    validation_labels: np.ndarray | None = None
    validation_groups: np.ndarray | None = None


@dataclass(frozen=True)
class Selector:
    """A selector by name, with the score and the kind of threshold where it takes them."""

    kind: str
    score: str = "least-confidence"
    by_domain: bool = False

    @property
    def name(self) -> str:
        """The text that :func:`parse_selector` reads."""
        if self.kind != "atc":
            return self.kind
        middle = "" if self.score == "least-confidence" else f":{self.score}"
        return f"atc{middle}{f':{_BY_DOMAIN}' if self.by_domain else ''}"

    @property
    def needs_model(self) -> bool:
        """Whether a trained classifier is needed."""
        return self.kind not in ("random", "k-centre")

    @property
    def needs_validation(self) -> bool:
        """Whether labelled images are needed that were not trained on."""
        return self.kind == "atc"

    def __call__(self, view: View, budget: int, quota: np.ndarray | None = None) -> np.ndarray:
        """The chosen candidates, best first, int64 (budget,); ``quota`` of every domain or None."""
        if quota is not None and int(quota.sum()) != budget:
            raise ValueError("quotas must sum to the budget")
        if budget > len(view.groups):
            raise UserError(
                f"{budget:,} images are asked for, {len(view.groups):,} are left",
                fix="ask for fewer",
            )
        ties = row_hash(view.ids, seed=derived_seed("ties", view.seed))
        if self.kind == "k-centre":
            features = _there(view.features, "features of the images", self.name)
            labelled = view.labelled if view.labelled is not None else features[:0]
            return k_centre(features, labelled, view.groups, budget=budget, quota=quota, ties=ties)
        if self.kind == "badge":
            return badge(
                _there(view.logits, "a trained classifier", self.name),
                _there(view.features, "features of the images", self.name),
                view.groups,
                budget=budget,
                quota=quota,
                ids=view.ids,
                seed=view.seed,
            )
        return first_of(self._order(view, ties), view.groups, budget, quota)

    def _order(self, view: View, ties: np.ndarray) -> np.ndarray:
        if self.kind == "random":
            return np.argsort(ties, kind="stable")
        logits = _there(view.logits, "a trained classifier", self.name)
        if self.kind != "atc":
            return np.lexsort((ties, SCORES[self.kind](logits)))
        scores = SCORES[self.score](logits)
        above = scores >= self.thresholds(view)[view.groups]
        return np.lexsort((ties, np.where(above, scores, -np.inf)))

    def thresholds(self, view: View) -> np.ndarray:
        """The threshold of every domain, float64 (domains,): all the same unless by domain."""
        logits = _there(view.validation_logits, "labelled validation images", self.name)
        labels = _there(view.validation_labels, "labelled validation images", self.name)
        groups = _there(view.validation_groups, "labelled validation images", self.name)
        scores, correct = SCORES[self.score](logits), logits.argmax(axis=1) == labels
        if self.by_domain:
            return group_thresholds(scores, correct, groups, view.domains)
        return np.full(view.domains, atc_threshold(scores, correct))


def first_of(
    order: np.ndarray, groups: np.ndarray, budget: int, quota: np.ndarray | None
) -> np.ndarray:
    """The first of ``order`` (rows, best first), of each group no more than its quota; int64."""
    if quota is None:
        return np.asarray(order[:budget], np.int64)
    ordered = groups[order]
    by_group = np.argsort(ordered, kind="stable")
    sizes = np.bincount(ordered, minlength=len(quota))
    starts = np.cumsum(sizes) - sizes
    place = np.empty(len(order), np.int64)
    place[by_group] = np.arange(len(order)) - np.repeat(starts, sizes)
    return np.asarray(order[place < np.asarray(quota)[ordered]], np.int64)


def parse_selector(text: str) -> Selector:
    """The selector that a text names.

    >>> parse_selector("atc:margin:by-domain")
    Selector(kind='atc', score='margin', by_domain=True)
    """
    kind, *rest = text.split(":")
    if kind not in SELECTORS:
        raise UserError(f"no selector {text!r}", fix=f"use one of {', '.join(SELECTORS)}")
    if kind != "atc" and rest:
        raise UserError(f"selector {kind} takes no {rest[0]!r}", fix=f"write {kind}")
    by_domain = bool(rest) and rest[-1] == _BY_DOMAIN
    rest = rest[:-1] if by_domain else rest
    if len(rest) > 1 or (rest and rest[0] not in SCORES):
        raise UserError(
            f"no selector {text!r}", fix=f"write atc:SCORE with one of {', '.join(SCORES)}"
        )
    return Selector(kind, rest[0] if rest else "least-confidence", by_domain)


def _there(value: np.ndarray | None, what: str, name: str) -> np.ndarray:
    if value is None:
        raise NotApplicable(
            f"selector {name} needs {what}", fix="give them, or choose another such as random"
        )
    return value
