"""Evidence about a mistake: similar classes, co-occurrence, peers, vectors, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import LabelError, NotApplicable, UserError
from heldout.core.files import sha256_file, sha256_text
from heldout.core.workspace import Workspace
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.superclasses import Superclasses, read_superclasses
from heldout.data.labels.wordnet import Hierarchy
from heldout.data.testset import TestSet
from heldout.measure.mistakes.between_models import Peers, read_peers
from heldout.measure.mistakes.class_similarity import (
    Closeness,
    PairCounts,
    co_prediction,
    cooccurrence,
)
from heldout.measure.mistakes.requests import EvidenceSources
from heldout.measure.mistakes.verdicts import (
    BUILT_IN,
    Collapse,
    Mistake,
    Mistakes,
    load_collapse,
)
from heldout.models.adapters.model import Encoder, unit_rows
from heldout.models.predictions import Predictions
from heldout.models.predictions.ledger import stored_predictions

if TYPE_CHECKING:
    from heldout.models.embeddings import Embeddings


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """What proposals are made from.

    ``space``         the label space of the test set
    ``collapse``      classes that also count as right where another does
    ``hierarchy``     who stands under whom
    ``superclasses``  groups of classes that are alike
    ``affinity``      how alike classes look to models
    ``peers``         what other models say of the images
    ``cooccurrence``  which classes are seen together
    ``prototypes``    image id to how typical the image is of its class; any scale, larger is more
                      typical (a selection frequency, a similarity to the class's mean)
    ``outsiders``     image-text similarities to things that are not classes
    ``sources``       where all this comes from, in words; the same words mean the same evidence
    """

    space: LabelSpace
    collapse: Collapse | None = None
    hierarchy: Hierarchy | None = None
    superclasses: Superclasses | None = None
    affinity: PairCounts | None = None
    peers: Peers | None = None
    cooccurrence: PairCounts | None = None
    prototypes: Mapping[str, float] | None = None
    outsiders: OutOfVocabulary | None = None
    sources: str = ""

    @cached_property
    def closeness(self) -> Closeness | None:
        """Closeness in the hierarchy; None without one."""
        return None if self.hierarchy is None else Closeness(self.space, self.hierarchy)

    @cached_property
    def typicality(self) -> Mapping[str, float] | None:
        """Each image's rank among the prototypes, 0 the least typical to 1; None without any."""
        if self.prototypes is None:
            return None
        values = np.array(list(self.prototypes.values()), dtype=np.float64)
        ordered = np.sort(values)
        low = np.searchsorted(ordered, values, side="left")
        high = np.searchsorted(ordered, values, side="right")
        ranks = (low + high - 1) / 2 / max(1, len(values) - 1)
        return dict(zip(self.prototypes, ranks.tolist(), strict=True))

    @cached_property
    def node_names(self) -> Mapping[str, str]:
        """What nodes of the hierarchy are called: classes by their names, WordNet's by its own."""
        names: dict[str, str] = {}
        if self.hierarchy is Hierarchy.wordnet():
            names = {item.id: item.name for item in LabelSpace.load("wordnet-nodes")}
        return names | {item.node: item.name for item in self.space}


def hierarchy_for(space: LabelSpace) -> Hierarchy | None:
    """The hierarchy that a label space stands in; None where it stands in none.

    WordNet where all classes do, else the classes' own parents, else WordNet for those that do: the
    others have no closeness.
    """
    wordnet = Hierarchy.wordnet()
    inside = [item.node in wordnet for item in space]
    if not all(inside) and any(item.parents for item in space):
        return Hierarchy.from_label_space(space)
    return wordnet if any(inside) else None


Change = Callable[[np.ndarray], np.ndarray]
KINDS = (
    "lca_size", "path_distance", "same_superclass", "affinity", "cooccurrence", "cooccurrence_share",
    "labels", "peers_right", "peers_same", "peers_listed", "peers_spread", "typicality", "outside_share",
)  # fmt: skip
# How a kind enters a regression, if not as it is: numbers that run over decades as their logarithm.
_LEARNED: Mapping[str, tuple[Change, ...]] = {
    "lca_size": (np.log2,),
    "affinity": (np.asarray, lambda values: np.log10(values + 1e-3)),
    "cooccurrence": (np.log1p,),
}
_AS_IT_IS: tuple[Change, ...] = (np.asarray,)


@dataclass(frozen=True, eq=False, kw_only=True)
class EvidenceTable:
    """What is known about some mistakes.

    ``columns``   kind to float (n,), NaN where not known
    ``nearest``   kind to int64 (n,): the label (class index) that the number is about, -1 for none
    ``nodes``     int64 (n,): code of the lowest common ancestor (see Closeness), -1 for none
    ``groups``    int64 (n,): the superclass that holds prediction and label, -1 for none
    ``collapsed`` bool (n,): the prediction is right, or another name of a label, or over it
    ``outsiders`` object (n,): the name of what is not a class and fits the image best, None for none
    """

    knowledge: Knowledge
    mistakes: Mistakes
    columns: Mapping[str, np.ndarray]
    nearest: Mapping[str, np.ndarray]
    nodes: np.ndarray
    groups: np.ndarray
    collapsed: np.ndarray
    outsiders: np.ndarray

    def __len__(self) -> int:
        return len(self.mistakes)

    def column(self, kind: str) -> np.ndarray:
        """A kind's numbers; all NaN where nothing is known."""
        found = self.columns.get(kind)
        return np.full(len(self), np.nan) if found is None else found

    def features(self, kinds: Iterable[str] | None = None) -> np.ndarray:
        """Numbers (n, d) as a regression takes them: of all known kinds, or of ``kinds``.

        NaN for a kind that is not known here; :func:`feature_kinds` says which column is which kind.
        """
        values = [
            change(self.column(kind))
            for kind in (self.columns if kinds is None else kinds)
            for change in _LEARNED.get(kind, _AS_IT_IS)
        ]
        return np.stack(values, axis=1) if values else np.zeros((len(self), 0))

    def take(self, rows: Sequence[int] | np.ndarray) -> EvidenceTable:
        """Some of the rows, in that order."""
        where = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            mistakes=self.mistakes.take(where),
            columns={kind: values[where] for kind, values in self.columns.items()},
            nearest={kind: values[where] for kind, values in self.nearest.items()},
            nodes=self.nodes[where],
            groups=self.groups[where],
            collapsed=self.collapsed[where],
            outsiders=self.outsiders[where],
        )


