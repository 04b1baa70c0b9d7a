"""Words matched to the nodes of a tree of classes through WordNet.

The published rule (Liang and Zou, MetaShift, 2022): a word is looked up as a noun, and the first of
its senses that is a node of the tree is its match. A subset ``subject(context)`` is selected if
both words match; the subjects of the selected subsets are the selected classes; a leaf is covered
if it stands at or under *any* sense of a selected class.

The first sense in the tree need not be what the word means in the data: ``kite`` becomes a hawk and
``napkin`` a diaper. A match is doubted (``suspicious``) where it is not the word's first sense and
no word over it in the vocabulary stands over it in WordNet:

``first``         the word's most usual sense is in the tree
``confirmed``     a later sense, but one that stands under a sense of a parent word: ``tiger``, the
                  animal, is under ``animal``
``contradicted``  a later sense that no parent word confirms, while another sense is confirmed:
                  ``cup``, the punch, for ``cup`` under ``tableware``
``unconfirmed``   a later sense, and the vocabulary says nothing either way
``override``      given by the user
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import csv_text, existing_file, read_json
from heldout.data.labels.label_map import LabelMap, Reading, label_map_to_dict
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.wordnet import Hierarchy, WordNetNouns


@dataclass(frozen=True, eq=False)
class ClassTree:
    """A tree of classes without its root; a node may have several parents.

    ``hierarchy``  who stands under whom, by id
    ``names``      what the file calls each node
    ``indices``    the ``index`` of the leaves that have one
    ``entries``    how often nodes are listed in the file; one with two parents counts twice
    ``notes``      what was repaired
    """

    name: str
    hierarchy: Hierarchy
    names: Mapping[str, str]
    indices: Mapping[str, int]
    entries: int
    notes: tuple[str, ...] = ()

    def __contains__(self, node: object) -> bool:
        return node in self.hierarchy

    def __len__(self) -> int:
        return len(self.hierarchy)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Nodes with nothing below them, sorted: the classes that a model predicts."""
        return tuple(node for node in self.hierarchy.nodes if not self.hierarchy.children(node))

    def leaves_under(self, node: str) -> tuple[str, ...]:
        """The leaves at or under ``node``, sorted; a new value for each node, shared with none."""
        below = self.hierarchy.distances_down(node)
        return tuple(sorted(node for node in below if not self.hierarchy.children(node)))


def read_class_tree(path: Path) -> ClassTree:
    """Read a tree of classes; one in which a node stands under itself is refused."""
    root = read_json(path)
    _checked_node(path, root, "the root")
    parents: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    indices: dict[str, int] = {}
    notes: list[str] = []
    entries = 0
    waiting: list[tuple[dict[str, Any], str | None]] = [(root, None)]
    while waiting:
        item, parent = waiting.pop()
        node = item["id"]
        if item is not root:
            entries += 1
            above = parents.setdefault(node, {})
            if parent is not None:
                above[parent] = None
            names.setdefault(node, str(item.get("name", node)))
            _keep_index(path, indices, node, item.get("index"))
        inside = _children(path, item, notes)
        for child in reversed(inside):  # the stack gives them back in the order of the file
            _checked_node(path, child, f"a child of {node!r}")
            waiting.append((child, None if item is root else node))
    if not parents:
        raise BadFile(path, "has no nodes under its root", fix="give a tree with children")
    try:
        hierarchy = Hierarchy(parents, name=path.name)
    except LabelError as error:
        raise BadFile(path, error.message.partition(": ")[2], fix=error.fix) from None
    return ClassTree(path.stem, hierarchy, names, indices, entries, tuple(notes))


def _checked_node(path: Path, item: object, what: str) -> None:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        raise BadFile(path, f"{what} has no id", fix='write {"id": …, "name": …, "children": […]}')


def _keep_index(path: Path, indices: dict[str, int], node: str, index: object) -> None:
    if index is None:
        return
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise BadFile(path, f"node {node} has the index {index!r}", fix="write a whole number")
    if indices.setdefault(node, index) != index:
        raise BadFile(
            path, f"node {node} has the indices {indices[node]} and {index}", fix="give it one"
        )


