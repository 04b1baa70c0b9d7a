"""Lineage: what a test set was made from, followed through the cards of a workspace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from heldout.core.workspace import Workspace
from heldout.data.testset.card import Card
from heldout.data.testset.catalogue import find_testset, list_testsets


@dataclass(frozen=True, kw_only=True)
class Ancestor:
    """Something a test set was made from.

    ``child``     the test set that names it; ``depth`` counts steps from the one asked about
    ``kind``      ``testset`` or ``file``
    ``relation``  what it is to its child, where the card says so, else an empty text
    ``hash``      as the child's card has it, else an empty text
    ``state``     ``present`` in the workspace, ``changed`` (present with another hash), ``absent``,
                  or ``file`` for files, which a workspace does not keep
    """

    name: str
    child: str
    depth: int
    kind: Literal["testset", "file"]
    relation: str
    hash: str
    state: Literal["present", "changed", "absent", "file"]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A test set and what it was made from, nearest first."""

    name: str
    ancestors: tuple[Ancestor, ...]

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"name": self.name, "ancestors": [asdict(a) for a in self.ancestors]}


def lineage(workspace: Workspace, name: str) -> Lineage:
    """Follow the parents of a test set through the cards of a workspace; tables are not read."""
    cards = {entry.card.name: entry.card for entry in list_testsets(workspace)}
    aliases = Counter(alias for card in cards.values() for alias in card.aliases)
    for card in list(cards.values()):
        for alias in card.aliases:
            if aliases[alias] == 1:
                cards.setdefault(alias, card)  # a set of that name goes first
    if name not in cards:
        found = find_testset(workspace, name).card
        cards[name] = cards[found.name] = found
    start = cards[name]
    ancestors: list[Ancestor] = []
    queue: list[tuple[Card, int]] = [(start, 1)]
    seen = {start.name}
    while queue:
        child, depth = queue.pop(0)
        for parent in child.parents:
            ancestor = _ancestor(parent, child.name, depth, cards)
            ancestors.append(ancestor)
            followed = cards.get(ancestor.name) if ancestor.kind == "testset" else None
            if followed is not None and followed.name not in seen:
                seen.add(followed.name)
                queue.append((followed, depth + 1))
    return Lineage(name=start.name, ancestors=tuple(ancestors))


def _ancestor(
    parent: Mapping[str, Any], child: str, depth: int, cards: Mapping[str, Card]
) -> Ancestor:
    recorded = str(parent.get("content_hash") or parent.get("hash") or parent.get("sha256") or "")
    relation = str(parent.get("relation", ""))
    if "name" not in parent:
        return Ancestor(
            name=str(parent.get("file") or parent.get("folder") or ""),
            child=child,
            depth=depth,
            kind="file",
            relation=relation,
            hash=recorded,
            state="file",
        )
    name = str(parent["name"])
    state: Literal["present", "changed", "absent"] = "absent"
    if name in cards:
        card = cards[name]
        earlier = {str(step.get("content_hash", "")) for step in card.history}
        same = not recorded or recorded in {card.content_hash, card.images_hash} | earlier
        state = "present" if same else "changed"
    return Ancestor(
        name=name,
        child=child,
        depth=depth,
        kind="testset",
        relation=relation,
        hash=recorded,
        state=state,
    )