def feature_kinds(kinds: Iterable[str]) -> list[str]:
    """The kind of every column of features; a kind may have several."""
    return [kind for kind in kinds for _ in _LEARNED.get(kind, _AS_IT_IS)]


def evidence_table(mistakes: Mistakes, knowledge: Knowledge) -> EvidenceTable:
    """All that is known about some mistakes."""
    n, lists = len(mistakes), mistakes.acceptable
    # Every (mistake, label) pair: row of the mistake, its prediction, one right label.
    rows, labels = np.repeat(np.arange(n), lists.lengths), lists.values
    predictions = mistakes.predictions[rows]
    columns: dict[str, np.ndarray] = {"labels": lists.lengths.astype(np.float64)}
    nearest: dict[str, np.ndarray] = {}
    nodes = np.full(n, -1, dtype=np.int64)
    groups = np.full(n, -1, dtype=np.int64)
    outsiders = np.full(n, None, dtype=object)
    collapsed = lists.contain(mistakes.predictions)

    def keep(kind: str, values: np.ndarray, *, largest: bool = True) -> np.ndarray:
        """Note each mistake's best value over its labels, and that label; which pairs these are."""
        columns[kind], nearest[kind] = np.full(n, np.nan), np.full(n, -1, dtype=np.int64)
        known = np.flatnonzero(~np.isnan(values))
        # Stable, so that of equal labels the first (the original one) is named.
        order = known[np.argsort(-values[known] if largest else values[known], kind="stable")]
        _, first = np.unique(rows[order], return_index=True)
        chosen = order[first]
        columns[kind][rows[chosen]] = values[chosen]
        nearest[kind][rows[chosen]] = labels[chosen]
        return chosen

    if knowledge.collapse is not None:
        size = len(knowledge.space)
        same = knowledge.collapse.codes(knowledge.space)
        collapsed[rows[np.isin(labels * size + predictions, same)]] = True
    if knowledge.closeness is not None:
        closeness = knowledge.closeness
        sizes, steps, codes = closeness.of_pairs(predictions, labels)
        chosen = keep("lca_size", sizes, largest=False)
        nodes[rows[chosen]] = codes[chosen]
        keep("path_distance", steps, largest=False)
        collapsed[rows[closeness.covers(predictions, codes)]] = True
    if knowledge.superclasses is not None:
        common = knowledge.superclasses.common(predictions, labels)
        chosen = keep("same_superclass", (common >= 0).astype(np.float64))
        groups[rows[chosen]] = common[chosen]
    seen = knowledge.peers.rows(mistakes.image_ids) if knowledge.peers else None
    if knowledge.affinity is not None:
        images = None if seen is None else seen[rows]
        keep("affinity", knowledge.affinity.values(predictions, labels, images))
    if knowledge.cooccurrence is not None:
        keep("cooccurrence", knowledge.cooccurrence.together(predictions, labels))
        keep("cooccurrence_share", knowledge.cooccurrence.values(predictions, labels))
    if knowledge.peers is not None and seen is not None:
        columns |= _peer_columns(mistakes, knowledge.peers, seen, rows)
    if knowledge.typicality is not None:
        known = knowledge.typicality
        columns["typicality"] = np.array([known.get(image, np.nan) for image in mistakes.image_ids])
    if knowledge.outsiders is not None:
        columns["outside_share"], outsiders = knowledge.outsiders.compare(mistakes)
    return EvidenceTable(
        knowledge=knowledge,
        mistakes=mistakes,
        columns={
            kind: columns[kind]
            for kind in KINDS
            if kind in columns and not np.isnan(columns[kind]).all()
        },
        nearest=nearest,
        nodes=nodes,
        groups=groups,
        collapsed=collapsed,
        outsiders=outsiders,
    )


