"""What can be asked of the recipe ``domains``; the card records all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heldout.core.errors import UserError


def _help(text: str) -> Any:
    return {"help": text}


@dataclass(frozen=True, kw_only=True)
class DomainsParameters:
    """Which columns are read, which rows are kept, and how these are split.

    Rules apply in the order of the fields. What is left at its default changes nothing.
    """

    id: str | None = field(
        default=None,
        metadata=_help("column of ids; image_id, row_id, yfcc_row_id or id by default"),
    )
    class_column: str = field(
        default="class_id",
        metadata=_help("column of classes; truth:NAME for a truth of a pool or test set"),
    )
    domain: str = field(default="domain", metadata=_help("column of domains"))
    similarity: str | None = field(default=None, metadata=_help("column that rows are ranked by"))
    label_space: str | None = field(
        default=None,
        metadata=_help(
            "label space of the classes: a name, a file, or chosen for only the classes that "
            "are kept; the pool's, imagenet-21k or their own by default"
        ),
    )
    keep: tuple[str, ...] = field(
        default=(), metadata=_help("further columns that the set keeps; all by default")
    )
    top: int | None = field(default=None, metadata=_help("rows of the greatest similarity"))
    domains: tuple[str, ...] = field(default=(), metadata=_help("only these domains"))
    min_domain_share: float = field(
        default=0.0, metadata=_help("least share of the rows that a domain must have, 0 to 1")
    )
    min_domain: int = field(default=1, metadata=_help("rows that a domain must have"))
    domain_cap: int | None = field(
        default=None, metadata=_help("rows kept of a domain at most, drawn by the seed")
    )
    exclude: tuple[str, ...] = field(
        default=(), metadata=_help("classes left out, each CLASS=REASON")
    )
    min_class_domains: int = field(
        default=1, metadata=_help("domains in which a class must have rows")
    )
    max_class_share: float = field(
        default=1.0, metadata=_help("most that one domain may hold of a class, 0 to 1")
    )
    min_class: int = field(default=1, metadata=_help("rows that a class must have"))
    classes: int | None = field(default=None, metadata=_help("only so many classes, the largest"))
    cap: int | None = field(
        default=None, metadata=_help("rows kept of a class at most, drawn by the seed")
    )
    clusters: str | None = field(
        default=None,
        metadata=_help("column whose images belong together, such as a photographer: intervals"),
    )
    split: str | None = field(
        default=None,
        metadata=_help(
            "flag:COLUMN, domain:TEST,DOMAINS, values:COLUMN=A,B (held out), rows, group:COLUMN (no "
            "value in two parts), or stratified:COLUMN (the same, with shares met in every class "
            "and domain)"
        ),
    )
    parts: tuple[str, ...] = field(
        default=("train=0.8", "test=0.2"),
        metadata=_help("parts of rows and group splits with their shares"),
    )

    def __post_init__(self) -> None:
        for name in ("top", "domain_cap", "classes", "cap"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}", fix="give 1 or more")
        for name in ("min_domain", "min_class", "min_class_domains"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", fix="give 1 or more")
        for name in ("min_domain_share", "max_class_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)}", fix="give 0 to 1")
        if self.top is not None and self.similarity is None:
            raise UserError("top without a similarity", fix="name its column")
        for text in self.exclude:
            if not text.partition("=")[0].strip() or not text.partition("=")[2].strip():
                raise UserError(f"exclusion {text!r} has no reason", fix="write CLASS=REASON")

    @property
    def reasons(self) -> Mapping[str, str]:
        """Excluded classes with the reason of each."""
        parts = (text.partition("=") for text in self.exclude)
        return {name.strip(): reason.strip() for name, _, reason in parts}
