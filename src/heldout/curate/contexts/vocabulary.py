"""Words of a source: synonyms, plurals, what they are a kind of; files of subset names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file
from heldout.core.schema import read
from heldout.data.published.annotations import singular
from heldout.data.published.metashift import SubsetName, split_subset_name

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


def normalise_vocabulary(
    vocabulary: Collection[str],
    *,
    synonyms: Sequence[str] = (),
    plurals: bool = False,
    hierarchy: Sequence[str] = (),
    roll_up: bool = False,
) -> dict[str, tuple[str, ...]]:
    """What each word of the vocabulary counts as: synonyms first, then plurals, then the hierarchy.

    A word that is named as a synonym is never taken for a plural. What the hierarchy says of a word
    it says of its synonyms too.
    """
    named = read_synonyms(synonyms)
    parents = read_hierarchy(hierarchy, synonyms)
    known = set(vocabulary) | set(named.values())
    found: dict[str, tuple[str, ...]] = {}
    for word in sorted(vocabulary):
        meant = named.get(word) or (singular(word, known) if plurals else word)
        meant = named.get(meant, meant)  # a plural of what is itself a synonym
        above = (*ancestors(meant, parents), *ancestors(word, parents)) if roll_up else ()
        if (meant, *above) != (word,):
            found[word] = tuple(sorted({meant, *above}))
    return found


def _sides(rule: str, sign: str, example: str) -> tuple[str, str]:
    one, _, other = map(str.strip, rule.partition(sign))
    if not one or not other:
        raise UserError(f"{rule!r} is not a rule", fix=f"write {example}")
    return one, other


def read_synonyms(rules: Sequence[str]) -> dict[str, str]:
    """``couch=sofa`` rules as a table; chains are followed, and a ring is refused."""
    rules_read: dict[str, str] = {}
    for rule in rules:
        word, meant = _sides(rule, "=", "couch=sofa")
        if rules_read.get(word, meant) != meant:
            raise UserError(f"{word!r} is a synonym of two words", fix="keep one of them")
        rules_read[word] = meant
    found: dict[str, str] = {}
    for word, meant in rules_read.items():
        seen = [word]
        while meant in rules_read and meant not in seen:
            seen.append(meant)
            meant = rules_read[meant]
        if meant in seen:
            ring = " = ".join([*seen[seen.index(meant) :], meant])
            raise UserError(f"synonyms go round: {ring}", fix="remove one of them")
        found[word] = meant
    return found


def read_hierarchy(
    rules: Sequence[str], synonyms: Sequence[str] = ()
) -> dict[str, tuple[str, ...]]:
    """``cat<animal`` rules as word -> what it is a kind of; a cycle is refused with its words.

    Words that are synonyms of others stand for these in the rules too.
    """
    named = read_synonyms(synonyms)
    parents: dict[str, list[str]] = {}
    for rule in rules:
        word, parent = (named.get(side, side) for side in _sides(rule, "<", "cat<animal"))
        if word != parent and parent not in parents.setdefault(word, []):
            parents[word].append(parent)
    table = {word: tuple(sorted(above)) for word, above in parents.items() if above}
    try:
        TopologicalSorter(table).prepare()
    except CycleError as error:
        ring = " < ".join(reversed(error.args[1]))
        raise UserError(
            f"the hierarchy has a cycle: {ring}", fix="remove one of its links"
        ) from None
    return table


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


def groups(hierarchy: Sequence[str], synonyms: Sequence[str] = ()) -> dict[str, frozenset[str]]:
    """Groups that policies may name as ``@group``: every parent with all words below it."""
    parents = read_hierarchy(hierarchy, synonyms)
    found: dict[str, set[str]] = {BODY_PART: set(_BODY_PARTS)}
    for word in parents:
        for parent in ancestors(word, parents):
            found.setdefault(parent, {parent}).add(word)
    return {name: frozenset(words) for name, words in found.items()}


def rules_in(texts: Sequence[str], sign: str) -> tuple[str, ...]:
    """Rules, and those of the JSON files that are named among them: kept word or parent -> words.

    ``sign``  ``=`` for synonyms, ``<`` for what is a kind of what, as in ``class_hierarchy.json``
    """
    found: list[str] = []
    for text in texts:
        if text.endswith(".json") or Path(text).is_file():
            value = read(
                Path(text), dict[str, list[str]], fix='write {"animal": ["cat", "dog"], …}'
            )
            pairs = {(word, above) for above, words in value.items() for word in words}
            found += sorted(f"{word}{sign}{above}" for word, above in pairs if word != above)
        else:
            found.append(text)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class SubsetNames:
    """The subsets of a file in its order, and notes on lines that were not taken."""

    subsets: Mapping[str, SubsetName]
    notes: tuple[str, ...] = ()


def read_subset_names(path: Path) -> SubsetNames:
    """Read a file of names, one per line; lines that are not ``subject(context)`` are left out
    with a note, and a file of nothing else is refused.
    """
    try:
        text = existing_file(path, "file of subset names").read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    found: dict[str, SubsetName] = {}
    foreign: list[int] = []
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        try:
            if line:
                found[line] = split_subset_name(line)
        except UserError:
            foreign.append(number)
    if not found:
        raise BadFile(path, "holds no names of subsets", fix="write subject(context), one per line")
    notes = []
    if foreign:
        what = f"{len(foreign)} lines are not subject(context) and are left out"
        notes = [f"{path}: {what} (first in line {foreign[0]})"]
    return SubsetNames(found, tuple(notes))
