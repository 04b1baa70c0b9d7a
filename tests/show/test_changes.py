from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.show import wording
from heldout.show.exports import figures
from heldout.show.tables import findings, leaderboard
from heldout.show.view import ReportData, ReportView, difference_interval, ranks

from .records import everything, score


def test_the_interval_of_a_difference_is_newcombes_published_example() -> None:
    # Newcombe (1998), Statistics in Medicine 17:873, table II (a), method 10: 56/70 − 48/80.
    low, high = difference_interval(score("m", "old", 48, 80), score("m", "new", 56, 70))
    assert (low, high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))


def test_without_an_interval_the_difference_has_none() -> None:
    bare = dataclasses.replace(score("m", "old", 48, 80), low=None, high=None)
    assert difference_interval(bare, score("m", "new", 5, 7)) == (None, None)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 5).map(float), min_size=1))
def test_ranks_count_the_strictly_better(values: dict[str, float]) -> None:
    slow = {name: 1 + sum(v > values[name] for v in values.values()) for name in values}
    assert ranks(values) == slow


def test_changes_and_ranks_of_a_small_table() -> None:
    table = {"a": (90, 60), "b": (80, 70), "c": (70, 65)}
    records = [
        score(model, name, hits[k], 100)
        for model, hits in table.items()
        for k, name in enumerate(("old", "new"))
    ]
    view = ReportView(ReportData(title="", records=records, baseline="old"))
    found = {c.model: c for c in view.changes["new"]}
    assert [found[m].difference for m in "abc"] == pytest.approx([-0.3, -0.1, -0.05])
    assert [(found[m].old_rank, found[m].new_rank) for m in "abc"] == [(1, 3), (2, 1), (3, 2)]
    assert [found[m].rank_gain for m in "abc"] == [-2, 1, 1]
    board = leaderboard(view)
    assert list(board) == ["a", "b", "c"]
    cell = board["a"]["new"]
    assert (cell.score.text, cell.change.text, cell.rank, cell.gain) == ("60.0", "−30.0", 3, -2)
    assert view.scores[cell.index] == records[1]


def test_the_main_sentence_says_what_the_scores_say() -> None:
    records = [
        score(model, name, hits, 1000)
        for model, name, hits in (
            ("a", "old", 900),
            ("a", "new", 800),
            ("b", "old", 700),
            ("b", "new", 500),
        )
    ]
    (finding,) = findings(ReportView(ReportData(title="", records=records, baseline="old")))
    assert (finding.number, finding.unit) == ("−15.0", "points")
    assert "between −20.0 (b) and −10.0 (a)" in finding.text
    assert "None of them change rank" in finding.text


def test_without_a_baseline_the_best_model_leads() -> None:
    (finding,) = findings(ReportView(ReportData(title="", records=[score("a", "s", 75, 100)])))
    assert (finding.number, finding.unit) == ("75.0", "%")


def test_the_worst_slice_is_the_farthest_below_the_models_own_score() -> None:
    records = [
        score("a", "s", 80, 100),
        score("b", "s", 60, 100),
        dataclasses.replace(score("a", "s", 70, 100, slice="k=x"), statistic="worst"),
        dataclasses.replace(score("b", "s", 30, 100, slice="k=y"), statistic="worst"),
    ]
    found = findings(ReportView(ReportData(title="", records=records)))[1]
    assert found.number == "−30.0"
    assert "k = y: b has 30.0" in found.text and "on 100 images" in found.text


def test_few_test_sets_share_a_figure_and_many_do_not() -> None:
    names = ["old", *(f"new{k}" for k in range(6))]
    records = [score(m, name, 50 + k, 100) for name in names for k, m in enumerate("abc")]
    found = figures(ReportData(title="", records=records, baseline="old"))
    drawn = [name for name in found if name.startswith("changes")]
    assert drawn == ["changes", "changes-2"]
    assert len({row["testset"] for row in found["changes"]["data"]["values"]}) == 4


def test_rank_intervals_reach_the_table_of_models() -> None:
    board = leaderboard(ReportView(everything()))
    assert board["ant"]["old"].rank_ends == "1–2"


def test_of_equal_models_the_first_name_is_the_best_as_in_the_table() -> None:
    records = [score(name, "s", 75, 100) for name in ("zed", "ann")]
    view = ReportView(ReportData(title="", records=records))
    (finding,) = findings(view)
    assert finding.text.startswith("ann: ") and view.models == ["ann", "zed"]


def test_a_slice_of_few_images_is_never_called_the_worst() -> None:
    whole = score("m", "s", 75, 100)
    tiny = dataclasses.replace(score("m", "s", 0, 3, slice="place=attic"), statistic="worst")
    large = dataclasses.replace(score("m", "s", 30, 50, slice="size=1"), statistic="worst")
    found = ReportView(ReportData(title="", records=[whole, tiny, large]))
    assert "worst slice of s is size = 1" in findings(found)[1].text
    assert len(findings(ReportView(ReportData(title="", records=[whole, tiny])))) == 1


@pytest.mark.parametrize(
    ("metric", "share", "higher"),
    [
        ("top1", True, True),
        ("top1_weighted", True, True),
        ("top1_worst", True, True),
        ("top1_judged_minor", True, True),
        ("ece", True, False),
        ("nll", False, False),
        ("nll_weighted", False, False),
        ("brier_weighted", False, False),
        ("hierarchical_distance", False, False),
        ("error_consistency", False, True),
        ("top1_rank", False, True),
        ("effective_robustness", True, True),
        ("somebody_elses", True, True),
    ],
)
def test_every_metric_is_read_as_what_it_is(metric: str, share: bool, higher: bool) -> None:
    assert (wording.is_share(metric), wording.higher_is_better(metric)) == (share, higher)
