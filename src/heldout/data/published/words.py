"""Words of sentences: a plain tokeniser, phrases of a vocabulary, plurals as singulars.

A word is a run of letters, with hyphens and apostrophes between letters; case is folded and a
possessive ``'s`` dropped. Digits and punctuation part words. With a vocabulary only its words and
phrases count; at each place the longest phrase wins and its words are used up, so that a "hot dog"
is no dog.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator

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
