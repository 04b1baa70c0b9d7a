"""A page about two models: the mistakes that the new one fixes, makes anew, and shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from heldout import __version__
from heldout.core.context import Context, Result
from heldout.core.files import write_text
from heldout.measure.evaluation.flow import study_mistakes
from heldout.measure.mistakes.between_models import CHANGES, Change
from heldout.measure.mistakes.requests import MistakeDiffRequest
from heldout.measure.mistakes.tally import GROUP, Study, categories_of
from heldout.measure.score.compare import compare
from heldout.measure.score.slices import cluster_column, values_in_order
from heldout.show.embed import render
from heldout.show.mistakes import MistakeCard, cards, category_colour, class_text, factors, spread
from heldout.show.wording import (
    PERCENT,
    p_text,
    percent,
    plural,
    points_cell,
)

MOST = 24
"""Images of one kind of change, and values of one column, that a page shows."""
_LEVEL = 0.95
_SECTIONS: dict[Change, str] = {
    "new": "Only the new model gets these wrong.",
    "fixed": "Only the old model gets these wrong.",
    "shared": "Both get these wrong.",
}


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

    @cached_property
    def _columns(self) -> list[int]:
        verdicts = self.study.verdicts
        return [verdicts.position(self.old), verdicts.position(self.new)]

    @cached_property
    def codes(self) -> np.ndarray:
        """The kind of mistake of each image by the old and by the new model, -1 where right."""
        return self.study.codes[:, self._columns]

    @cached_property
    def images(self) -> dict[Change, np.ndarray]:
        """By change: its images, as places in the study's images."""
        before, after = (self.codes >= 0).T
        found = {"fixed": before & ~after, "new": ~before & after, "shared": before & after}
        return {change: np.flatnonzero(found[change]) for change in CHANGES}

    @property
    def same(self) -> int:
        """Shared mistakes in which both models say the same class."""
        guesses = self._guesses[self.images["shared"]]
        return int(((guesses[:, 0] == guesses[:, 1]) & (guesses[:, 0] >= 0)).sum())

    @cached_property
    def _guesses(self) -> np.ndarray:
        return np.asarray(self.study.verdicts.guesses[self.study.firsts][:, self._columns])

    @property
    def verdict(self) -> str:
        """The change in accuracy with its interval and test, in a sentence.

        Where images come in clusters, both are over clusters.
        """
        measured = self.study.measured.of_models([self.new, self.old])
        after, before = measured.one_row_per_image().estimates()
        cluster = cluster_column(measured.testset, None)
        (record,) = compare(measured, [(self.new, self.old)], cluster=cluster, level=_LEVEL)
        cell = points_cell(record.difference, record, 2, 2)
        said = (
            f"{self.old} is right on {percent(before, digits=2)}{PERCENT} of "
            f"{plural(record.n, 'image')}, {self.new} on {percent(after, digits=2)}{PERCENT}: "
            f"{cell.text} points"
        )
        if not cell.ends:
            return f"{said}. No interval: {record.reason}."
        said += f", {100 * _LEVEL:.4g}{PERCENT} interval {cell.ends}"
        return said + ("." if record.p is None else f", p {p_text(record.p)}.")

    def by_category(self) -> list[ChangeRow]:
        """Changes by category; a shared mistake counts in the new model's category."""
        names = np.array([kind.category for kind in self.study.table])
        columns = {"fixed": 0, "new": 1, "shared": 1}
        found = [names[self.codes[self.images[c], columns[c]]] for c in CHANGES]
        return [
            ChangeRow(name, *(int((several == name).sum()) for several in found))
            for name in categories_of(self.study)
        ]

    def by_column(self) -> dict[str, list[ChangeRow]]:
        """Changes by groups of classes, and by each single column that the set declares a factor."""
        testset = self.study.verdicts.testset
        tables: dict[str, list[ChangeRow]] = {}
        if self.study.group_images:
            tables[GROUP] = [self._row(k, v) for k, v in self.study.group_images.items()]
        for column, images in factors(self.study).items():
            order = values_in_order(images, testset.card.columns.get(column))
            rows = [self._row(value, images[value]) for value in order]
            if len(rows) > MOST:
                rows = sorted(rows, key=lambda row: (-abs(row.net), row.name))[:MOST]
            tables[column] = rows
        return tables

    def _row(self, name: str, images: np.ndarray) -> ChangeRow:
        found = {c: len(np.intersect1d(self.images[c], images)) for c in CHANGES}
        return ChangeRow(name, **found, images=len(images))

    def gallery(self, change: Change) -> list[MistakeCard]:
        """Some images of one change, evenly over categories."""
        study, space = self.study, self.study.verdicts.truth.space
        known = {(m.image_id, m.prediction): m for m in study.mistakes}
        names = study.verdicts.image_ids
        asides: dict[tuple[str, str], str] = {}
        for place in self.images[change].tolist():
            old, new = self._guesses[place].tolist()
            guess = old if change == "fixed" else new
            if guess < 0:
                continue
            aside = ""
            if change == "shared":
                other = "nothing" if old < 0 else class_text(space, space.ids[old])
                aside = f"{self.old} says {'the same' if old == new else other}."
            asides[names[study.firsts[place]], space.ids[guess]] = aside
        picked = spread(study, [known[key] for key in asides], most=MOST)
        return [
            replace(card, aside=asides[mistake.image_id, mistake.prediction])
            for card, mistake in zip(cards(study, picked), picked, strict=True)
        ]


def render_mistake_diff(diff: MistakeDiff) -> str:
    """The page's HTML: one file that needs nothing but itself, and no script at all."""
    categories, tables = diff.by_category(), diff.by_column()
    rows = [*categories, *(row for table in tables.values() for row in table)]
    return render(
        "mistake_diff.html.j2",
        "report.css",
        title=f"From {diff.old} to {diff.new}",
        diff=diff,
        testset=diff.study.verdicts.testset.name,
        truth=diff.study.verdicts.truth.name,
        categories=categories,
        tables=tables,
        most=max((max(row.fixed, row.new) for row in rows), default=1) or 1,
        galleries=[(change, text, diff.gallery(change)) for change, text in _SECTIONS.items()],
        version=__version__,
        colour=category_colour,
    )


def write_mistake_diff(diff: MistakeDiff, path: Path) -> None:
    """Write the page to ``path``; the same bytes for the same study."""
    write_text(path, render_mistake_diff(diff))


def draw(request: MistakeDiffRequest, result: Result, context: Context) -> None:
    """The page of ``mistakes diff``, under its first truth, where a file for it is named."""
    if request.out is None:
        return
    changes = result.drawn
    study = study_mistakes(changes.verdicts, workspace=context.workspace)
    write_mistake_diff(
        MistakeDiff(study=study, old=changes.old, new=changes.new_model), request.out
    )
    context.say(f"wrote {request.out}")
