"""What textual arguments mean: label maps and policies named on a command line or in a run file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import UserError
from heldout.core.workspace import Workspace, slug
from heldout.data.labels import LabelMap, LabelSpace, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.evaluation.flow import stored_predictions
from heldout.measure.score.estimate import confusion_matrix
from heldout.measure.score.fits import ReferenceLine, read_population, reference_line
from heldout.measure.score.measure import measure
from heldout.models.predictions import PredictionStore

ABSENT_CLASSES = ("error", "skip")


def check_absent_classes(value: str) -> str:
    """``error`` or ``skip``."""
    if value not in ABSENT_CLASSES:
        raise UserError(f"--absent-classes {value!r}", fix="use error or skip")
    return value


def label_map_argument(
    text: str | None,
    testsets: Sequence[str],
    models: Sequence[str],
    *,
    workspace: Workspace | Path | str | None = None,
) -> LabelMap | None:
    """The label map that an argument names; ``subset:…`` and ``hierarchy:…`` fit the test set."""
    if text is None or text == "identity":
        return None
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    testset = find_testset(place, testsets[0])
    source = _model_space(testset, models, place)
    return load_label_map(text, source=source, target=testset.label_space)


def reference_argument(text: str | None) -> ReferenceLine | str | None:
    """The line that ``--reference`` names: a published source, or ``FILE.csv:X:Y`` (columns X and Y)."""
    if text is None or not text.partition(":")[0].endswith(".csv"):
        return text
    path, _, columns = text.partition(":")
    x, colon, y = columns.partition(":")
    if not colon:
        raise UserError(
            f"--reference {text!r}", fix="write FILE.csv:X:Y with the columns of accuracies"
        )
    return reference_line(read_population([Path(path)], x=x, y=y))


def write_confusions(
    testsets: Sequence[str],
    models: Sequence[str],
    folder: Path,
    *,
    truth: str | None = None,
    label_map: LabelMap | None = None,
    workspace: Workspace | Path | str | None = None,
) -> list[Path]:
    """One CSV a test set and model with the counts of every (class, guess) pair."""
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    written = []
    for name in testsets:
        testset = find_testset(place, name)
        outputs = stored_predictions(testset, models, workspace=place)
        (measured,) = measure(
            testset, outputs, metrics=["recall"], truth=truth, label_map=label_map
        )
        for model in measured.models:
            path = folder / slug(testset.name) / f"{slug(model)}.csv"
            confusion_matrix(measured, model).write(path)
            written.append(path)
    return written


def _model_space(testset: TestSet, models: Sequence[str], workspace: Workspace) -> LabelSpace:
    store = PredictionStore(workspace.predictions)
    runs = store.select(testset.card.images_hash, models, testset=testset.name)
    return store.read(runs[0]).label_space
