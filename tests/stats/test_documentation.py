from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def expected_lines(code: str) -> list[str]:
    """What the comments of a snippet promise: after ``print(...)  #``, or on lines of their own."""
    lines = []
    for line in code.splitlines():
        if match := re.search(r"^\s*print\(.*\)  # (.+)$", line):
            lines.append(match.group(1))
        elif line.startswith("# "):
            lines.append(line[2:])
    return lines


def test_snippets_print_what_their_comments_say() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(snippets) >= 8
    space: dict[str, object] = {}
    for snippet in snippets:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(snippet, "docs/statistics.md", "exec"), space)
        assert printed.getvalue().splitlines() == expected_lines(snippet)
