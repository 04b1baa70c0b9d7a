"""Evidence about a mistake: similar classes, co-occurrence, peers, vectors, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, LabelError, MismatchError, NotApplicable, UserError
from heldout.core.files import existing_file
from heldout.data.images import BadImage, ImageSource
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
from heldout.measure.mistakes.verdicts import BUILT_IN, Collapse, Mistake, load_collapse
from heldout.measure.score.truth import truth_arrays
from heldout.models.adapters.model import Encoder
from heldout.models.predictions import Predictions
from heldout.models.predictions.pixels import image_files, load_pixels


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
    ``outsiders``     image-text similarities to things that are no classes
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
        parts = {
            "superclasses": self.superclasses,
            "affinity": self.affinity,
            "peers": self.peers,
            "co-occurrence": self.cooccurrence,
        }
        for name, part in parts.items():
            other = getattr(part, "space", self.space)
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


def _plain(values: np.ndarray) -> np.ndarray:
    return values


def _log_affinity(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.log10(values + 1e-3)
    return found


# How a kind enters a regression: numbers that run over decades as their logarithm.
_LEARNED: Mapping[str, tuple[Callable[[np.ndarray], np.ndarray], ...]] = {
    "lca_size": (np.log2,),
    "path_distance": (_plain,),
    "same_superclass": (_plain,),
    "affinity": (_plain, _log_affinity),
    "cooccurrence": (np.log1p,),
    "cooccurrence_share": (_plain,),
    "labels": (_plain,),
    "peers_right": (_plain,),
    "peers_same": (_plain,),
    "peers_listed": (_plain,),
    "peers_spread": (_plain,),
    "typicality": (_plain,),
    "outside_share": (_plain,),
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
    """

    knowledge: Knowledge
    mistakes: tuple[Mistake, ...]
    predictions: np.ndarray
    columns: Mapping[str, np.ndarray]
    nearest: Mapping[str, np.ndarray]
    nodes: np.ndarray
    groups: np.ndarray
    collapsed: np.ndarray

    def __len__(self) -> int:
        return len(self.mistakes)

    def column(self, kind: str) -> np.ndarray:
        """A kind's numbers; all NaN where nothing is known."""
        found = self.columns.get(kind)
        return np.full(len(self), np.nan) if found is None else found

    def features(self) -> tuple[tuple[str, ...], np.ndarray]:
        """Kinds and numbers (n, d) as a regression takes them; a kind may stand there twice."""
        names: list[str] = []
        values: list[np.ndarray] = []
        for kind, given in self.columns.items():
            for change in _LEARNED[kind]:
                names.append(kind)
                values.append(change(given))
        if not values:
            return (), np.zeros((len(self), 0))
        return tuple(names), np.stack(values, axis=1)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Every (mistake, label) pair: ``rows`` says which mistake, ``starts`` where each begins."""

    rows: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    starts: np.ndarray

    def best(self, values: np.ndarray, n: int, *, largest: bool) -> tuple[np.ndarray, np.ndarray]:
        """Each mistake's best value over its labels, and that label; NaN and -1 where none is known."""
        out, who = np.full(n, np.nan), np.full(n, -1, dtype=np.int64)
        known = np.flatnonzero(~np.isnan(values))
        # Stable, so that of equal labels the first (the original one) is named.
        order = known[np.argsort(-values[known] if largest else values[known], kind="stable")]
        _, first = np.unique(self.rows[order], return_index=True)
        chosen = order[first]
        out[self.rows[chosen]] = values[chosen]
        who[self.rows[chosen]] = self.labels[chosen]
        return out, who


