"""A file of one model's mistakes laid beside a truth like any other predictions.

The model counts as right wherever its file is silent. Where there is no test set, the images that the
files name are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.errors import MismatchError
from heldout.core.files import existing_file
from heldout.data.importing import read_truth
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.matching import match_images
from heldout.data.testset import Card, TestSet, image_table, make_testset
from heldout.measure.mistakes.mistake_files import MistakeFile
from heldout.measure.score.truth import truth_arrays
from heldout.models.predictions import Predictions


@dataclass(frozen=True)
class ListedPredictions:
    """A file of mistakes as predictions; ``missing`` of its images are not in the test set."""

    predictions: Predictions
    missing: int


def listed_predictions(
    testset: TestSet, file: MistakeFile, *, truth: str | None = None, model: str | None = None
) -> ListedPredictions:
    """The predictions of a model whose mistakes are all in a file: right wherever it is silent.

    On an image that the file does not name, the prediction is the first label that ``truth`` takes as
    right; on one that the truth does not have either, there is none. A file with several predictions
    for one image holds the mistakes of several models and is refused.
    """
    pairs = list(file.verdicts)
    images = [image for image, _ in pairs]
    if len(set(images)) < len(images):
        twice = next(image for image in images if images.count(image) > 1)
        raise MismatchError(
            f"{file.path.name} has several predictions for image {twice!r}",
            fix="give the mistakes of one model",
        )
    match = match_images(testset, images, source=file.path.name)
    space = testset.label_space
    guesses = _first_labels(testset, truth)
    place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    for image, (_, prediction) in zip(match.image_ids, pairs, strict=True):
        if image is not None:
            guesses[place[image]] = space.index(prediction)
    predictions = Predictions(
        model=model or file.name,
        image_ids=testset.image_ids,
        topk=guesses[:, None],
        label_space=space,
        identity={"mistakes": file.path.name, "truth": truth},
    )
    return ListedPredictions(predictions, match.missing)


def _first_labels(testset: TestSet, truth: str | None) -> np.ndarray:
    """A label that is right for each image of the set, -1 where the truth names none; int32."""
    labels = np.full(len(testset), -1, dtype=np.int32)
    if not testset.truths:
        return labels
    arrays = truth_arrays(testset, truth)
    for lists in (arrays.unclear, arrays.correct):  # a correct label is written over an unclear one
        some = np.flatnonzero(lists.lengths > 0)
        labels[arrays.rows[some]] = lists.values[lists.starts[some]]
    return labels


def set_of_files(
    files: Sequence[MistakeFile], truth: Path, *, label_space: LabelSpace
) -> tuple[TestSet, tuple[str, ...]]:
    """A test set, in memory, of the images that files of mistakes name, with a truth from a file.

    Also returns what is to be known about the truth of these images.
    """
    images = sorted({image for file in files for image, _ in file.verdicts})
    empty = make_testset(
        Card(name="mistakes", label_space=label_space.name),
        images=image_table({"image_id": images}),
        truths={},
        label_space=label_space,
    )
    made, _ = with_truth_file(empty, truth)
    both = (
        made.card.truths[made.card.default_truth].get("conflicts", {}).get("correct_and_wrong", 0)
    )
    notes = (f"{both} images have a label both correct and wrong: the hit wins",) if both else ()
    return made, notes


def with_truth_file(testset: TestSet, truth: Path) -> tuple[TestSet, tuple[str, ...]]:
    """A test set with one more truth, from a file and first in line; in memory, nothing is written."""
    read = read_truth(existing_file(truth, "truth"), testset)
    table = {read.name: read.table}
    card = testset.card.updated(truths={read.name: read.provenance, **testset.card.truths})
    made = make_testset(
        card,
        images=testset.images,
        truths={**table, **{n: t for n, t in testset.truths.items() if n != read.name}},
        label_space=testset.label_space,
        memberships=testset.memberships,
    )
    return made, read.notes
