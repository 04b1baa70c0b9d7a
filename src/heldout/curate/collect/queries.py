"""What is searched for: the terms of each class, and how many images of each term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from heldout.core.errors import UserError
from heldout.core.records import Table
from heldout.data.labels.label_space import Class, LabelSpace, folded
from heldout.data.labels.wordnet import Hierarchy


@dataclass(frozen=True, kw_only=True)
class Query:
    """One term that is searched for, for one class; at most ``images`` photos are kept."""

    record: ClassVar[str] = "query"
    table: ClassVar[Table] = Table("", ("class=class_id", "name", "term", "images:,"), rows=40)
    class_id: str
    name: str
    term: str
    images: int


def queries(
    space: LabelSpace,
    *,
    only: Sequence[str] = (),
    chosen: Mapping[str, Sequence[str]] | None = None,
    parent_terms: bool = False,
    join_compounds: bool = False,
    per_class: int = 200,
) -> list[Query]:
    """The queries of classes in the order of the label space, each term of a class once.

    ``only``            ids of classes; all of them where it is empty
    ``chosen``          class to terms that are searched for instead of its own
    ``parent_terms``    put a word behind every other term, see :func:`parent_term`
    ``join_compounds``  search for ``tigershark`` instead of ``tiger shark``
    ``per_class``      of a class, shared equally among its terms, at least one of each
    """
    chosen = dict(chosen or {})
    wanted = {space.get(class_id).id for class_id in (*only, *chosen)}
    if only:
        wanted &= set(only)
    found = []
    for item in space:
        if only and item.id not in wanted:
            continue
        terms = list(chosen.get(item.id) or item.search_terms or item.names or (item.id,))
        if parent_terms and item.id not in chosen:
            parent = parent_term(item)
            terms = [f"{term} {parent}" if parent else term for term in terms]
        if join_compounds:
            terms = ["".join(term.split()) for term in terms]
        once: dict[str, str] = {}
        for term in terms:
            once.setdefault(folded(term), " ".join(term.split()))
        if "" in once:
            raise UserError(f"class {item.id} has an empty search term", fix="remove it")
        share = max(1, per_class // len(once))
        found += [
            Query(class_id=item.id, name=item.name, term=term, images=share)
            for term in once.values()
        ]
    return found


def parent_term(item: Class) -> str:
    """A word that is in the meaning of a class and names a node directly above it; else nothing.

    ImageNetV2's: of several nodes the last with such a word, of its words the first in the meaning.

    >>> parent_term(LabelSpace.load("imagenet-1k").get("n02815834"))  # a beaker
    'jar'
    """
    tree, nodes = Hierarchy.wordnet(), LabelSpace.load("wordnet-nodes")
    found = ""
    for node in tree.parents(item.node) if item.node in tree else ():
        names = set(nodes.get(node).names)
        found = next((word for word in item.gloss.split() if word in names), found)
    return found
