"""Evidence about a mistake: similar classes, co-occurrence, peers, vectors, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, LabelError, MismatchError, NotApplicable, UserError
from heldout.data.judgements.files import rows_of_file
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.superclasses import Superclasses, read_superclasses
from heldout.data.labels.wordnet import Hierarchy
from heldout.data.testset import TestSet
from heldout.measure.mistakes.between_models import Peers, read_peers
from heldout.measure.mistakes.class_similarity import (
    EQUAL,
    OVER,
    Affinity,
    Closeness,
    Cooccurrence,
    PairCounts,
    co_prediction,
    cooccurrence,
    from_cooccurrence,
    read_affinity,
)
from heldout.measure.mistakes.verdicts import (
    BUILT_IN,
    Collapse,
    Mistake,
    Mistakes,
    load_collapse,
)
from heldout.models.adapters.model import unit_rows
from heldout.models.embeddings import Embeddings
from heldout.models.predictions import Predictions


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
    """

    space: LabelSpace
    collapse: Collapse | None = None
    hierarchy: Hierarchy | None = None
    superclasses: Superclasses | None = None
    affinity: Affinity | None = None
    peers: Peers | None = None
    cooccurrence: Cooccurrence | None = None
    prototypes: Mapping[str, float] | None = None
    outsiders: OutOfVocabulary | None = None

    def __post_init__(self) -> None:
        for name in ("superclasses", "affinity", "peers", "cooccurrence"):
            other = getattr(getattr(self, name), "space", self.space)
            if other.fingerprint != self.space.fingerprint:
                raise LabelError(
                    f"the {name} are about {other.name}, the mistakes about {self.space.name}",
                    fix="give knowledge about the same classes",
                )

    @cached_property
    def closeness(self) -> Closeness | None:
        """Closeness in the hierarchy; None without one."""
        return None if self.hierarchy is None else Closeness(self.space, self.hierarchy)

    @cached_property
    def together(self) -> PairCounts | None:
        """Co-occurrence as counts of pairs; None without any."""
        return None if self.cooccurrence is None else from_cooccurrence(self.cooccurrence)

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
        return names_of_nodes(self.space, self.hierarchy)


def names_of_nodes(space: LabelSpace, hierarchy: Hierarchy | None) -> Mapping[str, str]:
    """What nodes are called: those of WordNet's hierarchy by WordNet, classes by their own names."""
    names: dict[str, str] = {}
    if hierarchy is Hierarchy.wordnet():
        names = {item.id: item.name for item in LabelSpace.load("wordnet-nodes")}
    return names | {item.node: item.name for item in space}


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


_BLOCK = 1 << 15

