"""Confusions: which class is taken for which, how that changes between models, and published files of it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
import numpy as np

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import csv_text, write_text
from heldout.core.records import Table
from heldout.core.schema import read
from heldout.data.labels.label_space import LabelSpace, folded
from heldout.measure.mistakes.verdicts import Verdicts
from heldout.stats.intervals import wilson

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class ClassPair:
    """Two classes under a truth of a test set."""

    testset: str
    truth: str
    first_id: str
    first_name: str
    second_id: str
    second_name: str

    @property
    def ids(self) -> str:
        """Both ids."""
        return f"{self.first_id} {self.second_id}"

    @classmethod
    def between(
        cls, testset: str, truth: str, space: LabelSpace, first: int, second: int, **more: Any
    ) -> Self:
        """From class indices, with the further fields of a record."""
        a, b = space.classes[first], space.classes[second]
        return cls(
            testset=testset,
            truth=truth,
            first_id=a.id,
            first_name=a.name,
            second_id=b.id,
            second_name=b.name,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class ConfusionPair(ClassPair):
    """Two classes that are confused ``n`` times.

    Directed: images that may be called ``first_id`` are taken for ``second_id``; ``of`` is how often a
    model looked at such an image, and ``share`` is n of these. Its Wilson interval is given for one
    model only: what several models say of one image is not independent. Unordered: ``first_id``
    stands first in the label space, and the last four are None. ``model`` is None for several.
    """

    record: ClassVar[str] = "confusion"
    table: ClassVar[Table] = Table(
        "{who} on {testset}, truth {truth}: {what}",
        ("first=first_name", "second=second_name", "ids", "n:,", "percent of looks=share:%1[]"),
    )
    model: str | None
    models: int
    n: int
    of: int | None = None
    share: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def who(self) -> str:
        """The model, or how many."""
        return self.model or f"{self.models} models"

    @property
    def what(self) -> str:
        """What the two classes are."""
        directed = self.share is not None
        return "what is right, what was said" if directed else "classes taken for each other"


@dataclass(frozen=True, kw_only=True)
class ConfusionTotals:
    """Errors, pairs and the sum of their counts; ``model`` is None for several."""

    record: ClassVar[str] = "confusions"
    table: ClassVar[Table] = Table(
        "", ("model", "models", "test set=testset", "truth", "errors:,", "pairs:,", "sum:,")
    )
    model: str | None
    models: int
    testset: str
    truth: str
    directed: bool
    errors: int
    pairs: int
    sum: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Confusions:
    """Pairs of classes with their counts, most frequent first, ties in the label space's order.

    ``first``, ``second``  int64 (pairs,): class indices; directed: what is right, what was said
    ``n``        int64 (pairs,)
    ``errors``   wrong guesses behind them, of all models; a guess that is no class is not among them
    ``looks``    int64 (classes,): how often a model looked at an image that may be called this
    ``rows``, ``keys``  int64 (sum of n,): the row of the verdicts of every confusion, and its pair as
                 ``first * classes + second``
    """

    verdicts: Verdicts
    directed: bool
    first: np.ndarray
    second: np.ndarray
    n: np.ndarray
    errors: int
    looks: np.ndarray
    rows: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.n)

    @property
    def space(self) -> LabelSpace:
        """The label space of the pairs."""
        return self.verdicts.truth.space

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return int(self.n.sum())

    @property
    def totals(self) -> ConfusionTotals:
        """How many there are."""
        models = self.verdicts.models
        return ConfusionTotals(
            model=models[0] if len(models) == 1 else None,
            models=len(models),
            testset=self.verdicts.testset.name,
            truth=self.verdicts.truth.name,
            directed=self.directed,
            errors=self.errors,
            pairs=len(self),
            sum=self.total,
        )

    def top(self, count: int | None = None, *, level: float = LEVEL) -> list[ConfusionPair]:
        """The most frequent pairs, or all of them."""
        shown = slice(None) if count is None else slice(0, count)
        first, second, n = self.first[shown], self.second[shown], self.n[shown]
        of, totals = self.looks[first], self.totals
        alone = self.directed and totals.models == 1 and len(n) > 0
        limits = wilson(n, of, level=level) if alone else None
        return [
            ConfusionPair.between(
                totals.testset,
                totals.truth,
                self.space,
                first[place],
                second[place],
                model=totals.model,
                models=totals.models,
                n=int(n[place]),
                of=int(of[place]) if self.directed else None,
                share=float(n[place] / of[place]) if self.directed else None,
                low=None if limits is None else float(limits.low[place]),
                high=None if limits is None else float(limits.high[place]),
            )
            for place in range(len(n))
        ]

    def images(self, first_id: str, second_id: str) -> tuple[str, ...]:
        """The images behind a pair, sorted, each once; empty for a pair that does not occur."""
        first, second = self.space.index(first_id), self.space.index(second_id)
        if not self.directed:
            first, second = min(first, second), max(first, second)
        behind = self.rows[self.keys == first * len(self.space) + second]
        return tuple(sorted({self.verdicts.image_ids[row] for row in behind.tolist()}))


def confusions(
    verdicts: Verdicts, model: str | None = None, *, directed: bool = False
) -> Confusions:
    """The confusions of one model, or of all models together.

    Each error counts once for every correct or unclear label of its image. Under a truth of one
    label an image, the counts add up to the errors.
    """
    size = len(verdicts.truth.space)
    chosen = verdicts if model is None else verdicts.of_models([model])
    rows, columns = np.nonzero(chosen.wrong & (chosen.guesses >= 0))
    acceptable = verdicts.acceptable.select(rows)
    right = acceptable.values
    said = np.repeat(chosen.guesses[rows, columns].astype(np.int64), acceptable.lengths)
    first, second = (
        (right, said) if directed else (np.minimum(right, said), np.maximum(right, said))
    )
    keys = first * size + second
    pairs, n = np.unique(keys, return_counts=True)
    order = np.lexsort((pairs, -n))
    firsts, seconds = np.divmod(pairs[order], size)
    return Confusions(
        verdicts=chosen,
        directed=directed,
        first=firsts,
        second=seconds,
        n=n[order].astype(np.int64),
        errors=len(rows),
        looks=np.bincount(verdicts.acceptable.values, minlength=size) * len(chosen.models),
        rows=np.repeat(rows, acceptable.lengths),
        keys=keys,
    )


@dataclass(frozen=True, kw_only=True)
class ConfusionChange(ClassPair):
    """Two classes, and how often the old and the new model confuse them."""

    record: ClassVar[str] = "confusion_change"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: confusions that changed most",
        ("class=first_name", "and=second_name", "old:,", "new:,", "difference:+"),
        rows=5,
    )
    old: int
    new: int

    @property
    def difference(self) -> int:
        """New less old: below zero is better."""
        return self.new - self.old


def confusion_changes(verdicts: Verdicts, old: str, new: str) -> list[ConfusionChange]:
    """Pairs whose counts differ, the largest differences first, then in the label space's order."""
    space = verdicts.truth.space
    before, after = (confusions(verdicts, model) for model in (old, new))
    pairs = np.union1d(before.keys, after.keys)
    n_old, n_new = (
        np.bincount(np.searchsorted(pairs, found.keys), minlength=len(pairs))
        for found in (before, after)
    )
    made = []
    for place in np.lexsort((pairs, -abs(n_new - n_old))).tolist():
        change = ConfusionChange.between(
            verdicts.testset.name,
            verdicts.truth.name,
            space,
            *divmod(int(pairs[place]), len(space)),
            old=int(n_old[place]),
            new=int(n_new[place]),
        )
        made += [change] if change.difference else []
    return made


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

    record: ClassVar[str] = "difference"
    table: ClassVar[Table] = Table(
        "pairs with another count",
        ("first", "second", "ours:,", "theirs:,", "images=some"),
        rows=6,
    )
    first: str
    second: str
    ours: int
    theirs: int
    images: tuple[str, ...] = ()

    @property
    def some(self) -> tuple[str, ...]:
        """A few of the images."""
        return self.images[:3]


