"""What readers find in annotations: boxes, names, words; and the lists of words they go by."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from heldout.core.errors import BadFile
from heldout.core.files import existing_file, read_json
from heldout.core.tables import read_table_file, require_column

FARTHEST = 1e15
"""No pixel is farther than that from the corner of its image."""


def box_share(box: Any, width: int | None, height: int | None) -> float:
    """The share of the image inside the box (left, top, width, height), 0 to 1.

    What lies outside the image does not count. NaN where it is not known: no size of the
    image, no four numbers, one that is not finite, a side that is negative.

    >>> box_share((-10, 0, 20, 50), 100, 100)
    0.05
    """
    if width is None or height is None or not isinstance(box, list | tuple) or len(box) != 4:
        return math.nan
    for number in box:
        if isinstance(number, bool) or not isinstance(number, int | float):
            return math.nan
        if not -FARTHEST <= number <= FARTHEST:  # nor is NaN
            return math.nan
    left, top, across, down = box
    if across < 0 or down < 0:
        return math.nan
    inside_x = min(left + across, width) - max(left, 0)
    inside_y = min(top + down, height) - max(top, 0)
    return float(max(inside_x, 0) * max(inside_y, 0) / (width * height))


def box_problem(box: Any, size: tuple[int | None, int | None], least: float) -> str:
    """What is wrong with an object that must cover this share of its image; "" for nothing."""
    share = box_share(box, *size)
    if share >= least:
        return ""
    why = "below the least box area" if share < least else "without a usable box"
    return f"object {why}, left out"


Ontology = Mapping[str, tuple[str, ...]]
"""Attribute → the categories that it belongs to."""


def read_ontology(path: Path | None) -> Ontology | None:
    """An ontology of attributes from JSON, either way round, or CSV; None without a file.

    JSON: ``{"color": ["red", "black"]}`` or ``{"red": "color", "black": "color"}``; the values
    of one file are all lists or all texts. CSV: columns ``attribute`` and ``category``.
    """
    if path is None:
        return None
    found: dict[str, list[str]] = {}
    for attribute, category in _pairs(path):
        listed = found.setdefault(" ".join(attribute.split()), [])
        if category not in listed:
            listed.append(category)
    if not found:
        raise BadFile(path, "names no attribute", fix='write {"color": ["red", …], …}')
    return {attribute: tuple(sorted(listed)) for attribute, listed in sorted(found.items())}


def _pairs(path: Path) -> list[tuple[str, str]]:
    if path.suffix.lower() in (".csv", ".tsv"):
        table = read_table_file(path)
        columns = [
            require_column(table, name, path, "it").to_pylist()
            for name in ("attribute", "category")
        ]
        return [pair for pair in zip(*columns, strict=True) if all(pair)]
    try:
        stated = msgspec.convert(read_json(path), dict[str, str | list[str]])
    except msgspec.ValidationError:
        stated = {}
    categories = [
        (word, category) for word, category in stated.items() if isinstance(category, str)
    ]
    words = [(word, category) for category, listed in stated.items() for word in listed]
    if len(categories) not in (0, len(stated)) or not stated:
        raise BadFile(
            path,
            "is not an ontology of attributes",
            fix='write {"color": ["red", …], …} or {"red": "color", …}',
        )
    return categories or words


def read_words(path: Path) -> frozenset[str]:
    """Words and phrases, one per line, or a JSON list or object of them (its keys and lists)."""
    if path.suffix.lower() == ".json":
        words = _texts(read_json(path))
    else:
        try:
            words = existing_file(path, "list of words").read_text("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise BadFile(path, "is not text in UTF-8", fix="save it as UTF-8") from None
    found = frozenset(" ".join(word.lower().split()) for word in words) - {""}
    if not found:
        raise BadFile(path, "holds no words", fix="write one per line")
    return found


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for entry in value for text in _texts(entry)]
    if isinstance(value, dict):
        return [*value, *(text for entry in value.values() for text in _texts(entry))]
    return []


_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"['\u2019]s\Z")
_IRREGULAR = {
    "children": "child",
    "feet": "foot",
    "geese": "goose",
    "mice": "mouse",
    "people": "person",
    "teeth": "tooth",
}
_ENDINGS = (("men", "man"), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("s", ""), ("es", ""))
_NO_PLURALS = frozenset({"glasses", "goggles", "jeans", "pants", "shorts", "tights"})


def tokens(sentence: str) -> list[str]:
    """The words of a sentence.

    >>> tokens("The dog's T-shirt, on 2 hot dogs!")
    ['the', 'dog', 't-shirt', 'on', 'hot', 'dogs']
    """
    text = unicodedata.normalize("NFC", sentence).lower()
    return [_POSSESSIVE.sub("", word) for word in _WORD.findall(text)]


def singulars(word: str) -> Iterator[str]:
    """What ``word`` may be the plural of, likeliest first. For phrases the last word counts.

    >>> list(singulars("steak knives"))
    ['steak knif', 'steak knife', 'steak knive', 'steak kniv']
    """
    head, space, last = word.rpartition(" ")
    if last in _NO_PLURALS or last.endswith(("ss", "us", "is")):
        return
    if last in _IRREGULAR:
        yield f"{head}{space}{_IRREGULAR[last]}"
    for ending, single in _ENDINGS:
        stem = last.removesuffix(ending)
        if stem != last and len(stem + single) > 1:
            yield f"{head}{space}{stem}{single}"


def singular(word: str, known: Collection[str]) -> str:
    """The singular of ``word`` where that is a known word, else ``word``.

    >>> singular("dogs", {"dog"}), singular("glasses", {"dog"})
    ('dog', 'glasses')
    """
    return next((single for single in singulars(word) if single in known), word)


class Words:
    """Finds the words of sentences, by a vocabulary of words and phrases where there is one.

    A plural counts as its singular where only that is listed.
    """

    def __init__(self, vocabulary: Collection[str] | None = None) -> None:
        self._phrases: dict[str, str] | None = None
        if vocabulary is not None:
            self._phrases = {" ".join(tokens(phrase)): phrase for phrase in sorted(vocabulary)}
            self._phrases.pop("", None)
            self._longest = max((phrase.count(" ") + 1 for phrase in self._phrases), default=1)

    def of(self, sentence: str) -> set[str]:
        """The words and phrases of a sentence, each once; of a vocabulary, the longest phrases."""
        found = tokens(sentence)
        if self._phrases is None:
            return set(found)
        made: set[str] = set()
        place = 0
        while place < len(found):
            for length in range(min(self._longest, len(found) - place), 0, -1):
                text = " ".join(found[place : place + length])
                phrase = text if text in self._phrases else singular(text, self._phrases)
                if phrase in self._phrases:
                    made.add(self._phrases[phrase])
                    break
            place += length
        return made


class Names:
    """Cleans names, and remembers those that it has seen: there are few, and they come often."""

    def __init__(self, *, lower: bool = False) -> None:
        self._lower = lower
        self._known: dict[str, str] = {}

    def clean(self, value: Any) -> str:
        """The name, or "" for what is not a name: another type, nothing but space, broken text.

        >>> Names().clean("  fire   hydrant ")
        'fire hydrant'
        """
        if not isinstance(value, str):
            return ""
        known = self._known.get(value)
        if known is None:
            known = " ".join(value.split())
            if self._lower:
                known = known.lower()
            if not known.isprintable() and not _encodes(known):
                known = ""
            self._known[value] = known
        return known

    def clean_all(self, values: Any) -> list[str]:
        """The names of a list, or the one name, without what is not a name."""
        if isinstance(values, str):
            name = self.clean(values)
            return [name] if name else []
        if not isinstance(values, list):
            return []
        return [name for name in map(self.clean, values) if name]


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
