"""The card: what a test set or a pool is, where it came from, and how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import field

from heldout.core.errors import BadFile, UserError
from heldout.core.files import checksum, mapped, sealed, unsealed, write_json
from heldout.core.schema import Document, convert, read_plain
from heldout.core.workspace import check_slug
from heldout.data.testset.columns import ColumnType

CARD, POOL, LABEL_SPACE = "card.json", "pool.json", "label_space.json"
CHOSEN_FOR_MISTAKES = "chosen_for_mistakes"
"""In a truth's provenance: its images were chosen because models get them wrong."""
DECLARED = "columns"
"""The name, among the hashes of tables, of that of what is declared of columns."""
_UNLESS_EMPTY = ("documents", "images_namespace", "factors", "clusters", "units", "facts")


class Card(Document, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Everything about a test set that is not a row of its tables.

    ``recipe``      {"name", "parameters", "seed"}: what made it; an import is a recipe too
    ``parents``     test sets or files that it was made from, each with a name and a hash
    ``counts``      how many images there were at every stage
    ``tables``      the hash of each table, and ``columns``, that of types, factors, clusters and
                    units where the values do not tell them; ``content_hash`` is over these. Sets
                    written before the last was added have the hashes of their tables alone
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

    A pool (``stage``) holds candidates of which none is chosen yet: it may have neither truth nor
    label space (an empty name). Its card is the file ``pool.json``, its counts are those of the
    rows of each table, and ``facts`` say where it came from: source, files, options, what was
    left out.
    """

    schema_version: int = 1
    name: str
    aliases: tuple[str, ...] = ()
    label_space: str
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
    stage: Literal["testset", "pool"] = "testset"
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The file that holds the card in the folder of its set."""
        return POOL if self.stage == "pool" else CARD

    @property
    def kind(self) -> str:
        """What it describes, in words."""
        return "pool" if self.stage == "pool" else "test set"

    @property
    def default_truth(self) -> str:
        """The truth that is used unless another is named."""
        return next(iter(self.truths), "original")

    def to_dict(self) -> dict[str, Any]:
        """As the JSON object that ``card.json`` holds, without what most sets do not say."""
        fields = msgspec.to_builtins(self)
        del fields["stage"]  # the file's name says it
        return {k: v for k, v in fields.items() if v or k not in _UNLESS_EMPTY}

    @classmethod
    def read(cls, path: Path) -> Card:
        """Read ``card.json`` or ``pool.json``; a field of the wrong type names the file."""
        fix = "import the test set again"
        value = read_plain(path)
        if isinstance(value, dict):
            value = unsealed(value, path, fix="restore it, or make the set again with --replace")
            value.pop("files", None)
        try:
            if path.name == POOL:
                fix = "collect the pool again"
                card = convert(value, _PoolHead, where=path, fix=fix).card()
            else:
                card = convert(value, cls, where=path, fix=fix)
            check_slug(card.name, f"a {card.kind}")
            for name in card.truths:
                check_slug(name, "a truth")
        except BadFile:
            raise
        except UserError as error:  # of a column type, or of a name
            raise BadFile(path, f"is not a card ({error})", fix=fix) from None
        if (card.images_root or "").startswith(("/", "\\")):
            raise BadFile(path, "its images_root is not relative", fix=fix)
        return card

    @classmethod
    def of(cls, folder: Path) -> Card:
        """The card of a set's or a pool's folder."""
        return cls.read(card_file(folder))

    def write(self, folder: Path) -> None:
        """Write ``card.json``, or ``pool.json`` for a pool, with the checksums of the set's files."""
        pool = self.stage == "pool"
        plain = msgspec.to_builtins(_PoolHead.of(self)) if pool else self.to_dict()
        plain["files"] = {
            name: checksum(mapped(folder / name))
            for name in (*(f"{table}.parquet" for table in self.table_names), LABEL_SPACE)
            if (folder / name).is_file()
        }
        write_json(folder / self.file, sealed(plain))

    @property
    def table_names(self) -> tuple[str, ...]:
        """The tables in the set's folder."""
        members = ("memberships",) if self.stage == "pool" or "memberships" in self.tables else ()
        return ("images", *(f"truth/{name}" for name in self.truths), *members)

    def updated(self, **changes: Any) -> Card:
        """A copy with fields replaced."""
        return msgspec.structs.replace(self, **changes)


class _PoolHead(Document, frozen=True, kw_only=True):
    """``pool.json``: those fields of a card that a pool has."""

    schema_version: int = 1
    name: str
    content_hash: str
    tables: dict[str, str]
    rows: dict[str, int]
    truths: tuple[str, ...]
    label_space: str | None
    columns: dict[str, ColumnType]
    images_root: str | None
    citation: str
    facts: dict[str, Any]

    @classmethod
    def of(cls, card: Card) -> _PoolHead:
        same = {name: getattr(card, name) for name in cls.__struct_fields__ if name != "rows"}
        same |= {"truths": tuple(card.truths), "label_space": card.label_space or None}
        return cls(**same, rows=card.counts)

    def card(self) -> Card:
        same = {name: getattr(self, name) for name in self.__struct_fields__ if name != "rows"}
        same |= {"truths": {name: {} for name in self.truths}}
        same |= {"label_space": self.label_space or "", "counts": self.rows}
        return Card(**same, stage="pool")


def same_tables(known: Card, made: Card) -> bool:
    """Whether a stored set has the content of one that was made, perhaps with truths added since.

    Where one of them was written before declarations were hashed, these are compared themselves.
    """
    own, stored = dict(made.tables), dict(known.tables)
    if (DECLARED in own) != (DECLARED in stored):
        if _declared_fields(known) != _declared_fields(made):
            return False
        own.pop(DECLARED, None)
        stored.pop(DECLARED, None)
    added = stored.keys() - own.keys()
    return own.items() <= stored.items() and all(name.startswith("truth/") for name in added)


def _declared_fields(card: Card) -> tuple[Any, ...]:
    return dict(card.columns), card.factors, card.clusters, card.units


def card_file(folder: Path) -> Path:
    """The file of the card in a folder: ``pool.json`` where there is one."""
    return folder / (POOL if (folder / POOL).is_file() else CARD)


def checksums(folder: Path) -> dict[str, str]:
    """Those of a set's tables and of its own label space; none in cards of before there were any."""
    found: dict[str, str] = read_plain(card_file(folder)).get("files", {})
    return found
