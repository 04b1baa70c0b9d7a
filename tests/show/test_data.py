from __future__ import annotations

import dataclasses

import pytest

from heldout.core.errors import NotApplicable
from heldout.show.view import ReportData, ReportView

from .records import fits, score, scores


def test_the_headline_metric_is_top1_wherever_it_comes() -> None:
    data = ReportData(title="", records=scores(["a"], ["s"], metrics=["top5", "top1"]))
    assert ReportView(data).metric == "top1"
    assert ReportView(dataclasses.replace(data, metric="top5")).metric == "top5"


def test_an_unknown_metric_or_baseline_is_the_users_error() -> None:
    records = scores(["a"], ["s"], metrics=["top1"])
    with pytest.raises(NotApplicable, match="choose one of top1"):
        _ = ReportView(ReportData(title="", records=records, metric="top2")).metric
    with pytest.raises(NotApplicable, match="choose one of s"):
        _ = ReportView(ReportData(title="", records=records, baseline="t")).baseline


def test_the_baseline_follows_from_the_fits_and_leads_the_test_sets() -> None:
    whole = scores(["a", "b", "c"], ["new", "old"], metrics=["top1"])
    assert ReportView(ReportData(title="", records=whole)).baseline is None
    found = ReportView(ReportData(title="", records=[*whole, *fits(whole, "old")]))
    assert (found.baseline, found.testsets, found.new_testsets) == ("old", ["old", "new"], ["new"])


def test_models_are_ranked_best_first_also_where_lower_is_better() -> None:
    losses = [
        dataclasses.replace(score(name, "s", k, 10), metric="nll")
        for name, k in (("a", 5), ("b", 2), ("c", 9))
    ]
    assert ReportView(ReportData(title="", records=losses)).models == ["b", "a", "c"]
    hits = [score(name, "s", k, 10) for name, k in (("a", 5), ("b", 2), ("c", 9))]
    assert ReportView(ReportData(title="", records=hits)).models == ["c", "a", "b"]


def test_figures_show_the_first_truth_and_never_mix_two() -> None:
    first = [score("a", "s", 5, 10), score("b", "s", 6, 10)]
    second = [dataclasses.replace(s, truth="panel", value=0.9) for s in first]
    found = ReportView(ReportData(title="", records=[*first, *second])).overall("s")
    assert [s.value for s in found.values()] == [0.5, 0.6]
