"""A page about two models: the mistakes that the new one fixes, makes anew, and shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from heldout import __version__
from heldout.core.errors import UserError
from heldout.core.files import write_text
from heldout.data.testset.columns import ColumnType
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.overlap import CHANGES, Change
from heldout.measure.mistakes.study import Study
from heldout.measure.mistakes.tallying import GROUP, categories_of
from heldout.measure.score.compare import compare
from heldout.measure.score.slices import cluster_column, factor_columns, parse_slice
from heldout.show import wording
from heldout.show.embed import environment, static
from heldout.show.mistake_cards import MistakeCard, cards, class_text, spread
from heldout.show.mistake_parts import category_colour
from heldout.show.panels import in_order

MOST = 24
_MOST_VALUES = 24
_LEVEL = 0.95


@dataclass(frozen=True)
class ChangeRow:
    """How many mistakes of some kind, or in some slice, were fixed, are new, and are shared."""

    name: str
    fixed: int
    new: int
    shared: int
    images: int = 0

    @property
    def net(self) -> int:
        """New less fixed: below zero is better."""
        return self.new - self.fixed


@dataclass(frozen=True, eq=False, kw_only=True)
class MistakeDiff:
    """Two models of a study, image by image.

    ``old``, ``new``  names of models of the study
    """

    study: Study
    old: str
    new: str

    def __post_init__(self) -> None:
        if self.old == self.new:
            raise UserError(f"{self.old} is compared with itself", fix="name two models")

    @cached_property
    def codes(self) -> np.ndarray:
        """The kind of mistake of each image by the old and by the new model, -1 where right."""
        verdicts = self.study.verdicts
        return self.study.codes[:, [verdicts.position(self.old), verdicts.position(self.new)]]

    def images(self, change: Change) -> np.ndarray:
        """The images of one kind of change, as places in the study's images."""
        before, after = self.codes[:, 0] >= 0, self.codes[:, 1] >= 0
        chosen = {"fixed": before & ~after, "new": ~before & after, "shared": before & after}
        return np.flatnonzero(chosen[change])

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many images of each change."""
        return {change: len(self.images(change)) for change in CHANGES}

    @property
    def same(self) -> int:
        """Shared mistakes in which both models say the same class."""
        guesses = self._guesses[self.images("shared")]
        return int(((guesses[:, 0] == guesses[:, 1]) & (guesses[:, 0] >= 0)).sum())

    @cached_property
    def _guesses(self) -> np.ndarray:
        verdicts = self.study.verdicts
        columns = [verdicts.position(self.old), verdicts.position(self.new)]
        return np.asarray(verdicts.guesses[self.study.firsts][:, columns])

    @property
    def verdict(self) -> str:
        """The change in accuracy with its interval and test, in a sentence.

        Where images come in clusters, both are over clusters.
        """
        measured = self.study.measured.of_models([self.new, self.old])
        after, before = measured.one_row_per_image().estimates()
        cluster = cluster_column(measured.testset, None)
        (record,) = compare(measured, [(self.new, self.old)], cluster=cluster, level=_LEVEL)
        said = (
            f"{self.old} is right on {wording.percent(before, digits=2)}{wording.PERCENT} of "
            f"{wording.plural(record.n, 'image')}, {self.new} on "
            f"{wording.percent(after, digits=2)}{wording.PERCENT}: "
            f"{wording.points(record.difference, digits=2)} points"
        )
        if record.low is None or record.high is None:
            return f"{said}. No interval: {record.reason}."
        ends = f"{wording.points(record.low, digits=2)} to {wording.points(record.high, digits=2)}"
        said += f", {100 * _LEVEL:.4g}{wording.PERCENT} interval {ends}"
        return said + ("." if record.p is None else f", p {wording.p_text(record.p)}.")

    def by_category(self) -> list[ChangeRow]:
        """Changes by category; a shared mistake counts in the new model's category."""
        names = np.array([kind.category for kind in self.study.table])
        columns = {"fixed": 0, "new": 1, "shared": 1}
        found = {
            change: names[self.codes[self.images(change), columns[change]]] for change in CHANGES
        }
        return [
            ChangeRow(name, *(int((found[change] == name).sum()) for change in CHANGES))
            for name in categories_of(self.study)
        ]

    def by_column(self) -> dict[str, list[ChangeRow]]:
        """Changes by groups of classes, and by each single column that the set declares a factor."""
        testset = self.study.verdicts.testset
        tables: dict[str, list[ChangeRow]] = {}
        if self.study.group_images:
            tables[GROUP] = [self._row(k, v) for k, v in self.study.group_images.items()]
        given = [c for entry in testset.card.factors for c in factor_columns(testset, entry)]
        names = list(dict.fromkeys(given))
        for column, slices in zip(names, self.study.slices(names), strict=True):
            texts = {parse_slice(name)[column]: images for name, images in slices.items()}
            kind = testset.card.columns.get(column, ColumnType(kind="categorical"))
            rows = [self._row(text, texts[text]) for text in in_order(texts, kind)]
            if len(rows) > _MOST_VALUES:
                rows = sorted(rows, key=lambda row: (-abs(row.net), row.name))[:_MOST_VALUES]
            tables[column] = rows
        return tables

    def _row(self, name: str, images: np.ndarray) -> ChangeRow:
        fixed, new, shared = (
            len(np.intersect1d(self.images(change), images)) for change in CHANGES
        )
        return ChangeRow(name, fixed, new, shared, len(images))

    def gallery(self, change: Change, *, most: int = MOST) -> list[MistakeCard]:
        """Some images of one change, evenly over categories."""
        study, space = self.study, self.study.verdicts.truth.space
        column = 0 if change == "fixed" else 1
        known = {(m.image_id, m.prediction): m for m in study.mistakes}
        names = study.verdicts.image_ids
        chosen: dict[tuple[str, str], tuple[Mistake, str]] = {}
        for place in self.images(change).tolist():
            guesses = self._guesses[place]
            if guesses[column] < 0:
                continue
            image = names[study.firsts[place]]
            mistake = known[image, space.ids[guesses[column]]]
            aside = ""
            if change == "shared":
                aside = f"{self.old} says the same."
                if guesses[0] != guesses[1]:
                    said = "nothing" if guesses[0] < 0 else class_text(space, space.ids[guesses[0]])
                    aside = f"{self.old} says {said}."
            chosen[image, mistake.prediction] = (mistake, aside)
        picked = spread(study, [mistake for mistake, _ in chosen.values()], most=most)
        return [
            replace(card, aside=chosen[mistake.image_id, mistake.prediction][1])
            for card, mistake in zip(cards(study, picked), picked, strict=True)
        ]


