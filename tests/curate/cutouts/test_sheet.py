"""Contact sheets: every cut-out is on one, nothing in a name can do harm, marks can be saved."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.curate.cutouts.contact_sheet import PER_SHEET, SIDE, thumbnail, write_sheets
from heldout.curate.cutouts.make import ListedCutout, read_review
from heldout.curate.cutouts.quality_check import MaskStatistics
from tests.curate.cutouts.scenes import ellipse, scene

HOSTILE = "cup/<script>alert(\"x\")</script> & 'y' 猫.png"


def cutout(file: str, *, verdict: Any = "good", reasons: tuple[str, ...] = ()) -> ListedCutout:
    measures = MaskStatistics(
        mask_fraction=0.3,
        parts=1,
        box_fill=0.7,
        border_fraction=0,
        edge_confidence=0.9,
        short_side=54,
    )
    return ListedCutout(
        file=file, class_name="cup", photo=file, photo_sha256="0", photo_size=(120, 90),
        box=(1, 2, 72, 54), sha256="1", mask_pixels=3000, measures=measures, verdict=verdict,
        reasons=reasons, licence="", attribution="", source="",
    )  # fmt: skip


@pytest.fixture
def view(tmp_path: Path) -> Path:
    mask = ellipse()
    path = tmp_path / "view.jpg"
    path.write_bytes(thumbnail(np.dstack([scene(mask), 255 * mask.astype(np.uint8)])))
    return path


def test_a_thumbnail_shows_the_object_twice(view: Path) -> None:
    pixels = np.asarray(Image.open(view)).astype(int)
    assert pixels.shape == (SIDE, 2 * SIDE, 3)
    for centre in (SIDE // 2, SIDE + SIDE // 2):
        assert np.abs(pixels[SIDE // 2, centre] - (200, 70, 50)).max() < 60
    assert np.abs(pixels[3, -3] - (255, 0, 200)).max() < 30  # the colour, where the object is not
    assert np.ptp(pixels[3, 3]) < 20  # the checkerboard is grey


def test_a_thumbnail_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.jpg").write_bytes(thumbnail(np.zeros((0, 0, 4), np.uint8)))
    with Image.open(tmp_path / "t.jpg") as view:
        assert view.size == (2 * SIDE, SIDE)


def test_names_are_text(tmp_path: Path, view: Path) -> None:
    made = [cutout(HOSTILE, verdict="flagged", reasons=("touches <b>",)), cutout("cup/a.png")]
    assert write_sheets(tmp_path, made, {c.file: view for c in made}) == 1
    text = (tmp_path / "sheet-001.html").read_text(encoding="utf-8")
    assert (
        "<script>alert" not in text
        and "&lt;script&gt;alert" in text
        and "touches &lt;b&gt;" in text
    )
    assert text.index("&lt;script") < text.index("cup/a.png")  # flagged ones first
    assert "http" not in text.split("<main>")[1]


def test_many_cut_outs_take_several_sheets(tmp_path: Path, view: Path) -> None:
    made = [cutout(f"cup/{n:04}.png") for n in range(PER_SHEET + 1)]
    assert write_sheets(tmp_path, made, {c.file: view for c in made}) == 2
    pages = [(tmp_path / f"sheet-00{n}.html").read_text() for n in (1, 2)]
    assert [page.count("<article") for page in pages] == [PER_SHEET, 1]
    assert write_sheets(tmp_path, [], {}) == 0


@pytest.mark.browser
def test_marks_are_saved_as_a_review(tmp_path: Path, view: Path, browser: Any) -> None:
    made = [cutout(HOSTILE, verdict="flagged"), cutout("cup/a.png"), cutout("cup/b.png")]
    write_sheets(tmp_path, made, {c.file: view for c in made})
    page = browser.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.goto((tmp_path / "sheet-001.html").as_uri())
    cards = page.locator("article")
    assert cards.count() == 3
    cards.nth(0).get_by_text("keep", exact=True).click()
    cards.nth(1).get_by_text("drop", exact=True).click()
    cards.nth(2).get_by_text("drop", exact=True).click()
    cards.nth(2).get_by_text("drop", exact=True).click()  # taken back
    with page.expect_download() as started:
        page.get_by_text("Save review.csv").click()
    started.value.save_as(tmp_path / "review.csv")
    page.close()
    assert faults == []
    with (tmp_path / "review.csv").open(newline="", encoding="utf-8") as handle:
        assert next(csv.reader(handle)) == ["file", "verdict"]
    assert read_review(tmp_path / "review.csv") == {HOSTILE: "keep", "cup/a.png": "drop"}
