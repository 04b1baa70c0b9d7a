"""The built-in label spaces and the WordNet table behind them, read when first asked for.

``tools/derive_labels.py`` makes the committed tables and says how.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from heldout.core.errors import LabelError
from heldout.data.labels.label_space import Class, LabelSpace

DATA = Path(__file__).parent / "data"
_SMALL = ("wordnet-1k.tsv.gz",)
_ALL = ("wordnet-1k.tsv.gz", "wordnet-21k.tsv.gz")
# Name: the tables to read, and the flag of the wanted rows ("" keeps every row).
_FROM_TABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "imagenet-1k": (_SMALL, "1"),
    "imagenet-21k": (_ALL, "2"),
    "imagenet-a": (_SMALL, "a"),
    "imagenet-r": (_SMALL, "r"),
    "wordnet-nodes": (_ALL, ""),
}
BUILT_IN: tuple[str, ...] = (*_FROM_TABLES, "cifar-10")
"""Names that :meth:`LabelSpace.load` knows.

``imagenet-1k``    1,000 classes in the order of every published checkpoint: sorted WordNet ids
``imagenet-21k``   21,843 classes, sorted WordNet ids (the list with which ViT and BiT were trained)
``imagenet-a``     200 of ImageNet-1k, the classes of ImageNet-A
``imagenet-r``     200 of ImageNet-1k, the classes of ImageNet-R
``cifar-10``       10 classes; ids are the published names, WordNet senses are our reading
``wordnet-nodes``  every node of the built-in hierarchy: classes above and everything over them
"""


def _rows(table: str) -> Iterator[list[str]]:
    text = gzip.decompress((DATA / table).read_bytes()).decode("utf-8")
    return (line.split("\t") for line in text.split("\n")[:-1])


@cache
def load_built_in(name: str) -> LabelSpace:
    """A built-in label space; read once, then shared."""
    if name == "cifar-10":
        return LabelSpace.read(DATA / "cifar-10.json")
    if name not in _FROM_TABLES:
        raise LabelError(
            f"no built-in label space {name!r}", fix=f"use one of {', '.join(BUILT_IN)}"
        )
    tables, flag = _FROM_TABLES[name]
    classes = [
        Class(wnid, tuple(names.split("|")), wnid, gloss, tuple(parents.split()))
        for table in tables
        for wnid, flags, parents, names, gloss in _rows(table)
        if flag in flags
    ]
    classes.sort(key=lambda item: item.id)
    return LabelSpace(name, tuple(classes))


@cache
def wordnet_parents() -> dict[str, tuple[str, ...]]:
    """Each node of the built-in hierarchy with the nodes directly above it."""
    return {
        wnid: tuple(parents.split()) for table in _ALL for wnid, _, parents, _, _ in _rows(table)
    }


def is_built_in(space: LabelSpace) -> bool:
    """Whether a label space is one that every installation has, so that its name says it all."""
    return space.name in BUILT_IN and load_built_in(space.name).fingerprint == space.fingerprint
