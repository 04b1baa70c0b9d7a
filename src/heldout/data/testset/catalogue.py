"""Test sets of a workspace: found by name, alias, path or spec; their lineage and citations."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from heldout.core.errors import NotFound, UserError
from heldout.core.files import is_temporary
from heldout.core.plugins import load_object
from heldout.core.workspace import Workspace
from heldout.data.testset.card import CARD, POOL, Card
from heldout.data.testset.testset import TestSet, load

Opener = Callable[[Workspace, str], TestSet]
"""Makes the set of a workspace that the text after the scheme describes."""

SCHEMES: dict[str, str] = {"compose": "heldout.curate.compose.streamed_testset:open_testset"}
"""Scheme -> ``module:function``; the function is an :data:`Opener`."""


def opener_of(name: str) -> Opener | None:
    """The opener for a spec, or None where a name is not a spec.

    >>> opener_of("imagenetv2-b-33") is None
    True
    """
    scheme, colon, rest = name.partition(":")
    if not colon or not rest or scheme not in SCHEMES:
        return None
    return cast("Opener", load_object(SCHEMES[scheme]))


@dataclass(frozen=True)
class Entry:
    """One test set or pool of a workspace, its card read and its tables not."""

    folder: Path
    card: Card


def list_testsets(workspace: Workspace) -> list[Entry]:
    """All test sets of a workspace, by name."""
    return _entries(workspace.testsets, CARD)


def list_pools(workspace: Workspace) -> list[Entry]:
    """All pools of a workspace, by name."""
    return _entries(workspace.pools, POOL)


def _entries(root: Path, file: str) -> list[Entry]:
    return [
        Entry(folder, Card.read(folder / file))
        for folder in (sorted(root.iterdir()) if root.is_dir() else ())
        if not is_temporary(folder) and (folder / file).is_file()
    ]


def find_folder(workspace: Workspace, name: str, *, pools: bool = False) -> Path:
    """The folder that an argument means: a name, an alias, or a path to a test set's folder.

    A folder of that name is taken even if its card is missing or broken, so that ``verify`` can
    say what is wrong with it. With ``pools`` it may be a pool's, by its name or path.
    """
    places = [(workspace.testsets, CARD), (workspace.pools, POOL)]
    for root, file in places if pools else places[:1]:
        if folder := _folder(root, name, file):
            return folder
    entries = list_testsets(workspace)
    matches = [entry for entry in entries if name in entry.card.aliases]
    if len(matches) > 1:
        names = ", ".join(entry.card.name for entry in matches)
        raise UserError(f"{name!r} is an alias of {names}", fix="use one of these names")
    if matches:
        return matches[0].folder
    if Path(name).is_dir():
        raise NotFound(
            f"{name} is a folder, not a test set yet", fix=f"heldout import testset {name}"
        )
    if name.endswith((".json", ".jsonl", ".csv", ".parquet")):  # where a list may be named too
        raise NotFound(f"no file {name}", fix="correct the path, or name a test set")
    known = ", ".join(entry.card.name for entry in entries)
    raise NotFound(
        f"no test set {name!r} in {workspace.testsets}",
        fix=f"there is {known}" if known else "import one with heldout import testset",
    )


def _folder(root: Path, name: str, file: str) -> Path | None:
    """A folder of a workspace by its name, or any folder with a card by its path."""
    for folder in (root / name, Path(name)):
        if folder.is_dir() and (folder.parent == root or (folder / file).is_file()):
            return folder
    return None


def find_testset(workspace: Workspace, name: str) -> TestSet:
    """The test set that an argument means, or the pool where no test set has the name.

    A name, an alias, a path to a test set's folder, or a spec such as ``compose:FILE.toml``, whose
    set is made in memory. A pool is found by its name too, after the test sets: models are run and
    scored on candidates before any are drawn.
    """
    opener = opener_of(name)
    if opener is not None:
        return opener(workspace, name.partition(":")[2])
    return load(find_folder(workspace, name, pools=True))


def load_testset(
    name: str, *, workspace: Workspace | str | os.PathLike[str] | None = None
) -> TestSet:
    """The test set of this name, alias, path or spec; the current folder is the workspace by default."""
    return find_testset(Workspace.find(workspace), name)


def find_pool(workspace: Workspace, name: str) -> TestSet:
    """The pool that an argument means: a name in the workspace, or a path to its folder."""
    if folder := _folder(workspace.pools, name, POOL):
        return load(folder)
    known = ", ".join(entry.card.name for entry in list_pools(workspace))
    raise NotFound(
        f"no pool {name!r} in {workspace.pools}",
        fix=f"there is {known}" if known else "make one with heldout collect",
    )


@dataclass(frozen=True, kw_only=True)
class Ancestor:
    """Something a test set was made from.

    ``child``     the test set that names it; ``depth`` counts steps from the one asked about
    ``relation``  what it is to its child, where the card says so, else an empty text
    ``hash``      as the child's card has it, else an empty text
    ``state``     ``present`` in the workspace, ``changed`` (present with another hash), ``absent``,
                  or ``file`` for files, which a workspace does not keep
    """

    name: str
    child: str
    depth: int
    relation: str
    hash: str
    state: Literal["present", "changed", "absent", "file"]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A test set and what it was made from, nearest first."""

    name: str
    ancestors: tuple[Ancestor, ...]


