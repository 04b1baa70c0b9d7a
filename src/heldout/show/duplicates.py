"""The page of ``dedupe``: pairs side by side, what holds of them, and what leaks are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heldout import __version__
from heldout.core.context import Context, Result
from heldout.core.files import write_text
from heldout.core.records import grids
from heldout.curate.dedupe.requests import DedupeRequest
from heldout.curate.dedupe.verbs import Duplicates, tables_beside
from heldout.data.judgements.pairs import Decision, Pair
from heldout.data.testset import TestSet
from heldout.show.embed import render
from heldout.show.thumbnails import thumbnails
from heldout.show.wording import count

MOST = 60
"""Pairs of one kind, and classes, that the page shows."""
_SIDE = 160
_SECTIONS: Mapping[Decision, tuple[str, str]] = {
    "duplicate": ("Duplicates", "Pairs that people or a threshold call duplicates, or that are one file."),
    "unresolved": ("Open pairs", "Pairs near enough to be looked at, about which nobody has decided."),
    "different": ("Different", "Pairs that were found, and that somebody said to be different pictures."),
}  # fmt: skip


@dataclass(frozen=True)
class PairCard:
    """A pair on the page: both images as data URIs, how far apart they are, and what holds."""

    pair: Pair
    images: tuple[str, str]
    distances: str
    said: str


@dataclass(frozen=True)
class ClassRow:
    """How many images of a class there are, and how many of them leaked or are in doubt."""

    name: str
    images: int
    leaked: int
    in_doubt: int


def class_rows(found: Duplicates) -> list[ClassRow]:
    """Classes with images that a reference holds too, or may hold; most of them first."""
    testset = found.testset
    labels = testset.class_of_images()
    names = {label.id: label.name for label in testset.space.classes} if testset.space else {}
    leaked = frozenset().union(*found.leaked.values())
    doubted = frozenset().union(*(each for name, each in found.in_doubt.items() if name)) - leaked
    of_class = Counter(labels.values())
    bad, open_ = (Counter(labels.get(image) for image in images) for images in (leaked, doubted))
    rows = [
        ClassRow(names.get(label, label), of_class[label], bad[label], open_[label])
        for label in {*bad, *open_}
        if label is not None
    ]
    return sorted(rows, key=lambda row: (-row.leaked, -row.in_doubt, row.name))


def cards(found: Duplicates, pairs: Sequence[Pair]) -> list[PairCard]:
    """The pairs as the page shows them; an image whose file is not there is an empty box."""
    sets: dict[str, TestSet] = {"": found.testset, **found.references}
    wanted: dict[str, list[str]] = {"": [pair.image_id for pair in pairs]}
    for pair in pairs:
        wanted.setdefault(pair.reference, []).append(pair.other_id)
    small = {
        name: thumbnails(sets[name], ids, side=_SIDE, images=None if name else found.images)
        for name, ids in wanted.items()
        if name in sets
    }
    return [
        PairCard(
            pair,
            (
                small[""].get(pair.image_id, ""),
                small.get(pair.reference, {}).get(pair.other_id, ""),
            ),
            pair.distance_text,
            pair.said,
        )
        for pair in pairs
    ]


def render_duplicates(found: Duplicates, tables: Sequence[Path]) -> str:
    """The page's HTML: one file that needs nothing but itself, and no script at all."""
    galleries = []
    for decision, (title, text) in _SECTIONS.items():
        pairs = [pair for pair in found.pairs if pair.decision == decision]
        if pairs:
            galleries.append((decision, title, text, len(pairs), cards(found, pairs[:MOST])))
    open_pairs = sum(pair.decision == "unresolved" for pair in found.pairs)
    classes = class_rows(found)
    return render(
        "duplicates.html.j2",
        "report.css",
        title=f"Near duplicates of {found.testset.name}",
        found=found,
        tiles=[
            ("images", count(len(found.testset))),
            ("are in a reference too", count(len(frozenset().union(*found.leaked.values())))),
            ("stay, without their duplicates", count(len(found.kept))),
            ("open pairs", count(open_pairs)),
            *([("could not be read", count(len(found.failures)))] if found.failures else []),
        ],
        grids=grids(found.records),
        classes=classes[:MOST],
        more_classes=max(0, len(classes) - MOST),
        most=max((row.leaked + row.in_doubt for row in classes), default=1) or 1,
        galleries=galleries,
        tables=[path.name for path in tables],
        open_pairs=open_pairs,
        version=__version__,
    )


def draw(request: DedupeRequest, result: Result, context: Context) -> None:
    """Write the page of ``dedupe``."""
    if result.drawn is None:
        return
    write_text(result.drawn, render_duplicates(result.value, tables_beside(result.drawn)))
    context.say(f"wrote {result.drawn}")