def _peer_columns(
    mistakes: Mistakes, peers: Peers, seen: np.ndarray, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """What other models say of the images; ``rows`` are those of the mistakes' labels.

    Where a model that makes the mistake is among the peers, one such model is taken out, so that a
    mistake is compared with others and not with itself.
    """
    n, labels, mine = len(mistakes), mistakes.acceptable.values, mistakes.predictions[:, None]
    among = [model in peers.models for model in mistakes.models]
    own = mistakes.made[:, among].any(axis=1).astype(np.float64)
    firsts = peers.topk[:, :, 0][seen]
    answered = (firsts >= 0).sum(axis=1)
    same = (firsts == mine).sum(axis=1)
    listed = sum((lists[seen] == mine).any(axis=1) for lists in np.moveaxis(peers.topk, 1, 0))
    ordered = np.sort(firsts, axis=1)
    new = np.diff(ordered, axis=1, prepend=-1) != 0
    spread = (new & (ordered >= 0)).sum(axis=1)
    hits = (firsts[rows] == labels[:, None]).sum(axis=1)
    right = np.bincount(rows, hits, minlength=n)
    others = answered - own
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "peers_right": right / others,
            "peers_same": (same - own) / others,
            "peers_listed": (listed - own) / others,
            "peers_spread": spread / answered,
        }
    fit = (seen >= 0) & (others > 0)
    return {kind: np.where(fit, np.clip(v, 0.0, 1.0), np.nan) for kind, v in columns.items()}


AUTO = "auto"
NONE = "none"