def _children(path: Path, item: dict[str, Any], notes: list[str]) -> list[Any]:
    found: list[Any] = []
    for key, value in item.items():
        if "".join(key.split()).casefold() != "children":
            continue
        if key != "children":
            notes.append(f"{path.name}: read the key {key!r} of {item['id']} as 'children'")
        if not isinstance(value, list):
            raise BadFile(path, f"children of {item['id']} are no list", fix="write a list")
        found += value
    return found


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words with the words directly above them, in the order of their first appearance.

    ``notes``  what was left out, such as words that were listed under themselves
    """

    parents: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """All words, in order."""
        return tuple(self.parents)

    def __len__(self) -> int:
        return len(self.parents)

    def __contains__(self, word: object) -> bool:
        return word in self.parents


def read_vocabulary(path: Path) -> Vocabulary:
    """Read ``{"parent": ["word", ...]}``; a longer way back to a word itself is refused.

    The published hierarchy lists 19 words under themselves; that is left out with a note.
    """
    value = read_json(path)
    if not isinstance(value, dict) or not value:
        raise BadFile(path, "is no hierarchy of words", fix='write {"parent": ["word", ...]}')
    found: dict[str, dict[str, None]] = {}
    own: list[str] = []
    for parent, words in value.items():
        if not isinstance(words, list) or not all(isinstance(w, str) and w for w in words):
            raise BadFile(path, f"the words of {parent!r} are no list of texts", fix="mend it")
        found.setdefault(parent, {})
        for word in words:
            above = found.setdefault(word, {})
            if word == parent:
                own.append(word)
            else:
                above[parent] = None
    try:
        Hierarchy(found, name=path.name)
    except LabelError as error:
        raise BadFile(path, error.message.partition(": ")[2], fix=error.fix) from None
    notes = []
    if own:
        shown = ", ".join(own[:5]) + (" …" if len(own) > 5 else "")
        notes.append(f"{path.name}: {len(own)} words stand under themselves ({shown}), left out")
    return Vocabulary({word: tuple(above) for word, above in found.items()}, tuple(notes))


Verdict = Literal["first", "confirmed", "unconfirmed", "contradicted", "override"]
Senses = Literal["all", "matched"]
SUSPICIOUS: tuple[Verdict, ...] = ("contradicted", "unconfirmed")


@dataclass(frozen=True, kw_only=True)
class WordMatch:
    """A word and the node that it stands for.

    ``place``      which of the word's senses it is, counted from 1; 0 for an override
    ``senses``     all senses of the word, most usual first
    ``confirmed``  those of them that a parent word of the vocabulary confirms
    """

    word: str
    node: str
    place: int
    senses: tuple[str, ...]
    verdict: Verdict
    confirmed: tuple[str, ...] = ()

    @property
    def suspicious(self) -> bool:
        """Whether a person should look at it."""
        return self.verdict in SUSPICIOUS


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
        found = [match for match in self.matches.values() if match.suspicious]
        return tuple(sorted(found, key=lambda match: SUSPICIOUS.index(match.verdict)))

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

    ``overrides``  word to node, or to None for a word that stands for no node
    """
    given = dict(overrides or {})
    for word, node in given.items():
        if node is not None and node not in tree:
            raise LabelError(
                f"the override of {word!r} names {node!r}, which is no node of {tree.name}",
                fix="give the id of a node, or leave it empty for no match",
            )
    wordnet = Hierarchy.wordnet()
    matches: dict[str, WordMatch] = {}
    unmatched: list[str] = []
    for word in vocabulary.words:
        senses = nouns.synsets(word)
        if word in given:
            node = given[word]
            if node is not None:
                matches[word] = WordMatch(
                    word=word, node=node, place=0, senses=senses, verdict="override"
                )
            else:
                unmatched.append(word)
            continue
        place = next((i for i, sense in enumerate(senses, 1) if sense in tree), 0)
        if not place:
            unmatched.append(word)
            continue
        over = {sense for parent in vocabulary.parents[word] for sense in nouns.synsets(parent)}
        confirmed = tuple(
            sense
            for sense in senses
            if sense in wordnet and over & wordnet.distances_up(sense).keys()
        )
        node = senses[place - 1]
        verdict: Verdict = "first"
        if place > 1:
            verdict = "contradicted" if confirmed else "unconfirmed"
            verdict = "confirmed" if node in confirmed else verdict
        matches[word] = WordMatch(
            word=word, node=node, place=place, senses=senses, verdict=verdict, confirmed=confirmed
        )
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
        self,
        source: LabelSpace,
        *,
        name: str,
        target: LabelSpace | None = None,
        reading: Reading = "full",
    ) -> LabelMap:
        """Hierarchical correctness as a label map: predictions in ``source``, judged as classes.

        ``target``  a label space whose classes are words, such as that of a test set; every one of
                    them must match. Without it the selected classes.

        Classes may stand over one another (``animal`` and ``dog``), so they may share leaves.
        """
        matches = self.words.matches
        if target is None:
            listed = (Class(word, (word,), wnid=matches[word].node) for word in self.classes)
            target = LabelSpace(name, tuple(listed))
        accepted = tuple(
            tuple(sorted(source.index(leaf) for leaf in self.words.accepted(word)))
            for word in target.ids
        )
        return LabelMap(name, "hierarchy", source, target, accepted, reading, allow_overlap=True)