@dataclass(frozen=True, kw_only=True)
class FileComparison:
    """How many pairs a file has, and how many of them with another count."""

    record: ClassVar[str] = "against"
    table: ClassVar[Table] = Table("", ("file", "form", "pairs:,", "sum:,", "differences:,"))
    file: str
    form: Form
    pairs: int
    sum: int
    differences: int


def read_confusion_file(path: Path, *, label_space: LabelSpace) -> ConfusionFile:
    """A JSON list of ``[first, second, n]``, by ids or by names of the label space."""
    rows = read(path, list[tuple[str, str, Annotated[int, msgspec.Meta(gt=0)]]], fix=_FIX)
    if not rows:
        raise BadFile(path, "lists no confusions", fix=_FIX)
    pairs: Counter[tuple[str, str]] = Counter()
    for first, second, n in rows:
        pairs[first, second] += n
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    form: Form = "ids" if texts[0] in label_space else "names"
    names = {folded(item.name) for item in label_space}
    for text in texts:
        if not (text in label_space if form == "ids" else folded(text) in names):
            raise LabelError(
                f"{path.name} has {text!r}, which is not {'an id' if form == 'ids' else 'a usual name'} "
                f"of a class of {label_space.name}",
                fix="name the right label space or test set",
            )
    return ConfusionFile(path, form, dict(pairs))


