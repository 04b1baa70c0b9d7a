"""heldout builds new test sets for image classifiers, and shows where and why a classifier breaks on them.

>>> import heldout
>>> heldout.LabelSpace.load("imagenet-1k").get("n01440764").name
'tench'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from heldout.evaluation import Results, evaluate
    from heldout.labels import LabelMap, LabelSpace
    from heldout.predictions import Predictions
    from heldout.testset import TestSet, find_testset
    from heldout.workspace import Workspace

_HOMES = {
    "LabelMap": "heldout.labels",
    "LabelSpace": "heldout.labels",
    "Predictions": "heldout.predictions",
    "Results": "heldout.evaluation",
    "TestSet": "heldout.testset",
    "Workspace": "heldout.workspace",
    "evaluate": "heldout.evaluation",
    "find_testset": "heldout.testset",
}

__all__ = [
    "LabelMap",
    "LabelSpace",
    "Predictions",
    "Results",
    "TestSet",
    "Workspace",
    "__version__",
    "evaluate",
    "find_testset",
]


def __getattr__(name: str) -> Any:
    """Public names load their room when first used, so that importing heldout stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'heldout' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