def match_subsets(
    subsets: Mapping[str, tuple[str, str]], words: WordMatches, *, senses: Senses = "all"
) -> SubsetMatches:
    """Select the subsets of which both words match, and find the leaves that they cover.

    ``subsets``  name to (subject, context)
    ``senses``  ``all``: a leaf counts as covered under any sense of a class, as published;
                ``matched``: only under the sense that was matched. An override has one sense.
    """
    matches, tree = words.matches, words.tree
    if senses not in ("all", "matched"):
        raise LabelError(f"senses {senses!r}", fix="use all or matched")
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
    """Read overrides: CSV with the columns ``word`` and ``node``; an empty node is no match."""
    try:
        text = existing_file(path, "file of overrides").read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    found: dict[str, str | None] = {}
    try:
        if not {"word", "node"} <= set(reader.fieldnames or ()):
            raise BadFile(
                path, "lacks the columns word and node", fix="write word,node as its head"
            )
        for row in reader:
            word, node = (row["word"] or "").strip(), (row["node"] or "").strip() or None
            if not word:
                raise BadFile(path, f"line {reader.line_num} has no word", fix="fill it in")
            if found.setdefault(word, node) != node:
                raise BadFile(path, f"{word!r} is overridden twice", fix="give it one node")
    except csv.Error as error:  # such as a quote that is never closed
        raise BadFile(path, f"is not a CSV table ({error})", fix="mend it") from None
    return found


WORDS = ("word", "node", "name", "place", "senses", "verdict", "leaves", "meaning")
DOUBTS = ("word", "node", "name", "place", "verdict", "meaning", "instead", "instead_meaning")


def matching_tables(
    found: SubsetMatches, *, source: LabelSpace | None, target: LabelSpace | None = None
) -> dict[str, str]:
    """File name to text.

    ``words.csv``       every matched word: its node, which of its senses that is, the verdict
    ``suspicious.csv``  doubted matches, with other senses of the word that are in the tree. With
                        ``node`` mended (or emptied) it is a file of overrides.
    ``unmatched.txt``   words without a node
    ``classes.csv``     selected classes and the leaves that are right for each
    ``subsets.txt``     selected subsets, one a line
    ``label_map.json``  hierarchical correctness for ``heldout score --label-map``, where ``source``
                        is the label space whose classes the leaves are, and ``target`` that of a
                        test set (without it, the selected classes)
    """
    words = found.words
    tree, glosses = words.tree, _glosses()

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
        tables["label_map.json"] = json.dumps(label_map_to_dict(made), indent=1) + "\n"
    return tables


def _glosses() -> Mapping[str, str]:
    return {item.id: item.gloss for item in LabelSpace.load("wordnet-nodes")}
