"""Mistakes in a report: tallies gathered by test set, and cards of single mistakes to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product, zip_longest

import numpy as np

from heldout.core.errors import UserError
from heldout.data.judgements.judgement import CATEGORIES
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.categories import (
    FINE_GRAINED,
    NO_MISTAKE,
    NON_PROTOTYPICAL,
    OTHER,
    SPURIOUS,
)
from heldout.measure.mistakes.panel import (
    BASES,
    JUDGED,
    NO_CLASS,
    NO_OUTPUT,
    PROPOSED,
    UNJUDGED,
    UNREVIEWED,
)
from heldout.measure.mistakes.tally import (
    ALL,
    CATEGORY_ORDER,
    EXPLAINED,
    LENIENT,
    MINOR,
    SEVERITY_ORDER,
    Study,
    ordered,
)
from heldout.measure.mistakes.verdicts import Mistake
from heldout.measure.score.records import Score, Tally
from heldout.measure.score.slices import factor_columns, parse_slice
from heldout.show import charts
from heldout.show.thumbnails import thumbnails
from heldout.show.wording import PERCENT, best_middle_worst, count, percent, plural

SIDE = 176
MOST = 18
_MOST_EVIDENCE = 3
_MOST_NAMES = 4
_BASES = {
    JUDGED: "judged by people",
    PROPOSED: "proposed from evidence",
    UNREVIEWED: "proposed and not reviewed: the prediction may be right",
}
# Blue where classes are alike, green and ochre where something else explains, vermillion where
# nothing does: a bar's colours say how bad it is before its length does.
CATEGORY_COLOURS: Mapping[str, str] = {
    NO_MISTAKE: "#b6bfc8",
    FINE_GRAINED: charts.BLUE,
    CATEGORIES[1]: "#56a3d3",
    CATEGORIES[2]: "#9fc7e6",
    NON_PROTOTYPICAL: charts.GREEN,
    SPURIOUS: "#c79a1e",
    OTHER: charts.VERMILLION,
    NO_OUTPUT: "#5c5c5c",
    NO_CLASS: "#8a8f96",
}


def category_colour(name: str) -> str:
    """The colour of a category, everywhere on a page."""
    return CATEGORY_COLOURS.get(name, charts.PURPLE)


class MistakeSection:
    """All tallies of one test set under one truth.

    ``key``       the group of the section's figures
    ``models``    in the report's order; ``shown`` are the best, a middle and the worst
    ``tallies``   of the whole set by (model, category, severity, basis)
    ``slices``    by columns: tallies of slices
    ``base``      by model: accuracy with every mistake counted
    ``forgiven``  by the ending of a metric's name, then by model: accuracy with some forgiven
    """

    def __init__(
        self,
        testset: str,
        truth: str,
        records: Sequence[Tally],
        scores: Sequence[Score],
        models: Sequence[str],
    ) -> None:
        self.testset, self.truth, self.key = testset, truth, f"{testset}\n{truth}"
        self.models = ordered({str(record.model) for record in records}, models)
        self.shown = best_middle_worst(self.models)
        self.tallies: dict[tuple[str, str, str, str], Tally] = {}
        self.slices: dict[tuple[str, ...], dict[str, dict[str, dict[str, Tally]]]] = {}
        for record in records:
            model = str(record.model)
            if record.slice == ALL:
                self.tallies[model, record.category, record.severity, record.basis] = record
            elif record.severity == ALL and record.basis == ALL:
                columns = tuple(sorted(parse_slice(record.slice)))
                by_model = self.slices.setdefault(columns, {}).setdefault(model, {})
                by_model.setdefault(record.slice, {})[record.category] = record
        for model, category in product(self.shown, [ALL, *self.categories]):
            if self.get(model, category) is None:
                raise UserError(
                    f"the records lack the tally {category!r} of {model} on {testset}",
                    fix="report all records that --save wrote",
                )
        found: dict[str, dict[str, Score]] = {}
        for s in scores:
            if (s.testset, s.truth, s.slice) == (testset, truth, ALL):
                found.setdefault(s.metric, {})[s.model] = s
        metric = next((m.removesuffix(f"_{MINOR}") for m in found if m.endswith(f"_{MINOR}")), "")
        self.base = found.get(metric, {})
        self.forgiven = {
            end: found.get(f"{metric}_{end}", {}) for end in (MINOR, EXPLAINED, LENIENT)
        }

    @cached_property
    def categories(self) -> list[str]:
        """The categories that occur, in the order of tables."""
        return ordered({key[1] for key in self.tallies} - {ALL}, CATEGORY_ORDER)

    @cached_property
    def severities(self) -> list[str]:
        """The severities that occur in some category, in the order of tables."""
        found = {key[2] for key in self.tallies if key[1] != ALL}
        return ordered(found - {ALL}, SEVERITY_ORDER)

    def get(
        self, model: str, category: str = ALL, severity: str = ALL, basis: str = ALL
    ) -> Tally | None:
        """One tally of the whole set."""
        return self.tallies.get((model, category, severity, basis))

    def cell(self, model: str, category: str, severity: str) -> int:
        """Mistakes of one category and severity, whatever the basis."""
        # Of a category and a severity together there are tallies by basis only.
        bases = (ALL,) if ALL in (category, severity) else BASES
        found = (self.get(model, category, severity, basis) for basis in bases)
        return sum(tally.n for tally in found if tally is not None)

    @property
    def lede(self) -> str:
        """What the categories rest on, in words."""
        model = self.models[0]
        total = self.get(model)
        if total is None:
            return ""
        found = {text: self.get(model, basis=basis) for basis, text in _BASES.items()}
        said = [f"{count(tally.n)} {text}" for text, tally in found.items() if tally and tally.n]
        share = "" if total.value is None else f", {percent(total.value)}{PERCENT}"
        made = f"{model} makes {plural(total.n, 'mistake')} on {plural(total.of, 'image')}{share}"
        source = f" Proposed from: {total.evidence}." if total.evidence else ""
        return f"{made}. Categories: {'; '.join(said) or 'none'}.{source}"


@dataclass(frozen=True, kw_only=True)
class MistakeCard:
    """One mistake as a page shows it.

    ``image``       a data URI, or empty where the image is not there
    ``right``       names of the classes that would have been right
    ``predicted``   name of the class that was predicted
    ``severity``    as judged; empty where nobody has
    ``suggestion``  what is suggested about the severity, in words; empty without any
    ``columns``     values of the columns that the test set varies, in words
    ``models``      which models make it, of ``of_models`` that were looked at
    ``aside``       anything else to say, such as what another model says of the image
    """

    testset: str
    image_id: str
    image: str = ""
    right: tuple[str, ...]
    predicted: str
    category: str
    severity: str = ""
    basis: str
    suggestion: str = ""
    evidence: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    of_models: int = 1
    aside: str = ""

    @property
    def alt(self) -> str:
        """The card's image in words."""
        return f"{self.image_id}: {', '.join(self.right)}, taken for {self.predicted}"


