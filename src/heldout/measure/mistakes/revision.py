"""A new revision of a truth: what a panel ruled, laid over the lists that were there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heldout.core.errors import NotApplicable
from heldout.core.files import canonical_json
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.panel import current_answers
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.hashing import hash_table
from heldout.data.testset.tables import truth_table
from heldout.measure.mistakes.rulings import Key, Ruling

if TYPE_CHECKING:
    import pyarrow as pa

LISTS = ("correct", "unclear", "wrong")


@dataclass(frozen=True, eq=False)
class TruthRevision:
    """A truth with rulings laid over it.

    ``provenance``  for the card: kind, the truth that it revises with its hash, rule, people, the
                    hash of the rulings, and counts
    ``notes``       what a person should know
    """

    table: pa.Table
    provenance: dict[str, Any]
    notes: tuple[str, ...]


def revise_truth(
    table: pa.Table,
    rulings: Mapping[Key, Ruling],
    *,
    base: str,
    label_space: LabelSpace,
    rule: str,
    people: int = 1,
    problematic: Iterable[str] = (),
) -> TruthRevision:
    """The truth ``table`` (called ``base``) with every ruling on its images applied.

    A ruling moves its label into the list that it names and out of the others. An image of which
    no label is acceptable any more is problematic, and so is one of ``problematic``. Where nobody
    ruled, the lists stay as they are: a label that they call both correct and wrong stays in both,
    and the hit wins; how many images have one is told.
    """
    by_image: dict[str, list[Ruling]] = {}
    known = set(label_space.ids)
    for ruling in rulings.values():
        if ruling.prediction in known:
            by_image.setdefault(ruling.image_id, []).append(ruling)
    flagged = set(problematic)
    rows = table.to_pylist()
    counts = dict.fromkeys(
        ("ruled", "added", "moved", "correct_and_wrong", "nothing_acceptable", "problematic"), 0
    )
    columns: dict[str, list[Any]] = {name: [] for name in (*LISTS, "problematic")}
    used: dict[Key, Ruling] = {}
    for row in rows:
        lists = {name: list(dict.fromkeys(row[name])) for name in LISTS}
        mine = by_image.get(row["image_id"], [])
        for ruling in mine:
            used[ruling.key] = ruling
            _apply(lists, ruling, counts)
        counts["correct_and_wrong"] += bool({*lists["correct"]} & {*lists["wrong"]})
        empty = bool(mine) and not (lists["correct"] or lists["unclear"])
        counts["nothing_acceptable"] += empty
        bad = bool(row["problematic"]) or empty or row["image_id"] in flagged
        counts["problematic"] += bad
        for name in LISTS:
            columns[name].append(lists[name])
        columns["problematic"].append(bad)
    if not used and not flagged:
        raise NotApplicable(
            f"no ruling is about an image of truth {base}", fix="import judgements of this set"
        )
    counts["ruled"] = len(used)
    revised = truth_table(
        [row["image_id"] for row in rows], [row["class_id"] for row in rows], **columns
    )
    provenance = {
        "kind": "multilabel",
        "source": "judgements",
        "revises": base,
        "revises_hash": hash_table(table),
        "rule": rule,
        "people": people,
        "rulings_sha256": rulings_hash(used.values()),
        "counts": counts,
    }
    return TruthRevision(revised, provenance, tuple(_notes(counts)))


def _apply(lists: dict[str, list[str]], ruling: Ruling, counts: dict[str, int]) -> None:
    label = ruling.prediction
    before = [name for name in LISTS if label in lists[name]]
    if not before:
        counts["added"] += 1
    elif before != [ruling.answer]:
        counts["moved"] += 1
    for name in LISTS:
        if name != ruling.answer and label in lists[name]:
            lists[name].remove(label)
    if label not in lists[ruling.answer]:
        lists[ruling.answer].append(label)


def _notes(counts: Mapping[str, int]) -> Iterable[str]:
    yield (
        f"{counts['ruled']:,} rulings: {counts['added']:,} labels new to the lists, "
        f"{counts['moved']:,} in another list than before"
    )
    if counts["correct_and_wrong"]:
        yield (
            f"{counts['correct_and_wrong']:,} images have a label both correct and wrong: "
            "the hit wins"
        )
    if counts["nothing_acceptable"]:
        yield (
            f"{counts['nothing_acceptable']:,} images have no acceptable label left: "
            "they are problematic now"
        )


def rulings_hash(rulings: Iterable[Ruling]) -> str:
    """SHA-256 over rulings, whatever their order."""
    parts = sorted(
        [r.image_id, r.prediction, r.answer, r.category or "", r.severity or "", str(r.people)]
        for r in rulings
    )
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def problematic_images(judgements: Iterable[Judgement]) -> tuple[str, ...]:
    """Images that some reviewer calls problematic or blacklists (question ``review``)."""
    return tuple(
        sorted(
            {
                judgement.subject["image_id"]
                for judgement in current_answers(judgements)
                if judgement.question == "review"
                and "image_id" in judgement.subject
                and judgement.answer in ("problematic", "blacklisted")
            }
        )
    )


def next_revision(base: str, known: Iterable[str]) -> str:
    """A name for the next revision of a truth: ``multilabel``, then ``multilabel-2``, …

    >>> next_revision("multilabel", ["original", "multilabel", "multilabel-2"])
    'multilabel-3'
    """
    stem = re.sub(r"-\d+\Z", "", base)
    taken = set(known)
    number = 2
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"
