"""Importing many files at once: a folder of models, or the published layout ``<set>/<model>.npy``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_values
from itertools import combinations
from pathlib import Path

import numpy as np

from heldout.core.errors import NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.data.importing import read_classes
from heldout.data.testset import find_testset
from heldout.models.predictions.aliases import find_aliases
from heldout.models.predictions.importing import (
    ARRAY_SUFFIXES,
    TABLE_SUFFIXES,
    Imported,
    import_predictions,
)
from heldout.models.predictions.predictions import Predictions
from heldout.models.predictions.store import PredictionStore

HELD_BYTES = 1 << 30
"""Logits that an import holds in memory between reading and writing."""


@dataclass(frozen=True)
class Summary:
    """What an import brought: models a test set, and everything that was noticed."""

    counts: dict[str, int]
    notes: tuple[str, ...]


def import_files(
    paths: Sequence[Path],
    *,
    workspace: Workspace,
    testset: str | None = None,
    model: str | None = None,
    order: str = "testset",
    classes: str | None = None,
    array: str | None = None,
    repair: bool = True,
    replace: bool = False,
) -> Summary:
    """Import prediction files into the workspace's store.

    Everything is read and checked before anything is written, so a bad file leaves the store as
    it was; logits beyond :data:`HELD_BYTES` are read once more when they are written. One model
    under two names in two sets is joined; a model that answers differently on an image that two
    sets share is noted.
    """
    groups = _groups(paths, testset)
    files = sum(len(members) for members in groups.values())
    if model is not None and files > 1:
        raise UserError(
            f"--model names one model, {files} files are given", fix="leave out --model"
        )
    space = None if classes is None else read_classes(classes)
    aliases = find_aliases(
        {where: [path.stem for path in files] for where, files in groups.items()}
    )
    sets = {where: find_testset(workspace, where) for where in groups}

    def read(where: str, path: Path) -> Imported:
        return import_predictions(
            path,
            sets[where],
            model=model,
            order=order,
            label_space=space,
            array=array,
            repair=repair,
            alias_of=aliases.get(where, {}).get(path.stem),
        )

    notes: list[str] = []
    found: dict[str, list[Predictions]] = {}
    dropped: set[tuple[str, Path]] = set()
    room = HELD_BYTES
    for where, members in groups.items():
        for path in members:
            imported = read(where, path)
            predictions = imported.predictions
            if predictions.logits is not None:
                room -= predictions.logits.nbytes
                if room < 0:
                    predictions = replace_values(predictions, logits=None)
                    dropped.add((where, path))
            found.setdefault(where, []).append(predictions)
            notes += imported.notes
    _check_names(found)
    notes += _missing_models(found)
    notes += inconsistencies(found)
    store = PredictionStore(workspace.predictions)
    for where, models in found.items():
        for path, held in zip(groups[where], models, strict=True):
            made = read(where, path).predictions if (where, path) in dropped else held
            store.write(made, images_hash=sets[where].card.images_hash, replace=replace)
    return Summary({where: len(models) for where, models in found.items()}, tuple(notes))


def _groups(paths: Sequence[Path], testset: str | None) -> dict[str, list[Path]]:
    """Files by test set."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        if path.is_file():
            files = [path]
        elif path.is_dir():
            files = _prediction_files(path)
            if not files and testset is None:
                for sub in sorted(path.iterdir()):
                    if sub.is_dir() and (members := _prediction_files(sub)):
                        groups.setdefault(sub.name, []).extend(members)
                continue
            if not files:
                raise NotFound(
                    f"no prediction files in {path}",
                    fix=f"expected *{', *'.join(ARRAY_SUFFIXES + TABLE_SUFFIXES)}",
                )
        else:
            raise NotFound(f"no file or folder {path}", fix="check the path")
        name = testset or (path.name if path.is_dir() else None)
        if name is None:
            raise UserError(f"{path} does not say which test set it is for", fix="name it with -t")
        groups.setdefault(name, []).extend(files)
    if not groups:
        raise NotFound(
            f"no prediction files under {', '.join(map(str, paths))}",
            fix="expected <test set>/<model>.npy",
        )
    return groups


def _prediction_files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in ARRAY_SUFFIXES + TABLE_SUFFIXES
        and path.is_file()
        and not path.name.startswith(".")
    ]


def _check_names(found: dict[str, list[Predictions]]) -> None:
    for where, models in found.items():
        names = [predictions.model for predictions in models]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise UserError(
                f"two files give predictions of {twice} on {where}", fix="rename one of them"
            )


def _missing_models(found: dict[str, list[Predictions]]) -> list[str]:
    everywhere = {predictions.model for models in found.values() for predictions in models}
    return [
        f"{where} has no predictions of {', '.join(sorted(missing))}"
        for where, models in found.items()
        if (missing := everywhere - {predictions.model for predictions in models})
    ]


def inconsistencies(found: dict[str, list[Predictions]]) -> list[str]:
    """Notes on models whose first guess differs between two sets on an image that both have."""
    import pyarrow.compute as pc

    notes = []
    for (where, models), (other, others) in combinations(found.items(), 2):
        rows = pc.index_in(models[0].image_ids, value_set=others[0].image_ids)
        here = np.flatnonzero(rows.is_valid().to_numpy(zero_copy_only=False))
        if not len(here):
            continue
        there = pc.fill_null(rows, 0).to_numpy(zero_copy_only=False)[here]
        by_name = {predictions.model: predictions for predictions in others}
        for mine in models:
            theirs = by_name.get(mine.model)
            if theirs is None:
                continue
            differ = int((mine.topk[here, 0] != theirs.topk[there, 0]).sum())
            if differ:
                notes.append(
                    f"{mine.model} answers differently on {differ} of the {len(here):,} images that "
                    f"{where} and {other} share"
                )
    return notes
