"""Out of vocabulary: is there something in the image that is no class, and looks like the prediction?

An image-text encoder compares the image with what stands near the prediction: classes of the label
space on the one hand, things that the hierarchy has beside the prediction but the label space has not
on the other. The share of the softmax over ``scale * cosine`` that falls on the latter is the evidence.

After M. Peychev et al., "Automated classification of model errors on ImageNet", NeurIPS 2023, who
take the single best text; a share says how close it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heldout.core.errors import MismatchError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.vectors import Vectors
from heldout.models.adapters.model import Encoder

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
