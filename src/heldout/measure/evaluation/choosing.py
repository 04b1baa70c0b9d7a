"""What the models of :func:`heldout.evaluate` are: to be run, to be read, or stored already.

A text is a model to *run* if the registry knows how to load it: a built-in name such as ``lite0``,
``onnx:FILE`` and the other prefixes, ``file.py:object``, ``@list.txt``, a plug-in. It is predicted
first, unless the very same weights, preprocessing and label space are stored, and so another
checkpoint under an old name never gets the old one's result. Every other text names *stored*
predictions: a name, a glob, ``all``, or ``name@key`` for one of several checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import MissingExtra, NotFound, UserError
from heldout.core.files import read_versioned_json
from heldout.core.workspace import Workspace
from heldout.data.testset import TestSet
from heldout.models.adapters import Model, PredictionFile, load_models
from heldout.models.adapters.registry import can_be_run
from heldout.models.predictions import Predictions, PredictionStore, StoredRun
from heldout.models.predictions.import_predictions import import_predictions
from heldout.models.predictions.store import SCHEMA_VERSION

Choice = str | Predictions | StoredRun | Model | PredictionFile
"""One model as :func:`heldout.evaluate` takes it."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Models by what has to be done with them.

    ``names``    names or globs of stored predictions
    ``runs``     stored runs
    ``models``   models to run where they are not stored
    ``files``    files of outputs
    ``outputs``  predictions in memory
    ``notes``    what a user should know about the choice
    """

    names: tuple[str, ...]
    runs: tuple[StoredRun, ...]
    models: tuple[Model, ...]
    files: tuple[PredictionFile, ...]
    outputs: tuple[Predictions, ...]
    notes: tuple[str, ...] = ()


def choose(
    models: Choice | Sequence[Choice],
    testsets: Sequence[TestSet],
    *,
    model_args: Mapping[str, Any] | None = None,
    workspace: Workspace,
) -> Chosen:
    """Sort models into what is run, read from a file, read from the store, and in memory."""
    items = (
        list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    )
    names: list[str] = []
    runs: list[StoredRun] = []
    loaded: list[Model | PredictionFile] = []
    outputs: list[Predictions] = []
    notes: list[str] = []
    for item in items:
        if isinstance(item, str) and can_be_run(item):
            try:
                loaded += load_models([item], model_args=model_args)
            except MissingExtra as missing:
                _check_stored(item, testsets, missing, workspace)
                names.append(item)
                notes.append(f"{item} is scored as stored and was not loaded: {missing.line}")
        elif isinstance(item, str):
            names.append(item)
        elif isinstance(item, Predictions):
            outputs.append(item)
        elif isinstance(item, StoredRun):
            runs.append(item)
        elif isinstance(item, PredictionFile | Model):
            loaded.append(item)
        else:
            raise UserError(
                f"a {type(item).__name__} is no model",
                fix="wrap it: heldout.models.adapters.FunctionModel(function, name=..., label_space=..., "
                "preprocessing=..., identity=...)",
            )
    check_names(loaded)
    return Chosen(
        tuple(names),
        tuple(runs),
        tuple(model for model in loaded if not isinstance(model, PredictionFile)),
        tuple(model for model in loaded if isinstance(model, PredictionFile)),
        tuple(outputs),
        tuple(notes),
    )


def check_names(models: Iterable[Model | PredictionFile]) -> None:
    """Refuse two models of one name: results are told apart by it."""
    seen: set[str] = set()
    for model in models:
        if model.name in seen:
            raise UserError(f"two models are named {model.name!r}", fix="give each its own name")
        seen.add(model.name)


def read_file(file: PredictionFile, testset: TestSet) -> tuple[Predictions, tuple[str, ...]]:
    """The outputs of ``predictions:PATH`` on a test set, and notes; PATH may be a stored run."""
    if not file.path.is_dir():
        imported = import_predictions(file.path, testset, model=file.name)
        return imported.predictions, imported.notes
    run = read_stored(file.path)
    found = PredictionStore(file.path.parent).read(run)
    return found.renamed(file.name), ()


def read_stored(folder: Path) -> StoredRun:
    """The stored run of a folder ``<model>@<key>``, from wherever it lies."""
    if not (folder / "run.json").is_file():
        raise NotFound(
            f"{folder} is no folder of stored predictions",
            fix="name a file of outputs, or a folder predictions/<images>/<model>@<key>",
        )
    return StoredRun(folder, read_versioned_json(folder / "run.json", version=SCHEMA_VERSION))


def _check_stored(
    name: str, testsets: Sequence[TestSet], missing: MissingExtra, workspace: Workspace
) -> None:
    """A model that cannot be loaded here may still be stored under its name on every set."""
    store = PredictionStore(workspace.predictions)
    for testset in testsets:
        if name not in {run.model for run in store.runs(testset.card.images_hash)}:
            raise missing from None
