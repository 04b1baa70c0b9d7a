"""Charts and one self-contained HTML file: how people read records.

Figures follow column types and record kinds; nothing here knows where a test set came from.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heldout.show.exports import figures, write_figures
    from heldout.show.page import write_report
    from heldout.show.score_figures import matrix_figure
    from heldout.show.view import ReportData

__all__ = ["ReportData", "figures", "matrix_figure", "write_figures", "write_report"]
_HOMES = {
    "ReportData": "view",
    "figures": "exports",
    "matrix_figure": "score_figures",
    "write_figures": "exports",
    "write_report": "page",
}


def __getattr__(name: str) -> Any:
    """A public name, with the module that it needs: tables of numbers need no charts."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
