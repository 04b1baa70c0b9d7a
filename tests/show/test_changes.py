from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.measure.score.records import Claim
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
    assert (cell.score.text, cell.change.text, cell.rank, cell.gain) == ("60.0", "−30.0", 3, 0)
    assert view.scores[cell.index] == records[1]
    told = Claim(
        kind="rank", testset="new", truth="original", metric="top1", stated=True, n=100, family=3,
        level=0.95, model="a", other="old", difference=-2.0, low=-2.0, high=-1.0,
    )  # fmt: skip
    proven = leaderboard(ReportView(ReportData(title="", records=[*records, told], baseline="old")))
    assert [proven[model]["new"].gain for model in "abc"] == [-2, 0, 0]


def test_the_main_sentence_is_a_number_with_its_interval_and_claims_nothing() -> None:
    records = [
        score(model, name, hits, 1000)
        for model, name, hits in (
            ("a", "old", 900),
            ("a", "new", 800),
            ("b", "old", 700),
            ("b", "new", 500),
        )
    ]
    view = ReportView(ReportData(title="", records=records, baseline="old"))
    (finding,) = findings(view)
    assert (finding.number, finding.unit) == ("−15.0", "points")
    assert "on new less that on old: mean of 2 models; interval " in finding.text
    lows, highs = zip(*((c.low, c.high) for c in view.changes["new"]), strict=True)
    ends = " to ".join(wording.points(sum(end) / 2) for end in (lows, highs))
    assert finding.text.endswith(f"interval {ends}.")
    assert not re.search("falls|rises|rank", finding.text)


def test_without_a_baseline_the_best_model_leads() -> None:
    (finding,) = findings(ReportView(ReportData(title="", records=[score("a", "s", 75, 100)])))
    assert (finding.number, finding.unit) == ("75.0", "%")
    assert finding.text == "a: top-1 accuracy on s, over 100 images; interval 65.7–82.5."
    bare = dataclasses.replace(score("a", "s", 75, 100), low=None, high=None)
    (finding,) = findings(ReportView(ReportData(title="", records=[bare])))
    assert finding.text == "a: top-1 accuracy on s, over 100 images."


def test_the_change_of_one_model_is_named_after_it() -> None:
    records = [score("a", "old", 80, 100), score("a", "new", 60, 100)]
    (finding,) = findings(ReportView(ReportData(title="", records=records, baseline="old")))
    assert finding.text == ("Top-1 accuracy on new less that on old: a; interval −31.9 to −7.3.")


def test_a_slice_is_named_only_where_a_claim_names_it() -> None:
    records = [
        score("a", "s", 80, 100),
        score("b", "s", 60, 100),
        dataclasses.replace(score("b", "s", 30, 100, slice="class=y"), statistic="worst"),
    ]
    found = findings(ReportView(ReportData(title="", records=records)))
    assert [(one.number, one.unit) for one in found] == [("60.0–80.0", "%")]
    hard = Claim(
        kind="slice", testset="s", truth="original", metric="top1", stated=True, n=100, family=40,
        level=0.95, model="b", slice="class=y", where="class = yak", difference=-0.3, low=-0.45,
        high=-0.15, p=0.0004, told=2,
    )  # fmt: skip
    stated = findings(ReportView(ReportData(title="", records=[*records, hard])))[1]
    assert (stated.number, stated.unit) == ("−30.0", "points")
    assert "b on the 100 images of s with class = yak, top1 less" in stated.text
    assert (
        "interval −45.0 to −15.0, p < 0.001" in stated.text and "for 2 of 40 slices" in stated.text
    )
    nothing = dataclasses.replace(
        hard, stated=False, model=None, slice="all", where="", p=0.31, told=0
    )
    none = findings(ReportView(ReportData(title="", records=[*records, nothing])))[1]
    assert none.number == "none" and "y" not in none.text.split("no slice of s")[1].split()[0]
    assert none.text.startswith("no slice of s can be told from its other images")


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


def test_equal_models_are_listed_by_name_and_none_is_called_the_best() -> None:
    records = [score(name, "s", 75, 100) for name in ("zed", "ann")]
    view = ReportView(ReportData(title="", records=records))
    (finding,) = findings(view)
    assert finding.text == "Top-1 accuracy on s, over 100 images: 2 models."
    assert view.models == ["ann", "zed"]


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


def test_what_was_done_to_a_metric_is_said_around_its_name() -> None:
    assert wording.metric_name("top1_worst") == "lowest slice, top-1 accuracy"
    assert wording.metric_name("top1_minor_rank") == (
        "rank by top-1 accuracy, fine-grained mistakes forgiven"
    )
