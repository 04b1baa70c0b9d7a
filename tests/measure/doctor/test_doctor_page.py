"""The page about the doctor lists every code with its severity."""

from __future__ import annotations

import re
from pathlib import Path

from heldout.measure.doctor.findings import CODES

PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"


def test_the_table_of_findings_is_complete() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert dict(rows) == {code: severity for code, (severity, _) in CODES.items()}
    assert len(rows) == len(CODES)