def gather_knowledge(
    testset: TestSet,
    *,
    truth: str,
    peers: Sequence[Predictions] = (),
    label_map: LabelMap | None = None,
    superclasses: Path | None = None,
    seen_together: str | None = None,
    collapse: str = AUTO,
    prototypes: str | None = None,
) -> Knowledge:
    """What is known about the mistakes of a test set under one truth: the hierarchy, and what is named.

    ``peers``          predictions of models on the same images, and how alike classes look to them
    ``superclasses``   file of superclasses
    ``seen_together``  truth that says which classes are seen together; by default ``truth`` itself if
                       it has several labels per image
    ``collapse``       a collapse table, by name or file; ``auto`` takes a built-in one that is about
                       classes of this space, ``none`` none
    ``prototypes``     column of numbers: larger is more typical
    """
    space = testset.label_space
    seen = alike = groups = None
    hierarchy, same = hierarchy_for(space), named_collapse(collapse, space)
    sources = ["hierarchy"] if hierarchy is not None else []
    if same is not None:
        sources.append(f"collapse table {same.name}")
    if superclasses is not None:
        groups = read_superclasses(superclasses, label_space=space)
        sources.append(f"superclasses {superclasses.name}@{sha256_file(superclasses)[:8]}")
    if peers:
        seen = read_peers(testset, peers, label_map=label_map)
        # Where an object comes again and again, its own confusion would look like everybody's.
        if testset.card.clusters is None:
            alike = co_prediction(seen)
        them = sha256_text("\n".join(sorted(model.hash for model in peers)))[:8]
        sources.append(f"{len(peers)} peers {_few(seen.models)}@{them}")
    together = seen_together or (truth if _has_several(testset, truth) else None)
    if together is not None:
        sources.append(f"seen together in truth {together}")
    if prototypes is not None:
        sources.append(f"prototypes by {prototypes}")
    return Knowledge(
        space=space,
        collapse=same,
        hierarchy=hierarchy,
        superclasses=groups,
        affinity=alike,
        peers=seen,
        cooccurrence=None if together is None else _seen_together(testset, truth, together),
        prototypes=None if prototypes is None else read_prototypes(testset, prototypes),
        sources=", ".join(sources),
    )


def named_knowledge(
    testset: TestSet,
    evidence: EvidenceSources,
    *,
    truth: str,
    workspace: Workspace,
    label_map: LabelMap | None = None,
    note: Callable[[str], object],
    **more: Any,
) -> Knowledge:
    """The knowledge that a request names, the same for every verb; ``more`` as in gather_knowledge."""
    readable = {testset.label_space.fingerprint}
    if label_map is not None:
        readable.add(label_map.source.fingerprint)
    peers = []
    if evidence.peers:
        for model in stored_predictions(testset, evidence.peers, workspace=workspace):
            if model.label_space.fingerprint in readable:
                peers.append(replace(model, logits=None, stored_hash=model.hash))
            else:
                note(f"{model.model} predicts {model.label_space.name}: not asked as a peer")
    return gather_knowledge(
        testset,
        truth=truth,
        peers=peers,
        label_map=label_map,
        superclasses=evidence.superclasses,
        seen_together=evidence.seen_together,
        **more,
    )


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return " ".join(sorted(names)[:3]) + more


def _has_several(testset: TestSet, truth: str) -> bool:
    return testset.card.truths.get(truth, {}).get("kind") in ("multilabel", "real")


def _seen_together(testset: TestSet, truth: str, named: str) -> PairCounts:
    """Counted on images that the mistakes are not judged on.

    Under their own truth a mistake cannot be seen on its own image, where it is not a label; another
    truth may have it there, so all images that the mistakes can be on are left out.
    """
    try:
        found = cooccurrence(testset, truth=named, without=truth if named != truth else None)
    except NotApplicable as error:
        raise NotApplicable(
            error.message, fix=f"count in truth {truth} itself, or in one of other images"
        ) from None
    return found.affinity


def named_collapse(choice: str, space: LabelSpace) -> Collapse | None:
    """The collapse table of this name or file; ``auto`` and ``none`` as above."""
    if choice == NONE:
        return None
    try:
        return load_collapse(BUILT_IN if choice == AUTO else choice, label_space=space)
    except LabelError:
        if choice != AUTO:
            raise
        return None  # the built-in table is about other classes


