"""Evidence in words: each number of an evidence table as a sentence for a person."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np

from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.categories import Evidence
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.measure.mistakes.out_of_vocabulary import Outsider


class Wording:
    """Says what an evidence table knows of a mistake."""

    def __init__(self, table: EvidenceTable) -> None:
        self.table = table
        self.space: LabelSpace = table.knowledge.space

    def say(self, kind: str, row: int) -> Evidence | None:
        """One kind of evidence about the mistake in a row; None where it is not known."""
        known = self.table.columns.get(kind)
        if known is None or np.isnan(known[row]):
            return None
        value = float(known[row])
        return Evidence(kind, getattr(self, f"_{kind}")(row, value), value)

    def same(self, row: int) -> Evidence:
        """That the prediction is no mistake."""
        mistake = self.table.mistakes[row]
        labels = " or ".join(self._name(label) for label in mistake.acceptable)
        if mistake.prediction in mistake.acceptable:
            return Evidence("collapse", f"{self._prediction(row)} is a right label here", 1.0)
        text = f"{self._prediction(row)} also counts as right where {labels} does"
        return Evidence("collapse", text, 1.0)

    def class_name(self, position: int) -> str:
        """A class as people call it, with its id where others share the name."""
        item = self.space.classes[position]
        return f"{item.name} ({item.id})" if item.name in self._ambiguous else item.name

    @cached_property
    def _ambiguous(self) -> frozenset[str]:
        counts = Counter(item.name for item in self.space)
        return frozenset(name for name, n in counts.items() if n > 1)

    @cached_property
    def _outsiders(self) -> dict[tuple[str, str], Outsider]:
        known = self.table.knowledge.outsiders
        return {} if known is None else known.best(self.table.mistakes)

    def _name(self, class_id: str) -> str:
        return self.class_name(self.space.index(class_id))

    def _prediction(self, row: int) -> str:
        return self.class_name(int(self.table.predictions[row]))

    def _label(self, kind: str, row: int) -> str:
        return self.class_name(int(self.table.nearest[kind][row]))

    def _lca_size(self, row: int, value: float) -> str:
        pair = f"{self._prediction(row)} and {self._label('lca_size', row)}"
        code, closeness = int(self.table.nodes[row]), self.table.knowledge.closeness
        if code < 0 or closeness is None:
            return f"{pair} have no common ancestor"
        node = closeness.node(code)
        name = self.table.knowledge.node_names.get(node, node)
        return f"{pair} stand under {name}, with {int(value)} of {len(self.space)} classes"

    def _path_distance(self, row: int, value: float) -> str:
        label = self._label("path_distance", row)
        return (
            f"{int(value)} steps lie between {self._prediction(row)} and {label} in the hierarchy"
        )

    def _same_superclass(self, row: int, value: float) -> str:
        known, code = self.table.knowledge.superclasses, int(self.table.groups[row])
        if known is None or code < 0:
            return f"no superclass holds {self._prediction(row)} and a right label"
        name = list(known.groups)[code]
        return f"{self._prediction(row)} and {self._label('same_superclass', row)} are both {name}"

    def _affinity(self, row: int, value: float) -> str:
        known = self.table.knowledge.affinity
        pair = f"{self._prediction(row)} and {self._label('affinity', row)}"
        if known is None or known.source == "similarity":
            return f"{pair} have a similarity of {value:.2f}"
        if known.source == "confusions":
            return f"{value:.0%} of the confusions of the rarer of {pair} are with the other"
        return (
            f"models that guess the rarer of {pair} guess the other too: {value:.0%} beyond chance"
        )

    def _cooccurrence(self, row: int, value: float) -> str:
        label = self._label("cooccurrence", row)
        return f"{int(value)} other images show {self._prediction(row)} together with {label}"

    def _cooccurrence_share(self, row: int, value: float) -> str:
        pair = f"{self._prediction(row)} and {self._label('cooccurrence_share', row)}"
        return f"{value:.0%} of what is seen beside the rarer of {pair} is the other"

    def _labels(self, row: int, value: float) -> str:
        return f"the image has {int(value)} right label{'s' if value != 1 else ''}"

    def _peers_right(self, row: int, value: float) -> str:
        return f"{value:.0%} of other models are right on this image"

    def _peers_same(self, row: int, value: float) -> str:
        return f"{value:.0%} of other models make the same mistake"

    def _peers_listed(self, row: int, value: float) -> str:
        best = self.table.knowledge.peers
        ranks = best.topk.shape[2] if best else 0
        return f"{value:.0%} of other models have {self._prediction(row)} among their best {ranks}"

    def _peers_spread(self, row: int, value: float) -> str:
        known = self.table.knowledge.peers
        models = len(known.models) if known else 0
        return f"{models} models give about {round(value * models)} different answers"

    def _typicality(self, row: int, value: float) -> str:
        return f"the image is more typical of its class than {value:.0%} of images"

    def _outside_share(self, row: int, value: float) -> str:
        mistake = self.table.mistakes[row]
        best = self._outsiders.get((mistake.image_id, mistake.prediction))
        text = f"{value:.0%} of the image-text similarity is with things that are no classes"
        return text if best is None else f"{text}, most with {best.name}"