def lineage(workspace: Workspace, name: str) -> Lineage:
    """Follow the parents of a test set through the cards of a workspace; tables are not read."""
    return _lineage(workspace, name)[0]


def _lineage(workspace: Workspace, name: str) -> tuple[Lineage, dict[str, Card]]:
    """The lineage of a test set, and the cards that it was followed through, nearest first."""
    cards = {entry.card.name: entry.card for entry in list_testsets(workspace)}
    aliases = Counter(alias for card in cards.values() for alias in card.aliases)
    for card in list(cards.values()):
        for alias in card.aliases:
            if aliases[alias] == 1:
                cards.setdefault(alias, card)  # a set of that name goes first
    if name not in cards:
        found = find_testset(workspace, name).card
        cards[name] = cards[found.name] = found
    start = cards[name]
    seen = {start.name: start}
    ancestors: list[Ancestor] = []
    queue = [(start, 1)]
    for child, depth in queue:  # it grows on the way
        for parent in child.parents:
            known = cards.get(str(parent.get("name", "")))
            ancestors.append(_ancestor(parent, child.name, depth, known))
            if known is not None and known.name not in seen:
                seen[known.name] = known
                queue.append((known, depth + 1))
    return Lineage(name=start.name, ancestors=tuple(ancestors)), seen


def _ancestor(parent: Mapping[str, Any], child: str, depth: int, card: Card | None) -> Ancestor:
    """A parent as its child's card has it, beside its own card, if the workspace has it."""
    recorded = str(parent.get("content_hash") or parent.get("hash") or parent.get("sha256") or "")
    state: Literal["present", "changed", "absent", "file"] = "absent"
    if "name" not in parent:
        state = "file"
    elif card is not None:
        known = {card.content_hash, card.images_hash, ""}
        known |= {str(step.get("content_hash", "")) for step in card.history}
        state = "present" if recorded in known else "changed"
    return Ancestor(
        name=str(parent.get("name") or parent.get("file") or parent.get("folder") or ""),
        child=child,
        depth=depth,
        relation=str(parent.get("relation", "")),
        hash=recorded,
        state=state,
    )


_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "{}&%$#_"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
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


@dataclass(frozen=True, kw_only=True)
class Citations:
    """A test set's citation and those of the sets it was made from, nearest first.

    ``absent`` names sets that it was made from and that the workspace does not have.
    """

    record: ClassVar[str] = "citations"
    testset: str
    entries: tuple[Citation, ...]
    absent: tuple[str, ...]

    @property
    def text(self) -> str:
        """All citations, one per line."""
        return "\n".join(entry.text for entry in self.entries) + "\n"

    @property
    def bibtex(self) -> str:
        """All BibTeX entries."""
        return "\n\n".join(entry.bibtex for entry in self.entries) + "\n"


def cite(workspace: Workspace, name: str) -> Citations:
    """The citations of a test set of a workspace and of all the sets it was made from."""
    found, cards = _lineage(workspace, name)
    absent = dict.fromkeys(a.name for a in found.ancestors if a.state == "absent")
    return Citations(
        testset=found.name,
        entries=tuple(map(cite_card, cards.values())),
        absent=tuple(absent),
    )


def cite_card(card: Card) -> Citation:
    """How to cite the test set of one card."""
    said = " ".join(card.citation.split())
    if _ENTRY.match(card.citation):
        said = _title(card.citation) or card.name
    revision = _revision(card)
    text = f"{said.rstrip('.')} (t{revision[1:]})." if said else f"{revision}."
    return Citation(testset=card.name, text=text, bibtex=bibtex(card))


def _revision(card: Card) -> str:
    known = f", content hash {card.content_hash[:12]}" if card.content_hash else ""
    return f"Test set {card.name}{known}"


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
    fields["note"] = escape(_revision(card))
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{card.name},", *lines, "}"])


def escape(text: str) -> str:
    r"""A text as BibTeX reads it back.

    >>> escape("50% of {x}")
    '50\\% of \\{x\\}'
    """
    return text.translate(_ESCAPES)


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
