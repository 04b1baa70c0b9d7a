"""Diff: what changed between two test sets, or two revisions of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from heldout.data.testset.card import same_tables
from heldout.data.testset.tables import memberships_by_column
from heldout.data.testset.testset import TestSet

_NOT_COMPARED = {
    "schema_version",
    "tables",
    "images_namespace",
    "images_hash",
    "content_hash",
    "history",
}
_LISTS = ("correct", "unclear", "wrong")
Cells = dict[tuple[str, str, str | None], dict[str, Any]]
"""Table, field and (in a truth) class -> image -> value."""


@dataclass(frozen=True, kw_only=True)
class ImageChange:
    """One field of one image that is in both sets and differs.

    ``table`` is ``images``, ``truth/<name>`` or ``memberships``; lists are sorted.
    """

    image_id: str
    table: str
    field: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class ClassChange:
    """One class whose images differ: ``before`` and ``after`` count its images."""

    class_id: str
    before: int
    after: int
    removed: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CardChange:
    """One entry of the card that differs, such as ``recipe.seed``; absent entries are null."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class Diff:
    """All differences from ``a`` to ``b``; ids are sorted.

    ``same_content`` says whether all tables have the same rows, and columns the same declarations.

    Columns, memberships and truths that only one set has are named in ``only_columns`` and
    ``only_truths`` (name -> ``a`` or ``b``) and not listed image by image.
    """

    record: ClassVar[str] = "diff"
    a: str
    b: str
    a_hash: str
    b_hash: str
    images_a: int
    images_b: int
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    changes: tuple[ImageChange, ...]
    classes: tuple[ClassChange, ...]
    only_columns: dict[str, str]
    only_truths: dict[str, str]
    card: tuple[CardChange, ...]
    same_content: bool

    @property
    def in_both(self) -> int:
        """How many images both sets have."""
        return self.images_a - len(self.only_in_a)

    @property
    def changed(self) -> tuple[str, ...]:
        """Ids of the images in both sets of which something differs."""
        return tuple(sorted({change.image_id for change in self.changes}))

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, with the counts."""
        counts = {
            "only_in_a": len(self.only_in_a),
            "only_in_b": len(self.only_in_b),
            "in_both": self.in_both,
            "changed": len(self.changed),
            "classes": len(self.classes),
        }
        fields = asdict(self)
        same = fields.pop("same_content")
        return {**fields, "counts": counts, "same_content": same}


def diff(a: TestSet, b: TestSet) -> Diff:
    """What changed from ``a`` to ``b``: images, truths, columns, classes, card.

    Images are compared by id; truths by name; classes by each set's default truth.
    """
    ids_a, ids_b = set(a.image_ids.to_pylist()), set(b.image_ids.to_pylist())
    cells_a, cells_b = _cells(a), _cells(b)
    changes = _changes(cells_a, cells_b, sorted(ids_a & ids_b))
    own = ("images", "memberships")
    columns = [{field for table, field, _ in cells if table in own} for cells in (cells_a, cells_b)]
    return Diff(
        a=a.name,
        b=b.name,
        a_hash=a.content_hash,
        b_hash=b.content_hash,
        images_a=len(a),
        images_b=len(b),
        only_in_a=tuple(sorted(ids_a - ids_b)),
        only_in_b=tuple(sorted(ids_b - ids_a)),
        changes=tuple(sorted(changes, key=lambda c: (c.image_id, c.table, c.field))),
        classes=tuple(_class_changes(_by_class(a), _by_class(b))),
        only_columns=_only(*columns),
        only_truths=_only(set(a.truths), set(b.truths)),
        same_content=same_tables(a.card, b.card) and same_tables(b.card, a.card),
        card=tuple(_card_changes(_flat(a.card.to_dict()), _flat(b.card.to_dict()))),
    )


def _only(a: set[str], b: set[str]) -> dict[str, str]:
    return {name: "a" if name in a else "b" for name in sorted(a ^ b)}


def _cells(testset: TestSet) -> Cells:
    """All values of a set, without columns that have no value at all; lists are sorted."""
    cells: Cells = defaultdict(dict)
    ids, images = testset.image_ids.to_pylist(), testset.images
    for name in images.column_names:
        if name != "image_id" and images[name].null_count < len(images):
            cells["images", name, None] = dict(zip(ids, images[name].to_pylist(), strict=True))
    for column, values in memberships_by_column(testset.memberships).items():
        cells["memberships", column, None] = values
    for name, truth in testset.truths.items():
        table = f"truth/{name}"
        classes = cells[table, "class_id", None]
        for row in truth.to_pylist():
            image, label = row["image_id"], row["class_id"]
            classes[image] = sorted([*classes.get(image, ()), label], key=lambda c: c or "")
            for field in _LISTS:
                cells[table, field, label][image] = sorted(set(row[field] or ()))
            cells[table, "problematic", label][image] = bool(row["problematic"])
    return cells


def _changes(a: Cells, b: Cells, both: Sequence[str]) -> Iterator[ImageChange]:
    """What differs in images of both sets and columns of both sets."""
    for key in sorted(a.keys() & b.keys(), key=lambda key: [part or "" for part in key]):
        table, field, _ = key
        # An image may have no membership, and no class: as a list, that is an empty one. A flag
        # of a class that only one set gives it is not compared.
        listed = table == "memberships" or (table != "images" and field == "class_id")
        for image in both:
            if not listed and not (image in a[key] and image in b[key]):
                continue
            before, after = a[key].get(image, []), b[key].get(image, [])
            if before != after and not (before != before and after != after):  # NaN equals NaN
                yield ImageChange(
                    image_id=image, table=table, field=field, before=before, after=after
                )


def _class_changes(
    before: Mapping[str, set[str]], after: Mapping[str, set[str]]
) -> Iterator[ClassChange]:
    for label in sorted(before.keys() | after.keys()):
        old, new = before.get(label, set()), after.get(label, set())
        if old != new:
            yield ClassChange(
                class_id=label,
                before=len(old),
                after=len(new),
                removed=tuple(sorted(old - new)),
                added=tuple(sorted(new - old)),
            )


def _by_class(testset: TestSet) -> dict[str, set[str]]:
    if not testset.truths:
        return {}
    truth = testset.truth()
    found: dict[str, set[str]] = {}
    for image, label in zip(
        truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True
    ):
        if label is not None:
            found.setdefault(label, set()).add(image)
    return found


def _card_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[CardChange]:
    """Entries of two cards that differ, hashes and history left out, sorted by name."""
    for field in sorted(before.keys() | after.keys()):
        if before.get(field) != after.get(field):
            yield CardChange(field=field, before=before.get(field), after=after.get(field))


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if not prefix and key in _NOT_COMPARED:
            continue
        if isinstance(item, Mapping) and item:
            found |= _flat(item, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = item
    return found
