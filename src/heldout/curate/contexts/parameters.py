"""What can be asked of the recipe ``contexts``; the card records all of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from heldout.core.errors import UserError

Kind = Literal["object", "stated", "general"]
KINDS: tuple[Kind, ...] = ("object", "stated", "general")
Measure = Literal["overlap", "jaccard"]
MEASURES: tuple[Measure, ...] = ("overlap", "jaccard")
Method = Literal["greedy", "louvain"]
METHODS: tuple[Method, ...] = ("greedy", "louvain")


def _help(text: str) -> Any:
    return {"help": text}


@dataclass(frozen=True, kw_only=True)
class ContextsParameters:
    """Which subsets are made, and which of them and of their images are kept.

    Lists of words take globs (``*``) and groups (``@clothing``: the words under ``clothing`` in
    the hierarchy, or the built-in ``@body part``). Patterns of subsets are written like subsets,
    ``*(@clothing)``; a bare word is a pattern of subjects.
    """

    kinds: tuple[Kind, ...] = field(
        default=KINDS,
        metadata=_help(
            "where contexts come from: object (two names in one image, both ways round), stated "
            "(memberships that are written subject(context)), general (places, weather)"
        ),
    )
    objects: tuple[str, ...] = field(
        default=("object", "caption_word", "tag"),
        metadata=_help("memberships whose values are names of what an image shows"),
    )
    stated: tuple[str, ...] = field(
        default=("attribute", "subset"),
        metadata=_help("memberships whose values are written subject(context)"),
    )
    general: tuple[str, ...] = field(
        default=("general",),
        metadata=_help("memberships or columns that say where or when an image was taken"),
    )
    both_ways: bool = field(
        default=False, metadata=_help("general and stated contexts are subjects too: beach(dog)")
    )
    minimum: int = field(default=25, metadata=_help("images that a subset must have"))
    more_than: int = field(
        default=5, metadata=_help("a class must have more than this many subsets of enough images")
    )
    subjects: tuple[str, ...] = field(
        default=(), metadata=_help("only these subjects; all by default")
    )
    contexts: tuple[str, ...] = field(
        default=(), metadata=_help("only these contexts; all by default")
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=_help("no subsets that match: cat(dog), *(@body part), street(*)")
    )
    only: tuple[str, ...] = field(
        default=(),
        metadata=_help("these contexts only with these subjects: @person(@clothing)"),
    )
    ambiguity: Literal["keep", "drop", "pairs"] = field(
        default="keep",
        metadata=_help(
            "images of two classes: keep them; drop them everywhere; or, for the pairs named, "
            "leave them out of both classes"
        ),
    )
    pairs: tuple[str, ...] = field(
        default=(), metadata=_help("pairs of classes that exclude each other: cat+dog")
    )
    synonyms: tuple[str, ...] = field(
        default=(), metadata=_help("words that count as another: couch=sofa")
    )
    plurals: bool = field(
        default=False, metadata=_help("a plural counts as its singular where both are there")
    )
    hierarchy: tuple[str, ...] = field(
        default=(), metadata=_help("what is a kind of what: cat<animal")
    )
    roll_up: Literal["none", "add", "replace"] = field(
        default="none",
        metadata=_help("words also count as all that they are a kind of (add), or as that only"),
    )
    classes: str | None = field(
        default=None, metadata=_help("label space that the subjects are classes of, by name or id")
    )
    keep: tuple[str, ...] = field(
        default=("general",), metadata=_help("memberships of the pool that the set keeps")
    )
    threshold: float = field(
        default=0.2, metadata=_help("overlaps below it are not edges of a graph")
    )
    measure: Literal["overlap", "jaccard"] = field(
        default="overlap", metadata=_help("weight of edges")
    )
    communities: Literal["greedy", "louvain"] = field(
        default="greedy", metadata=_help("how communities are found")
    )

    def __post_init__(self) -> None:
        if self.minimum < 1:
            raise UserError(f"a minimum of {self.minimum} images", fix="give 1 or more")
        if self.more_than < 0:
            raise UserError(f"more than {self.more_than} subsets", fix="give 0 or more")
        if not 0.0 <= self.threshold <= 1.0:
            raise UserError(f"an edge threshold of {self.threshold}", fix="give 0 to 1")
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise UserError(
                f"kinds {', '.join(self.kinds) or 'are none'}", fix=f"use {', '.join(KINDS)}"
            )
        if (self.ambiguity == "pairs") != bool(self.pairs):
            raise UserError(
                f"ambiguity is {self.ambiguity} and {len(self.pairs)} pairs are named",
                fix="name pairs such as cat+dog with ambiguity pairs, and only then",
            )
        if self.roll_up != "none" and not self.hierarchy:
            raise UserError("words cannot be rolled up", fix="give a hierarchy")
