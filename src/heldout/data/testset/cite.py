"""Citations: what to write in a paper that uses a test set, from its card and its parents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from heldout.core.workspace import Workspace
from heldout.data.testset.card import Card
from heldout.data.testset.catalogue import find_testset, list_testsets
from heldout.data.testset.lineage import lineage

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_ENTRY = re.compile(r"\s*@\w+\s*\{")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


@dataclass(frozen=True, kw_only=True)
class Citation:
    """How to cite one test set: a line of text, and a BibTeX entry.

    ``text`` is what the card says, else the set's name; both name the exact revision by its hash.
    """

    testset: str
    text: str
    bibtex: str

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Citations:
    """A test set's citation and those of the sets it was made from, nearest first.

    ``absent`` names sets that it was made from and that the workspace does not have.
    """

    testset: str
    entries: tuple[Citation, ...]
    absent: tuple[str, ...]

    @property
    def text(self) -> str:
        """All citations, one a line."""
        return "\n".join(entry.text for entry in self.entries) + "\n"

    @property
    def bibtex(self) -> str:
        """All BibTeX entries."""
        return "\n\n".join(entry.bibtex for entry in self.entries) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def cite(workspace: Workspace, name: str) -> Citations:
    """The citations of a test set of a workspace and of all the sets it was made from."""
    start = find_testset(workspace, name).card
    cards = {entry.card.name: entry.card for entry in list_testsets(workspace)}
    found = lineage(workspace, name)
    names = dict.fromkeys(a.name for a in found.ancestors if a.kind == "testset")
    by_alias = {alias: card for card in cards.values() for alias in card.aliases}
    parents: list[Card] = []
    absent: list[str] = []
    for parent in names:
        card = cards.get(parent) or by_alias.get(parent)
        if card is None:
            absent.append(parent)
        elif card.name != start.name and card not in parents:
            parents.append(card)
    return Citations(
        testset=start.name,
        entries=tuple(cite_card(card) for card in [start, *parents]),
        absent=tuple(absent),
    )


def cite_card(card: Card) -> Citation:
    """How to cite the test set of one card."""
    said = " ".join(card.citation.split())
    if _ENTRY.match(card.citation):
        said = _title(card.citation) or card.name
    revision = f"test set {card.name}"
    if card.content_hash:
        revision += f", content hash {card.content_hash[:12]}"
    text = f"{said.rstrip('.')} ({revision})." if said else f"{revision[0].upper()}{revision[1:]}."
    return Citation(testset=card.name, text=text, bibtex=bibtex(card))


def bibtex(card: Card) -> str:
    """A BibTeX entry: the card's own where its citation is one, else ``@misc`` made from it."""
    if _ENTRY.match(card.citation):
        return card.citation.strip()
    said = " ".join(card.citation.split())
    authors, colon, rest = said.partition(": ")
    fields: dict[str, str] = {}
    if colon and _are_names(authors.split(", ")):
        fields["author"] = " and ".join(escape(name.strip()) for name in authors.split(", "))
        said = rest
    fields["title"] = escape(said or card.name)
    years = _YEAR.findall(said)
    if years:
        fields["year"] = years[-1]
    note = f"Test set {card.name}"
    if card.content_hash:
        note += f", content hash {card.content_hash[:12]}"
    fields["note"] = escape(note)
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{card.name},", *lines, "}"])


def escape(text: str) -> str:
    r"""A text as BibTeX reads it back.

    >>> escape("50% of {x}")
    '50\\% of \\{x\\}'
    """
    return "".join(_ESCAPES.get(character, character) for character in text)


def _are_names(parts: Iterable[str]) -> bool:
    """Whether texts look like people's names: capitalised, few words, no digits."""
    return all(
        part
        and part[0].isupper()
        and len(part.split()) <= 4
        and not any(character.isdigit() for character in part)
        for part in map(str.strip, parts)
    )


def _title(entry: str) -> str:
    found = re.search(r"title\s*=\s*[{\"]+(.*?)[}\"]+\s*,?\s*$", entry, re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""