def read_prototypes(testset: TestSet, column: str) -> Mapping[str, float]:
    """How typical images are, by a column of numbers of the test set."""
    if column not in testset.images.column_names:
        raise UserError(f"{testset.name} has no column {column!r}", fix="name one of numbers")
    rows = zip(testset.image_ids.to_pylist(), testset.images[column].to_pylist(), strict=True)
    try:
        found = {image: float(value) for image, value in rows if value is not None}
    except (TypeError, ValueError):
        raise UserError(
            f"column {column} of {testset.name} is not one of numbers", fix="name another"
        ) from None
    return {image: number for image, number in found.items() if math.isfinite(number)}


PROMPT = "a photo of a {}."
NEAREST = 100
"""At most this many things beside a prediction are looked at, nearest in the hierarchy first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OutOfVocabulary:
    """What things that are not classes an image may show, by an image-text encoder.

    ``names``    what a node of the hierarchy is called; nodes without a name are passed over
    ``images``   vectors by image id
    ``encoder``  that made them
    """

    space: LabelSpace
    hierarchy: Hierarchy
    names: Mapping[str, str]
    images: Embeddings
    encoder: Encoder

    def compare(self, mistakes: Mistakes) -> tuple[np.ndarray, np.ndarray]:
        """The share that falls on things that are not classes, and the name of the best of them.

        Float (n,), NaN without an image; object (n,), None where there is no such thing.
        """
        shares, best = np.full(len(mistakes), np.nan), np.full(len(mistakes), None, dtype=object)
        # What has no direction, such as an image that could not be read, counts as missing.
        pictures = {
            image: vector
            for image, vector in zip(self.images.ids, unit_rows(self.images.vectors), strict=True)
            if not np.isnan(vector).any()
        }
        candidates = {
            place: self._candidates(mistakes[place])
            for place, image in enumerate(mistakes.image_ids)
            if image in pictures
        }
        texts = sorted({node for inside, out in candidates.values() for node in (*inside, *out)})
        if not texts:
            return shares, best
        vectors = self.encoder.encode_texts([PROMPT.format(self.names[node]) for node in texts])
        row_of = {node: row for row, node in enumerate(texts)}
        for place, (inside, out) in candidates.items():
            nodes = [*inside, *out]
            if not nodes:
                continue
            mine = pictures[mistakes.image_ids[place]]
            cosines = vectors[[row_of[node] for node in nodes]] @ mine
            weights = np.exp(self.encoder.scale * (cosines - cosines.max()).astype(np.float64))
            outside = (weights / weights.sum())[len(inside) :]
            shares[place] = float(outside.sum())
            if len(outside):
                best[place] = self.names[out[int(outside.argmax())]]
        return shares, best

    def _candidates(self, mistake: Mistake) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Nodes of classes near the mistake, and nodes beside its prediction that are not classes."""
        tree = self.hierarchy
        node = self.space.get(mistake.prediction).node
        labels = [self.space.get(label).node for label in mistake.acceptable]
        inside = dict.fromkeys(n for n in (node, *labels) if n in self.names)
        if node not in tree:
            return tuple(inside), ()
        steps: dict[str, int] = {}
        for parent in tree.parents(node):
            for below, distance in tree.distances_down(parent).items():
                steps[below] = min(distance, steps.get(below, distance))
        outside = []
        for near in sorted(steps, key=lambda n: (steps[n], n)):
            if near not in self.names or not steps[near]:
                continue
            if near in self._classes:
                inside[near] = None
            elif near not in self._covered:
                outside.append(near)
        return tuple(inside), tuple(outside[:NEAREST])

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset(item.node for item in self.space)

    @cached_property
    def _covered(self) -> set[str]:
        """What is over or under a class: it names the same thing, more or less exactly."""
        found: set[str] = set()
        for node in self._classes:
            if node in self.hierarchy:
                found.update(self.hierarchy.distances_up(node))
                found.update(self.hierarchy.distances_down(node))
        return found
