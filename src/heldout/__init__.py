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
    from heldout.core.workspace import Workspace
    from heldout.data.labels import LabelMap, LabelSpace
    from heldout.data.testset import TestSet, find_testset
    from heldout.measure.evaluation.flow import Results
    from heldout.models.predictions import Predictions

_HOMES = {
    "LabelMap": "heldout.data.labels",
    "LabelSpace": "heldout.data.labels",
    "Predictions": "heldout.models.predictions",
    "Results": "heldout.measure.evaluation.flow",
    "TestSet": "heldout.data.testset",
    "Workspace": "heldout.core.workspace",
    "evaluate": "heldout.verbs:eval",
    "find_testset": "heldout.data.testset",
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


def __dir__() -> list[str]:
    """The public names, so that completion in a notebook offers them before they are loaded."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Public names load their room when first used, so that importing heldout stays instant."""
    if name not in _HOMES:
        raise AttributeError(f"module 'heldout' has no attribute {name!r}")
    module, _, inner = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), inner or name)
