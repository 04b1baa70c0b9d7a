"""A test set alone: folders against classes."""

from __future__ import annotations

import numpy as np
import pytest

from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import TestSet, make_testset, truth_table
from heldout.measure.doctor.diagnose import diagnose

from .cases import balanced, set_of, space_of

FOLDERS = [str(i) for i in range(25)]


def _in_folders(
    names: list[str], meant: list[int], space: LabelSpace, *, depth: str = ""
) -> TestSet:
    labels = balanced(len(names), 3)
    paths = [f"{depth}{names[label]}/{row}.jpg" for row, label in enumerate(labels)]
    return set_of([meant[label] for label in labels], space, ids=paths, path=paths)


def test_numbered_folders_counted_as_text() -> None:
    rank = {name: place for place, name in enumerate(sorted(FOLDERS))}
    testset = _in_folders(FOLDERS, [rank[name] for name in FOLDERS], space_of(25))
    (finding,) = diagnose(testset)
    assert finding.code == "text-sorted-folders"
    assert finding.evidence["wrong"] == sum(int(n) != rank[n] for n in FOLDERS)
    assert "folder 10 has class 2" in finding.message
    assert "--label-kind index" in finding.fix


@pytest.mark.parametrize("depth", ["", "val/", "a/b/"])
def test_numbered_folders_read_right(depth: str) -> None:
    assert diagnose(_in_folders(FOLDERS, list(range(25)), space_of(25), depth=depth)) == []
    from_one = [str(i + 1) for i in range(25)]
    assert diagnose(_in_folders(from_one, list(range(25)), space_of(25), depth=depth)) == []


def test_numbers_that_are_the_classes_own_ids() -> None:
    own = LabelSpace.from_ids("own", ["7", "12", "3"])
    assert diagnose(_in_folders(["7", "12", "3"], [0, 1, 2], own)) == []


def test_numbered_folders_in_no_known_order() -> None:
    order = np.random.default_rng(0).permutation(25).tolist()
    (finding,) = diagnose(_in_folders(FOLDERS, order, space_of(25)))
    assert finding.code == "folders-disagree"


def test_folders_of_ids_and_names() -> None:
    space = space_of(25)
    ids = list(space.ids)
    names = [item.name for item in space]
    for folders in (ids, names, [name.replace(" ", "_").upper() for name in names]):
        assert diagnose(_in_folders(folders, list(range(25)), space)) == []
        wrong = [1, 0, *range(2, 25)]
        (finding,) = diagnose(_in_folders(folders, wrong, space))
        assert finding.code == "folders-disagree"
        assert finding.evidence["wrong"] == 2


def test_folders_that_say_nothing_about_classes() -> None:
    space = space_of(4)
    labels = balanced(4, 5)
    for folder in ("images/{row}.jpg", "{row}/x.jpg", "{row}.jpg"):
        paths = [folder.format(row=row) for row in range(20)]
        assert diagnose(set_of(labels, space, ids=paths, path=paths)) == []
    unknown = _in_folders(["w", "x", "y", "z"], [0, 1, 2, 3], space)
    assert diagnose(unknown) == []


def test_a_folder_may_name_another_class_that_is_right_for_all_its_images() -> None:
    space = space_of(4)
    folders = list(space.ids)
    testset = _in_folders(folders, [1, 0, 2, 3], space)
    both = {space.ids[0]: [space.ids[0], space.ids[1]], space.ids[1]: [space.ids[1], space.ids[0]]}
    table = testset.truth()
    ids, classes = table["image_id"].to_pylist(), table["class_id"].to_pylist()
    right = truth_table(ids, classes, correct=[both.get(one, [one]) for one in classes])
    named = make_testset(
        testset.card, images=testset.images, truths={"original": right}, label_space=space
    )
    assert diagnose(named) == []
    only = dict(both) | {space.ids[1]: [space.ids[1]]}
    half = truth_table(ids, classes, correct=[only.get(one, [one]) for one in classes])
    torn = make_testset(
        testset.card, images=testset.images, truths={"original": half}, label_space=space
    )
    (finding,) = diagnose(torn)
    assert finding.code == "folders-disagree" and finding.evidence["wrong"] == 1


def test_numbers_that_are_the_names_of_classes() -> None:
    signs = LabelSpace("signs", (Class("limit-20", ("20",)), Class("limit-30", ("30",))))
    assert diagnose(_in_folders(["20", "30"], [0, 1], signs)) == []
    (finding,) = diagnose(_in_folders(["20", "30"], [1, 0], signs))
    assert finding.code == "folders-disagree"


def test_numbered_folders_below_those_of_the_classes_are_no_classes() -> None:
    space = space_of(2)
    paths = [f"{space.ids[row % 2]}/{2012 + row % 2}/{row}.jpg" for row in range(20)]
    assert diagnose(set_of([row % 2 for row in range(20)], space, ids=paths, path=paths)) == []


def test_fixes_name_options_that_exist() -> None:
    import inspect

    from heldout.core.request import fields
    from heldout.data.requests import ImportTestsetRequest
    from heldout.measure.doctor import id_checks, testset_checks

    options = {f"--{field.flag}" for field in fields(ImportTestsetRequest)}
    for module in (id_checks, testset_checks):
        source = inspect.getsource(module)
        assert "--label-kind" in options and "--label-kind" in source
        assert "--class-folders" not in source
