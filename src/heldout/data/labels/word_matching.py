"""Words matched to the nodes of a tree of classes through WordNet.

The published rule (Liang and Zou, MetaShift, 2022): a word is looked up as a noun, and the first of
its senses that is a node of the tree is its match. A subset ``subject(context)`` is selected if
both words match; the subjects of the selected subsets are the selected classes; a leaf is covered
if it is at or under *any* sense of a selected class.

The first sense in the tree need not be what the word means in the data: ``kite`` becomes a hawk and
``napkin`` a diaper. A match is doubted (``suspicious``) where it is not the word's first sense and
no word over it in the vocabulary is over it in WordNet:

``first``         the word's most usual sense is in the tree
``confirmed``     a later sense, but one that is under a sense of a parent word: ``tiger``, the
                  animal, is under ``animal``
``contradicted``  a later sense that no parent word confirms, while another sense is confirmed:
                  ``cup``, the punch, for ``cup`` under ``tableware``
``unconfirmed``   a later sense, and the vocabulary says nothing either way
``override``      given by the user

Trees and vocabularies are read as published. A tree is nested JSON, ``{"id": …, "name": …,
"children": [...]}``. Its root is the whole and not a class. The same id may be under several
parents. A key that is ``children`` but for spaces is read as ``children``: the published ImageNet
tree has ``child  ren`` under airplane, which hides its only class. A vocabulary is
``{"parent": ["word", ...]}``; parents are words too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import csv_text, read_json
from heldout.core.tables import read_table_file, require_column
from heldout.data.labels.label_map import LabelMap, LabelMapFile
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.wordnet import Hierarchy, WordNetNouns

Verdict = Literal["first", "confirmed", "unconfirmed", "contradicted", "override"]
Senses = Literal["all", "matched"]
SUSPICIOUS: tuple[Verdict, ...] = ("contradicted", "unconfirmed")
WORDS = ("word", "node", "name", "place", "senses", "verdict", "leaves", "meaning")
DOUBTS = ("word", "node", "name", "place", "verdict", "meaning", "instead", "instead_meaning")


@dataclass(frozen=True, eq=False)
class ClassTree:
    """A tree of classes without its root; a node may have several parents.

    ``hierarchy``  the nodes and their parents, by id
    ``names``      what the file calls each node
    ``notes``      what was repaired
    """

    name: str
    hierarchy: Hierarchy
    names: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __contains__(self, node: object) -> bool:
        return node in self.hierarchy

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Nodes with nothing below them, sorted: the classes that a model predicts."""
        return tuple(node for node in self.hierarchy.nodes if not self.hierarchy.children(node))

    def leaves_under(self, node: str) -> tuple[str, ...]:
        """The leaves at or under ``node``, sorted; a new value for each node, shared with none."""
        below = self.hierarchy.distances_down(node)
        return tuple(sorted(node for node in below if not self.hierarchy.children(node)))


def read_class_tree(path: Path) -> ClassTree:
    """Read a tree of classes; one in which a node is under itself is refused."""
    parents: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    notes: list[str] = []
    # A stack instead of recursion: a hostile file may be nested deeper than Python calls may be.
    waiting: list[tuple[Any, str | None]] = [(read_json(path), None)]
    root = True
    while waiting:
        item, parent = waiting.pop()
        node = item.get("id") if isinstance(item, dict) else None
        if not isinstance(node, str) or not node:
            where = "the root" if root else f"a child of {parent or 'the root'}"
            fix = 'write {"id": …, "name": …, "children": […]}'
            raise BadFile(path, f"{where} has no id", fix=fix)
        if not root:
            above = parents.setdefault(node, {})
            if parent is not None:
                above[parent] = None
            names.setdefault(node, str(item.get("name", node)))
        children = _children(path, item, notes)
        # The stack gives them back in the order of the file.
        waiting += [(child, None if root else node) for child in reversed(children)]
        root = False
    if not parents:
        raise BadFile(path, "has no nodes under its root", fix="give a tree with children")
    try:
        return ClassTree(path.stem, Hierarchy(parents, name=path.name), names, tuple(notes))
    except LabelError as error:
        raise BadFile(path, error.message.partition(": ")[2], fix=error.fix) from None


