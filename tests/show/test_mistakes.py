"""The section on mistakes, its figures, and the page of two models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.data.testset import ColumnType
from heldout.measure.mistakes.panel import Kind
from heldout.measure.mistakes.tally import Study, tally
from heldout.measure.mistakes.verdicts import mistakes_of, verdicts
from heldout.measure.score.records import Score
from heldout.show.exports import figures
from heldout.show.mistake_diff import MOST, MistakeDiff, render_mistake_diff, write_mistake_diff
from heldout.show.mistakes import cards, class_text, gallery, spread
from heldout.show.page import render_report
from heldout.show.tables import discoveries, findings
from heldout.show.view import ReportData, ReportView
from tests.measure.score.worlds import single_label, world_testset

from .records import CATEGORY_NAMES, HOSTILE, card, discovered, everything, score, tallies
from .test_browser import NARROW, WIDE, draw_all, opened
from .test_page import Page


def study(n: int = 120, seed: int = 2, models: tuple[str, ...] = ("old", "new")) -> Study:
    rng = np.random.default_rng(seed)
    labels = [int(v) for v in rng.integers(0, 4, n)]
    logits = {
        name: [(rng.normal(size=4) + 1.2 * np.eye(4)[label]).tolist() for label in labels]
        for name in models
    }
    world = single_label(labels, 4, logits)
    testset = world_testset(
        world,
        types={"size": ColumnType(kind="ordered")},
        size=[float(v) for v in rng.integers(0, 3, n)],
    )
    card = testset.card.updated(factors=("size",))
    found = verdicts(type(testset)(**{**vars(testset), "card": card}), world.predictions())
    mistakes = mistakes_of(found)
    kinds = {
        (m.image_id, m.prediction): Kind(
            category=CATEGORY_NAMES[i % 3],
            severity=("Major", "Minor", "unjudged")[i % 3],
            basis=("judged", "judged", "proposed")[i % 3],  # type: ignore[arg-type]
            major=(0.4, 0.2, 0.7) if i % 3 == 2 else None,
        )
        for i, m in enumerate(mistakes)
    }
    return Study(verdicts=found, mistakes=mistakes, kinds=kinds)


def report_of(found: Study) -> ReportData:
    scores = [score(model, "made", 70, 120) for model in found.verdicts.models]
    scores += [
        score(model, "made", 90, 120, metric="top1_minor") for model in found.verdicts.models
    ]
    records: list[Any] = [*scores, *tally(found, by=["size"])]
    return ReportData(
        title="t",
        records=records,
        columns={"made": {"size": ColumnType(kind="ordered")}},
        mistakes=gallery(found),
    )


def test_the_table_of_categories_and_severities() -> None:
    found = study()
    (part,) = ReportView(report_of(found)).mistakes
    for m, model in enumerate(part.models):
        place = found.verdicts.position(model)
        codes = found.codes[:, place]
        kinds = Counter((found.table[c].category, found.table[c].severity) for c in codes if c >= 0)
        for category in part.categories:
            for severity in part.severities:
                assert part.cell(model, category, severity) == kinds[category, severity]
            assert part.cell(model, category, "all") == sum(
                n for (name, _), n in kinds.items() if name == category
            )
        assert part.cell(model, "all", "all") == sum(kinds.values())
        assert m < 2
    html = render_report(report_of(found))
    for words in ("judged by people", "proposed from evidence"):
        assert words in html


def test_bars_are_cut_without_gaps() -> None:
    specs = figures(everything())
    for name in (
        "mistakes-new-original-categories",
        "mistakes-new-original-by-region",
        "mistakes-new-original-by-size",
    ):
        layers = specs[name]["layer"]
        ends = {
            tuple(row.get(k) for k in ("model", "category", "at", "slot")): row["value"]
            for row in layers[1]["data"]["values"]
        }
        bars: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
        for row in layers[0]["data"]["values"]:
            whole = "categories" in name
            key = (row["model"], row["category"] if whole else None, row.get("at"), row.get("slot"))
            bars.setdefault(key, []).append((row["start"], row["end"]))
        assert bars.keys() == ends.keys()
        for key, cuts in bars.items():
            assert cuts[0][0] == 0
            for (_, end), (start, _) in pairwise(cuts):
                assert start == pytest.approx(end, abs=1e-6)
            assert cuts[-1][1] == pytest.approx(ends[key], abs=1e-5)
    assert [
        v["at"] for v in specs["mistakes-new-original-by-quality"]["layer"][0]["data"]["values"]
    ]
    assert specs["mistakes-new-original-by-quality"]["encoding"]["y"]["scale"]["domain"] == [
        "poor", "fair", "fine",
    ]  # fmt: skip


def test_many_values_show_the_worst_and_say_so() -> None:
    records: list[Any] = [score("ant", "new", 5, 10)]
    records += tallies(["ant"], "new", slices=[{"word": f"w{i:03d}"} for i in range(40)])
    spec = figures(ReportData(title="t", records=records))["mistakes-new-original-by-word"]
    assert len(spec["encoding"]["y"]["scale"]["domain"]) == 24
    html = render_report(ReportData(title="t", records=records))
    assert "The 24 values with the most mistakes, of 40." in html


def test_the_main_result_says_what_explains_mistakes_and_what_people_judged() -> None:
    found = [one for one in findings(ReportView(everything())) if "mistakes of" in one.text]
    assert [(one.number, one.unit, one.text) for one in found] == [
        (
            "54.2",
            "%",
            "Of the 48 mistakes of ant on new, 26 are fine-grained, or context or an unusual image "
            "explains them; people judged 24, and 24 to be Major.",
        )
    ]


@pytest.mark.parametrize(("models", "labels"), [("a", ["10", "16"]), ("ab", ["10  a", "12  b"])])
def test_bars_say_their_mistakes_and_their_model_where_there_are_several(
    models: str, labels: list[str]
) -> None:
    records: list[Any] = [score(model, "new", 5, 10) for model in models]
    records += [score(model, "new", 7, 10, metric="top1_minor") for model in models]
    records += tallies(list(models), "new")
    found = figures(ReportData(title="t", records=records))
    assert "mistakes-new-original-forgiven" in found
    ends = found["mistakes-new-original-categories"]["layer"][2]["data"]["values"]
    assert set(labels) <= {row["label"] for row in ends}


def test_values_without_a_mistake_come_after_those_with_some() -> None:
    records: list[Any] = [score("ant", "new", 5, 10)]
    for record in tallies(["ant"], "new", slices=[{"word": f"w{i:03d}"} for i in range(40)]):
        right = record.slice in {f"word=w{i:03d}" for i in range(20)}
        records.append(replace(record, n=0, value=0.0, low=0.0) if right else record)
    spec = figures(ReportData(title="t", records=records))["mistakes-new-original-by-word"]
    names = spec["encoding"]["y"]["scale"]["domain"]
    assert names == [f"w{i:03d}" for i in (*range(4), *range(20, 40))]
    assert spec["description"].endswith("0.0 to 12.0 %.")


def test_values_that_the_first_model_lacks_come_last() -> None:
    records: list[Any] = [score("ant", "new", 9, 10), score("bee", "new", 5, 10)]
    records += tallies(["ant"], "new", slices=[{"word": f"w{i:03d}"} for i in range(20)])
    records += tallies(["bee"], "new", slices=[{"word": f"a{i:03d}"} for i in range(20)])
    spec = figures(ReportData(title="t", records=records))["mistakes-new-original-by-word"]
    names = set(spec["encoding"]["y"]["scale"]["domain"])
    assert names == {f"w{i:03d}" for i in range(20)} | {f"a{i:03d}" for i in range(4)}


def test_of_many_models_the_best_are_drawn_with_mistakes_forgiven() -> None:
    models = [f"m{k:02d}" for k in range(33)]
    records: list[Any] = [score(m, "new", 90 - k, 100) for k, m in enumerate(models)]
    records += [score(m, "new", 95 - k, 100, metric="top1_minor") for k, m in enumerate(models)]
    found = figures(ReportData(title="t", records=[*records, *tallies(models, "new")]))
    spec = found["mistakes-new-original-forgiven"]
    assert spec["encoding"]["y"]["scale"]["domain"] == models[:30]


def test_forgiven_accuracy_has_every_step() -> None:
    spec = figures(everything())["mistakes-new-original-forgiven"]
    assert spec["params"][0]["value"] == [
        "every mistake counts", "fine-grained forgiven", "explained forgiven", "judged minor forgiven",
    ]  # fmt: skip


def test_forgiven_accuracy_is_said_from_the_least_to_the_most() -> None:
    spec = figures(everything())["mistakes-new-original-forgiven"]
    rows = [row for row in spec["data"]["values"] if row["model"] == "ant"]
    assert [(row["series"], row["value"]) for row in rows] == [
        (0, 0.83), (1, 0.8), (2, 0.81), (3, 0.82),
    ]  # fmt: skip
    assert "ant goes from 80.0\xa0% to 83.0\xa0%." in spec["description"]
    names = spec["encoding"]["y"]["scale"]["domain"]
    assert names == ["ant", "bee", "cat", "dog", "elk"]


def test_a_search_has_a_table_and_no_curve() -> None:
    headline = ReportView(everything())
    (table,) = discoveries(headline)
    assert (table.model, table.testset) == ("ant", "new")
    assert table.about == "99 slices were searched, corrected by permutation"
    assert table.slices[0].text == "quality = fine, region = Asia"
    assert (table.slices[0].rest, table.slices[0].p) == (0.8, 0.004)
    assert not headline.summaries
    empty = discovered("ant", "new", "quality=fine")[:1]
    scores = [r for r in everything().records if isinstance(r, Score)]
    assert "No slice is worse than the rest." in render_report(
        ReportData(title="t", records=[*scores, *empty])
    )


def test_cards_spread_over_categories_and_name_classes_apart() -> None:
    found = study()
    chosen = cards(found, spread(found, found.mistakes, most=9))
    assert Counter(card.category for card in chosen) == dict.fromkeys(CATEGORY_NAMES, 3)
    testset = found.verdicts.testset
    columns = (testset.images[name].to_pylist() for name in ("image_id", "size"))
    sizes = {image: f"size {size:g}" for image, size in zip(*columns, strict=True)}
    assert all(card.columns == (sizes[card.image_id],) for card in chosen)
    assert all(card.severity == "" or card.basis == "judged" for card in chosen)
    assert any(card.suggestion == "Major with 40 % (20–70)" for card in chosen)
    assert cards(found, []) == []
    space = found.verdicts.truth.space
    assert class_text(space, "c1") == "class 1"


def test_a_card_names_what_would_have_been_right_and_every_confusion_comes_once_first() -> None:
    found = study()
    first, second, third = [m for m in found.mistakes if m.prediction == "c0"][:3]
    (card,) = cards(found, [replace(first, acceptable=("c1", "c2", "c3", "c0"))])
    assert card.right == ("class 1", "class 2", "class 3", "class 0")
    one = found.kinds[first.image_id, "c0"]
    kinds = {**found.kinds, **{(m.image_id, "c0"): one for m in (second, third)}}
    confusions = [
        replace(first, acceptable=("c1", "c2"), models=("old", "new")),
        replace(second, acceptable=("c1", "c3"), models=("old", "new")),  # the same, a second time
        replace(third, acceptable=("c2",), models=("old",)),
    ]
    dealt = spread(replace(found, kinds=kinds), confusions, most=3)
    assert [m.image_id for m in dealt] == [m.image_id for m in (first, third, second)]


@pytest.mark.browser
def test_another_model_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        draw_all(page)
        plot = "[data-figure=mistakes-new-original-by-region] svg"
        before = page.inner_html(plot)
        page.select_option("[data-chosen]", "elk")
        page.wait_for_function(
            "([plot, before]) => document.querySelector(plot).innerHTML !== before",
            arg=[plot, before],
        )
        draw_all(page)
        assert page.inner_html(plot) != before


@pytest.mark.browser
def test_narrow_figures_say_what_wide_ones_say(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", NARROW) as page:
        draw_all(page)
        texts = page.eval_on_selector_all(
            "#mistakes svg text", "all => all.map(t => t.textContent)"
        )
        assert "10" in texts and "undefined" not in texts and "NaN" not in texts


def test_changes_between_two_models() -> None:
    found = study(n=60)
    diff = MistakeDiff(study=found, old="old", new="new")
    wrong = found.verdicts.wrong
    expected = {
        "fixed": int((wrong[:, 0] & ~wrong[:, 1]).sum()),
        "new": int((~wrong[:, 0] & wrong[:, 1]).sum()),
        "shared": int((wrong[:, 0] & wrong[:, 1]).sum()),
    }
    assert {change: len(images) for change, images in diff.images.items()} == expected
    guesses = found.verdicts.guesses
    assert diff.same == int((wrong.all(axis=1) & (guesses[:, 0] == guesses[:, 1])).sum())
    for change in expected:
        assert sum(getattr(row, change) for row in diff.by_category()) == expected[change]
        sizes = diff.by_column()["size"]
        assert sum(getattr(row, change) for row in sizes) == expected[change]
    assert [row.name for row in sizes] == ["0", "1", "2"]
    assert sum(row.images for row in sizes) == 60
    assert "points, 95" in diff.verdict
    seen = {card.image_id for card in diff.gallery("fixed")}
    assert len(seen) == expected["fixed"] <= MOST
    assert not seen & {card.image_id for card in diff.gallery("new")}
    for shown in diff.gallery("shared"):
        assert shown.aside.startswith("old says ")


def test_the_page_of_two_models_is_inert_and_the_same_twice(tmp_path: Path) -> None:
    found = study(models=(HOSTILE[0], HOSTILE[1]))
    diff = MistakeDiff(study=found, old=HOSTILE[0], new=HOSTILE[1])
    html = render_mistake_diff(diff)
    page = Page(html)
    assert not page.scripts
    assert all(tag not in {"link", "iframe", "object", "script"} for tag, _ in page.elements)
    assert all(not name.startswith("on") for _, attrs in page.elements for name in attrs)
    write_mistake_diff(diff, tmp_path / "d.html")
    assert (tmp_path / "d.html").read_text(encoding="utf-8") == html
    assert render_mistake_diff(diff) == html


def test_a_card_says_what_it_shows() -> None:
    assert card("a").alt == "a: a, taken for a"
