"""What the verbs about mistakes look at: a test set, truths of it, and what models said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heldout.core.context import Context
from heldout.core.errors import MismatchError, UserError
from heldout.data.importing import read_classes
from heldout.data.labels import LabelMap, LabelSpace, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.mistakes.evidence import NONE, named_collapse
from heldout.measure.mistakes.panel import (
    MistakeFile,
    listed_predictions,
    read_mistake_file,
    set_of_files,
    with_truth_file,
)
from heldout.measure.mistakes.requests import ModelMistakes
from heldout.measure.mistakes.verdicts import Verdicts, verdicts_by_truth
from heldout.models.predictions import Predictions, PredictionStore
from heldout.models.predictions.ledger import stored_predictions

_TRUTH_FILES = (".csv", ".json", ".npz", ".parquet", ".jsonl", ".tsv")


@dataclass(frozen=True)
class Inputs:
    """A test set, names of its truths, and the models and files of mistakes that were named."""

    context: Context
    testset: TestSet
    truths: tuple[str, ...]
    models: tuple[str, ...]
    exclude: tuple[str, ...]
    files: tuple[MistakeFile, ...]

    @property
    def truth(self) -> str:
        """The first truth."""
        return self.truths[0]

    def label_map(self, text: str | None) -> LabelMap | None:
        """The label map that a text names, for these models and this set."""
        if text is None or text == "identity":
            return None
        testset, store = self.testset, PredictionStore(self.context.workspace.predictions)
        runs = store.select(testset.card.images_hash, self.models, testset=testset.name)
        return load_label_map(text, source=runs[0].label_space, target=testset.label_space)

    def predictions(self, truth: str) -> Iterator[Predictions]:
        """The stored predictions that are meant, then the files of mistakes as predictions."""
        if self.models or not self.files:
            yield from stored_predictions(
                self.testset, self.models, workspace=self.context.workspace, exclude=self.exclude
            )
        for file in self.files:
            listed, missing = listed_predictions(self.testset, file, truth=truth)
            if missing:
                self.context.note(
                    f"{file.path.name}: {missing:,} of {len(file):,} images are not in "
                    f"{self.testset.name}"
                )
            yield listed

    def verdicts(
        self, *, collapse: str | None = None, label_map: str | None = None
    ) -> tuple[Verdicts, ...]:
        """What each truth says of the models; each stored model is read once."""
        table = named_collapse(collapse or NONE, self.testset.label_space)
        judged_by = self.label_map(label_map)
        # What a silent file says depends on the truth: each truth reads the models anew.
        groups = [(truth,) for truth in self.truths] if self.files else [self.truths]
        made = tuple(
            found
            for truths in groups
            for found in verdicts_by_truth(
                self.testset,
                self.predictions(truths[0]),
                truths=truths,
                collapse=table,
                label_map=judged_by,
            )
        )
        for found in made:
            for file in self.files:
                wrong = int(found.wrong[:, found.position(file.name)].sum())
                if wrong != len(file):
                    self.context.note(
                        f"{file.path.name}: {wrong:,} of its {len(file):,} mistakes are wrong by truth "
                        f"{found.truth.name}; the others are right by it, or do not count"
                    )
        return made


def read_inputs(
    context: Context,
    testset: str | None,
    *,
    truths: Sequence[str] = (),
    every_truth: bool = False,
    models: Sequence[str] = (),
    exclude: Sequence[str] = (),
    files: Sequence[Path] = (),
    classes: str | None = None,
) -> Inputs:
    """The test set and what to lay beside it.

    ``truths``   names, or files that are read into memory; without any the set's default, or with
                 ``every_truth`` all that it has
    ``files``    of mistakes; without ``testset`` their images are the test set
    """
    found = None if testset is None else context.find(testset, find_testset)
    space = label_space(classes) if found is None else found.label_space
    listed = tuple(read_mistake_file(path, label_space=space) for path in files)
    chosen: list[str] = []
    for text in truths:
        path = Path(text)
        if path.suffix.lower() not in _TRUTH_FILES or (found is not None and text in found.truths):
            chosen.append(text)
            continue
        if found is None:
            try:
                found, notes = set_of_files(listed, path, label_space=space)
            except MismatchError as error:
                raise MismatchError(error.message, fix="name the test set of its images") from None
        else:
            found, notes = with_truth_file(found, path)
        chosen.append(found.card.default_truth)
        for said in notes:
            context.note(f"{path.name}: {said}")
    if found is None:
        raise UserError(
            "files of mistakes do not say what would have been right",
            fix="name a test set, or a truth file such as multilabel.csv",
        )
    for name in chosen:
        found.truth(name)
    if not chosen:
        chosen = list(found.truths) if every_truth else [found.card.default_truth]
    return Inputs(
        context, found, tuple(dict.fromkeys(chosen)), tuple(models), tuple(exclude), listed
    )


def verdicts_of(
    request: ModelMistakes,
    context: Context,
    *,
    models: Sequence[str] = (),
    exclude: Sequence[str] = (),
    every_truth: bool = False,
) -> tuple[Inputs, tuple[Verdicts, ...]]:
    """What a request looks at, and what each truth says of it."""
    inputs = read_inputs(
        context,
        request.testset,
        truths=request.truths,
        every_truth=every_truth,
        models=models,
        exclude=exclude,
        files=request.mistake_files,
        classes=request.classes,
    )
    return inputs, inputs.verdicts(collapse=request.collapse, label_map=request.label_map)


def label_space(classes: str | None) -> LabelSpace:
    """The label space of files of mistakes: the one that is named, else ImageNet's."""
    return read_classes(classes) if classes else LabelSpace.load("imagenet-1k")


def multilabel_truth(testset: TestSet) -> str:
    """The truth that reviews are about: a multi-label one, else the set's default."""
    kinds = testset.card.truths
    many = [name for name, where in kinds.items() if where.get("kind") == "multilabel"]
    return many[0] if many else testset.card.default_truth
