"""Words of sentences and names in annotations, made fit to be values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from typing import Any

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
    """Finds the words of sentences, by a vocabulary where there is one."""

    def __init__(
        self, vocabulary: Collection[str] | None = None, *, fold_plurals: bool = False
    ) -> None:
        self._fold = fold_plurals
        self._phrases: dict[str, str] | None = None
        if vocabulary is not None:
            self._phrases = {" ".join(tokens(phrase)): phrase for phrase in sorted(vocabulary)}
            self._phrases.pop("", None)
            lengths = [phrase.count(" ") + 1 for phrase in self._phrases]
            self._longest = max(lengths, default=1)

    def of(self, sentence: str) -> set[str]:
        """The words and phrases of a sentence, each once.

        >>> sorted(Words({"dog", "hot dog", "man"}).of("A man eats a hot dog"))
        ['hot dog', 'man']
        """
        found = tokens(sentence)
        if self._phrases is None:
            return set(found)
        made: set[str] = set()
        place = 0
        while place < len(found):
            for length in range(min(self._longest, len(found) - place), 0, -1):
                phrase = self._match(" ".join(found[place : place + length]))
                if phrase:
                    made.add(phrase)
                    place += length
                    break
            else:
                place += 1
        return made

    def _match(self, text: str) -> str:
        phrases = self._phrases or {}
        found = phrases.get(text, "")
        if not found and self._fold:
            found = phrases.get(singular(text, phrases), "")
        return found


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
            values = [values]
        if not isinstance(values, list):
            return []
        return [name for name in map(self.clean, values) if name]


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
