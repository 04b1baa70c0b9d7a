"""Diff: what changed between two test sets, or two revisions of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heldout.data.testset.card import Card
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

    Columns, memberships and truths that only one set has are named in ``only_columns`` and
    ``only_truths`` (name -> ``a`` or ``b``) and not listed image by image.
    """

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

    @property
    def in_both(self) -> int:
        """How many images both sets have."""
        return self.images_a - len(self.only_in_a)

    @property
    def same_content(self) -> bool:
        """Whether the two sets have the same rows in all tables."""
        return self.a_hash == self.b_hash

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
        return {**asdict(self), "counts": counts, "same_content": self.same_content}


def diff(a: TestSet, b: TestSet) -> Diff:
    """What changed from ``a`` to ``b``: images, truths, columns, classes, card.

    Images are compared by id; truths by name; classes by each set's default truth.
    """
    ids_a, ids_b = set(a.image_ids.to_pylist()), set(b.image_ids.to_pylist())
    both = sorted(ids_a & ids_b)
    columns_a, columns_b = _columns(a), _columns(b)
    members_a, members_b = _memberships(a), _memberships(b)
    changes = [
        *_column_changes(columns_a, columns_b, both),
        *_membership_changes(members_a, members_b, both),
    ]
    for name in sorted(a.truths.keys() & b.truths.keys()):
        changes += _truth_changes(name, a.truths[name], b.truths[name], both)
    names_a = {*columns_a, *members_a}
    names_b = {*columns_b, *members_b}
    return Diff(
        a=a.name,
        b=b.name,
        a_hash=a.card.content_hash,
        b_hash=b.card.content_hash,
        images_a=len(a),
        images_b=len(b),
        only_in_a=tuple(sorted(ids_a - ids_b)),
        only_in_b=tuple(sorted(ids_b - ids_a)),
        changes=tuple(sorted(changes, key=lambda c: (c.image_id, c.table, c.field))),
        classes=tuple(_class_changes(a, b)),
        only_columns=_only(names_a, names_b),
        only_truths=_only(set(a.truths), set(b.truths)),
        card=tuple(card_changes(a.card, b.card)),
    )


def _only(a: set[str], b: set[str]) -> dict[str, str]:
    return {name: "a" if name in a else "b" for name in sorted(a ^ b)}


def _columns(testset: TestSet) -> dict[str, dict[str, Any]]:
    """Column -> image -> value, without columns that have no value at all."""
    ids = testset.image_ids.to_pylist()
    table = testset.images
    return {
        name: dict(zip(ids, table[name].to_pylist(), strict=True))
        for name in table.column_names
        if name != "image_id" and table[name].null_count < len(table)
    }


def _memberships(testset: TestSet) -> dict[str, dict[str, list[str]]]:
    """Membership column -> image -> its sorted values."""
    found: dict[str, dict[str, list[str]]] = {}
    rows = (testset.memberships[name].to_pylist() for name in ("image_id", "column", "value"))
    for image, column, value in sorted(zip(*rows, strict=True)):
        found.setdefault(column, {}).setdefault(image, []).append(value)
    return found


def _column_changes(
    a: dict[str, dict[str, Any]], b: dict[str, dict[str, Any]], both: list[str]
) -> Iterator[ImageChange]:
    for name in sorted(a.keys() & b.keys()):
        for image in both:
            before, after = a[name][image], b[name][image]
            if before != after and not (before != before and after != after):  # NaN equals NaN
                yield ImageChange(
                    image_id=image, table="images", field=name, before=before, after=after
                )


def _membership_changes(
    a: dict[str, dict[str, list[str]]], b: dict[str, dict[str, list[str]]], both: list[str]
) -> Iterator[ImageChange]:
    for name in sorted(a.keys() & b.keys()):
        for image in both:
            before, after = a[name].get(image, []), b[name].get(image, [])
            if before != after:
                yield ImageChange(
                    image_id=image, table="memberships", field=name, before=before, after=after
                )


def truth_rows(table: Any) -> dict[str, dict[str | None, dict[str, Any]]]:
    """A truth as image -> class -> the row's lists (sorted) and flag."""
    found: dict[str, dict[str | None, dict[str, Any]]] = {}
    for row in table.to_pylist():
        fields: dict[str, Any] = {name: sorted(set(row[name] or ())) for name in _LISTS}
        fields["problematic"] = bool(row["problematic"])
        found.setdefault(row["image_id"], {})[row["class_id"]] = fields
    return found


def _truth_changes(name: str, a: Any, b: Any, both: list[str]) -> Iterator[ImageChange]:
    table = f"truth/{name}"
    rows_a, rows_b = truth_rows(a), truth_rows(b)
    for image in both:
        before, after = rows_a.get(image, {}), rows_b.get(image, {})
        if before == after:
            continue
        if before.keys() != after.keys():
            yield ImageChange(
                image_id=image,
                table=table,
                field="class_id",
                before=_sorted(before),
                after=_sorted(after),
            )
        for label in _sorted(before.keys() & after.keys()):
            for field, value in before[label].items():
                if value != after[label][field]:
                    yield ImageChange(
                        image_id=image,
                        table=table,
                        field=field,
                        before=value,
                        after=after[label][field],
                    )


def _sorted(labels: Any) -> list[str | None]:
    return sorted(labels, key=lambda label: (label is not None, label or ""))


def _class_changes(a: TestSet, b: TestSet) -> Iterator[ClassChange]:
    before, after = _by_class(a), _by_class(b)
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


def card_changes(a: Card, b: Card) -> list[CardChange]:
    """Entries of two cards that differ, hashes and history left out, sorted by name."""
    before, after = _flat(a.to_dict()), _flat(b.to_dict())
    return [
        CardChange(field=field, before=before.get(field), after=after.get(field))
        for field in sorted(before.keys() | after.keys())
        if before.get(field) != after.get(field)
    ]


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
