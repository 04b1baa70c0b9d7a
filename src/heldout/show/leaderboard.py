"""The table of models: a row a model, a group of columns a test set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from heldout.measure.score.records import Score
from heldout.show.changes import Change, changes
from heldout.show.data import Headline
from heldout.show.ranks import ranks
from heldout.show.wording import PERCENT, is_share, merit, points, range_text, value_text


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One model on one test set, ready to print; empty texts where there is nothing to say.

    ``index`` finds the score among the report's scores, so the page can show where it is from.
    """

    index: int
    value: float
    text: str
    ends: str
    rank: int
    change: str = ""
    change_value: float | None = None
    change_ends: str = ""
    rank_ends: str = ""
    gain: int = 0


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Rows of (model, cells by test set); a missing cell is absent from its mapping."""

    testsets: tuple[str, ...]
    compared: frozenset[str]
    rows: tuple[tuple[str, Mapping[str, Cell]], ...]


def leaderboard(headline: Headline) -> Leaderboard:
    """Every model's headline score on every test set, with its change from the baseline."""
    index = {id(score): place for place, score in enumerate(headline.scores)}
    compared = headline.new_testsets if is_share(headline.metric) else []
    moves = {name: {c.model: c for c in changes(headline, name)} for name in compared}
    cells: dict[str, dict[str, Cell]] = {}
    shown = [name for name in headline.testsets if headline.overall(name)]
    for name in shown:
        scores = headline.overall(name)
        placed = ranks({m: merit(headline.metric, score.value) for m, score in scores.items()})
        spans = headline.overall(name, metric=f"{headline.metric}_rank")
        for model, score in scores.items():
            move = moves.get(name, {}).get(model)
            cells.setdefault(model, {})[name] = _cell(
                score, index[id(score)], placed[model], move, spans.get(model)
            )
    return Leaderboard(
        testsets=tuple(shown),
        compared=frozenset(compared),
        rows=tuple((model, cells[model]) for model in headline.models if model in cells),
    )


def _cell(score: Score, index: int, rank: int, move: Change | None, span: Score | None) -> Cell:
    cell = Cell(
        index=index,
        value=score.value,
        text=value_text(score.metric, score.value).removesuffix(PERCENT),
        ends=range_text(score.metric, score.low, score.high),
        rank=rank,
        rank_ends="" if span is None else range_text(span.metric, span.low, span.high),
    )
    if move is None:
        return cell
    known = move.low is not None and move.high is not None
    return replace(
        cell,
        rank=move.new_rank,
        change=points(move.difference),
        change_value=move.difference,
        change_ends=f"{points(move.low or 0.0)} to {points(move.high or 0.0)}" if known else "",
        gain=move.rank_gain,
    )
