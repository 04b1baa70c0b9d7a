"""The page of ``diff --features``: both sides in order, names escaped, quiet in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import heldout
from heldout.core.errors import UserError
from heldout.curate.discriminator import ToldApart
from heldout.data.importing.detect import read_testset
from heldout.data.testset import TestSet
from heldout.show.telltales import render_telltales

from .test_browser import NARROW, WIDE, quiet_page


@pytest.fixture
def told(tmp_path: Path) -> ToldApart:
    """Red and blue images of two classes, of which one blue one is among the red."""
    rng = np.random.default_rng(0)
    sets: list[TestSet] = []
    ids, vectors = [], []
    for name, paint in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        for number in range(24):
            path = tmp_path / name / ("cat", "dog")[number % 2] / f"{name}<b>{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            odd = name == "red" and number == 7
            Image.new("RGB", (40, 30), (30, 30, 199) if odd else paint).save(path)
            ids.append(path.relative_to(tmp_path / name).as_posix())
            vectors.append(rng.normal(size=4) + (4 if (name == "red") != odd else -4))
        sets.append(read_testset(tmp_path / name, classes="folders", name=name))
    np.savez("v.npz", vectors=np.array(vectors, np.float32), ids=np.array(ids))
    drawn = heldout.verbs.diff(*sets, features="v.npz", out="told.html").drawn
    assert "<h1>red or blue?</h1>" in Path("told.html").read_text(encoding="utf-8")
    assert isinstance(drawn, ToldApart)
    return drawn


def test_the_odd_image_passes_for_the_other_set(told: ToldApart) -> None:
    page = render_telltales(told)
    away, other = page.split('<section id="other"')
    assert "red&lt;b&gt;07" in other.split("</li>")[0]
    assert "red&lt;b&gt;07" not in away
    assert "<b>" not in page
    assert page.count("data:image/jpeg") == 2 * 2 * 12


def test_the_page_needs_features() -> None:
    with pytest.raises(UserError, match="out needs features"):
        heldout.verbs.diff("a", "b", out="page.html")


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_page_is_quiet_and_nothing_overflows(
    browser: Any, tmp_path: Path, told: ToldApart, viewport: dict[str, int]
) -> None:
    path = tmp_path / "told.html"
    path.write_text(render_telltales(told), encoding="utf-8")
    with quiet_page(browser, path, viewport) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        images = page.locator(".pair img")
        images.last.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelectorAll('.pair img')[0].naturalWidth > 0")
        assert images.count() == 48
