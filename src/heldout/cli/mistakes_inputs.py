"""What the sub-commands of ``heldout mistakes`` read: a test set, its truths, models, files of mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import note

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace
    from heldout.data.labels.label_map import LabelMap
    from heldout.data.testset import TestSet
    from heldout.measure.mistakes.panel import MistakeFile
    from heldout.measure.mistakes.verdicts import Verdicts
    from heldout.models.predictions import Predictions

SetOption = Annotated[
    str | None,
    typer.Option("--testset", "-t", help="Test set: name, alias, path, or compose:FILE.toml."),
]
TruthsOption = Annotated[
    list[str] | None,
    typer.Option("--truth", help="Truth of the set, or a file of one; repeatable."),
]
CollapseOption = Annotated[
    str | None,
    typer.Option(
        help="Classes that also count as right where another does: imagenet-1k, or a JSON or TOML file."
    ),
]
MistakesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--mistakes",
        help="File of a model's mistakes (published JSON or judgements): a model that is right wherever "
        "the file is silent; repeatable.",
    ),
]
_TRUTH_FILES = (".csv", ".json", ".npz", ".parquet", ".jsonl", ".tsv")


@dataclass(frozen=True)
class Inputs:
    """Where to look: a test set, the names of its truths, and what models said.

    ``argument``  what named the test set; None where files of mistakes make it
    """

    testset: TestSet
    truths: tuple[str, ...]
    models: tuple[str, ...]
    exclude: tuple[str, ...]
    files: tuple[MistakeFile, ...]
    workspace: Workspace
    argument: str | None = None

    def label_map(self, text: str | None) -> LabelMap | None:
        """The label map that ``--label-map`` names, for these models and this set."""
        from heldout.measure.evaluation.arguments import label_map_argument

        where = self.argument or self.testset.name
        return label_map_argument(text, [where], self.models, workspace=self.workspace)

    def predictions(self, truth: str) -> Iterator[Predictions]:
        """The stored predictions that are meant, then the files of mistakes as predictions."""
        from heldout.measure.evaluation.flow import stored_predictions
        from heldout.measure.mistakes.panel import listed_predictions

        if self.models or not self.files:
            yield from stored_predictions(
                self.testset, self.models, workspace=self.workspace, exclude=self.exclude
            )
        for file in self.files:
            listed = listed_predictions(self.testset, file, truth=truth)
            if listed.missing:
                note(
                    f"{file.path.name}: {listed.missing:,} of {len(file):,} images are not in "
                    f"{self.testset.name}"
                )
            yield listed.predictions

    def verdicts(
        self, *, collapse: str | None = None, label_map: str | None = None
    ) -> tuple[Verdicts, ...]:
        """What each truth says of the models; each stored model is read once."""
        from heldout.measure.mistakes.verdicts import load_collapse, verdicts_by_truth

        table = None
        if collapse is not None:
            table = load_collapse(collapse, label_space=self.testset.label_space)
        judged_by = self.label_map(label_map)
        if not self.files:
            return verdicts_by_truth(
                self.testset,
                self.predictions(self.truths[0]),
                truths=self.truths,
                collapse=table,
                label_map=judged_by,
            )
        # What a silent file says depends on the truth: each truth reads the models anew.
        made = tuple(
            found
            for truth in self.truths
            for found in verdicts_by_truth(
                self.testset,
                self.predictions(truth),
                truths=[truth],
                collapse=table,
                label_map=judged_by,
            )
        )
        for found in made:
            for file in self.files:
                wrong = int(found.wrong[:, found.position(file.name)].sum())
                if wrong != len(file):
                    note(
                        f"{file.path.name}: {wrong:,} of its {len(file):,} mistakes are wrong by truth "
                        f"{found.truth.name}; the others are right by it, or do not count"
                    )
        return made


def read_inputs(
    testset: str | None,
    *,
    truths: Sequence[str] | None = None,
    every_truth: bool = False,
    models: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    mistakes: Sequence[Path] | None = None,
    classes: str | None = None,
    workspace: Path | None = None,
) -> Inputs:
    """The test set and what to lay beside it.

    ``truths``       names, or files that are read into memory; without any the set's default, or with
                     ``every_truth`` all that it has
    ``mistakes``     files; without ``testset`` their images are the test set
    """
    from heldout.core.errors import MismatchError, UserError
    from heldout.core.workspace import Workspace
    from heldout.data.importing import read_classes
    from heldout.data.labels import LabelSpace
    from heldout.data.testset import find_testset
    from heldout.measure.mistakes.panel import read_mistake_file, set_of_files, with_truth_file

    place = Workspace.find(workspace)
    found: TestSet | None = None
    if testset is not None:
        found = find_testset(place, testset)
        space = found.label_space
    else:
        space = read_classes(classes) if classes else LabelSpace.load("imagenet-1k")
    files = tuple(read_mistake_file(path, label_space=space) for path in mistakes or [])
    if found is None and not files:
        raise UserError("nothing to look at", fix="name a --testset, or a file with --mistakes")
    chosen: list[str] = []
    for text in truths or []:
        path = Path(text)
        if path.suffix.lower() not in _TRUTH_FILES or (found is not None and text in found.truths):
            chosen.append(text)
            continue
        if found is None:
            try:
                found, notes = set_of_files(files, path, label_space=space)
            except MismatchError as error:
                raise MismatchError(error.message, fix="name the --testset of its images") from None
        else:
            found, notes = with_truth_file(found, path)
        chosen.append(found.card.default_truth)
        for said in notes:
            note(f"{path.name}: {said}")
    if found is None:
        raise UserError(
            "files of mistakes do not say what would have been right",
            fix="name a --testset, or a file with --truth such as multilabel.csv",
        )
    for name in chosen:
        found.truth(name)
    if not chosen:
        chosen = list(found.truths) if every_truth else [found.card.default_truth]
    return Inputs(
        found,
        tuple(dict.fromkeys(chosen)),
        tuple(models or ()),
        tuple(exclude or ()),
        files,
        place,
        testset,
    )
