"""The page of factors says what the registry has: every key, its neutral value, its own list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .factor_examples import FACTORS

PAGE = (Path(__file__).parents[4] / "docs" / "compose-factors.md").read_text(encoding="utf-8")
ROWS = {
    name: row
    for row in re.findall(r"^\| .*`.*\|$", PAGE, re.MULTILINE)
    for name in re.findall(r"`([a-z_.]+)`", row.split("|")[1])
}


def test_every_row_is_a_factor() -> None:
    assert {name for name in ROWS if "." not in name} <= set(FACTORS.by_key)
    assert len(ROWS) > 40


@pytest.mark.parametrize("key", [key for key in FACTORS.by_key if key in ROWS or "." not in key])
def test_every_factor_has_its_row(key: str) -> None:
    one = FACTORS[key]
    cells = [cell.strip() for cell in ROWS[key].split("|")[1:-1]]
    assert (f"*`{key}`*" in cells[0]) == bool(one.needs)
    values = cells[1].replace("**", "")
    if one.neutral is None:
        assert cells[1].endswith("—")
    else:
        shown = one.neutral if isinstance(one.neutral, str) else f"{one.neutral:g}"
        assert f"**{shown}**" in cells[1]
    if not one.needs and " to " not in values and "…" not in values:
        for value in one.values:
            assert re.search(
                rf"(?<![\d.]){re.escape(f'{value:g}' if not isinstance(value, str) else value)}(?!\d)",
                values,
            )


def test_a_factor_of_one_s_own_takes_less_than_20_lines() -> None:
    source = PAGE[PAGE.index("source = '''") : PAGE.index('Path("vignette.py").write_text')]
    assert source.count("\n") < 20