Change = Callable[[np.ndarray], np.ndarray]
# How a kind enters a regression: numbers that run over decades as their logarithm.
_LEARNED: Mapping[str, tuple[Change, ...]] = {
    "lca_size": (np.log2,),
    "path_distance": (np.asarray,),
    "same_superclass": (np.asarray,),
    "affinity": (np.asarray, lambda values: np.log10(values + 1e-3)),
    "cooccurrence": (np.log1p,),
    "cooccurrence_share": (np.asarray,),
    "labels": (np.asarray,),
    "peers_right": (np.asarray,),
    "peers_same": (np.asarray,),
    "peers_listed": (np.asarray,),
    "peers_spread": (np.asarray,),
    "typicality": (np.asarray,),
    "outside_share": (np.asarray,),
}
KINDS: tuple[str, ...] = tuple(_LEARNED)


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
            for change in _LEARNED[kind]
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
    return [kind for kind in kinds for _ in _LEARNED[kind]]


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
        relation = closeness.relations(predictions, labels, codes)
        collapsed[rows[(relation == EQUAL) | (relation == OVER)]] = True
    if knowledge.superclasses is not None:
        common = knowledge.superclasses.common(predictions, labels)
        chosen = keep("same_superclass", (common >= 0).astype(np.float64))
        groups[rows[chosen]] = common[chosen]
    seen = knowledge.peers.rows(mistakes.image_ids) if knowledge.peers else None
    if knowledge.affinity is not None:
        images = None if seen is None else seen[rows]
        keep("affinity", knowledge.affinity.values(predictions, labels, images))
    if knowledge.together is not None:
        keep("cooccurrence", knowledge.together.together(predictions, labels))
        keep("cooccurrence_share", knowledge.together.values(predictions, labels))
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
    n, labels = len(mistakes), mistakes.acceptable.values
    among = [model in peers.models for model in mistakes.models]
    own = mistakes.made[:, among].any(axis=1).astype(np.float64)
    right, same, listed, spread, answered = (np.zeros(n) for _ in range(5))
    for start in range(0, n, _BLOCK):
        part = slice(start, start + _BLOCK)
        lists = peers.topk[seen[part]]
        firsts, mine = lists[:, :, 0], mistakes.predictions[part, None]
        answered[part] = (firsts >= 0).sum(axis=1)
        same[part] = (firsts == mine).sum(axis=1)
        listed[part] = (lists == mine[:, :, None]).any(axis=2).sum(axis=1)
        ordered = np.sort(firsts, axis=1)
        new = np.diff(ordered, axis=1, prepend=-1) != 0
        spread[part] = (new & (ordered >= 0)).sum(axis=1)
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        hits = (peers.topk[seen[rows[part]]][:, :, 0] == labels[part, None]).sum(axis=1)
        np.add.at(right, rows[part], hits)
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
    predictions: Iterable[Predictions] | None = None,
    label_map: LabelMap | None = None,
    superclasses: Path | None = None,
    collapse: str = AUTO,
    affinity: Path | None = None,
    seen_together: str = AUTO,
    prototypes: str | Path | None = None,
) -> Knowledge:
    """All that is known about the mistakes of a test set under one truth.

    ``predictions``    of other models on the same images: they give peers and, without a file of
                       affinities, how alike classes look
    ``superclasses``   file of superclasses
    ``collapse``       a collapse table, by name or file; ``auto`` takes a built-in one that is about
                       classes of this space, ``none`` none
    ``affinity``       file of a similarity matrix (``.npy``) or of confusions (``.json``)
    ``seen_together``  truth whose labels say which classes are seen together; ``auto`` takes one of
                       several labels an image, if there is one; ``none`` does without
    ``prototypes``     column of numbers, or CSV file (``image_id``, ``typicality``): larger is more
                       typical
    """
    space = testset.label_space
    peers = alike = groups = None
    if predictions is not None:
        peers = read_peers(testset, predictions, label_map=label_map)
    if affinity is not None:
        alike = read_affinity(affinity, label_space=space)
    elif peers is not None and testset.card.clusters is None:
        # Where an object comes again and again, its own confusion would look like everybody's.
        alike = co_prediction(peers)
    if superclasses is not None:
        groups = read_superclasses(superclasses, label_space=space)
    return Knowledge(
        space=space,
        collapse=named_collapse(collapse, space),
        hierarchy=hierarchy_for(space),
        superclasses=groups,
        affinity=alike,
        peers=peers,
        cooccurrence=_seen_together(testset, truth, seen_together),
        prototypes=None if prototypes is None else read_prototypes(testset, prototypes),
    )


def named_collapse(choice: str, space: LabelSpace) -> Collapse | None:
    """The collapse table of this name or file; ``auto`` and ``none`` as above."""
    if choice == NONE:
        return None
    if choice != AUTO:
        return load_collapse(choice, label_space=space)
    for name in BUILT_IN:
        try:
            return load_collapse(name, label_space=space)
        except LabelError:
            continue  # it is about other classes
    return None


def _seen_together(testset: TestSet, truth: str, choice: str) -> Cooccurrence | None:
    if choice == NONE:
        return None
    if choice != AUTO:
        return _outside(testset, choice, truth)
    several = [
        name
        for name in testset.truths
        if testset.card.truths.get(name, {}).get("kind") in ("multilabel", "real")
    ]
    for name in sorted(several, key=lambda name: (name == truth, name)):
        found = _outside(testset, name, truth)
        if len(found):
            return found
    return None


def _outside(testset: TestSet, name: str, truth: str) -> Cooccurrence:
    """Pairs from images that the mistakes are not judged on, or from all where there are no others."""
    try:
        return cooccurrence(testset, truth=name, without=truth if name != truth else None)
    except NotApplicable:
        return cooccurrence(testset, truth=name)


def read_prototypes(testset: TestSet, where: str | Path) -> Mapping[str, float]:
    """How typical images are: a column of numbers of the test set, or a CSV file."""
    ids = testset.image_ids.to_pylist()
    if str(where) in testset.images.column_names:
        values = testset.images[str(where)].to_pylist()
        try:
            numbers = {i: float(v) for i, v in zip(ids, values, strict=True) if v is not None}
        except (TypeError, ValueError):
            raise UserError(
                f"column {where} of {testset.name} is not one of numbers", fix="name another"
            ) from None
        return {image: number for image, number in numbers.items() if math.isfinite(number)}
    path, found = Path(where), {}
    if path.suffix != ".csv" or not path.is_file():
        raise UserError(
            f"{testset.name} has no column {str(where)!r}, and there is no such CSV file",
            fix="name a column of numbers, or a CSV with image_id and typicality",
        )
    for line, row in rows_of_file(path):
        if not {"image_id", "typicality"} <= row.keys():
            raise BadFile(path, "lacks a column", fix="it needs image_id and typicality")
        try:
            found[row["image_id"]] = float(row["typicality"])
        except ValueError:
            raise BadFile(path, f"{line}: typicality is not a number", fix="correct it") from None
    if not all(map(math.isfinite, found.values())):
        raise BadFile(path, "has a typicality that is not a number", fix="leave such rows out")
    if found.keys().isdisjoint(ids):
        raise BadFile(path, "names no image of the test set", fix="use its image ids")
    return found


