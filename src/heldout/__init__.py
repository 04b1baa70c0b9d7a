"""heldout builds new test sets for image classifiers, and shows where and why a classifier breaks on them.

The names here are the front page; :mod:`heldout.verbs` has every verb of the command line. A function
takes the fields of its verb by name, and an object (a model in memory, a test set) where the command
line takes a name.

>>> import heldout
>>> heldout.LabelSpace.load("imagenet-1k").get("n01440764").name
'tench'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from heldout import verbs as verbs
    from heldout.core.workspace import Workspace
    from heldout.data.labels import LabelMap, LabelSpace
    from heldout.data.testset import TestSet, load_testset
    from heldout.measure.doctor.findings import Finding
    from heldout.measure.evaluation.flow import Results
    from heldout.models.adapters import Encoder, Model, load_model
    from heldout.models.predictions import Predictions
    from heldout.verbs import (
        annotate,
        build_compose,
        build_contexts,
        build_domains,
        build_hard,
        collect,
        compare,
        doctor,
        evaluate,
        export_testset,
        fit,
        import_predictions,
        import_testset,
        predict,
        report,
        run,
    )

_HOMES = {
    "data.labels": ("LabelMap", "LabelSpace"),
    "core.workspace": ("Workspace",),
    "data.testset": ("TestSet", "load_testset"),
    "measure.doctor.findings": ("Finding",),
    "measure.evaluation.flow": ("Results",),
    "models.adapters": ("Encoder", "Model", "load_model"),
    "models.predictions": ("Predictions",),
}

__all__ = [
    "Encoder",
    "Finding",
    "LabelMap",
    "LabelSpace",
    "Model",
    "Predictions",
    "Results",
    "TestSet",
    "Workspace",
    "__version__",
    "annotate",
    "build_compose",
    "build_contexts",
    "build_domains",
    "build_hard",
    "collect",
    "compare",
    "doctor",
    "evaluate",
    "export_testset",
    "fit",
    "import_predictions",
    "import_testset",
    "load_model",
    "load_testset",
    "predict",
    "report",
    "run",
    "verbs",
]


def __dir__() -> list[str]:
    """The public names, so that completion in a notebook offers them before they are loaded."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Public names load their room when first used, so that importing heldout stays instant."""
    if name not in __all__:
        verbs = importlib.import_module("heldout.verbs")
        hint = f": it is heldout.verbs.{name}" if name in dir(verbs) else ""
        raise AttributeError(f"module 'heldout' has no attribute {name!r}{hint}")
    if name == "verbs":
        return importlib.import_module("heldout.verbs")
    home = next((room for room, names in _HOMES.items() if name in names), "verbs")
    return getattr(importlib.import_module(f"heldout.{home}"), name)