def compare_with_file(ours: Confusions, file: ConfusionFile) -> list[PairDifference]:
    """The pairs that have another count in the file, in order of their texts.

    Unordered confusions are compared whichever class a row names first. A file of names is compared
    by names: classes of one name count together.
    """
    by_ids = file.form == "ids"

    def key(first: str, second: str) -> tuple[str, str]:
        pair = (first, second) if by_ids else (folded(first), folded(second))
        return pair if ours.directed else (min(pair), max(pair))

    mine: dict[tuple[str, str], list[ConfusionPair]] = {}
    theirs: Counter[tuple[str, str]] = Counter()
    shown: dict[tuple[str, str], tuple[str, str]] = {}
    for pair in ours.top():
        texts = (pair.first_id, pair.second_id) if by_ids else (pair.first_name, pair.second_name)
        mine.setdefault(key(*texts), []).append(pair)
        shown.setdefault(key(*texts), texts)
    for texts, n in file.pairs.items():
        theirs[key(*texts)] += n
        shown.setdefault(key(*texts), texts)
    found = []
    for place in sorted(shown):
        pairs = mine.get(place, [])
        n = sum(pair.n for pair in pairs)
        if n != theirs[place]:
            images = (i for pair in pairs for i in ours.images(pair.first_id, pair.second_id))
            first, second = shown[place]
            found.append(
                PairDifference(
                    first=first,
                    second=second,
                    ours=n,
                    theirs=theirs[place],
                    images=tuple(dict.fromkeys(images)),
                )
            )
    return found


def write_confusion_file(found: Confusions, path: Path) -> None:
    """Write pairs: ``.json`` as published, rarest first, or ``.csv`` with ids, names and shares."""
    if path.suffix == ".json":
        rows = [[pair.first_id, pair.second_id, pair.n] for pair in found.top()]
        rows.sort(key=lambda row: (row[2], row[0], row[1]))
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        write_text(path, f"[\n{lines}\n]\n" if rows else "[]\n")
        return
    if path.suffix != ".csv":
        raise UserError(f"{path.name} is neither .json nor .csv", fix="name such a file")
    columns = ["first_id", "first_name", "second_id", "second_name", "n"]
    columns += ["of", "share"] if found.directed else []
    rows = [[getattr(pair, column) for column in columns] for pair in found.top()]
    write_text(path, csv_text(columns, rows))
