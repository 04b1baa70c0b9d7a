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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import existing_file
from heldout.data.labels.hierarchy import Hierarchy
from heldout.data.labels.label_maps import LabelMap, Reading
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.tree_file import ClassTree, Vocabulary
from heldout.data.labels.wordnet_nouns import WordNetNouns

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
