"""What can be asked of the recipe ``domains``; the card records all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.tables import read_table_file, require_column
from heldout.data.published.clip_geoyfcc import EXCLUDED_45


def _help(text: str) -> Any:
    return {"help": text}


_COUNTS = (
    "top",
    "min_domain",
    "domain_cap",
    "min_class_domains",
    "min_class",
    "classes",
    "cap",
)


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
    classes: int | None = field(default=None, metadata=_help("only this many classes, the largest"))
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
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}", fix="give 1 or more")
        for name in ("min_domain_share", "max_class_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)}", fix="give 0 to 1")
        if self.top is not None and self.similarity is None:
            raise UserError("top without a similarity", fix="name its column")
        for text in self.exclude:
            name, _, reason = text.partition("=")
            if not (name.strip() and reason.strip()):
                raise UserError(f"exclusion {text!r} has no reason", fix="write CLASS=REASON")

    @property
    def reasons(self) -> Mapping[str, str]:
        """Excluded classes with the reason of each."""
        parts = (text.partition("=") for text in self.exclude)
        return {name.strip(): reason.strip() for name, _, reason in parts}


def read_exclusions(texts: Sequence[str]) -> list[str]:
    """``CLASS=REASON`` texts as they are; a CSV with ``class_id`` and ``reason`` as such texts."""
    found: list[str] = []
    for text in texts:
        if Path(text).suffix == ".csv" and "=" not in text:
            found += _read_file(Path(text))
        elif "=" in text:
            found.append(text)
        else:
            raise UserError(
                f"exclusion {text!r} has no reason", fix="write CLASS=REASON, or name a CSV file"
            )
    return found


def _read_file(path: Path) -> list[str]:
    table = read_table_file(path)
    classes, reasons = (
        require_column(table, name, path, "exclusions").to_pylist()
        for name in ("class_id", "reason")
    )
    rows = list(zip(classes, reasons, strict=True))
    for number, row in enumerate(rows, start=1):
        if not all(row):
            raise BadFile(
                path, f"row {number} lacks a class or its reason", fix="give both in every row"
            )
    return [f"{class_id}={reason}" for class_id, reason in rows]


_GEOYFCC: dict[str, Any] = {
    "domain": "continent",
    "label_space": "imagenet-21k",
    "top": 1_000_000,
    "min_domain_share": 0.04,
    "min_class": 450,
    "cap": 2000,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "clip-geoyfcc-350": {**_GEOYFCC, "classes": 350},
    "clip-geoyfcc-45": {
        **_GEOYFCC,
        "classes": 45,
        "exclude": [f"{name}={reason}" for name, reason in EXCLUDED_45.items()],
    },
    "geoyfcc": {
        "domain": "country",
        "min_domain": 10_000,
        "domain_cap": 20_000,
        "min_class_domains": 5,
    },
}
"""Values of parameters by preset. Exclusions come before the choice of the largest: 45 classes
after eleven exclusions are the 56 largest without them."""


def preset(name: str) -> dict[str, Any]:
    """The values of a preset."""
    if name not in PRESETS:
        raise NotFound(f"no preset {name!r}", fix=f"there is {', '.join(PRESETS)}")
    return dict(PRESETS[name])
