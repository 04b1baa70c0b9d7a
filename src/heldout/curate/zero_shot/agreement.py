"""How labels agree with a truth over many classes: the same, tied, above or below it, or elsewhere.

Among 21,843 classes many lie above or below one another (a dog, a hound, a beagle). A label above
the truth is right and vague; one below it claims more than the truth says. Neither is plainly wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from heldout.curate.zero_shot.columns import LABEL, TIES
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy
from heldout.data.testset.pool import Pool


@dataclass(frozen=True)
class Agreement:
    """Counts of images.

    ``same``        the label is the truth
    ``tied``        it is not, and the truth has exactly the same cosine: a class of the same text
    ``ancestor``    the label stands above the truth: right, and less exact
    ``descendant``  the label stands below the truth
    ``elsewhere``   none of these
    ``unknown``     there is no label, or the two are of different label spaces and one of them is no
                    node of the hierarchy
    """

    same: int = 0
    tied: int = 0
    ancestor: int = 0
    descendant: int = 0
    elsewhere: int = 0
    unknown: int = 0

    @property
    def images(self) -> int:
        """All images."""
        return sum(getattr(self, field.name) for field in fields(self))


def agreement(
    truths: Sequence[str | None],
    labels: Sequence[str | None],
    ties: Sequence[Iterable[str] | None],
    *,
    hierarchy: Hierarchy,
    one_space: bool = False,
) -> Agreement:
    """Compare labels with truths, both as nodes of the hierarchy (WordNet ids).

    ``ties``       the other classes that share a label's cosine
    ``one_space``  both are of one label space, so that different ones differ, nodes or not
    """
    counts = dict.fromkeys([*(field.name for field in fields(Agreement)), "foreign"], 0)
    for truth, label, tied in zip(truths, labels, ties, strict=True):
        kind = _kind(truth, label, tied or (), hierarchy)
        counts["elsewhere" if kind == "foreign" and one_space else kind] += 1
    counts["unknown"] += counts.pop("foreign", 0)
    return Agreement(**counts)


def _kind(truth: str | None, label: str | None, tied: Iterable[str], hierarchy: Hierarchy) -> str:
    if truth is None or label is None:
        return "unknown"
    if label == truth:
        return "same"
    if truth in tied:
        return "tied"
    if truth not in hierarchy or label not in hierarchy:
        return "foreign"
    if hierarchy.is_under(truth, label):
        return "ancestor"
    return "descendant" if hierarchy.is_under(label, truth) else "elsewhere"


def pool_agreement(pool: Pool, space: LabelSpace, *, truth: str | None = None) -> Agreement:
    """How the labels of an annotated pool agree with a truth of its own, over WordNet.

    ``space`` is that of the labels; ``truth`` by name, else the pool's first. An image with several
    rows of truth counts by its first.
    """
    table = pool.truth(truth)
    nodes = {item.id: item.node for item in pool.label_space}
    known: dict[str, str | None] = {}
    for image, class_id in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        known.setdefault(image, nodes.get(class_id))
    label_nodes = {item.id: item.node for item in space}
    images = pool.images
    return agreement(
        [known.get(image) for image in images["image_id"].to_pylist()],
        [label_nodes.get(label) for label in images[LABEL].to_pylist()],
        [[label_nodes[name] for name in names or ()] for names in images[TIES].to_pylist()],
        hierarchy=Hierarchy.wordnet(),
        one_space=pool.label_space.fingerprint == space.fingerprint,
    )