def gallery(study: Study) -> list[MistakeCard]:
    """Mistakes worth looking at first, evenly over categories, with their images where present."""
    return cards(study, spread(study, study.mistakes, most=MOST))


def spread(study: Study, mistakes: Iterable[Mistake], *, most: int) -> list[Mistake]:
    """At most ``most`` of some mistakes, in turns over their categories; sorted by category.

    In a category every confusion comes once before any comes twice; then judged before proposed,
    Major before Minor, and those first that most models make.
    """

    def rank(mistake: Mistake) -> tuple[bool, int, float, int, str, str]:
        kind = study.kinds[mistake.image_id, mistake.prediction]
        severity = SEVERITY_ORDER.index(kind.severity) if kind.severity in SEVERITY_ORDER else 9
        major = 0.0 if kind.major is None else -kind.major[0]
        judged, made = kind.basis == JUDGED, len(mistake.models)
        return not judged, severity, major, -made, mistake.image_id, mistake.prediction

    seen: Counter[tuple[str, ...]] = Counter()
    turns: list[tuple[int, Mistake]] = []
    for mistake in sorted(mistakes, key=rank):
        pair = (*mistake.acceptable[:1], mistake.prediction)
        turns.append((seen[pair], mistake))
        seen[pair] += 1
    groups: dict[str, list[Mistake]] = {}
    for _, mistake in sorted(turns, key=lambda turn: turn[0]):  # stable: else as ranked
        category = study.kinds[mistake.image_id, mistake.prediction].category
        groups.setdefault(category, []).append(mistake)
    names = ordered(set(groups), CATEGORY_ORDER)
    rounds = zip_longest(*(groups[name] for name in names))
    dealt = [(names[i], m) for found in rounds for i, m in enumerate(found) if m is not None][:most]
    return [mistake for name in names for category, mistake in dealt if category == name]


def cards(study: Study, mistakes: Sequence[Mistake]) -> list[MistakeCard]:
    """A card for each mistake, in the order given."""
    testset, space = study.verdicts.testset, study.verdicts.truth.space
    images = list(dict.fromkeys(mistake.image_id for mistake in mistakes))
    small = thumbnails(testset, images, side=SIDE)
    columns = _columns(study, images)
    found = []
    for mistake in mistakes:
        kind = study.kinds[mistake.image_id, mistake.prediction]
        suggestion = ""
        if kind.major is not None:
            value, low, high = (percent(part, digits=0) for part in kind.major)
            suggestion = f"Major with {value} % ({low}–{high})"
        found.append(
            MistakeCard(
                testset=testset.name,
                image_id=mistake.image_id,
                image=small.get(mistake.image_id, ""),
                right=tuple(class_text(space, one) for one in mistake.acceptable[:_MOST_NAMES]),
                predicted=class_text(space, mistake.prediction),
                category=kind.category,
                severity="" if kind.severity == UNJUDGED else kind.severity,
                basis=kind.basis,
                suggestion=suggestion,
                evidence=tuple(item.text for item in kind.evidence[:_MOST_EVIDENCE]),
                columns=columns[mistake.image_id],
                models=mistake.models,
                of_models=len(study.verdicts.models),
            )
        )
    return found


def class_text(space: LabelSpace, class_id: str) -> str:
    """A class as a person reads it; with its id where another has the same name."""
    item = space.classes[space.index(class_id)]
    shared = sum(other.name == item.name for other in space.classes) > 1
    return f"{item.name} ({class_id})" if shared else item.name


def factors(study: Study) -> dict[str, dict[str, np.ndarray]]:
    """By column that the test set declares a factor, and value: its images, as places in the study's."""
    testset = study.verdicts.testset
    names = dict.fromkeys(
        c for entry in testset.card.factors for c in factor_columns(testset, entry)
    )
    return {
        column: {parse_slice(name)[column]: images for name, images in slices.items()}
        for column, slices in zip(names, study.slices(list(names)), strict=True)
    }


def _columns(study: Study, images: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By image: its values of the columns that the set declares as its factors, in words."""
    ids = np.array(study.verdicts.image_ids)[study.firsts]
    wanted = np.flatnonzero(np.isin(ids, images))
    found: dict[str, list[str]] = {image: [] for image in images}
    for column, values in factors(study).items():
        for place in wanted:
            texts = [value for value, members in values.items() if place in members]
            if texts:
                found[str(ids[place])].append(f"{column} {', '.join(texts)}")
    return {image: tuple(said) for image, said in found.items()}
