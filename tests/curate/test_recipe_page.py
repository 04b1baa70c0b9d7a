"""The page about recipes lists every check."""

from __future__ import annotations

import re
from pathlib import Path

from heldout.testing.recipe_conformance import CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"


def test_the_table_of_checks_is_complete() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Proving one")[2]
    assert re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) == list(CHECKS)