def evidence_table(mistakes: Sequence[Mistake], knowledge: Knowledge) -> EvidenceTable:
    """All that is known about some mistakes."""
    found = tuple(mistakes)
    space, n = knowledge.space, len(found)
    try:
        predictions = space.indices(item.prediction for item in found)
        labels = space.indices(label for item in found for label in item.acceptable)
    except UserError as error:
        raise UserError(error.message, fix="judge mistakes in the test set's label space") from None
    counts = np.array([len(item.acceptable) for item in found], dtype=np.int64)
    rows = np.repeat(np.arange(n), counts)
    pairs = _Pairs(rows, labels, predictions[rows], np.concatenate([[0], np.cumsum(counts)]))
    columns: dict[str, np.ndarray] = {}
    nearest: dict[str, np.ndarray] = {}
    nodes = np.full(n, -1, dtype=np.int64)
    groups = np.full(n, -1, dtype=np.int64)
    collapsed = np.zeros(n, dtype=bool)
    collapsed[rows[labels == predictions[rows]]] = True
    if knowledge.collapse is not None:
        for place, item in enumerate(found):
            also = knowledge.collapse.also
            if any(item.prediction in also.get(label, ()) for label in item.acceptable):
                collapsed[place] = True
    if knowledge.closeness is not None:
        closeness = knowledge.closeness
        size, steps, codes = closeness.of_pairs(pairs.predictions, labels)
        columns["lca_size"], nearest["lca_size"] = pairs.best(size, n, largest=False)
        columns["path_distance"], nearest["path_distance"] = pairs.best(steps, n, largest=False)
        same = labels == nearest["lca_size"][rows]
        nodes[rows[same]] = codes[same]
        relation = closeness.relations(pairs.predictions, labels, codes)
        collapsed[rows[(relation == EQUAL) | (relation == OVER)]] = True
    if knowledge.superclasses is not None:
        common = knowledge.superclasses.common(pairs.predictions, labels)
        columns["same_superclass"], nearest["same_superclass"] = pairs.best(
            (common >= 0).astype(np.float64), n, largest=True
        )
        same = labels == nearest["same_superclass"][rows]
        groups[rows[same]] = common[same]
    seen = knowledge.peers.rows([item.image_id for item in found]) if knowledge.peers else None
    if knowledge.affinity is not None:
        values = knowledge.affinity.values(
            pairs.predictions, labels, None if seen is None else seen[rows]
        )
        columns["affinity"], nearest["affinity"] = pairs.best(values, n, largest=True)
    if knowledge.together is not None:
        counted = knowledge.together.together(pairs.predictions, labels)
        columns["cooccurrence"], nearest["cooccurrence"] = pairs.best(counted, n, largest=True)
        shares = knowledge.together.values(pairs.predictions, labels)
        columns["cooccurrence_share"], nearest["cooccurrence_share"] = pairs.best(
            shares, n, largest=True
        )
    columns["labels"] = counts.astype(np.float64)
    if knowledge.peers is not None and seen is not None:
        columns |= _peer_columns(found, knowledge, seen, predictions, pairs)
    if knowledge.typicality is not None:
        known = knowledge.typicality
        columns["typicality"] = np.array(
            [known.get(item.image_id, np.nan) for item in found], dtype=np.float64
        )
    if knowledge.outsiders is not None:
        columns["outside_share"] = knowledge.outsiders.shares(found)
    return EvidenceTable(
        knowledge=knowledge,
        mistakes=found,
        predictions=predictions,
        columns={kind: columns[kind] for kind in KINDS if _known(columns, kind)},
        nearest=nearest,
        nodes=nodes,
        groups=groups,
        collapsed=collapsed,
    )


def _known(columns: Mapping[str, np.ndarray], kind: str) -> bool:
    return kind in columns and not bool(np.isnan(columns[kind]).all())


