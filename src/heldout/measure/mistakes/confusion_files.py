"""Files of confusions: the published JSON forms read, written, and compared with ours.

ImageNet Mistakes publishes its confusions as a list ``[first, second, n]``, unordered, rarest first,
once with WordNet ids and once with names. Names are not unique in ImageNet-1k (crane, maillot), so a
file of names is compared in names and never turned into ids.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import csv_text, existing_file, read_json, write_text
from heldout.data.labels.label_space import LabelSpace, folded
from heldout.measure.mistakes.confusions import Confusions

Form = Literal["ids", "names"]
_FIX = "write a list of [first, second, n]"


@dataclass(frozen=True)
class ConfusionFile:
    """Pairs of a file as it has them; equal pairs are counted together.

    ``form``   whether its classes are ids or names
    ``pairs``  (first, second) to count, in the order of the file
    """

    path: Path
    form: Form
    pairs: dict[tuple[str, str], int]

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self.pairs.values())


@dataclass(frozen=True, kw_only=True)
class PairDifference:
    """A pair whose count in our confusions is another than in a file."""

    first: str
    second: str
    ours: int
    theirs: int
    images: tuple[str, ...] = ()


def read_confusion_file(path: Path, *, label_space: LabelSpace) -> ConfusionFile:
    """A JSON list of ``[first, second, n]``, by ids or by names of the label space."""
    value = read_json(existing_file(path, "file of confusions"))
    if not isinstance(value, list) or not value:
        raise BadFile(path, "is not a list of confusions", fix=_FIX)
    pairs: Counter[tuple[str, str]] = Counter()
    for place, row in enumerate(value):
        if not isinstance(row, list) or len(row) != 3 or not _is_count(row[2]):
            raise BadFile(path, f"row {place} is {json.dumps(row)[:60]}", fix=_FIX)
        pairs[str(row[0]), str(row[1])] += row[2]
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    form: Form = "ids" if texts[0] in label_space else "names"
    names = {folded(item.name) for item in label_space}
    for text in texts:
        if not (text in label_space if form == "ids" else folded(text) in names):
            raise LabelError(
                f"{path.name} has {text!r}, which is no {'id' if form == 'ids' else 'usual name'} "
                f"of a class of {label_space.name}",
                fix="name the right label space or test set",
            )
    return ConfusionFile(path, form, dict(pairs))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def compare_with_file(ours: Confusions, file: ConfusionFile) -> list[PairDifference]:
    """The pairs that have another count in the file, in order of their texts.

    Unordered confusions are compared whichever class a row names first. A file of names is compared
    by names: classes of one name count together.
    """
    by_ids = file.form == "ids"

    def key(first: str, second: str) -> tuple[str, str]:
        pair = (first, second) if by_ids else (folded(first), folded(second))
        return pair if ours.directed else (min(pair), max(pair))

    mine: Counter[tuple[str, str]] = Counter()
    theirs: Counter[tuple[str, str]] = Counter()
    shown: dict[tuple[str, str], tuple[str, str]] = {}
    ids: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for pair in ours.top():
        texts = (pair.first_id, pair.second_id) if by_ids else (pair.first_name, pair.second_name)
        found = key(*texts)
        mine[found] += pair.n
        shown.setdefault(found, texts)
        ids.setdefault(found, []).append((pair.first_id, pair.second_id))
    for texts, n in file.pairs.items():
        found = key(*texts)
        theirs[found] += n
        shown.setdefault(found, texts)
    return [
        PairDifference(
            first=shown[found][0],
            second=shown[found][1],
            ours=mine[found],
            theirs=theirs[found],
            images=tuple(
                dict.fromkeys(i for pair in ids.get(found, []) for i in ours.images(*pair))
            ),
        )
        for found in sorted(shown)
        if mine[found] != theirs[found]
    ]


def write_confusion_file(found: Confusions, path: Path, *, form: Form = "ids") -> None:
    """Write pairs: ``.json`` as published, rarest first, or ``.csv`` with ids, names and shares."""
    if path.suffix == ".json":
        rows = [
            [pair.first_id, pair.second_id, pair.n]
            if form == "ids"
            else [pair.first_name, pair.second_name, pair.n]
            for pair in found.top()
        ]
        rows.sort(key=lambda row: (row[2], row[0], row[1]))
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        write_text(path, f"[\n{lines}\n]\n" if rows else "[]\n")
        return
    if path.suffix != ".csv":
        raise UserError(f"{path.name} is neither .json nor .csv", fix="name such a file")
    write_text(path, _table(found))


def _table(found: Confusions) -> str:
    columns = ["first_id", "first_name", "second_id", "second_name", "n"]
    columns += ["of", "share"] if found.directed else []
    return csv_text(
        columns, [[getattr(pair, column) for column in columns] for pair in found.top()]
    )
