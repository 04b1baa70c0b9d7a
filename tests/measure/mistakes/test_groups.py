"""Groups: ImageNet's numbers, and hierarchies of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from heldout.core.errors import LabelError
from heldout.data.importing import read_truth
from heldout.data.labels import LabelSpace
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.measure.mistakes.class_similarity import groups_of
from heldout.measure.score.truth import truth_arrays
from tests.measure.mistakes.evidence_case import PETS, TREE


def test_imagenet_has_410_organisms_522_artifacts_and_68_others() -> None:
    found = groups_of(LabelSpace.load("imagenet-1k"))
    assert found.names == ("organism", "artifact", "other")
    assert found.members.sum(axis=0).tolist() == [410, 522, 68]
    for class_id, inside in (("n01440764", [1, 0, 0]), ("n03017168", [0, 1, 0])):
        assert found.members[found.space.index(class_id)].tolist() == inside


def test_groups_of_one_s_own() -> None:
    found = groups_of(PETS, nodes={"dogs": "dog", "pets": "pet"}, hierarchy=TREE)
    assert found.members.sum(axis=0).tolist() == [3, 5, 2]
    assert found.members[PETS.indices(["pug", "sofa"])].tolist() == [[1, 1, 0], [0, 0, 1]]


def test_without_a_hierarchy_there_are_no_groups() -> None:
    with pytest.raises(LabelError, match="no class of pets"):
        groups_of(PETS)
    with pytest.raises(LabelError, match="'wolf'"):
        groups_of(PETS, nodes={"wolves": "wolf"}, hierarchy=TREE)


@pytest.mark.shared
def test_images_join_the_groups_of_all_their_labels(shared_data: Path) -> None:
    """7,624, 10,184 and 1,596 of the 18,692 images that are not problematic."""
    testset = read_imagenetv2(shared_data / "imagenetv2/datasets/imagenet-validation-original.json")
    truth = read_truth(shared_data / "mistakes/multilabel.csv", testset)
    from heldout.data.testset import make_testset

    made = make_testset(
        testset.card.updated(truths={"multilabel": truth.provenance}),
        images=testset.images,
        truths={"multilabel": truth.table},
        label_space=testset.label_space,
    )
    arrays = truth_arrays(made, "multilabel")
    inside = groups_of(made.label_space).of_truth(arrays)[~arrays.problematic]
    assert inside.sum(axis=0).tolist() == [7624, 10184, 1596]