def _peer_columns(
    mistakes: Sequence[Mistake],
    knowledge: Knowledge,
    seen: np.ndarray,
    predictions: np.ndarray,
    pairs: _Pairs,
) -> dict[str, np.ndarray]:
    """What other models say of the images.

    Where a model that makes the mistake is among the peers, one such model is taken out, so that a
    mistake is compared with others and not with itself.
    """
    peers = knowledge.peers
    if peers is None:
        return {}
    n, known = len(mistakes), seen >= 0
    names = set(peers.models)
    own = np.array([not names.isdisjoint(item.models) for item in mistakes], dtype=np.float64)
    right, same, listed, spread, answered = (np.zeros(n) for _ in range(5))
    for start in range(0, n, _BLOCK):
        part = slice(start, start + _BLOCK)
        lists = peers.topk[seen[part]]
        firsts, mine = lists[:, :, 0], predictions[part, None]
        answered[part] = (firsts >= 0).sum(axis=1)
        same[part] = (firsts == mine).sum(axis=1)
        listed[part] = (lists == mine[:, :, None]).any(axis=2).sum(axis=1)
        ordered = np.sort(firsts, axis=1)
        new = np.diff(ordered, axis=1, prepend=-1) != 0
        spread[part] = (new & (ordered >= 0)).sum(axis=1)
    for start in range(0, len(pairs.rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        rows = pairs.rows[part]
        hits = (peers.topk[seen[rows]][:, :, 0] == pairs.labels[part, None]).sum(axis=1)
        np.add.at(right, rows, hits)
    others = answered - own
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "peers_right": right / others,
            "peers_same": (same - own) / others,
            "peers_listed": (listed - own) / others,
            "peers_spread": spread / answered,
        }
    fit = known & (others > 0)
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
    collapse: str | Collapse | None = AUTO,
    affinity: Path | None = None,
    seen_together: str = AUTO,
    prototypes: str | Path | None = None,
) -> Knowledge:
    """All that is known about the mistakes of a test set under one truth.

    ``predictions``    of other models on the same images: they give peers and, without a file of
                       affinities, how alike classes look
    ``superclasses``   file of superclasses
    ``collapse``       a collapse table, its name or its file; ``auto`` takes the built-in ones that
                       are about classes of this space, ``none`` none
    ``affinity``       file of a similarity matrix (``.npy``) or of confusions (``.json``)
    ``seen_together``  truth whose labels say which classes are seen together; ``auto`` takes one of
                       several labels an image, if there is one; ``none`` does without
    ``prototypes``     column of numbers, or CSV file (``image_id``, ``typicality``): larger is more
                       typical
    """
    space = testset.label_space
    peers: Peers | None = None
    if predictions is not None:
        peers = read_peers(testset, predictions, label_map=label_map)
    alike: Affinity | None = None
    if affinity is not None:
        alike = read_affinity(affinity, label_space=space)
    elif peers is not None and testset.card.clusters is None:
        # Where an object comes again and again, its own confusion would look like everybody's.
        alike = co_prediction(peers)
    groups: Superclasses | None = None
    if superclasses is not None:
        groups = read_superclasses(superclasses, label_space=space)
    return Knowledge(
        space=space,
        collapse=_collapse(collapse, space),
        hierarchy=hierarchy_for(space),
        superclasses=groups,
        affinity=alike,
        peers=peers,
        cooccurrence=_seen_together(testset, truth, seen_together),
        prototypes=None if prototypes is None else read_prototypes(testset, prototypes),
    )


def _collapse(choice: str | Collapse | None, space: LabelSpace) -> Collapse | None:
    if choice is None or isinstance(choice, Collapse):
        return choice
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
    path = Path(where)
    if path.suffix != ".csv" or not path.is_file():
        raise UserError(
            f"{testset.name} has no column {str(where)!r}, and there is no such CSV file",
            fix="name a column of numbers, or a CSV with image_id and typicality",
        )
    return _prototype_file(path, set(ids))


