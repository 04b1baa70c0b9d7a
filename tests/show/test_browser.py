"""The page in a real browser: drawn, quiet, offline, usable at both widths and by keyboard."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heldout.core.records import to_dict
from heldout.show.page import write_report
from heldout.show.view import ReportData

from .factor_data import factor_report
from .records import HOSTILE, everything, hostile

pytestmark = pytest.mark.browser

WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}


@contextmanager
def quiet_page(browser: Any, path: Path, viewport: dict[str, int], **options: Any) -> Iterator[Any]:
    """A page that fails the test on any message, error or request."""
    page = browser.new_page(viewport=viewport, **options)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: (
            heard.append(f"request: {request.url}")
            if request.url != path.as_uri() and not request.url.startswith(("blob:", "data:"))
            else None
        ),
    )
    try:
        page.goto(path.as_uri())
        yield page
    finally:
        page.close()
    assert heard == []


@contextmanager
def opened(browser: Any, data: ReportData, path: Path, viewport: dict[str, int]) -> Iterator[Any]:
    """The report in a quiet page."""
    write_report(data, path)
    with quiet_page(browser, path, viewport) as page:
        yield page


def draw_all(page: Any) -> None:
    """Scroll every figure into view and wait until it is drawn."""
    for plot in page.query_selector_all(".plot"):
        if plot.is_visible():
            plot.scroll_into_view_if_needed()
    page.wait_for_function(
        """() => [...document.querySelectorAll('.plot')]
            .filter((plot) => plot.offsetParent)
            .every((plot) => plot.dataset.drawn || plot.querySelector('.failed'))"""
    )


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_figure_is_drawn_and_nothing_overflows(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    with opened(browser, everything(), tmp_path / "r.html", viewport) as page:
        draw_all(page)
        shown = [plot for plot in page.query_selector_all(".plot") if plot.is_visible()]
        assert len(shown) >= 10
        for plot in shown:
            assert plot.query_selector_all("svg path, svg line, svg text")
            assert "NaN" not in plot.inner_html() and "undefined" not in plot.inner_html()
            assert len(plot.get_attribute("aria-label")) > 40
        assert page.query_selector(".failed") is None
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width == viewport["width"]
        assert (
            page.evaluate(
                """(limit) => [...document.querySelectorAll('main *')]
                .filter((e) => !e.closest('.scroll') && !e.closest('.plot') && e.offsetParent)
                .filter((e) => e.getBoundingClientRect().right > limit + 1)
                .map((e) => e.outerHTML.slice(0, 80))""",
                viewport["width"],
            )
            == []
        )


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_factors_are_drawn_with_images_and_tables(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    with opened(browser, factor_report(replicates=40), tmp_path / "r.html", viewport) as page:
        draw_all(page)
        assert page.query_selector(".failed") is None
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        for plot in page.query_selector_all("#slices .plot"):
            assert "NaN" not in plot.inner_html() and "undefined" not in plot.inner_html()
        page.query_selector(".examples").scroll_into_view_if_needed()
        page.wait_for_function(
            "() => [...document.querySelectorAll('.examples img')][0].naturalWidth > 0"
        )
        first = page.query_selector_all(".strip li")[:4]
        tops = {round(item.bounding_box()["y"]) for item in first}
        assert len(tops) == 1  # four in a row also on a phone
        assert page.is_visible("table.summary")


def test_figures_outside_the_view_are_not_drawn_yet(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", NARROW) as page:
        page.wait_for_selector(".plot[data-drawn]")
        assert page.query_selector("#comparisons .plot[data-drawn]") is None


def test_hostile_text_does_nothing_and_every_figure_is_drawn(browser: Any, tmp_path: Path) -> None:
    with opened(browser, hostile(), tmp_path / "r.html", NARROW) as page:
        draw_all(page)
        assert page.query_selector(".failed") is None
        assert page.evaluate("window.hit") is None
        assert page.title() == HOSTILE[0]
        assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
        page.fill("[name=words]", HOSTILE[0])
        page.click("[data-scores] tbody button")
        assert HOSTILE[0] in page.inner_text("tr.detail")
        assert page.evaluate("window.hit") is None


def test_axes_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        draw_all(page)
        assert page.is_visible("#figure-accuracy-new-linear")
        page.click("[data-choose=logit]")
        draw_all(page)
        assert page.is_visible("#figure-accuracy-new-logit svg")
        assert not page.is_visible("#figure-accuracy-new-linear")
        assert page.get_attribute("[data-choose=logit]", "aria-pressed") == "true"


def test_models_on_show_can_be_changed(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        draw_all(page)
        plot = page.locator("#figure-slices-new-size .plot")
        assert "ant" in plot.inner_text() and "dog" not in plot.inner_text()
        page.locator("[data-slots] select").first.select_option("dog")
        for name in ("size", "left-top"):
            page.wait_for_function(
                "(id) => document.querySelector(id + ' .plot').textContent.includes('dog')",
                arg=f"#figure-slices-new-{name}",
            )
        assert "ant" not in plot.inner_text()


def column(page: Any, number: int) -> list[str]:
    return page.locator(f"[data-scores] tbody tr > :nth-child({number})").all_inner_texts()


def test_scores_sort_by_number_and_filter_by_words(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        page.select_option("[name=metric]", "top1")
        header = page.locator("[data-scores] th", has_text="score")
        header.locator("button").press("Enter")
        assert header.get_attribute("aria-sort") == "descending"
        values = [float(text.removesuffix(" %")) for text in column(page, 7)]
        assert len(values) == 15 and values == sorted(values, reverse=True)
        header.locator("button").press("Enter")
        assert header.get_attribute("aria-sort") == "ascending"
        values = [float(text.removesuffix(" %")) for text in column(page, 7)]
        assert values == sorted(values)
        page.fill("[name=words]", "BEE newer")
        assert column(page, 2) == ["bee"] and column(page, 3) == ["newer"]
        assert page.inner_text("[name=found]").startswith("1 of ")
        page.fill("[name=words]", "no such model")
        assert "No score fits" in page.inner_text("[data-scores]")


def test_slices_join_the_table_on_request_and_pages_turn(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        assert page.is_checked("[name=whole]")
        assert set(column(page, 5)) == {"all"}
        page.uncheck("[name=whole]")
        first = column(page, 2)
        assert len(first) == 50
        page.locator("[data-pager] button", has_text="next").click()
        assert "51–100" in page.inner_text("[data-pager]")
        page.fill("[name=words]", "region=africa")
        assert "region=Africa" in column(page, 5)


def test_a_score_tells_where_it_comes_from(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        page.locator("[data-scores] tbody button").first.press("Enter")
        detail = page.inner_text("tr.detail")
        for fact in ("0123456789abcdef" * 4, "fedcba9876543210" * 4, "wilson", "95 %", "identity"):
            assert fact in detail
        page.locator("table.board [data-score]").first.focus()
        assert "wilson" in page.inner_text("#card")
        page.keyboard.press("ArrowDown")
        assert "bee" in page.inner_text("#card")
        page.keyboard.press("Escape")
        assert not page.is_visible("#card")


def test_the_table_of_models_sorts(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        names = page.locator("table.board tbody th")
        assert names.all_inner_texts() == ["ant", "bee", "cat", "dog", "elk"]
        page.locator("table.board th", has_text="Model").locator("button").click()
        page.locator("table.board th", has_text="Model").locator("button").click()
        assert names.all_inner_texts() == ["elk", "dog", "cat", "bee", "ant"]
        page.locator("button[aria-label='score on new']").click()
        assert names.all_inner_texts() == ["ant", "bee", "cat", "dog", "elk"]


def test_records_download_exactly(browser: Any, tmp_path: Path) -> None:
    data = everything()
    with opened(browser, data, tmp_path / "r.html", WIDE) as page:
        for name in ("records.json", "scores.csv"):
            with page.expect_download() as download:
                page.click(f"[aria-label='download {name}']")
            download.value.save_as(tmp_path / name)
    downloaded = json.loads((tmp_path / "records.json").read_bytes())
    assert len(downloaded) == len(data.records)
    plain = [json.loads(json.dumps(to_dict(record))) for record in data.records]
    assert all(record in downloaded for record in plain)
    assert list(downloaded[0]) == list(to_dict(data.records[0]))
    with (tmp_path / "scores.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == sum(record.record == "score" for record in data.records)
    assert float(rows[0]["value"]) == 0.9


def test_a_figure_can_be_saved(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        draw_all(page)
        with page.expect_download() as download:
            page.click("[data-save=changes] button >> nth=0")
        download.value.save_as(tmp_path / "changes.svg")
    assert (tmp_path / "changes.svg").read_text().startswith("<svg")


def test_a_tooltip_shows_plain_text(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        draw_all(page)
        point = page.locator("#figure-accuracy-new-linear .mark-symbol path").first
        point.scroll_into_view_if_needed()
        point.hover()
        page.wait_for_selector("#tip:not([hidden])")
        assert "points" in page.inner_text("#tip") and "off the line" in page.inner_text("#tip")


def test_printing_draws_every_visible_figure(browser: Any, tmp_path: Path) -> None:
    with opened(browser, everything(), tmp_path / "r.html", WIDE) as page:
        pdf = page.pdf()
        assert pdf.startswith(b"%PDF")
        drawn = page.evaluate(
            """() => [...document.querySelectorAll('.plot')]
                .filter((plot) => plot.offsetParent).every((plot) => plot.querySelector('svg'))"""
        )
        assert drawn