def _children(path: Path, item: dict[str, Any], notes: list[str]) -> list[Any]:
    found: list[Any] = []
    for key, value in item.items():
        if "".join(key.split()).casefold() != "children":
            continue
        if key != "children":
            notes.append(f"{path.name}: read the key {key!r} of {item['id']} as 'children'")
        if not isinstance(value, list):
            raise BadFile(path, f"children of {item['id']} are not a list", fix="write a list")
        found += value
    return found


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words with the words directly above them, in the order of their first appearance.

    ``notes``  what was left out, such as words that were listed under themselves
    """

    parents: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()


def read_vocabulary(path: Path) -> Vocabulary:
    """Read ``{"parent": ["word", ...]}``.

    The published hierarchy lists 19 words under themselves; that is left out with a note.
    """
    value = read_json(path)
    try:
        listed = msgspec.convert(value, dict[str, list[str]])
    except msgspec.ValidationError:
        listed = {}
    if not listed:
        raise BadFile(path, "is not a hierarchy of words", fix='write {"parent": ["word", ...]}')
    found: dict[str, dict[str, None]] = {}
    own: list[str] = []
    for parent, words in listed.items():
        found.setdefault(parent, {})
        for word in words:
            above = found.setdefault(word, {})
            if word == parent:
                own.append(word)
            else:
                above[parent] = None
    notes = []
    if own:
        shown = ", ".join(own[:5]) + (" …" if len(own) > 5 else "")
        notes.append(f"{path.name}: {len(own)} words are under themselves ({shown}), left out")
    return Vocabulary({word: tuple(above) for word, above in found.items()}, tuple(notes))


@dataclass(frozen=True, kw_only=True)
class WordMatch:
    """A word and the node that it means.

    ``place``   which of the word's senses it is, counted from 1; 0 for an override
    ``senses``  all senses of the word, most usual first
    """

    word: str
    node: str
    place: int
    senses: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, eq=False, kw_only=True)
class WordMatches:
    """What became of each word of a vocabulary, in its order.

    ``unmatched``  words none of whose senses is a node of the tree (or that were overridden so)
    """

    tree: ClassTree
    matches: Mapping[str, WordMatch]
    unmatched: tuple[str, ...]

    @property
    def suspicious(self) -> tuple[WordMatch, ...]:
        """Doubted matches: contradicted ones first, then in the order of the vocabulary."""
        return tuple(
            match
            for verdict in SUSPICIOUS
            for match in self.matches.values()
            if match.verdict == verdict
        )

    def accepted(self, word: str) -> tuple[str, ...]:
        """The leaves that are right for ``word``: at or under its node, and this word's alone."""
        if word not in self.matches:
            raise LabelError(f"{word!r} has no node in {self.tree.name}", fix="give an override")
        return self.tree.leaves_under(self.matches[word].node)


def match_words(
    vocabulary: Vocabulary,
    tree: ClassTree,
    nouns: WordNetNouns,
    *,
    overrides: Mapping[str, str | None] | None = None,
) -> WordMatches:
    """Match each word of the vocabulary to the first of its senses that is a node of the tree.

    ``overrides``  word to node, or to None for a word that means no node
    """
    given = dict(overrides or {})
    for word, node in given.items():
        if node is not None and node not in tree:
            raise LabelError(
                f"the override of {word!r} names {node!r}, which is not a node of {tree.name}",
                fix="give the id of a node, or leave it empty for no match",
            )
    wordnet = Hierarchy.wordnet()
    matches: dict[str, WordMatch] = {}
    unmatched: list[str] = []
    for word, parents in vocabulary.parents.items():
        senses = nouns.synsets(word)
        node = given[word] if word in given else next((s for s in senses if s in tree), None)
        if node is None:
            unmatched.append(word)
            continue
        place = 0
        verdict: Verdict = "override"
        if word not in given:
            place, verdict = senses.index(node) + 1, "first"
        if place > 1:
            over = {sense for parent in parents for sense in nouns.synsets(parent)}
            confirmed = {
                sense
                for sense in senses
                if sense in wordnet and over & wordnet.distances_up(sense).keys()
            }
            verdict = "contradicted" if confirmed else "unconfirmed"
            if node in confirmed:
                verdict = "confirmed"
        matches[word] = WordMatch(word=word, node=node, place=place, senses=senses, verdict=verdict)
    return WordMatches(tree=tree, matches=matches, unmatched=tuple(unmatched))


@dataclass(frozen=True, eq=False, kw_only=True)
class SubsetMatches:
    """The subsets whose subject and context both match, and what of the tree they cover.

    ``selected``  (subject, context) in the order given
    ``names``     their names, in the same order
    ``classes``   subjects of the selected subsets, sorted
    ``covered``   leaves at or under a sense of a selected class, sorted
    """

    words: WordMatches
    selected: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    covered: tuple[str, ...]

    @cached_property
    def accepted(self) -> dict[str, tuple[str, ...]]:
        """Each selected class with the leaves that are right for it, every set its own."""
        return {word: self.words.accepted(word) for word in self.classes}

    def label_map(
        self, source: LabelSpace, *, name: str, target: LabelSpace | None = None
    ) -> LabelMap:
        """Hierarchical correctness as a label map: predictions in ``source``, judged as classes.

        ``target``  a label space whose classes are words, such as that of a test set; every one of
                    them must match. Without it the selected classes.

        Classes may be over one another (``animal`` and ``dog``), so they may share leaves and
        the reading is ``full``.
        """
        matches = self.words.matches
        if target is None:
            listed = (Class(word, (word,), wnid=matches[word].node) for word in self.classes)
            target = LabelSpace(name, tuple(listed))
        accepted = tuple(
            tuple(sorted(source.index(leaf) for leaf in self.words.accepted(word)))
            for word in target.ids
        )
        return LabelMap(name, "hierarchy", source, target, accepted, "full", allow_overlap=True)


