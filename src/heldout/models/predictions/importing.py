"""Importing predictions: a file of outputs, checked and laid into the store under image ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, MismatchError
from heldout.core.files import sha256_file
from heldout.data.importing import match_images
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.models.predictions.arrays import Outputs, looks_reversed, read_outputs
from heldout.models.predictions.orders import check_order, image_order, labels_in_order
from heldout.models.predictions.predictions import Predictions, as_stored

ARRAY_SUFFIXES = (".npy", ".npz")
TABLE_SUFFIXES = (".csv", ".jsonl", ".parquet", ".json")


@dataclass(frozen=True, eq=False)
class Imported:
    """Predictions read from a file, and what was found and mended on the way."""

    predictions: Predictions
    notes: tuple[str, ...]


def import_predictions(
    path: Path,
    testset: TestSet,
    *,
    model: str | None = None,
    order: str = "testset",
    label_space: LabelSpace | None = None,
    array: str | None = None,
    repair: bool = True,
    alias_of: str | None = None,
) -> Imported:
    """Read one file of outputs for a test set.

    NumPy files get their image ids from ``order``; tables carry their own. Columns stored worst
    first are turned round (``repair=False`` refuses them instead), and that is noted.
    """
    space = label_space or testset.label_space
    notes: list[str] = []
    if path.suffix in ARRAY_SUFFIXES:
        outputs = read_outputs(path, classes=len(space), array=array)
        ids: Sequence[str] = image_order(testset, order)
        if len(outputs.topk) != len(ids):
            raise MismatchError(
                f"{path}: {len(outputs.topk)} rows, but the order {order!r} of {testset.name} has "
                f"{len(ids)} images",
                fix="these are predictions of another set, or another --order is needed",
            )
        if order != "testset":
            _check_members(ids, testset, path)
        if space.fingerprint == testset.label_space.fingerprint:
            outputs, found = _in_right_order(outputs, testset, ids, path, repair=repair)
            notes += found
    elif path.suffix in TABLE_SUFFIXES:
        from heldout.models.predictions.tables import read_prediction_table

        ids, outputs = read_prediction_table(path, label_space=space)
        ids, found = _named_in(testset, ids, path)
        notes += found
    else:
        raise BadFile(
            path,
            f"has the ending {path.suffix!r}",
            fix=f"give {', '.join(ARRAY_SUFFIXES + TABLE_SUFFIXES)}",
        )
    name = alias_of or model or path.stem
    if alias_of:
        notes.append(f"{path.stem} on {testset.name} is {alias_of} under another name: joined")
    predictions = _predictions(name, ids, outputs, space, path, order, notes)
    return Imported(_only(predictions, testset), tuple(notes))


def _named_in(testset: TestSet, ids: Sequence[str], path: Path) -> tuple[Sequence[str], list[str]]:
    """Ids of the test set for a table's ids that are none: those without folder and ending.

    Tools that count images, or list files without their folders, write such ids. A table that has
    any image of the set by its own id is taken as it stands.
    """
    known = set(testset.image_ids.to_pylist())
    if not known.isdisjoint(ids):
        return ids, []
    match = match_images(testset, ids, source=path.name)
    named = [
        image if image is not None else own for image, own in zip(match.image_ids, ids, strict=True)
    ]
    return named, [f"{path.name}: {text}" for text in match.notes()]


def _check_members(ids: Sequence[str], testset: TestSet, path: Path) -> None:
    """Refuse an order that does not cover the test set's images."""
    missing = set(testset.image_ids.to_pylist()).difference(ids)
    if missing:
        raise MismatchError(
            f"{path}: its order lacks {len(missing):,} of the {len(testset):,} images of {testset.name}, "
            f"such as {min(missing)!r}",
            fix="these are predictions of another set, or another --order is needed",
        )


def _in_right_order(
    outputs: Outputs, testset: TestSet, ids: Sequence[str], path: Path, *, repair: bool
) -> tuple[Outputs, list[str]]:
    labels = labels_in_order(testset, ids)
    if not looks_reversed(outputs.topk, labels):
        check_order(outputs.topk, testset, ids, path=path)
        return outputs, []
    first, last = (np.mean(outputs.topk[:, c] == labels) for c in (0, -1))
    evidence = (
        f"the first column is right for {first:.2%}, the last for {last:.2%} of {testset.name}"
    )
    if not repair:
        raise BadFile(
            path, f"stores its columns worst first: {evidence}", fix="leave out --no-repair"
        )
    turned = np.ascontiguousarray(outputs.topk[:, ::-1])
    return Outputs(turned, outputs.logits), [
        f"{path.name} stores its columns worst first ({evidence}): reversed"
    ]


def _predictions(
    name: str,
    ids: Sequence[str],
    outputs: Outputs,
    space: LabelSpace,
    path: Path,
    order: str,
    notes: Sequence[str],
) -> Predictions:
    import pyarrow as pa

    failed = (outputs.topk < 0).all(axis=1)
    identity: dict[str, Any] = {"imported": path.name, "sha256": sha256_file(path)}
    return Predictions(
        model=name,
        image_ids=pa.array(ids, pa.string()),
        topk=outputs.topk,
        logits=None if outputs.logits is None else as_stored(outputs.logits),
        label_space=space,
        failures={int(row): "no prediction in the file" for row in np.flatnonzero(failed)},
        identity=identity,
        run={"order": Path(order).name, "notes": list(notes)},
    )


def _only(predictions: Predictions, testset: TestSet) -> Predictions:
    """The rows of the test set, in its order: what the store files under its images."""
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)
    place = {int(row): new for new, row in enumerate(rows)}
    return Predictions(
        model=predictions.model,
        image_ids=testset.image_ids,
        topk=predictions.topk[rows],
        logits=None if predictions.logits is None else predictions.logits[rows],
        label_space=predictions.label_space,
        failures={place[row]: why for row, why in predictions.failures.items() if row in place},
        identity=predictions.identity,
        run=predictions.run,
    )
