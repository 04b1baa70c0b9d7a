"""The page of a graph in a real browser: quiet, offline, by mouse and by keyboard, at both widths."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from heldout.show.graph import GraphData, write_graph

from .graphs import made_graph
from .records import HOSTILE
from .test_browser import NARROW, WIDE, quiet_page

pytestmark = pytest.mark.browser


@contextmanager
def opened(
    browser: Any, data: GraphData, path: Path, viewport: dict[str, int], **options: Any
) -> Iterator[Any]:
    """The graph in a quiet page, ready."""
    write_graph(data, path)
    with quiet_page(browser, path, viewport, **options) as page:
        page.wait_for_selector("[data-ready]")
        yield page


def scale(page: Any) -> float:
    return float(
        page.evaluate("Number(document.querySelector('#view').style.getPropertyValue('--k'))")
    )


def settle(page: Any) -> None:
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("n", [14, 133], ids=["few", "many"])
def test_the_whole_graph_is_in_view_and_nothing_overflows(
    browser: Any, tmp_path: Path, viewport: dict[str, int], n: int
) -> None:
    data = made_graph(n, groups=7 if n > 100 else 3)
    with opened(browser, data, tmp_path / "g.html", viewport) as page:
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        frame = page.locator("#graph").bounding_box()
        for circle in page.query_selector_all(".node .body"):
            box = circle.bounding_box()
            assert box["x"] >= frame["x"] - 1 and box["y"] >= frame["y"] - 1
            assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
            assert box["y"] + box["height"] <= frame["y"] + frame["height"] + 1
        shown = [t.bounding_box() for t in page.query_selector_all(".node:not(.crowded) .name")]
        assert len(shown) >= min(n, 10)
        for a in range(len(shown)):
            for b in range(a):
                one, two = shown[a], shown[b]
                wide = min(one["x"] + one["width"], two["x"] + two["width"])
                high = min(one["y"] + one["height"], two["y"] + two["height"])
                # Boxes hold the halo and the room below the line: letters do not touch.
                assert wide - max(one["x"], two["x"]) < 5 or high - max(one["y"], two["y"]) < 6


def test_a_node_opens_with_its_numbers_images_and_siblings(browser: Any, tmp_path: Path) -> None:
    data = made_graph(14, thumbnails=True)
    with opened(browser, data, tmp_path / "g.html", WIDE) as page:
        page.click('.node[data-node="0"] .body')
        said = page.inner_text("[data-selected]")
        node = data.nodes[0]
        assert node.name in said and f"{node.size} images" in said
        assert "3.3×" in said or "3.2×" in said
        assert f"{100 * node.scores['ant'].value:.1f} %" in said
        page.wait_for_function("document.querySelectorAll('.thumbs img').length === 5")
        assert page.evaluate("document.querySelector('.thumbs img').naturalWidth") == 8
        assert page.get_attribute('.node[data-node="0"]', "aria-pressed") == "true"
        page.click("[data-selected] .plain >> nth=0")
        assert data.nodes[node.nearest[0][0]].name in page.inner_text("[data-selected] h2")
        page.keyboard.press("Escape")
        assert "No node chosen" in page.inner_text("[data-selected]")


def test_zoom_and_pan(browser: Any, tmp_path: Path) -> None:
    with opened(browser, made_graph(14), tmp_path / "g.html", WIDE) as page:
        settle(page)
        first = scale(page)
        page.click("[data-zoom=in]")
        settle(page)
        assert scale(page) == pytest.approx(1.4 * first)
        at = page.locator('.node[data-node="3"] .body').bounding_box()
        x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
        page.mouse.move(x, y)
        page.mouse.wheel(0, -300)
        settle(page)
        settle(page)
        assert scale(page) > 1.5 * first
        now = page.locator('.node[data-node="3"] .body').bounding_box()
        assert now["x"] + now["width"] / 2 == pytest.approx(x, abs=2)  # what is pointed at stays
        page.mouse.down()
        page.mouse.move(x + 120, y + 40, steps=5)
        page.mouse.up()
        settle(page)
        moved = page.locator('.node[data-node="3"] .body').bounding_box()
        assert moved["x"] - now["x"] == pytest.approx(120, abs=2)
        assert "No node chosen" in page.inner_text("[data-selected]")  # a drag is no click
        page.click("[data-zoom=fit]")
        settle(page)
        assert scale(page) == pytest.approx(first)


def test_colours_by_model_and_the_table_follow(browser: Any, tmp_path: Path) -> None:
    data = made_graph(14)
    with opened(browser, data, tmp_path / "g.html", WIDE) as page:
        before = page.get_attribute('.node[data-node="0"] .body', "fill")
        page.select_option("[name=colour]", label="bee")
        assert page.get_attribute('.node[data-node="0"] .body', "fill") != before
        assert "bee" in page.inner_text(".key") and "70.0 %" in page.inner_text(".key")
        page.click("[data-all] th button >> text=bee")
        order = sorted(range(14), key=lambda i: (-data.nodes[i].scores["bee"].value, i))
        rows = page.locator("[data-all] tbody .go").all_inner_texts()
        assert rows == [data.nodes[i].label for i in order]


def test_search_dims_the_rest_and_enter_opens(browser: Any, tmp_path: Path) -> None:
    with opened(browser, made_graph(14), tmp_path / "g.html", WIDE) as page:
        page.fill("[name=words]", "text 1")
        assert page.locator(".node.lit").count() == 5  # 1 and 10 to 13
        assert page.locator("[data-all] tbody tr").count() == 5
        page.fill("[name=words]", "context 12")
        page.keyboard.press("Enter")
        assert "pets(context 12)" in page.inner_text("[data-selected] h2")


def test_train_and_test_show_sizes_and_distance_at_once(browser: Any, tmp_path: Path) -> None:
    data = made_graph(14)
    with opened(browser, data, tmp_path / "g.html", WIDE, accept_downloads=True) as page:
        for place, side in ((0, "train"), (1, "train"), (13, "test")):
            page.click(f'.node[data-node="{place}"] .body', force=True)
            page.click(f"[data-take={side}]")
        train = set(data.nodes[0].members) | set(data.nodes[1].members)
        test = set(data.nodes[13].members)
        said = dict(
            zip(
                page.locator(".numbers dt").all_inner_texts(),
                page.locator(".numbers dd").all_inner_texts(),
                strict=True,
            )
        )
        assert said["train images"] == str(len(train)) and said["test images"] == str(len(test))
        assert said["in both"] == str(len(train & test))
        assert 0 < float(said["distance"]) <= 1
        assert "train" in (page.get_attribute('.node[data-node="1"]', "class") or "")
        with page.expect_download() as download:
            page.click("text=Save the two lists")
        with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        saved = {
            part: {r["image"] for r in rows if r["part"] == part} for part in ("train", "test")
        }
        assert saved["test"] == {data.images[i] for i in test}
        assert saved["train"] == {data.images[i] for i in train - test}
        page.click('[aria-label^="remove"] >> nth=0')
        assert page.locator('[data-chosen="train"] .go').count() == 1


def test_everything_by_keyboard(browser: Any, tmp_path: Path) -> None:
    with opened(browser, made_graph(14), tmp_path / "g.html", WIDE) as page:
        page.keyboard.press("Tab")  # skip link
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.classList.contains('node')")
        first = page.evaluate("document.activeElement.dataset.node")
        for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
            page.keyboard.press(key)
        reached = page.evaluate("document.activeElement.dataset.node")
        assert page.evaluate("document.querySelectorAll('.node[tabindex=\"0\"]').length") == 1
        page.keyboard.press("Enter")
        assert page.locator('.node[aria-pressed="true"]').get_attribute("data-node") == reached
        page.keyboard.press("t")
        assert page.locator('[data-chosen="train"] .go').count() == 1
        page.keyboard.press("e")  # a node is in one of them only
        assert page.locator('[data-chosen="train"] .go').count() == 0
        assert page.locator('[data-chosen="test"] .go').count() == 1
        before = scale(page)
        page.keyboard.press("+")
        settle(page)
        assert scale(page) > before
        seen = {first}
        for key in ("ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp"):
            for _ in range(6):
                page.keyboard.press(key)
                seen.add(page.evaluate("document.activeElement.dataset.node"))
        assert len(seen) > 6


def test_dark_and_light(browser: Any, tmp_path: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, made_graph(6), tmp_path / "g.html", NARROW, color_scheme="dark") as page:
        assert page.evaluate(ground) == "rgb(18, 22, 27)"
        page.click("[data-theme-switch]")
        assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    data = made_graph(12, names=HOSTILE, title=HOSTILE[0])
    with opened(browser, data, tmp_path / "g.html", NARROW) as page:
        assert page.evaluate("window.hit") is None
        page.fill("[name=words]", data.nodes[0].label[:12])
        page.keyboard.press("Enter")
        assert data.nodes[0].name.split("\n")[0][:20] in page.inner_text("[data-selected] h2")
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]


def test_without_scripts_the_picture_is_there(browser: Any, tmp_path: Path) -> None:
    write_graph(made_graph(14), tmp_path / "g.html")
    page = browser.new_page(viewport=WIDE, java_script_enabled=False)
    try:
        page.goto((tmp_path / "g.html").as_uri())
        assert page.locator(".node .body").count() == 14
        assert page.locator(".node .body").first.is_visible()
    finally:
        page.close()
