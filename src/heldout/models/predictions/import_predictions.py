"""Reading files of outputs that other programs wrote, one or a whole folder of them, into the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as replace_values
from itertools import combinations
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, ExistsError, MismatchError, NotFound, UserError
from heldout.core.files import held, remove_folder, sha256_file
from heldout.core.workspace import Workspace
from heldout.data.importing import match_images, read_classes
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet, find_testset
from heldout.models.predictions.import_arrays import (
    check_order,
    differing_rows,
    image_order,
    labels_in_order,
    looks_reversed,
    read_outputs,
)
from heldout.models.predictions.import_tables import read_prediction_table
from heldout.models.predictions.predictions import Predictions, as_stored
from heldout.models.predictions.store import PredictionStore, StoredRun

ARRAY_SUFFIXES = (".npy", ".npz")
TABLE_SUFFIXES = (".csv", ".jsonl", ".parquet")
_SUFFIXES = ARRAY_SUFFIXES + TABLE_SUFFIXES


def import_predictions(
    path: Path,
    testset: TestSet,
    *,
    model: str | None = None,
    order: str = "testset",
    label_space: LabelSpace | None = None,
    array: str | None = None,
    alias_of: str | None = None,
) -> Predictions:
    """Read one file of outputs for a test set.

    NumPy files get their image ids from ``order``; tables carry their own. Columns stored worst
    first are turned round. What was found and repaired is in ``run["notes"]``.
    """
    import pyarrow as pa

    space = label_space or testset.label_space
    notes: list[str] = []
    if array is not None and path.suffix != ".npz":
        raise UserError(f"{path} is not an .npz file", fix="leave out --array")
    if order != "testset" and path.suffix not in ARRAY_SUFFIXES:
        raise UserError(f"{path} says of which image each row is", fix="leave out --order")
    if path.suffix in ARRAY_SUFFIXES:
        outputs = read_outputs(path, classes=len(space), array=array)
        ids: Sequence[str] = image_order(testset, order)
        if len(outputs.topk) != len(ids):
            raise MismatchError(
                f"{path}: {len(outputs.topk)} rows, but the order {order!r} of {testset.name} has "
                f"{len(ids)} images",
                fix="these are predictions of another set, or another --order is needed",
            )
        if order != "testset" and (missing := set(testset.image_ids.to_pylist()).difference(ids)):
            raise MismatchError(
                f"{path}: its order lacks {len(missing):,} of the {len(testset):,} images of "
                f"{testset.name}, such as {min(missing)!r}",
                fix="these are predictions of another set, or another --order is needed",
            )
        if space.fingerprint == testset.label_space.fingerprint:
            labels = labels_in_order(testset, ids)
            if looks_reversed(outputs.topk, labels):
                first, last = (np.mean(outputs.topk[:, c] == labels) for c in (0, -1))
                notes.append(
                    f"{path.name} stores its columns worst first (the first column is right for "
                    f"{first:.2%}, the last for {last:.2%} of {testset.name}): reversed"
                )
                outputs = replace_values(outputs, topk=np.ascontiguousarray(outputs.topk[:, ::-1]))
            else:
                check_order(outputs.topk, testset, ids, path=path)
    elif path.suffix in TABLE_SUFFIXES:
        ids, outputs = read_prediction_table(path, label_space=space)
        ids, found = _named_in(testset, ids, path)
        notes += found
    else:
        raise BadFile(
            path,
            f"has the ending {path.suffix!r}",
            fix=f"give {', '.join(_SUFFIXES)}",
        )
    if outputs.note:
        notes.append(f"{path.name} {outputs.note}")
    if alias_of:
        notes.append(f"{path.stem} on {testset.name} is {alias_of} under another name: joined")
    everything = Predictions(
        model=alias_of or model or path.stem,
        image_ids=pa.array(ids, pa.string()),
        topk=outputs.topk,
        logits=None if outputs.logits is None else as_stored(outputs.logits),
        label_space=space,
        identity={"imported": path.name, "sha256": sha256_file(path)},
        run={"order": Path(order).name, "notes": list(notes)},
    )
    # The rows of the test set, in its order: what the store files under its images.
    rows = everything.rows_for(testset.image_ids, testset=testset.name)
    topk, logits = everything.topk[rows], everything.logits
    failed = np.flatnonzero((topk < 0).all(axis=1)).tolist()
    if failed:
        everything.run["notes"].append(
            f"{path.name} has no prediction for {len(failed):,} images, such as "
            f"{testset.image_ids[failed[0]]}: they count as wrong"
        )
    return replace_values(
        everything,
        image_ids=testset.image_ids,
        topk=topk,
        logits=None if logits is None else logits[rows],
        failures=dict.fromkeys(failed, "no prediction in the file"),
    )


def _named_in(testset: TestSet, ids: Sequence[str], path: Path) -> tuple[Sequence[str], list[str]]:
    """Ids of the test set for a table's ids that are none: those without folder and ending.

    Tools that count images, or list files without their folders, write such ids. A table that has
    any image of the set by its own id is taken as it is.
    """
    known = set(testset.image_ids.to_pylist())
    if not known.isdisjoint(ids):
        return ids, []
    match = match_images(testset, ids, source=path.name)
    named = [
        image if image is not None else own for image, own in zip(match.image_ids, ids, strict=True)
    ]
    return named, [f"{path.name}: {text}" for text in match.notes()]


@dataclass(frozen=True)
class ImportSummary:
    """What an import brought: models per test set, everything that was noticed, and the predictions.

    Of several files the predictions hold no logits: these are in the store.
    """

    counts: dict[str, int]
    notes: tuple[str, ...]
    predictions: tuple[Predictions, ...]


def import_files(
    paths: Sequence[Path],
    *,
    workspace: Workspace,
    testset: str | None = None,
    model: str | None = None,
    order: str = "testset",
    classes: str | None = None,
    array: str | None = None,
    replace: bool = False,
    find: Callable[[str, Callable[[Workspace, str], TestSet]], TestSet] | None = None,
) -> ImportSummary:
    """Import prediction files into the workspace's store.

    Everything is read and checked before anything is written, so a bad file leaves the store as
    it was; of several files those with logits are read once more when they are written, as all
    logits may not fit into memory. Other outputs that a set has of a model are refused, or replaced.
    The error says in how many rows they differ; outputs that differ in none are no change.
    One model under two names in two sets is joined; a model that answers differently on an image
    that two sets share is noted. ``find`` finds test sets elsewhere than in the workspace.
    """
    groups = _groups(paths, testset)
    files = sum(len(members) for members in groups.values())
    if model is not None and files > 1:
        raise UserError(f"--name is for one model, {files} files are given", fix="leave out --name")
    space = None if classes is None else read_classes(classes)
    aliases = find_aliases(
        {where: [path.stem for path in files] for where, files in groups.items()}
    )
    sets = {
        where: find(where, find_testset) if find else find_testset(workspace, where)
        for where in groups
    }

    def read(where: str, path: Path) -> Predictions:
        return import_predictions(
            path,
            sets[where],
            model=model,
            order=order,
            label_space=space,
            array=array,
            alias_of=aliases.get(where, {}).get(path.stem),
        )

    notes: list[str] = []
    found: dict[str, list[Predictions]] = {}
    large: set[tuple[str, Path]] = set()
    ranked: set[tuple[str, str]] = set()  # models that come without logits
    for where, members in groups.items():
        for path in members:
            made = read(where, path)
            notes += made.run["notes"]
            if made.logits is None:
                ranked.add((where, made.model))
            elif files > 1:
                made = replace_values(made, logits=None)
                large.add((where, path))
            found.setdefault(where, []).append(made)
    notes += _missing_models(found)
    notes += inconsistencies(found)
    store = PredictionStore(workspace.predictions)
    with ExitStack() as stack:
        for images_hash in sorted({each.card.images_hash for each in sets.values()}):
            stack.enter_context(held(store.root / images_hash[:12]))
        others: list[Path] = []
        same: set[tuple[str, str]] = set()
        for where, models in found.items():
            images_hash = sets[where].card.images_hash
            by_name = {each.model: each for each in models}
            for run in store.runs(images_hash):
                if run.model not in by_name:
                    continue
                new = by_name[run.model]
                own = run.folder == store.folder(images_hash, new.model, new.key)
                alike = own or (where, new.model) in ranked
                difference = _difference(store, run, new, testset=where, alike=alike)
                if replace:
                    notes += [f"{difference}: replaced"] if difference else []
                    others += [] if own else [run.folder]
                elif difference:
                    raise ExistsError(difference, fix="use --replace, or another --name")
                elif not own:
                    same.add((where, run.model))
                    notes.append(f"{where} has these predictions of {run.model}: nothing changes")
        for where, models in found.items():
            for path, each in zip(groups[where], models, strict=True):
                if (where, each.model) in same:
                    continue
                made = read(where, path) if (where, path) in large else each
                made = replace_values(made, run={**made.run, **store.owner(sets[where])})
                store.write(made, images_hash=sets[where].card.images_hash, replace=replace)
        # Last: an interruption leaves one more, and the same command removes it.
        for folder in others:
            remove_folder(folder)
    return ImportSummary(
        {where: len(models) for where, models in found.items()},
        tuple(notes),
        tuple(predictions for models in found.values() for predictions in models),
    )


def _difference(
    store: PredictionStore, run: StoredRun, made: Predictions, *, testset: str, alike: bool
) -> str:
    """How a stored run differs from outputs that are imported; empty where these add nothing to it.

    ``alike``  whether outputs with the same top predictions hold nothing else, such as logits
    """
    try:
        known = store.read(run, values=False)
    except BadFile as error:
        return f"{testset} has predictions of {run.model} that cannot be read ({error.message})"
    first, rows = differing_rows(known, made, testset=testset)
    ranks = min(known.topk.shape[1], made.topk.shape[1])
    if not rows and alike and ranks == made.topk.shape[1]:
        return ""
    how = (
        f"{rows:,} of {len(made):,} rows differ in the top {ranks}, {first:,} in the first"
        if rows
        else f"the top {ranks} are the same, what else is stored may differ"
    )
    return f"{testset} has other predictions of {run.model} ({run.folder.name}): {how}"


def _groups(paths: Sequence[Path], testset: str | None) -> dict[str, list[Path]]:
    """Files by test set: a folder is named after its set, unless ``testset`` names one for all."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        if not path.exists():
            raise NotFound(f"no file or folder {path}", fix="check the path")
        found = {path.name: _prediction_files(path)} if path.is_dir() else {"": [path]}
        if not any(found.values()) and testset is None:
            found = {sub.name: _prediction_files(sub) for sub in sorted(path.iterdir())}
        for name, files in found.items():
            if not testset and not name:
                raise UserError(
                    f"{path} does not say which test set it is for", fix="name it with -t"
                )
            if files:
                groups.setdefault(testset or name, []).extend(files)
    if not groups:
        raise NotFound(
            f"no prediction files under {', '.join(map(str, paths))}",
            fix=f"expected <test set>/<model>.npy, or *{', *'.join(_SUFFIXES)}",
        )
    return groups


