"""Writes docs/map.md: every module of the package with the first line of its docstring, by room.

The map is the answer to "where does this live?"; a test compares it with the tree.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "heldout"
MAP = ROOT / "docs" / "map.md"
WINGS = ("core", "stats", "data", "models", "measure", "curate", "show", "testing", "cli")

_HEAD = """# Map of the package

Made by `tools/map.py` from the opening of every module's docstring. A wing is a package of
`heldout`, a room a package of a wing; wings are listed in the order in which they may import each
other. The report's page is `show/templates` and `show/static`; the colours of the page are in
`report.css`, those of charts in `show/charts`.
"""


def first_line(path: Path) -> str:
    """What a module says of itself first: the paragraph that opens its docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("|", "\\|")


def rooms(wing: Path) -> list[Path]:
    """A wing and the packages below it, each before its own."""
    return [wing, *sorted(path.parent for path in wing.rglob("*/__init__.py"))]


def make_map() -> str:
    """The whole page."""
    parts = [_HEAD]
    for wing in (".", *WINGS):
        for room in rooms(PACKAGE / wing) if wing != "." else [PACKAGE]:
            name = room.relative_to(PACKAGE.parent if wing == "." else PACKAGE).as_posix()
            parts.append(f"{'##' if wing == '.' or room.parent == PACKAGE else '###'} {name}\n")
            parts.append(f"{first_line(room / '__init__.py')}\n")
            modules = sorted(path for path in room.glob("*.py") if not path.name.startswith("__"))
            if modules:
                rows = [f"| `{path.stem}` | {first_line(path)} |" for path in modules]
                parts.append("\n".join(["| module | what is in it |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    page = make_map()
    if sys.argv[1:] == ["--check"]:
        sys.exit(MAP.read_text(encoding="utf-8") != page and "docs/map.md is old: run tools/map.py")
    MAP.write_text(page, encoding="utf-8")
