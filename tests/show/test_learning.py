"""Learning records in the report: curves, where labels went, differences, hostile names."""

from __future__ import annotations

import dataclasses
import re

from heldout.measure.score.records import Learning, Record
from heldout.show.learning import MOST
from heldout.show.mistake_figures import learning_figures
from heldout.show.page import render_report
from heldout.show.view import ReportData, ReportView

NASTY = "<b>x</b>&\"'\\u0022+error"


def records(names: tuple[str, ...] = ("random", "margin", NASTY)) -> list[Record]:
    made: list[Record] = []
    shared = {"testset": "set", "truth": "original", "n": 90, "seeds": 4}

    def point(strategy: str, metric: str, value: float | None, **more: object) -> Learning:
        ends = {} if value is None else {"low": value - 0.02, "high": value + 0.03}
        return Learning(strategy=strategy, metric=metric, value=value, **shared, **ends, **more)  # type: ignore[arg-type]

    for place, name in enumerate(names):
        for metric in ("accuracy", "worst_domain", "worst_cell"):
            for step, labels in enumerate((10, 20, 30)):
                value = None if metric == "worst_cell" else 0.5 + 0.05 * step + 0.01 * place
                made.append(point(name, metric, value, labels=labels))
            made.append(point(name, metric, 0.6 + 0.01 * place))
        for domain, share in (("domain=a", 0.7), ("domain=b", 0.3)):
            made += [
                point(name, "label_share", share, labels=labels, slice=domain)
                for labels in (10, 20, 30)
            ]
        if place:
            made += [
                point(
                    name,
                    metric,
                    0.01 * place,
                    other=names[0],
                    p=0.01,
                    adjusted_p=0.02,
                    interval=kind,
                )
                for metric in ("accuracy", "worst_domain")
                for kind in ("t over seeds", "bootstrap over seeds and images")
            ]
    return made


def test_the_part_knows_baseline_strategies_and_points() -> None:
    (part,) = ReportView(ReportData(title="t", records=records())).learning
    assert part.baseline == "random" and part.strategies == ["random", "margin", NASTY]
    assert part.labels == [10, 20, 30]
    assert part.lede.startswith("3 strategies from 10 to 30 labels, 4 seeds, 90 test images.")
    assert part.shown == ["random", NASTY, "margin"]
    assert part.columns == ["accuracy", "worst_domain", "worst_cell"]
    (_, level), *_ = part.levels
    assert [cell.text for cell in level] == ["60.0", "60.0", "–"]
    assert [(a, b, [c.text for c in cells]) for a, b, cells in part.differences] == [
        ("margin", "random", ["+1.0", "+1.0"]),
        (NASTY, "random", ["+2.0", "+2.0"]),
    ]
    assert all(cell.sure for _, _, cells in part.differences for cell in cells)
    assert part.interval == "bootstrap over seeds and images"


def test_a_difference_that_chance_makes_is_not_bold() -> None:
    found = [
        dataclasses.replace(r, adjusted_p=0.2) if isinstance(r, Learning) and r.other else r
        for r in records()
    ]
    (part,) = ReportView(ReportData(title="t", records=found)).learning
    assert part.differences
    assert not any(cell.sure for _, _, cells in part.differences for cell in cells)


def test_a_strategy_without_a_mean_comes_last() -> None:
    found = [
        dataclasses.replace(r, value=None, low=None, high=None)
        if isinstance(r, Learning) and r.strategy == "margin" and r.labels is None and not r.other
        else r
        for r in records()
    ]
    (part,) = ReportView(ReportData(title="t", records=found)).learning
    assert part.mean("margin", "accuracy") == float("-inf") < part.mean("random", "accuracy")
    assert part.shown == ["random", NASTY, "margin"]


def test_curves_are_drawn() -> None:
    parts = ReportView(ReportData(title="t", records=records())).learning
    drawn = {figure.name: figure for figure in learning_figures(parts)}
    assert list(drawn) == [
        "learning-set-original-accuracy",
        "learning-set-original-worst_domain",
    ]
    rows = drawn["learning-set-original-accuracy"].spec["data"]["values"]
    assert len(rows) == 9 and {row["labels"] for row in rows} == {10, 20, 30}
    assert drawn["learning-set-original-accuracy"].alt.endswith(
        f"At 30 labels: random 60.0\xa0% (58.0–63.0); {NASTY} 62.0\xa0% (60.0–65.0); "
        "margin 61.0\xa0% (59.0–64.0)."
    )
    assert NASTY not in str(drawn["learning-set-original-accuracy"].spec["encoding"])


def test_few_of_many_strategies_are_drawn_and_all_are_listed() -> None:
    names = ("random", *(f"s{number}" for number in range(20)))
    data = ReportData(title="t", records=records(names))
    (part,) = ReportView(data).learning
    assert part.shown == ["random", *(f"s{number}" for number in (19, 18, 17, 16))]
    assert len(part.shown) == MOST
    page = render_report(data)
    assert all(f">{name}<" in page for name in names)
    assert "chance has helped them too" in page


def test_means_over_a_grid_stand_first() -> None:
    grid = Learning(
        strategy="*+error",
        other="*+none",
        testset="set",
        truth="original",
        metric="accuracy",
        n=90,
        seeds=4,
        value=0.01,
    )
    (part,) = ReportView(ReportData(title="t", records=[*records(), grid])).learning
    assert part.differences[0][:2] == ("*+error", "*+none") and "*+error" not in part.strategies
    assert part.baseline == "random"


def test_the_page_holds_the_section_and_escapes_names() -> None:
    page = render_report(ReportData(title="t", records=records()))
    assert 'id="learning"' in page and 'href="#learning"' in page
    assert "<b>x</b>" not in page
    assert not re.search(r"\d models", page.partition("<main")[2].partition("</header>")[0])
