"""The check of a test set alone: class folders against classes; ``heldout audit`` has the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from heldout.data.labels.label_space import LabelSpace, folded
from heldout.data.testset import TestSet
from heldout.measure.doctor.findings import Finding, percent


def check_folders(testset: TestSet, labels: np.ndarray) -> list[Finding]:
    """Class folders against the classes that their images have."""
    levels = _class_folders(testset, labels)
    if not levels:
        return []
    known = _named_classes(testset.label_space, {name for level in levels for name in level})
    for level in levels:
        if all(index in known[name] for name, index in level.items()):
            return []  # what the folders of other levels name is something else
    folders = levels[0]
    names = sorted(folders)
    if all(name.isascii() and name.isdigit() for name in names):
        return _numbered(testset, folders)
    accepted = _accepted_beside(testset)
    wrong = [
        name
        for name in names
        if known[name] and not {folders[name], *accepted.get(folders[name], ())} & {*known[name]}
    ]
    if not wrong:
        return []
    return [_disagree(testset, wrong, folders, {name: known[name][0] for name in wrong})]


def _named_classes(space: LabelSpace, folders: Iterable[str]) -> dict[str, list[int]]:
    """Indices of the classes that each folder's name can mean: by id, else WordNet id, else name."""
    nouns: defaultdict[str, list[int]] = defaultdict(list)
    names: defaultdict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(space):
        nouns[item.wnid or ""].append(index)
        for name in dict.fromkeys(map(folded, item.names)):
            names[name].append(index)
    return {
        name: [space.index(name)]
        if name in space
        else nouns.get(name) or names.get(folded(name), [])
        for name in folders
    }


def _accepted_beside(testset: TestSet) -> dict[int, set[int]]:
    """Class -> the classes that are right as well for every one of its images."""
    place = {class_id: index for index, class_id in enumerate(testset.label_space.ids)}
    found: dict[int, set[int]] = {}
    table = testset.truth().select(["class_id", "correct"])
    for batch in table.to_batches():
        columns = (batch["class_id"].to_pylist(), batch["correct"].to_pylist())
        for class_id, correct in zip(*columns, strict=True):
            if class_id is not None:
                also = {place[one] for one in correct}
                found[place[class_id]] = found.get(place[class_id], also) & also
    return found


def _class_folders(testset: TestSet, labels: np.ndarray) -> list[dict[str, int]]:
    """Folder name -> class index, for each level of folders that tells the classes apart.

    Innermost first.
    """
    column = "path" if testset.images["path"].null_count == 0 else "image_id"
    paths = [path.split("/")[:-1] for path in testset.images[column].to_pylist()]
    depth = min((len(parts) for parts in paths), default=0)
    rows = np.flatnonzero(labels >= 0)
    levels = []
    for level in reversed(range(depth)):
        found: dict[str, int] = {}
        for row in rows.tolist():
            if found.setdefault(paths[row][level], int(labels[row])) != labels[row]:
                break
        else:
            if len(found) > 1 and len(set(found.values())) == len(found):
                levels.append(found)
    return levels


def _numbered(testset: TestSet, folders: dict[str, int]) -> list[Finding]:
    """Folders named by numbers: the number must be the class index, from 0 or from 1."""
    names, ids = sorted(folders), testset.label_space.ids
    for offset in (0, 1):
        if all(int(name) - offset == folders[name] for name in names):
            return []
    wrong = [name for name in names if int(name) != folders[name]]
    if [folders[name] for name in names] != list(range(len(names))):
        return [_disagree(testset, wrong, folders, {name: int(name) for name in wrong})]
    example = wrong[0]
    return [
        Finding(
            "text-sorted-folders",
            f"folders named by numbers were counted in the order of their texts: folder "
            f"{example} has class {folders[example]} ({ids[folders[example]]}), and "
            f"{len(wrong):,} of {len(names):,} folders have a class that is not their number",
            {"folders": len(names), "wrong": len(wrong), "example": example},
            "import it again by number: heldout import testset FOLDER --label-kind index",
            testset.name,
        )
    ]


def _disagree(
    testset: TestSet, wrong: Sequence[str], folders: dict[str, int], meant: dict[str, int]
) -> Finding:
    ids = testset.label_space.ids
    example = wrong[0]
    named = ids[meant[example]] if meant[example] < len(ids) else f"number {meant[example]}"
    return Finding(
        "folders-disagree",
        f"{len(wrong):,} of {len(folders):,} class folders ({percent(len(wrong) / len(folders))}) "
        f"hold another class than they name: folder {example} has {ids[folders[example]]}, and names "
        f"{named}",
        {"folders": len(folders), "wrong": len(wrong), "example": example},
        "import the folders again, and say how they are named: --label-kind wnid, name or index",
        testset.name,
    )