def _prediction_files(folder: Path) -> list[Path]:
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [
        path
        for path in files
        if path.suffix in _SUFFIXES and path.is_file() and not path.name.startswith(".")
    ]


def _missing_models(found: dict[str, list[Predictions]]) -> list[str]:
    """Notes on sets that lack a model which another has; two files of one model are refused."""
    models = {where: [predictions.model for predictions in made] for where, made in found.items()}
    for where, names in models.items():
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise UserError(
                f"two files give predictions of {twice} on {where}", fix="rename one of them"
            )
    everywhere = set().union(*models.values())
    return [
        f"{where} has no predictions of {', '.join(sorted(missing))}"
        for where, names in models.items()
        if (missing := everywhere.difference(names))
    ]


def inconsistencies(found: dict[str, list[Predictions]]) -> list[str]:
    """Notes on models whose top-1 prediction differs between two sets on an image that both have."""
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


SUFFIXES = ("_model", "_checkpoint", "_weights", "_predictions", "_preds", "_topk")


def find_aliases(models_by_set: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """For each set, file names that are another set's model with a suffix: {set: {name: model}}.

    A name is an alias only if the plain name is missing in its own set and present in another:
    two files of one set are two models, whatever they are called.

    >>> find_aliases({"a": ["fv_64k_model", "vgg"], "b": ["fv_64k", "vgg"]})
    {'a': {'fv_64k_model': 'fv_64k'}}
    """
    everywhere = {name for names in models_by_set.values() for name in names}
    found: dict[str, dict[str, str]] = {}
    for where, names in models_by_set.items():
        for name in names:
            for suffix in SUFFIXES:
                plain = name.removesuffix(suffix)
                if plain != name and plain and plain not in names and plain in everywhere:
                    found.setdefault(where, {})[name] = plain
    return found
