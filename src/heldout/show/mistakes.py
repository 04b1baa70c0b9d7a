"""The report's section on mistakes: tallies gathered by test set, as tables and for figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from heldout.measure.mistakes.forgiving import EXPLAINED, LENIENT, MINOR
from heldout.measure.mistakes.kinds import JUDGED, PROPOSED, UNREVIEWED
from heldout.measure.mistakes.tallying import ALL, CATEGORY_ORDER, SEVERITY_ORDER, ordered
from heldout.measure.score.records import Score, Tally
from heldout.measure.score.slices import parse_slice
from heldout.show.data import Headline
from heldout.show.wording import PERCENT, count, percent, plural

FORGIVEN = (MINOR, EXPLAINED, LENIENT)
MOST_TABLES = 3


@dataclass(frozen=True, eq=False)
class MistakePart:
    """All tallies of one test set under one truth.

    ``models``   in the report's order; ``tallies`` of the whole set by (model, category, severity,
    basis); ``slices`` by columns, then model, slice and category, all severities and bases together
    """

    testset: str
    truth: str
    models: tuple[str, ...]
    tallies: Mapping[tuple[str, str, str, str], Tally]
    slices: Mapping[tuple[str, ...], Mapping[str, Mapping[str, Mapping[str, Tally]]]]
    base: Mapping[str, Score]
    forgiven: Mapping[str, Mapping[str, Score]]

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
        if ALL in (category, severity):
            found = self.get(model, category, severity)
            return 0 if found is None else found.n
        keys = [(model, category, severity, basis) for basis in (JUDGED, PROPOSED, UNREVIEWED)]
        return sum(self.tallies[key].n for key in keys if key in self.tallies)

    @property
    def shown(self) -> list[str]:
        """The best, a middle and the worst model."""
        if len(self.models) <= MOST_TABLES:
            return list(self.models)
        return [self.models[0], self.models[len(self.models) // 2], self.models[-1]]

    @property
    def lede(self) -> str:
        """What the categories rest on, in words."""
        model = self.models[0]
        total = self.get(model)
        said = []
        for basis, text in (
            (JUDGED, "judged by people"),
            (PROPOSED, "proposed from evidence"),
            (UNREVIEWED, "proposed and not reviewed: the prediction may be right"),
        ):
            found = self.get(model, basis=basis)
            if found is not None and found.n:
                said.append(f"{count(found.n)} {text}")
        if total is None:
            return ""
        share = "" if total.value is None else f", {percent(total.value)}{PERCENT}"
        made = f"{model} makes {plural(total.n, 'mistake')} on {plural(total.of, 'image')}{share}"
        return f"{made}. Categories: {'; '.join(said) or 'none'}."

    @property
    def suggested(self) -> str:
        """How many unjudged mistakes are Major if the suggestions are right; empty without any."""
        found = self.get(self.models[0], severity="Major", basis=PROPOSED)
        if found is None or found.low is None or found.high is None:
            return ""
        low, high = round(found.low * found.of), round(found.high * found.of)
        return (
            f"Among the mistakes of {self.models[0]} that nobody has judged, about "
            f"{count(found.n)} ({count(low)}–{count(high)}) are suggested to be Major. A suggestion "
            "decides nothing."
        )


def mistake_parts(headline: Headline) -> list[MistakePart]:
    """The tallies of a report by test set and truth, in order of first appearance."""
    records = [r for r in headline.data.records if isinstance(r, Tally) and r.model is not None]
    keys = dict.fromkeys((record.testset, record.truth) for record in records)
    return [_part(headline, testset, truth, records) for testset, truth in keys]


def _part(headline: Headline, testset: str, truth: str, records: Sequence[Tally]) -> MistakePart:
    mine = [r for r in records if (r.testset, r.truth) == (testset, truth)]
    present = dict.fromkeys(str(r.model) for r in mine)
    place = {model: number for number, model in enumerate(headline.models)}
    models = sorted(present, key=lambda m: (place.get(m, len(place)), m))
    tallies: dict[tuple[str, str, str, str], Tally] = {}
    slices: dict[tuple[str, ...], dict[str, dict[str, dict[str, Tally]]]] = {}
    for record in mine:
        model = str(record.model)
        if record.slice == ALL:
            tallies[model, record.category, record.severity, record.basis] = record
        elif record.severity == ALL and record.basis == ALL:
            columns = tuple(sorted(parse_slice(record.slice)))
            by_model = slices.setdefault(columns, {}).setdefault(model, {})
            by_model.setdefault(record.slice, {})[record.category] = record
    scores = [s for s in headline.scores if (s.testset, s.truth, s.slice) == (testset, truth, ALL)]
    metric = next((s.metric.removesuffix(MINOR) for s in scores if s.metric.endswith(MINOR)), "")
    return MistakePart(
        testset,
        truth,
        tuple(models),
        tallies,
        slices,
        {s.model: s for s in scores if s.metric == metric},
        {
            ending: {s.model: s for s in scores if s.metric == f"{metric}{ending}"}
            for ending in FORGIVEN
        },
    )
