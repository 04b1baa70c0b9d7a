"""Evidence: numbers about mistakes, one column a kind, computed for all of them at once.

==================  ================================================================================
lca_size            classes under the lowest common ancestor of prediction and nearest label
path_distance       steps between the two in the hierarchy
same_superclass     1 where a superclass holds the prediction and a label
affinity            how alike the prediction and the most similar label look to models, 0 … 1
cooccurrence        images that show the prediction and a label together
cooccurrence_share  the same as a share of all pairs of the rarer class
labels              how many labels the image has
peers_right         share of other models whose first guess is right here
peers_same          share of other models that make the same mistake
peers_listed        share of other models that have the prediction among their best guesses
peers_spread        different first guesses, as a share of the models
typicality          rank of the image among typical ones, 0 … 1
outside_share       how much of the image-text similarity falls on things that are no classes
==================  ================================================================================

What is not known is NaN; a kind for which nothing is known has no column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.measure.mistakes.closeness import EQUAL, OVER
from heldout.measure.mistakes.knowledge import Knowledge
from heldout.measure.mistakes.mistake import Mistake

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