def render_mistake_diff(diff: MistakeDiff, *, title: str = "") -> str:
    """The page's HTML: one file that needs nothing but itself, and no script at all."""
    categories = diff.by_category()
    tables = diff.by_column()
    rows = [*categories, *(row for table in tables.values() for row in table)]
    page: str = (
        environment()
        .get_template("mistake_diff.html.j2")
        .render(
            title=title or f"From {diff.old} to {diff.new}",
            diff=diff,
            testset=diff.study.verdicts.testset.name,
            truth=diff.study.verdicts.truth.name,
            categories=categories,
            tables=tables,
            most=max((max(row.fixed, row.new) for row in rows), default=1) or 1,
            galleries=[(name, text, diff.gallery(name)) for name, text in _SECTIONS],
            style=Markup(static("report.css")),  # our own sheet, never text from the data
            version=__version__,
            count=wording.count,
            plural=wording.plural,
            signed=_signed,
            colour=category_colour,
            share=_share,
        )
    )
    return page


_SECTIONS: Sequence[tuple[Change, str]] = (
    ("new", "Only the new model gets these wrong."),
    ("fixed", "Only the old model gets these wrong."),
    ("shared", "Both get these wrong."),
)


def write_mistake_diff(diff: MistakeDiff, path: Path, *, title: str = "") -> None:
    """Write the page to ``path``; the same bytes for the same study."""
    write_text(path, render_mistake_diff(diff, title=title))


def _signed(number: int) -> str:
    return wording.signed(number, digits=0)


def _share(number: int, most: Any) -> str:
    """How long a bar is, in percent of the longest."""
    return f"{100 * number / max(int(most), 1):.2f}"
