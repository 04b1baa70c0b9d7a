"""The card: what a test set is, where it came from, and how it was made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from heldout.core.errors import BadFile, UserError
from heldout.core.files import read_versioned_json, write_json
from heldout.core.workspace import check_slug
from heldout.data.testset.columns import ColumnType

SCHEMA_VERSION = 1
CHOSEN_FOR_MISTAKES = "chosen_for_mistakes"
"""In a truth's provenance: its images were chosen because models get them wrong."""


class _Columns(msgspec.Struct):
    """The columns of ``card.json``; their types are checked by :class:`ColumnType`."""

    columns: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Card:
    """Everything about a test set that is not a row of its tables.

    ``recipe``      {"name", "parameters", "seed"}: what made it; an import is a recipe too
    ``parents``     test sets or files that it was made from, each with a name and a hash
    ``counts``      how many images there were at every stage
    ``tables``      the hash of each table; ``content_hash`` is over these
    ``truths``      truth name -> where it came from; the first one is the default
    ``history``     earlier content hashes, each with what changed since: truths are only added
    ``images_root`` where ``path`` starts, relative to the folder once saved; null without images
    ``documents``   further files of the set, such as a published layout's lists, with their SHA-256
    ``images_namespace`` whose ids those of images without a SHA-256 are (a set's name); null for
                    ids that mean the same image everywhere, as those of published lists do

    For sets that vary something on purpose, and so can be read along it:

    ``factors``     what was varied: columns, or ``x&y`` for the axes of one grid; sliced by
                    default, and summed up as curves
    ``clusters``    the column whose images belong together, such as the object that they share:
                    intervals are clustered by it
    ``units``       columns that, with all other factors, name what is repeated at every value of
                    a factor, such as object and background; without them the clusters
    """

    name: str
    label_space: str
    aliases: tuple[str, ...] = ()
    recipe: dict[str, Any] = field(default_factory=dict)
    parents: tuple[dict[str, Any], ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    columns: dict[str, ColumnType] = field(default_factory=dict)
    truths: dict[str, dict[str, Any]] = field(default_factory=dict)
    licences: dict[str, int] = field(default_factory=dict)
    citation: str = ""
    notes: tuple[str, ...] = ()
    images_root: str | None = None
    documents: dict[str, str] = field(default_factory=dict)
    images_namespace: str | None = None
    factors: tuple[str, ...] = ()
    clusters: str | None = None
    units: tuple[str, ...] = ()
    tables: dict[str, str] = field(default_factory=dict)
    images_hash: str = ""
    content_hash: str = ""
    history: tuple[dict[str, str], ...] = ()

    @property
    def default_truth(self) -> str:
        """The truth that is used unless another is named."""
        return next(iter(self.truths), "original")

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that ``card.json`` holds."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "aliases": list(self.aliases),
            "label_space": self.label_space,
            "recipe": self.recipe,
            "parents": list(self.parents),
            "counts": self.counts,
            "columns": {name: kind.to_dict() for name, kind in self.columns.items()},
            "truths": self.truths,
            "licences": self.licences,
            "citation": self.citation,
            "notes": list(self.notes),
            "images_root": self.images_root,
            **({"documents": self.documents} if self.documents else {}),
            **({"images_namespace": self.images_namespace} if self.images_namespace else {}),
            **self._reading(),
            "tables": self.tables,
            "images_hash": self.images_hash,
            "content_hash": self.content_hash,
            "history": list(self.history),
        }

    def _reading(self) -> dict[str, Any]:
        """How to read the set, without what is not said: most sets vary nothing on purpose."""
        said = {
            "factors": list(self.factors),
            "clusters": self.clusters,
            "units": list(self.units),
        }
        return {key: value for key, value in said.items() if value}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Card:
        """The card that :meth:`to_dict` wrote; a field of the wrong type is a user's error."""
        try:
            columns = msgspec.convert(value, _Columns).columns
            card = msgspec.convert({**value, "columns": {}}, cls)
        except msgspec.ValidationError as error:
            raise UserError(str(error)) from None
        check_slug(card.name, "a test set")
        for name in card.truths:
            check_slug(name, "a truth")
        if card.images_root is not None and card.images_root.startswith(("/", "\\")):
            raise UserError("its images_root is not relative")
        return card.updated(
            columns={name: ColumnType.from_dict(kind) for name, kind in columns.items()}
        )

    @classmethod
    def read(cls, path: Path) -> Card:
        """Read ``card.json``."""
        value = read_versioned_json(path, version=SCHEMA_VERSION)
        try:
            return cls.from_dict(value)
        except (TypeError, UserError) as error:
            raise BadFile(
                path, f"is not a card ({error})", fix="import the test set again"
            ) from None

    def write(self, path: Path) -> None:
        """Write ``card.json``."""
        write_json(path, self.to_dict())

    def updated(self, **changes: Any) -> Card:
        """A copy with fields replaced."""
        return replace(self, **changes)
