"""Slices that a search found, gathered from their summaries."""

from __future__ import annotations

from dataclasses import dataclass

from heldout.measure.score.records import Summary
from heldout.measure.score.slice_search import DISCOVERED, DISCOVERED_P, DISCOVERED_REST, SEARCHED
from heldout.measure.score.slices import parse_slice
from heldout.show.data import Headline
from heldout.show.panels import slice_text


@dataclass(frozen=True, kw_only=True)
class FoundSlice:
    """One slice in which a model fails more than elsewhere."""

    text: str
    score: Summary
    rest: float | None
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SearchTable:
    """The slices that a search found for one model on one test set; ``about`` says how it searched."""

    testset: str
    model: str
    metric: str
    about: str
    slices: tuple[FoundSlice, ...]


def discoveries(headline: Headline) -> list[SearchTable]:
    """Every search among the records, in their order."""
    found: dict[tuple[str, str | None, str, str], list[Summary]] = {}
    for record in headline.discovered:
        key = (record.testset, record.model, record.truth, record.metric)
        found.setdefault(key, []).append(record)
    return [
        SearchTable(
            testset=testset,
            model=model or "",
            metric=metric,
            about=next((r.reason or "" for r in records if r.name == SEARCHED), ""),
            slices=tuple(_slices(records)),
        )
        for (testset, model, _, metric), records in found.items()
    ]


def _slices(records: list[Summary]) -> list[FoundSlice]:
    by_name = {(record.name, record.at): record for record in records}
    return [
        FoundSlice(
            text=slice_text(parse_slice(record.at or "all")),
            score=record,
            rest=_value(by_name.get((DISCOVERED_REST, record.at))),
            p=_value(by_name.get((DISCOVERED_P, record.at))),
        )
        for record in records
        if record.name == DISCOVERED
    ]


def _value(record: Summary | None) -> float | None:
    return None if record is None else record.value
