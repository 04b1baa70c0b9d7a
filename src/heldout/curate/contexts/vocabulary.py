"""Words of a source: synonyms, plurals, what they are a kind of; files of subset names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, read_json
from heldout.data.published.metashift import SubsetName, split_subset_name
from heldout.data.published.options import singular

RollUp = Literal["none", "add", "replace"]
Counts = Mapping[str, tuple[str, ...]]
"""Word -> the words that it counts as; a word that is not there counts as itself."""

BODY_PART = "body part"
_BODY_PARTS = (
    "ankle", "arm", "back", "beak", "beard", "belly", "body", "cheek", "chest", "chin", "claw",
    "ear", "elbow", "eye", "eyebrow", "face", "feather", "feet", "finger", "fingers", "foot",
    "forehead", "fur", "hair", "hand", "head", "hoof", "horn", "jaw", "knee", "leg", "lip",
    "lips", "mane", "mouth", "mustache", "muzzle", "nail", "neck", "nose", "paw", "shoulder",
    "skin", "snout", "stomach", "tail", "teeth", "thigh", "thumb", "toe", "tongue", "tooth",
    "torso", "trunk", "tusk", "whisker", "wing", "wrist",
)  # fmt: skip


def count_as(
    vocabulary: Collection[str],
    *,
    synonyms: Sequence[str] = (),
    plurals: bool = False,
    hierarchy: Sequence[str] = (),
    roll_up: RollUp = "none",
) -> dict[str, tuple[str, ...]]:
    """What each word of the vocabulary counts as: synonyms first, then plurals, then the hierarchy.

    A word that is named as a synonym is never taken for a plural.
    """
    named = read_synonyms(synonyms)
    parents = read_hierarchy(hierarchy)
    known = set(vocabulary) | set(named.values())
    found: dict[str, tuple[str, ...]] = {}
    for word in sorted(vocabulary):
        meant = named.get(word) or (singular(word, known) if plurals else word)
        meant = named.get(meant, meant)  # a plural of what is itself a synonym
        above = ancestors(meant, parents) if roll_up != "none" else ()
        if roll_up == "replace" and above:
            found[word] = tuple(sorted(parents[meant]))
        elif (meant, *above) != (word,):
            found[word] = tuple(sorted({meant, *above}))
    return found


def read_synonyms(rules: Sequence[str]) -> dict[str, str]:
    """``couch=sofa`` rules as a table; chains are followed, and a ring is refused."""
    rules_read: dict[str, str] = {}
    for rule in rules:
        word, equals, meant = (part.strip() for part in rule.partition("="))
        if not equals or not word or not meant:
            raise UserError(f"{rule!r} is no synonym", fix="write couch=sofa")
        if rules_read.get(word, meant) != meant:
            raise UserError(f"{word!r} is a synonym of two words", fix="keep one of them")
        rules_read[word] = meant
    found: dict[str, str] = {}
    for word in rules_read:
        seen, meant = [word], rules_read[word]
        while meant in rules_read and meant != rules_read[meant]:
            if meant in seen:
                ring = " = ".join([*seen[seen.index(meant) :], meant])
                raise UserError(f"synonyms go round: {ring}", fix="remove one of them")
            seen.append(meant)
            meant = rules_read[meant]
        found[word] = meant
    return found


def read_hierarchy(rules: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """``cat<animal`` rules as word -> what it is a kind of; a cycle is refused with its words."""
    parents: dict[str, list[str]] = {}
    for rule in rules:
        word, less, parent = (part.strip() for part in rule.partition("<"))
        if not less or not word or not parent:
            raise UserError(f"{rule!r} says no kind of what", fix="write cat<animal")
        if word != parent and parent not in parents.setdefault(word, []):
            parents[word].append(parent)
    table = {word: tuple(sorted(above)) for word, above in parents.items() if above}
    _refuse_cycles(table)
    return table


def _refuse_cycles(parents: Mapping[str, tuple[str, ...]]) -> None:
    done: set[str] = set()
    for start in sorted(parents):
        path: list[str] = []
        stack = [(start, False)]
        while stack:
            word, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(word)
            elif word in path:
                ring = " < ".join([*path[path.index(word) :], word])
                raise UserError(f"the hierarchy has a cycle: {ring}", fix="remove one of its links")
            elif word not in done:
                path.append(word)
                stack.append((word, True))
                stack.extend((parent, False) for parent in parents.get(word, ()))


def ancestors(word: str, parents: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Everything that a word is a kind of, sorted."""
    found: set[str] = set()
    waiting = list(parents.get(word, ()))
    while waiting:
        parent = waiting.pop()
        if parent not in found:
            found.add(parent)
            waiting.extend(parents.get(parent, ()))
    return tuple(sorted(found - {word}))


def groups(hierarchy: Sequence[str]) -> dict[str, frozenset[str]]:
    """Groups that policies may name as ``@group``: every parent with all words below it."""
    parents = read_hierarchy(hierarchy)
    found: dict[str, set[str]] = {BODY_PART: set(_BODY_PARTS)}
    for word in parents:
        for parent in ancestors(word, parents):
            found.setdefault(parent, {parent}).add(word)
    return {name: frozenset(words) for name, words in found.items()}


def hierarchy_rules(path: Path) -> tuple[str, ...]:
    """The rules of a JSON file of parent -> list of children, such as ``class_hierarchy.json``."""
    value = read_json(path)
    good = isinstance(value, dict) and all(
        isinstance(children, list) and all(isinstance(child, str) for child in children)
        for children in value.values()
    )
    if not good:
        raise BadFile(path, "is no hierarchy", fix='write {"animal": ["cat", "dog"], …}')
    rules = tuple(sorted({f"{c}<{p}" for p, children in value.items() for c in children}))
    try:
        read_hierarchy(rules)
    except UserError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    return rules


def synonym_rules(path: Path) -> tuple[str, ...]:
    """The rules of a JSON file of word -> word, or of kept word -> list of its synonyms."""
    value = read_json(path)
    rules: set[str] = set()
    entries: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else [(0, 0)]
    for key, entry in entries:
        if isinstance(entry, str):
            rules.add(f"{key}={entry}")
        elif isinstance(entry, list) and all(isinstance(word, str) for word in entry):
            rules |= {f"{word}={key}" for word in entry if word != key}
        else:
            raise BadFile(path, "is no table of synonyms", fix='write {"sofa": ["couch"], …}')
    return tuple(sorted(rules))


@dataclass(frozen=True, eq=False)
class SubsetNames:
    """The subsets of a file in its order, and notes on lines that were not taken."""

    subsets: Mapping[str, SubsetName]
    notes: tuple[str, ...] = ()


def read_subset_names(path: Path) -> SubsetNames:
    """Read a file of names; empty lines do not count, and a name that is there twice counts once.

    Lines that are no ``subject(context)`` are left out with a note; a file of nothing else is
    refused.
    """
    try:
        text = existing_file(path, "file of subset names").read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    found: dict[str, SubsetName] = {}
    repeated: list[int] = []
    foreign: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if not name:
            continue
        if name in found:
            repeated.append(number)
            continue
        try:
            found[name] = split_subset_name(name)
        except UserError:
            foreign.append(number)
    if not found:
        raise BadFile(path, "holds no names of subsets", fix="write subject(context), one a line")
    notes = []
    if repeated:
        notes.append(f"{path}: {len(repeated)} names are there twice (first in line {repeated[0]})")
    if foreign:
        notes.append(
            f"{path}: {len(foreign)} lines are no subject(context) and are left out "
            f"(first line {foreign[0]})"
        )
    return SubsetNames(found, tuple(notes))
