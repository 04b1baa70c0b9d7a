"""What the verbs about mistakes look at: a test set, truths of it, and what models said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heldout.core.context import Context
from heldout.core.request import Request
from heldout.data.labels import LabelMap, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.mistakes.evidence import NONE, named_collapse
from heldout.measure.mistakes.panel import (
    MistakeFile,
    listed_predictions,
    read_mistake_file,
)
from heldout.measure.mistakes.verdicts import Verdicts, verdicts_by_truth
from heldout.models.predictions import Predictions, PredictionStore
from heldout.models.predictions.ledger import stored_predictions


@dataclass(frozen=True)
class MistakeInputs:
    """A test set, names of its truths, and the models and files of mistakes that were named.

    ``collapse``, ``mapping``  names or files of a collapse table and of a label map
    """

    context: Context
    testset: TestSet
    truths: tuple[str, ...]
    models: tuple[str, ...]
    exclude: tuple[str, ...]
    files: tuple[MistakeFile, ...]
    collapse: str | None
    mapping: str | None

    @property
    def truth(self) -> str:
        """The first truth."""
        return self.truths[0]

    @cached_property
    def label_map(self) -> LabelMap | None:
        """How these models are judged on this set."""
        if self.mapping in (None, "identity"):
            return None
        testset, store = self.testset, PredictionStore(self.context.workspace.predictions)
        runs = store.select(testset.card.images_hash, self.models, testset=testset.name)
        return load_label_map(
            str(self.mapping), source=runs[0].label_space, target=testset.label_space
        )

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

    def verdicts(self) -> tuple[Verdicts, ...]:
        """What each truth says of the models; each stored model is read once."""
        table = named_collapse(self.collapse or NONE, self.testset.label_space)
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
                label_map=self.label_map,
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
    request: Request, context: Context, *, every_truth: bool = False, **other: Any
) -> MistakeInputs:
    """What a request names; ``other`` are fields in place of its own.

    Without truths it is the set's default one, or with ``every_truth`` all that it has.
    """

    def field(name: str, absent: Any = None) -> Any:
        return other.get(name, getattr(request, name, absent))

    testset: TestSet = context.find(field("testset"), find_testset)
    truth = field("truth")
    truths = field("truths") or ([truth] if truth else [])
    for name in truths:
        testset.truth(name)
    if not truths:
        truths = list(testset.truths) if every_truth else [testset.card.default_truth]
    return MistakeInputs(
        context,
        testset,
        tuple(dict.fromkeys(truths)),
        tuple(field("models", ())),
        tuple(field("exclude", ())),
        tuple(
            read_mistake_file(Path(path), label_space=testset.label_space)
            for path in field("mistake_files", ())
        ),
        field("collapse"),
        field("label_map"),
    )


def truth_of_kind(testset: TestSet, *kinds: str) -> str:
    """The first truth of the first of these kinds that the set has, else its default."""
    known = {where.get("kind"): name for name, where in reversed(testset.card.truths.items())}
    return next((known[kind] for kind in kinds if kind in known), testset.card.default_truth)