def match_subsets(
    subsets: Mapping[str, tuple[str, str]], words: WordMatches, *, senses: Senses = "all"
) -> SubsetMatches:
    """Select the subsets of which both words match, and find the leaves that they cover.

    ``subsets``  name to (subject, context)
    ``senses``  ``all``: a leaf counts as covered under any sense of a class, as published;
                ``matched``: only under the sense that was matched. An override has one sense.
    """
    matches, tree = words.matches, words.tree
    names = tuple(name for name, pair in subsets.items() if all(word in matches for word in pair))
    selected = tuple(subsets[name] for name in names)
    classes = tuple(sorted({subject for subject, _ in selected}))
    covered: set[str] = set()
    for word in classes:
        match = matches[word]
        every = senses == "all" and match.verdict != "override"
        for node in match.senses if every else (match.node,):
            if node in tree:
                covered.update(tree.leaves_under(node))
    return SubsetMatches(
        words=words,
        selected=selected,
        names=names,
        classes=classes,
        covered=tuple(sorted(covered)),
    )


def words_of(subsets: Iterable[tuple[str, str]]) -> Vocabulary:
    """The words of subsets as a vocabulary without parents, for data that come with none."""
    words = dict.fromkeys(word for pair in subsets for word in pair)
    return Vocabulary(dict.fromkeys(words, ()))


def read_overrides(path: Path) -> dict[str, str | None]:
    """Read overrides: a table with the columns ``word`` and ``node``; no node is no match."""
    table = read_table_file(path)
    words, nodes = (
        require_column(table, name, path, what).to_pylist()
        for name, what in (("word", "the words"), ("node", "their nodes"))
    )
    found: dict[str, str | None] = {}
    for row, (cell, node) in enumerate(zip(words, nodes, strict=True), 1):
        word, wanted = (cell or "").strip(), (node or "").strip() or None
        if not word:
            raise BadFile(path, f"row {row} has no word", fix="fill it in")
        if found.setdefault(word, wanted) != wanted:
            raise BadFile(path, f"{word!r} is overridden twice", fix="give it one node")
    return found


def matching_tables(
    found: SubsetMatches, *, source: LabelSpace | None, target: LabelSpace | None = None
) -> dict[str, str]:
    """File name to text.

    ``words.csv``       every matched word: its node, which of its senses that is, the verdict
    ``suspicious.csv``  doubted matches, with other senses of the word that are in the tree. With
                        ``node`` corrected (or emptied) it is a file of overrides.
    ``unmatched.txt``   words without a node
    ``classes.csv``     selected classes and the leaves that are right for each
    ``subsets.txt``     selected subsets, one per line
    ``label_map.json``  hierarchical correctness for ``heldout score --label-map``, where ``source``
                        is the label space whose classes the leaves are, and ``target`` that of a
                        test set (without it, the selected classes)
    """
    words = found.words
    tree = words.tree
    glosses = {item.id: item.gloss for item in LabelSpace.load("wordnet-nodes")}

    def name(node: str) -> str:
        return tree.names.get(node, node)

    def instead(match: WordMatch) -> list[str]:
        return [s for s in match.senses if s != match.node and s in tree] if match.place else []

    matches = list(words.matches.values())
    tables = {
        "words.csv": csv_text(
            WORDS,
            [
                (m.word, m.node, name(m.node), m.place, len(m.senses), m.verdict,
                 len(tree.leaves_under(m.node)), glosses.get(m.node, ""))
                for m in matches
            ],
        ),
        "suspicious.csv": csv_text(
            DOUBTS,
            [
                (m.word, m.node, name(m.node), m.place, m.verdict, glosses.get(m.node, ""),
                 "|".join(instead(m)),
                 "|".join(f"{name(s)}: {glosses.get(s, '')}" for s in instead(m)))
                for m in words.suspicious
            ],
        ),
        "unmatched.txt": "".join(f"{word}\n" for word in words.unmatched),
        "classes.csv": csv_text(
            ("class", "node", "name", "accepted", "leaves"),
            [
                (word, words.matches[word].node, name(words.matches[word].node), len(leaves),
                 "|".join(leaves))
                for word, leaves in found.accepted.items()
            ],
        ),
        "subsets.txt": "".join(f"{name}\n" for name in found.names),
    }  # fmt: skip
    if source is not None and (found.classes or target is not None):
        made = found.label_map(source, name="matched-classes", target=target)
        plain = msgspec.to_builtins(LabelMapFile.of(made))
        tables["label_map.json"] = json.dumps(plain, indent=1) + "\n"
    return tables
