"""Which nouns of WordNet 3.0 a word can stand for, most usual first.

WordNet files each noun under its base form. A word as people write it ("bikes", "tennis players")
is led back to base forms by the rules of its manual page ``morphy(7WN)``: a list of exceptions
(geese, goose), and endings that are taken off or exchanged. As in NLTK's ``synsets``, every base
form that WordNet has counts, the word itself before those that are made from it.

The package carries the noun index and the exceptions, made by ``tools/derive_wordnet_index.py``.
A full WordNet 3.0 (``index.noun`` and ``noun.exc``) can be read instead.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heldout.core.errors import BadFile
from heldout.core.files import existing_file, existing_folder
from heldout.data.labels.builtin import DATA

SYNSETS = "wordnet-nouns.tsv.gz"
EXCEPTIONS = "wordnet-noun-exceptions.tsv.gz"
ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("ves", "f"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
"""Endings of nouns and what replaces them, in the order in which they are tried."""


@dataclass(frozen=True, eq=False)
class WordNetNouns:
    """The noun index: base forms with their senses.

    ``senses``      base form (lower case, underscores for spaces) to WordNet ids, most usual first
    ``exceptions``  irregular form to base forms
    """

    senses: Mapping[str, tuple[str, ...]]
    exceptions: Mapping[str, tuple[str, ...]]

    @classmethod
    def built_in(cls) -> WordNetNouns:
        """The index that comes with the package; read once, then shared."""
        return _built_in()

    @classmethod
    def read(cls, folder: Path) -> WordNetNouns:
        """The index of a full WordNet: the folder of ``index.noun`` and ``noun.exc``."""
        existing_folder(folder, "WordNet")
        return cls(
            read_index(existing_file(folder / "index.noun", "WordNet noun index")),
            read_exceptions(existing_file(folder / "noun.exc", "WordNet noun exceptions")),
        )

    def __len__(self) -> int:
        return len(self.senses)

    def base_forms(self, word: str) -> tuple[str, ...]:
        """The base forms of ``word`` that WordNet has, in the order in which their senses count.

        Endings are taken off once; only where nothing is found are they taken off again.
        """
        form = "_".join(word.lower().split())
        if form in self.exceptions:
            return self._known([form, *self.exceptions[form]])
        made = _without_endings([form])
        found = self._known([form, *made])
        while not found and made:
            made = _without_endings(made)
            found = self._known(made)
        return found

    def synsets(self, word: str) -> tuple[str, ...]:
        """WordNet ids of all senses of ``word`` as a noun; empty where it has none.

        A sense that two base forms share counts once, at its first place.
        """
        found = (sense for form in self.base_forms(word) for sense in self.senses[form])
        return tuple(dict.fromkeys(found))

    def _known(self, forms: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form for form in forms if form in self.senses))


def _without_endings(forms: Iterable[str]) -> list[str]:
    return [form[: -len(old)] + new for form in forms for old, new in ENDINGS if form.endswith(old)]


def read_index(path: Path) -> dict[str, tuple[str, ...]]:
    """``index.noun`` as wndb(5WN) describes it: a base form a line, its synset offsets last."""
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(_lines(path), 1):
        if line.startswith("  ") or not line.strip():
            continue  # the licence, at the head of the file
        fields = line.split()
        try:
            offsets = fields[-int(fields[2]) :]
            if fields[1] != "n" or not all(len(o) == 8 and o.isdigit() for o in offsets):
                raise ValueError
        except (IndexError, ValueError):
            raise BadFile(
                path, f"line {number} is no entry of a noun index", fix="give WordNet 3.0's own"
            ) from None
        found[fields[0]] = tuple(f"n{offset}" for offset in offsets)
    if not found:
        raise BadFile(path, "has no entries", fix="give WordNet 3.0's own")
    return found


def read_exceptions(path: Path) -> dict[str, tuple[str, ...]]:
    """``noun.exc``: an irregular form and its base forms a line."""
    found: dict[str, tuple[str, ...]] = {}
    for line in _lines(path):
        form, *bases = line.split() or [""]
        if bases:
            found[form] = (*found.get(form, ()), *bases)
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="give WordNet 3.0's own") from None


def senses_of_table(text: str) -> dict[str, tuple[str, ...]]:
    """The index of a packaged table: one synset a row, in order of offset.

    Two columns: the distance of the synset's offset to the row before, and its base forms joined
    by ``|``. A form with several senses is followed by ``#`` and the place of this one among them.
    """
    ranked: dict[str, list[tuple[int, str]]] = {}
    offset = 0
    for line in text.splitlines():
        step, _, forms = line.partition("\t")
        offset += int(step)
        wnid = f"n{offset:08d}"
        for entry in forms.split("|"):
            form, _, place = entry.partition("#")
            ranked.setdefault(form, []).append((int(place or 1), wnid))
    return {form: tuple(wnid for _, wnid in sorted(ranked[form])) for form in sorted(ranked)}


@cache
def _built_in() -> WordNetNouns:
    def text(name: str) -> str:
        return gzip.decompress((DATA / name).read_bytes()).decode("utf-8")

    exceptions = {}
    for line in text(EXCEPTIONS).splitlines():
        form, _, bases = line.partition("\t")
        exceptions[form] = tuple(bases.split())
    return WordNetNouns(senses_of_table(text(SYNSETS)), exceptions)
