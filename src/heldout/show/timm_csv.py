"""Scores in the columns of timm's result tables.

timm publishes one CSV a test set: accuracies in percent with three decimals, rows sorted by top-1,
then top-5, then name. Tables of a shifted set also carry the differences from the plain ImageNet
table and the change of rank, where a rank is a row's place among the rows of its own table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import NotApplicable
from heldout.core.files import csv_text, write_text
from heldout.measure.score.records import Record, Score
from heldout.measure.score.slices import ALL

COLUMNS = (
    "model",
    "img_size",
    "top1",
    "top1_err",
    "top5",
    "top5_err",
    "param_count",
    "crop_pct",
    "interpolation",
)
DIFFERENCES = ("top1_diff", "top5_diff", "rank_diff")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What timm's table says of a model beside its accuracy; unknown facts stay empty.

    ``img_size`` in pixels, ``param_count`` in millions, ``crop_pct`` as a fraction.
    """

    img_size: int | None = None
    param_count: float | None = None
    crop_pct: float | None = None
    interpolation: str = ""


_Accuracies = dict[str, tuple[float, float | None]]


def write_timm_csv(
    records: Iterable[Record],
    path: Path,
    *,
    testset: str,
    baseline: str | None = None,
    truth: str | None = None,
    facts: Mapping[str, ModelFacts] | None = None,
) -> None:
    """Write the scores ``top1`` and ``top5`` of one test set as a table like timm's.

    With ``baseline`` the columns ``top1_diff``, ``top5_diff`` and ``rank_diff`` follow; they are
    empty for a model without scores on the baseline. ``truth`` chooses among several truths; by
    default the first that occurs. A missing top-5 accuracy leaves its cells empty.
    """
    scores = [record for record in records if isinstance(record, Score)]
    found = _accuracies(scores, testset, truth)
    base = _accuracies(scores, baseline, truth) if baseline is not None else {}
    base_place = {model: place for place, model in enumerate(_sorted(base))}
    rows = []
    for place, model in enumerate(_sorted(found)):
        fact = (facts or {}).get(model, ModelFacts())
        top1, top5 = found[model]
        row = [
            model,
            "" if fact.img_size is None else str(fact.img_size),
            f"{top1:.3f}",
            f"{100 - top1:.3f}",
            "" if top5 is None else f"{top5:.3f}",
            "" if top5 is None else f"{100 - top5:.3f}",
            "" if fact.param_count is None else f"{fact.param_count:,.2f}",
            "" if fact.crop_pct is None else f"{fact.crop_pct:.3f}",
            fact.interpolation,
        ]
        if baseline is not None and model in base:
            base1, base5 = base[model]
            gain = base_place[model] - place
            row += [
                _signed(top1 - base1),
                "" if top5 is None or base5 is None else _signed(top5 - base5),
                f"{gain:+d}" if gain else "0",
            ]
        elif baseline is not None:
            row += ["", "", ""]
        rows.append(row)
    header = COLUMNS + (DIFFERENCES if baseline is not None else ())
    write_text(path, csv_text(header, rows))


def _accuracies(scores: Iterable[Score], testset: str, truth: str | None) -> _Accuracies:
    """By model: top-1 and top-5 in percent."""
    chosen = [
        s
        for s in scores
        if s.testset == testset and s.slice == ALL and (truth is None or s.truth == truth)
    ]
    first = {s.metric: (s.truth, s.label_map) for s in reversed(chosen)}
    by_metric: dict[str, dict[str, float]] = {"top1": {}, "top5": {}}
    for s in chosen:
        if s.metric in by_metric and first[s.metric] == (s.truth, s.label_map):
            by_metric[s.metric].setdefault(s.model, 100 * s.value)
    if not by_metric["top1"]:
        raise NotApplicable(
            f"no top1 score on {testset!r}" + (f" with truth {truth!r}" if truth else ""),
            fix="score the models with the metric top1 first",
        )
    return {
        model: (top1, by_metric["top5"].get(model)) for model, top1 in by_metric["top1"].items()
    }


def _sorted(accuracies: _Accuracies) -> list[str]:
    """The models as timm sorts them, by what is printed: top-1, then top-5, then name."""

    def key(model: str) -> tuple[float, float, str]:
        top1, top5 = accuracies[model]
        return -round(top1, 3), -round(top5 if top5 is not None else -1.0, 3), model

    return sorted(accuracies, key=key)


def _signed(difference: float) -> str:
    """timm's sign rule: a plus for zero and more."""
    return f"{'+' if difference >= 0 else '-'}{abs(difference):.3f}"
