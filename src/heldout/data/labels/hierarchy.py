"""The hierarchy over classes: who stands under whom.

A hierarchy is a directed graph without cycles; a node may have several parents (498 of the 23,548
built-in ones do). The built-in one is the part of WordNet 3.0's nouns that lies over the classes of
ImageNet-1k, ImageNet-21k and CIFAR-10, with hypernyms and instance hypernyms alike as parents. It
has one root, ``n00001740`` (entity).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache

from heldout.core.errors import LabelError
from heldout.data.labels.label_space import LabelSpace


class Hierarchy:
    """Nodes and the nodes directly above them; every answer is in a stated, fixed order."""

    def __init__(self, parents: Mapping[str, Iterable[str]], *, name: str = "hierarchy") -> None:
        """``parents``: each node's parents. A parent that is not a key is a root."""
        self.name = name
        known: dict[str, tuple[str, ...]] = {}
        for node, above in parents.items():
            if isinstance(above, str):
                raise LabelError(
                    f"{name}: parents of {node!r} are one text", fix="give a list of ids"
                )
            known[node] = tuple(dict.fromkeys(above))
        for above in list(known.values()):
            for node in above:
                known.setdefault(node, ())
        self._parents = known
        self._refuse_cycles()

    @classmethod
    def wordnet(cls) -> Hierarchy:
        """The built-in hierarchy; read once, then shared."""
        return _wordnet()

    @classmethod
    def from_label_space(cls, space: LabelSpace) -> Hierarchy:
        """The hierarchy that a label space's own ``parents`` give.

        A parent is a node, or the id of a class and then the node where that class stands.
        """
        nodes = {item.node for item in space}
        parents: dict[str, tuple[str, ...]] = {}
        for item in space:
            above = tuple(
                space.get(parent).node if parent in space and parent not in nodes else parent
                for parent in item.parents
            )
            if parents.setdefault(item.node, above) != above:
                raise LabelError(
                    f"{space.name}: two classes stand at node {item.node} with different parents",
                    fix="give them the same parents",
                )
        return cls(parents, name=space.name)

    def _refuse_cycles(self) -> None:
        waiting = {node: len(above) for node, above in self._parents.items()}
        ready = deque(node for node, count in waiting.items() if not count)
        done = 0
        while ready:
            done += 1
            for below in self._children[ready.popleft()]:
                waiting[below] -= 1
                if not waiting[below]:
                    ready.append(below)
        if done < len(waiting):
            # What waits stands under a cycle or in one: upwards, some node comes a second time.
            node = min(node for node, count in waiting.items() if count)
            seen: set[str] = set()
            while node not in seen:
                seen.add(node)
                node = min(above for above in self._parents[node] if waiting[above])
            raise LabelError(f"{self.name}: {node!r} is above itself", fix="remove the cycle")

    def __len__(self) -> int:
        return len(self._parents)

    def __contains__(self, node: object) -> bool:
        return node in self._parents

    def __repr__(self) -> str:
        return f"Hierarchy({self.name!r}, {len(self)} nodes)"

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        below: dict[str, list[str]] = {node: [] for node in self._parents}
        for node, above in self._parents.items():
            for parent in above:
                below[parent].append(node)
        return {node: tuple(sorted(items)) for node, items in below.items()}

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, sorted."""
        return tuple(sorted(self._parents))

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The nodes without parents, sorted."""
        return tuple(node for node in self.nodes if not self._parents[node])

    def parents(self, node: str) -> tuple[str, ...]:
        """The nodes directly above, in the order given (WordNet's own)."""
        try:
            return self._parents[node]
        except (KeyError, TypeError):
            raise LabelError(
                f"{node!r} is not a node of {self.name}",
                fix="search the label space wordnet-nodes for its id",
            ) from None

    def children(self, node: str) -> tuple[str, ...]:
        """The nodes directly below, sorted."""
        self.parents(node)
        return self._children[node]

    def distances_up(self, node: str) -> dict[str, int]:
        """The node (0) and all above it, each with the fewest steps up that reach it."""
        self.parents(node)
        return _reach(node, self._parents)

    def distances_down(self, node: str) -> dict[str, int]:
        """The node (0) and all below it, each with the fewest steps down that reach it."""
        self.parents(node)
        return _reach(node, self._children)

    def ancestors(self, node: str) -> tuple[str, ...]:
        """All nodes above, without the node itself: nearest first, then by id."""
        return _nearest_first(self.distances_up(node))

    def is_under(self, node: str, ancestor: str) -> bool:
        """Whether ``node`` is ``ancestor`` or stands below it."""
        self.parents(ancestor)
        return ancestor in self.distances_up(node)

    def depth(self, node: str) -> int:
        """The fewest steps up to a root; a root has depth 0."""
        return min(
            steps for above, steps in self.distances_up(node).items() if not self._parents[above]
        )

    def leaves(self, node: str, space: LabelSpace) -> tuple[str, ...]:
        """Ids of the classes of ``space`` at or under ``node``, in the label space's order.

        A class counts even where another class of the same space stands below it: ImageNet-1k
        has no such pair, ImageNet-21k has thousands.
        """
        below = self.distances_down(node)
        return tuple(item.id for item in space if item.node in below)

    def path_distance(self, a: str, b: str) -> int:
        """The fewest steps from ``a`` up to a node over both and down to ``b``; 0 for itself.

        Several roots are joined by a virtual root, one step over each of them, which counts like
        any node. WordNet's nouns have one root, so there it never matters.
        """
        up_a, up_b = self.distances_up(a), self.distances_up(b)
        over_all = self.depth(a) + self.depth(b) + 2
        return min([over_all, *(up_a[node] + up_b[node] for node in up_a if node in up_b)])

    def path_similarity(self, a: str, b: str) -> float:
        """``1 / (1 + path_distance)``: 1 for the node itself, 1/2 for a parent, 1/3 for a sibling.

        The ``path`` measure of WordNet::Similarity and NLTK (Pedersen, Patwardhan, Michelizzi
        2004), which likewise counts instance hypernyms as steps.
        """
        return 1.0 / (1 + self.path_distance(a, b))


@lru_cache(maxsize=1)
def _wordnet() -> Hierarchy:
    from heldout.data.labels.builtin import wordnet_parents

    return Hierarchy(wordnet_parents(), name="wordnet-3.0")


def _reach(start: str, edges: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    steps = {start: 0}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for following in edges[node]:
            if following not in steps:
                steps[following] = steps[node] + 1
                waiting.append(following)
    return steps


def _nearest_first(steps: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(
        sorted((node for node in steps if steps[node]), key=lambda node: (steps[node], node))
    )
