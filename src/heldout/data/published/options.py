"""Options of the readers, and the words and names they find in annotations."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, read_json
from heldout.core.tables import read_table_file, require_column

if TYPE_CHECKING:
    from heldout.data.published.countries import Countries
    from heldout.data.published.tag_tables import Keywords


FARTHEST = 1e15
"""No pixel is farther than that from the corner of its image."""


def box_share(box: tuple[Any, Any, Any, Any], width: int | None, height: int | None) -> float:
    """The share of the image inside the box (left, top, width, height), 0 to 1.

    What lies outside the image does not count. NaN where it is not known: no size of the
    image, a number missing or not finite, a side that is negative.

    >>> box_share((-10, 0, 20, 50), 100, 100)
    0.05
    """
    if width is None or height is None:
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


def check_share(value: float) -> float:
    """A minimum share of the image, if it is one."""
    if not 0 <= value <= 1:
        raise UserError(
            f"a minimum box area of {value:g} is not a share of the image",
            fix="use 0 to 1, as 0.01",
        )
    return value


Ontology = Mapping[str, tuple[str, ...]]
"""Attribute → the categories that it belongs to."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions:
    """Options of all readers; one that a reader does not know is refused, not ignored.

    ``min_box_area``  least share of the image that an object's box covers, 0 to 1
    ``min_score``     detections: least score that counts, 0 to 1
    ``ontology``      attributes to keep, each with its categories; all without one
    ``places``        object names that are places, and so general contexts too
    ``relations``     also gather ``relation``, values ``subject(predicate object)``
    ``vocabulary``    captions: only these words and phrases
    ``fold_plurals``  captions: a plural counts as its singular where that is a known word
    ``contexts``      MetaShift: contexts are ``attribute`` or ``object`` names; ``auto`` tells
    ``id_column``     tables: the column with image ids
    ``tags``          tables: columns with tags, ``COLUMN`` or ``COLUMN=MEMBERSHIP``
    ``flags``         tables: columns of true and false, whose names are tags of column ``tag``
    ``words``         tables: columns of sentences, whose words become ``caption_word``
    ``separator``     tables: what stands between the tags of one cell
    ``keywords``      YFCC100M: only photos with a tag that is a keyword, and their classes
    ``countries``     YFCC100M, GeoYFCC: the table of countries and continents
    ``coordinates``   YFCC100M: coordinates tell the country where places do not (``fallback``), or
                      are compared with places too (``check``), or are not looked at (``off``)
    ``quarantine``    YFCC100M: file for the rows that are malformed
    ``pickle``        GeoYFCC: read a published pickle, through the restricted reader
    ``images``        the folder where the image files are, in their published layout
    """

    min_box_area: float = 0.0
    min_score: float = 0.0
    ontology: Ontology | None = None
    places: frozenset[str] = frozenset()
    relations: bool = False
    vocabulary: frozenset[str] | None = None
    fold_plurals: bool = False
    contexts: Literal["auto", "attribute", "object"] = "auto"
    id_column: str = "image_id"
    tags: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    separator: str | None = None
    keywords: Keywords | None = None
    countries: Countries | None = None
    coordinates: Literal["fallback", "check", "off"] = "fallback"
    quarantine: Path | None = None
    pickle: bool = False
    images: Path | None = None

    def __post_init__(self) -> None:
        check_share(self.min_box_area)
        if not 0 <= self.min_score <= 1:
            raise UserError(
                f"a minimum score of {self.min_score:g} is not a score", fix="use 0 to 1"
            )
        for value, what, allowed in (
            (self.contexts, "kind of contexts", ("auto", "attribute", "object")),
            (self.coordinates, "use of coordinates", ("fallback", "check", "off")),
        ):
            if value not in allowed:
                raise UserError(f"{value!r} is not a {what}", fix=f"use {', '.join(allowed)}")

    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if getattr(self, entry.name) != entry.default
        }

    def to_dict(self) -> dict[str, Any]:
        """The options that were given, as JSON; long lists as their length."""
        made: dict[str, Any] = {}
        for name, value in self.given().items():
            if name == "ontology":
                made[name] = {"attributes": len(value)}
            elif name in ("keywords", "countries"):
                made[name] = dict(value.facts)
            elif isinstance(value, Path):
                made[name] = value.name  # a pool does not say where a folder lies
            elif isinstance(value, frozenset):
                made[name] = {"words": len(value)}
            else:
                made[name] = list(value) if isinstance(value, tuple) else value
        return made


def read_ontology(path: Path) -> Ontology:
    """An ontology of attributes from JSON, either way round, or CSV.

    JSON: ``{"color": ["red", "black"]}`` or ``{"red": "color", "black": "color"}``; the values
    of one file are all lists or all texts. CSV: columns ``attribute`` and ``category``.
    """
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


def check_known(source: str, options: ReaderOptions, known: Sequence[str]) -> None:
    """Refuse an option that the reader of ``source`` does not know."""
    foreign = sorted(set(options.given()) - set(known))
    if foreign:
        flags = [f"--{name.replace('_', '-')}" for name in (foreign[0], *known)]
        raise UserError(
            f"{flags[0]} has no meaning for {source}",
            fix=f"leave it out; {source} knows {', '.join(flags[1:])}",
        )


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
