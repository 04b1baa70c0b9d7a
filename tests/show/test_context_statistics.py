"""The page of a set of subsets: sizes add up, names are escaped, and it is quiet in a browser."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.curate.contexts.describe import ContextClass, ContextStatistics, ContextTotals
from heldout.show.contexts import doubling_bins, render_statistics

from .records import HOSTILE
from .test_browser import NARROW, WIDE, quiet_page


def statistics(classes: int = 40) -> ContextStatistics:
    rng = np.random.default_rng(0)
    sizes = np.array([rng.integers(25, 900) for _ in range(8 * classes)])
    rows = tuple(
        ContextClass(
            testset="made",
            subject=HOSTILE[n] if n < len(HOSTILE) else f"class {n}",
            subsets=8,
            images=int(sizes[8 * n : 8 * n + 8].max()) + 100,
            coverage=0.9,
            median_images=float(np.median(sizes[8 * n : 8 * n + 8])),
            largest=f"class {n}(sofa)",
            largest_images=int(sizes[8 * n : 8 * n + 8].max()),
        )
        for n in range(classes)
    )
    totals = ContextTotals(
        testset="made",
        classes=classes,
        subsets=len(sizes),
        images=20_000,
        memberships=int(sizes.sum()),
        subsets_per_class=8.0,
        images_per_subset=float(sizes.mean()),
        least=int(sizes.min()),
        median=float(np.median(sizes)),
        most=int(sizes.max()),
    )
    steps = ("", "_at_minimum", "_kept")
    counts = {f"{what}{step}": 1000 for step in steps for what in ("subsets", "subjects", "images")}
    counts["classes_above_minimum"] = 40
    return ContextStatistics(totals, rows, counts, sizes)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60))
def test_every_value_is_in_one_bin(values: list[int]) -> None:
    bins = doubling_bins(np.array(values))
    assert sum(count for _, count in bins) == len(values)
    limits = [tuple(map(int, label.split("–"))) for label, _ in bins]
    for (label, count), edges in zip(bins, limits, strict=True):
        assert count == sum(edges[0] <= value <= edges[-1] for value in values), label
    assert all(one[-1] + 1 == other[0] for one, other in pairwise(limits))


def test_names_are_escaped_and_every_step_is_there() -> None:
    page = render_statistics(statistics())
    assert not [name for name in HOSTILE if "<" in name and name in page]
    assert "candidate subsets" in page and "of enough images" in page


@pytest.mark.browser
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_page_is_quiet_and_nothing_overflows(
    browser: Any, tmp_path: Path, viewport: dict[str, int]
) -> None:
    path = tmp_path / "s.html"
    path.write_text(render_statistics(statistics()), encoding="utf-8")
    with quiet_page(browser, path, viewport) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert page.locator("#classes tbody tr").count() == 40
        bars = page.locator("#sizes td.bar span")
        widths = [bars.nth(k).bounding_box()["width"] for k in range(bars.count())]
        assert max(widths) > 50
