"""Records as a person reads them at the terminal."""

from __future__ import annotations

import pytest

from heldout.cli.tables import number, show_comparisons, show_scores, summary_cell
from heldout.measure.score.records import Comparison, Score, Summary


def score(model: str, metric: str, value: float) -> Score:
    return Score(model=model, testset="t", truth="original", metric=metric, n=10, value=value)


def test_shares_in_percent_and_all_else_as_it_is() -> None:
    assert number(0.7831, "top1") == "78.31"
    assert number(0.02, "ece20") == "2.00"
    assert number(1.25, "nll_weighted") == number(1.25, "lca_height") == "1.250"
    assert number(2.0, "top1_rank") == "2"


def test_the_best_model_is_first(capsys: pytest.CaptureFixture[str]) -> None:
    show_scores([score("worse", "nll", 2.5), score("better", "nll", 0.5)])
    shown = capsys.readouterr().out
    assert shown.index("better") < shown.index("worse")


def test_a_place_is_shown_as_it_was_written() -> None:
    common = {"model": "m", "testset": "t", "truth": "original", "metric": "top1", "n": 9}
    one = Summary(columns="name", name="worst_value", value=0.5, at="50%25", **common)
    two = Summary(columns="x&y", name="worst_value", value=0.5, at="x=50%25&y=a", **common)
    assert summary_cell(one) == "50.0 at 50%25"
    assert summary_cell(two) == "50.0 at 50%, a"


def test_comparisons_of_several_metrics_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    common = {"model": "a", "other": "b", "testset": "t", "truth": "original", "n": 9}
    top1 = Comparison(metric="top1", difference=0.02, **common)
    show_comparisons([top1])
    assert "metric" not in capsys.readouterr().out
    show_comparisons([top1, Comparison(metric="nll", difference=-0.5, **common)])
    shown = capsys.readouterr().out
    assert "+2.00" in shown and "-0.500" in shown and "metric" in shown