def _prototype_file(path: Path, known: set[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for where, row in rows_of_file(path):
        if not {"image_id", "typicality"} <= row.keys():
            raise BadFile(path, "lacks a column", fix="it needs image_id and typicality")
        try:
            value = float(row["typicality"])
            if not math.isfinite(value):
                raise ValueError
        except ValueError:
            raise BadFile(path, f"{where}: typicality is no number", fix="mend it") from None
        found[row["image_id"]] = value
    if known.isdisjoint(found):
        raise BadFile(path, "names no image of the test set", fix="use its image ids")
    return found


@dataclass(frozen=True)
class Located:
    """Judged pairs as mistakes under a truth.

    ``unknown``  pairs whose image, or class, the truth does not have
    ``right``    pairs that the truth calls right after all
    """

    mistakes: tuple[Mistake, ...]
    unknown: int
    right: int


def mistakes_at(
    testset: TestSet,
    pairs: Iterable[tuple[str, str]],
    *,
    truth: str,
    models: tuple[str, ...] = (),
) -> Located:
    """(image, prediction) pairs as mistakes, with what a truth takes as right; sorted, each once."""
    arrays = truth_arrays(testset, truth)
    ids, images = arrays.space.ids, testset.image_ids.take(arrays.rows).to_pylist()
    rows: dict[str, list[int]] = {}
    for row, image in enumerate(images):
        rows.setdefault(image, []).append(row)
    found, unknown, right = [], 0, 0
    for image, prediction in sorted(set(pairs)):
        if image not in rows or prediction not in arrays.space:
            unknown += 1
            continue
        labels = [int(arrays.labels[row]) for row in rows[image] if arrays.labels[row] >= 0]
        listed = dict.fromkeys(
            value
            for lists in (arrays.correct, arrays.unclear)
            for row in rows[image]
            for value in lists.values[lists.starts[row] : lists.starts[row + 1]].tolist()
        )
        ordered = {label: None for label in labels if label in listed} | listed
        acceptable = tuple(ids[value] for value in ordered)
        if prediction in acceptable:
            right += 1
            continue
        found.append(
            Mistake(
                image_id=image,
                prediction=prediction,
                acceptable=acceptable,
                original=ids[labels[0]] if labels else None,
                models=models,
                reviewed=True,
            )
        )
    return Located(tuple(found), unknown, right)


_BATCH = 32


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of length 1 by name: of images by image id, of texts by the text itself.

    ``values``  float32 (names, dimension)
    """

    names: tuple[str, ...]
    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or len(self.values) != len(self.names):
            raise MismatchError(
                f"{len(self.names)} names and vectors of shape {self.values.shape}",
                fix="give one row for each name",
            )
        lengths = np.linalg.norm(self.values, axis=1)
        if not np.isfinite(lengths).all() or (lengths == 0).any():
            raise MismatchError("a vector is zero or not finite", fix="leave it out")
        object.__setattr__(self, "values", (self.values / lengths[:, None]).astype(np.float32))

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def rows(self, names: Sequence[str]) -> np.ndarray:
        """The row of each name, -1 where it has none; int64."""
        return np.array([self._rows.get(name, -1) for name in names], dtype=np.int64)


def read_vectors(path: Path, *, names: str) -> Vectors:
    """Vectors of a ``.npz`` file: ``names`` is the array of its names, ``vectors`` (n, dimension)."""
    existing_file(path, "file of vectors")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in (names, "vectors") if name not in arrays]
            if missing:
                raise BadFile(
                    path, f"has no array {missing[0]!r}", fix=f"it needs {names} and vectors"
                )
            texts, values = arrays[names], arrays["vectors"]
    except (ValueError, OSError, EOFError) as error:
        raise BadFile(path, f"is not an .npz of vectors ({error})", fix="write it again") from None
    return Vectors(tuple(str(text) for text in texts.tolist()), values.astype(np.float32))


def image_vectors(
    encoder: Encoder,
    testset: TestSet,
    image_ids: Sequence[str],
    *,
    images: ImageSource | Path | str | None = None,
    batch: int = _BATCH,
    show: Callable[[int, int], None] | None = None,
) -> Vectors:
    """Vectors of some images of a test set; those that cannot be decoded are left out.

    ``show`` is told how many of how many images are done.
    """
    files = image_files(testset, images)
    place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    geometry = encoder.preprocessing.geometry
    wanted = list(dict.fromkeys(image for image in image_ids if image in place))
    names: list[str] = []
    found: list[np.ndarray] = []
    for start in range(0, len(wanted), batch):
        kept, pixels = [], []
        for image in wanted[start : start + batch]:
            loaded = load_pixels(files, place[image], [geometry])
            made = loaded if isinstance(loaded, BadImage) else loaded[geometry.key]
            if not isinstance(made, BadImage):
                kept.append(image)
                pixels.append(made)
        if pixels:
            found.append(encoder.encode_images(np.stack(pixels)))
            names += kept
        if show is not None:
            show(min(start + batch, len(wanted)), len(wanted))
    if not names:
        raise MismatchError(
            f"none of {len(wanted)} images of {testset.name} can be read",
            fix="say where they are with --images",
        )
    return Vectors(tuple(names), np.concatenate(found))


def typicality(vectors: Vectors, labels: Mapping[str, str]) -> dict[str, float]:
    """How typical each image is of its class: cosine with the mean vector of the others of its class.

    Images that are alone in their class have no such number.
    """
    members: dict[str, list[int]] = {}
    for row, name in enumerate(vectors.names):
        if name in labels:
            members.setdefault(labels[name], []).append(row)
    found: dict[str, float] = {}
    for rows in members.values():
        if len(rows) < 2:
            continue
        mine = vectors.values[rows].astype(np.float64)
        others = mine.sum(axis=0) - mine
        lengths = np.maximum(np.linalg.norm(others, axis=1), 1e-12)
        cosines = (mine * others).sum(axis=1) / lengths
        found |= {vectors.names[row]: float(c) for row, c in zip(rows, cosines, strict=True)}
    return found


PROMPT = "a photo of a {}."
SCALE = 100.0
NEAREST = 100
"""At most so many things beside a prediction are looked at, nearest in the hierarchy first."""


@dataclass(frozen=True)
class Outsider:
    """The thing outside the label space that fits an image best."""

    node: str
    name: str
    share: float


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
    scale: float = SCALE
    prompt: str = PROMPT

    @classmethod
    def of_encoder(
        cls,
        encoder: Encoder,
        images: Vectors,
        *,
        space: LabelSpace,
        hierarchy: Hierarchy,
        names: Mapping[str, str],
        prompt: str = PROMPT,
    ) -> OutOfVocabulary:
        """With an encoder's own texts and scale."""
        return cls(
            space=space,
            hierarchy=hierarchy,
            names=names,
            images=images,
            encode=encoder.encode_texts,
            scale=encoder.scale,
            prompt=prompt,
        )

    def shares(self, mistakes: Sequence[Mistake]) -> np.ndarray:
        """The share that falls on things that are no classes; float (n,), NaN without an image."""
        found = np.full(len(mistakes), np.nan)
        for place, probabilities, outside, _ in self._compared(mistakes):
            found[place] = float(probabilities[outside].sum())
        return found

    def best(self, mistakes: Sequence[Mistake]) -> dict[tuple[str, str], Outsider]:
        """The best fitting thing that is no class, for each mistake that has one."""
        found = {}
        for place, probabilities, outside, nodes in self._compared(mistakes):
            if outside.any():
                top = int(np.where(outside, probabilities, -1.0).argmax())
                item = mistakes[place]
                found[item.image_id, item.prediction] = Outsider(
                    nodes[top], self.names[nodes[top]], float(probabilities[top])
                )
        return found

    def _compared(
        self, mistakes: Sequence[Mistake]
    ) -> list[tuple[int, np.ndarray, np.ndarray, list[str]]]:
        rows = self.images.rows([item.image_id for item in mistakes])
        candidates = {
            place: self._candidates(mistakes[place]) for place in np.flatnonzero(rows >= 0).tolist()
        }
        texts = sorted({node for inside, out in candidates.values() for node in (*inside, *out)})
        if not texts:
            return []
        vectors = self.encode([self.prompt.format(self.names[node]) for node in texts])
        if vectors.shape != (len(texts), self.images.values.shape[1]):
            raise MismatchError(
                f"texts have vectors of shape {vectors.shape}, images of dimension "
                f"{self.images.values.shape[1]}",
                fix="take both from one encoder",
            )
        row_of = {node: row for row, node in enumerate(texts)}
        found = []
        for place, (inside, out) in candidates.items():
            nodes = [*inside, *out]
            if not nodes:
                continue
            cosines = vectors[[row_of[node] for node in nodes]] @ self.images.values[rows[place]]
            logits = self.scale * (cosines - cosines.max()).astype(np.float64)
            weights = np.exp(logits)
            outside = np.arange(len(nodes)) >= len(inside)
            found.append((place, weights / weights.sum(), outside, nodes))
        return found

    def _candidates(self, mistake: Mistake) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Nodes of classes near the mistake, and nodes beside its prediction that are no classes."""
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


def texts_from(vectors: Vectors) -> Callable[[Sequence[str]], np.ndarray]:
    """Texts that were encoded before: a function that looks them up."""

    def encode(texts: Sequence[str]) -> np.ndarray:
        rows = vectors.rows(texts)
        if (rows < 0).any():
            missing = texts[int(np.flatnonzero(rows < 0)[0])]
            raise MismatchError(
                f"{int((rows < 0).sum())} texts have no vector, such as {missing!r}",
                fix="encode them with the prompt of the others, or give an encoder",
            )
        found: np.ndarray = vectors.values[rows]
        return found

    return encode