class Vectors:
    """Embeddings as vectors of length 1 by name: of images by image id, of texts by the text itself.

    ``values``  float32 (names, dimension)
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self.names, self.values = tuple(embeddings.ids), unit_rows(embeddings.vectors)
        # What has no direction, such as an image that could not be read, counts as missing.
        there = ~np.isnan(self.values).any(axis=1)
        self._rows = {self.names[row]: row for row in np.flatnonzero(there).tolist()}

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """The row of each name, -1 where it has none; int64."""
        return np.array([self._rows.get(name, -1) for name in names], dtype=np.int64)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Texts that were encoded before, float32 (texts, dimension)."""
        rows = self.rows(texts)
        if (rows < 0).any():
            missing = texts[int(np.flatnonzero(rows < 0)[0])]
            raise MismatchError(
                f"{int((rows < 0).sum())} texts have no vector, such as {missing!r}",
                fix="encode them with the prompt of the others, or give an encoder",
            )
        found: np.ndarray = self.values[rows]
        return found


def typicality(vectors: Vectors, labels: Mapping[str, str]) -> dict[str, float]:
    """How typical each image is of its class: cosine with the mean vector of the others of its class.

    Images that are alone in their class have no such number.
    """
    members: dict[str, list[str]] = {}
    for image, label in labels.items():
        members.setdefault(label, []).append(image)
    found: dict[str, float] = {}
    for images in members.values():
        rows = vectors.rows(images)
        rows = np.sort(rows[rows >= 0])
        if len(rows) < 2:
            continue
        mine = vectors.values[rows].astype(np.float64)
        others = mine.sum(axis=0) - mine
        lengths = np.maximum(np.linalg.norm(others, axis=1), 1e-12)
        cosines = (mine * others).sum(axis=1) / lengths
        found |= {vectors.names[row]: float(c) for row, c in zip(rows, cosines, strict=True)}
    return found


PROMPT = "a photo of a {}."
NEAREST = 100
"""At most this many things beside a prediction are looked at, nearest in the hierarchy first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OutOfVocabulary:
    """Images, texts and a hierarchy to compare them by.

    ``images``     vectors by image id
    ``encode``     texts to vectors of length 1, float32 (texts, dimension)
    ``names``      what a node of the hierarchy is called; nodes without a name are passed over
    """

    space: LabelSpace
    hierarchy: Hierarchy
    names: Mapping[str, str]
    images: Vectors
    encode: Callable[[Sequence[str]], np.ndarray]
    scale: float = 100.0

    def compare(self, mistakes: Mistakes) -> tuple[np.ndarray, np.ndarray]:
        """The share that falls on things that are not classes, and the name of the best of them.

        Float (n,), NaN without an image; object (n,), None where there is no such thing.
        """
        shares, best = np.full(len(mistakes), np.nan), np.full(len(mistakes), None, dtype=object)
        rows = self.images.rows(mistakes.image_ids)
        candidates = {
            place: self._candidates(mistakes[place]) for place in np.flatnonzero(rows >= 0).tolist()
        }
        texts = sorted({node for inside, out in candidates.values() for node in (*inside, *out)})
        if not texts:
            return shares, best
        vectors = self.encode([PROMPT.format(self.names[node]) for node in texts])
        if vectors.shape != (len(texts), self.images.values.shape[1]):
            raise MismatchError(
                f"texts have vectors of shape {vectors.shape}, images of dimension "
                f"{self.images.values.shape[1]}",
                fix="take both from one encoder",
            )
        row_of = {node: row for row, node in enumerate(texts)}
        for place, (inside, out) in candidates.items():
            nodes = [*inside, *out]
            if not nodes:
                continue
            cosines = vectors[[row_of[node] for node in nodes]] @ self.images.values[rows[place]]
            weights = np.exp(self.scale * (cosines - cosines.max()).astype(np.float64))
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
        # What is over or under a right label names the same thing, more or less exactly.
        same = {near for label in labels if label in tree for near in tree.distances_up(label)}
        same |= {near for label in labels if label in tree for near in tree.distances_down(label)}
        outside = []
        for near in sorted(steps, key=lambda n: (steps[n], n)):
            if near not in self.names or not steps[near]:
                continue
            if near in self._classes:
                inside[near] = None
            elif near not in self._covered and near not in same:
                outside.append(near)
        return tuple(inside), tuple(outside[:NEAREST])

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset(item.node for item in self.space)

    @cached_property
    def _covered(self) -> frozenset[str]:
        """What is over or under a class."""
        found: set[str] = set()
        for node in self._classes:
            if node in self.hierarchy:
                found.update(self.hierarchy.distances_up(node))
                found.update(self.hierarchy.distances_down(node))
        return frozenset(found)
