"""What readers find in annotations: boxes, names, words; and the lists of words they go by."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.core.files import existing_file
from heldout.core.schema import read

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
    """An ontology of attributes, ``{category: [attribute, …]}`` as JSON; None without a file."""
    if path is None:
        return None
    found: dict[str, set[str]] = {}
    stated = read(path, dict[str, list[str]], fix='write {"color": ["red", …], …}')
    for category, listed in stated.items():
        for attribute in listed:
            found.setdefault(" ".join(attribute.split()), set()).add(category)
    if not found:
        raise BadFile(path, "names no attribute", fix='write {"color": ["red", …], …}')
    return {attribute: tuple(sorted(found[attribute])) for attribute in sorted(found)}


def text_lines(path: Path, what: str) -> list[str]:
    """The lines of a text file, trimmed."""
    try:
        lines = existing_file(path, what).read_text("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise BadFile(path, "is not text in UTF-8", fix="save it as UTF-8") from None
    return [line.strip() for line in lines]


def read_words(path: Path) -> frozenset[str]:
    """Words and phrases, one per line."""
    lines = text_lines(path, "list of words")
    found = frozenset(" ".join(line.lower().split()) for line in lines) - {""}
    if not found:
        raise BadFile(path, "holds no words", fix="write one per line")
    return found


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


@lru_cache(1 << 16)
def _clean(text: str) -> str:
    name = " ".join(text.split())
    # Half of a surrogate pair cannot be written.
    return name if name == name.encode("utf-8", "ignore").decode() else ""


def clean_name(value: Any) -> str:
    """The name, or "" for what is not a name: another type, nothing but space, broken text.

    >>> clean_name("  fire   hydrant ")
    'fire hydrant'
    """
    return _clean(value) if isinstance(value, str) else ""


def clean_names(values: Any) -> list[str]:
    """The names of a list, or the one name, without what is not a name."""
    listed = values if isinstance(values, list) else [values]
    return [name for name in map(clean_name, listed) if name]
