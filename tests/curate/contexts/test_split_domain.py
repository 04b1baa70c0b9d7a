from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.curate.contexts.distance import distance
from heldout.curate.contexts.domain_splits import (
    Domain,
    domain_split,
    domains_of,
    nearest_training,
    shared_images,
    split_distances,
)
from heldout.curate.contexts.subsets import Subsets
from heldout.data.published.metashift import split_subset_name
from tests.curate.contexts.contexts_examples import subsets_from


def drifting(classes: tuple[str, ...] = ("cat", "dog"), images: int = 60) -> Subsets:
    """Contexts c0 to c7 along a line: an image shows two or three neighbours; classes apart."""
    chance = random.Random(5)
    sets: dict[str, set[str]] = {}
    for label in classes:
        for place in range(8):
            for number in range(images):
                image = f"{label}-{place}-{number}"
                near = [place] + [p for p in (place - 1, place + 1) if chance.random() < 0.4]
                for other in near:
                    if 0 <= other < 8:
                        sets.setdefault(f"{label}(c{other})", set()).add(image)
    return subsets_from(sets)


def domain(*names: str) -> Domain:
    return Domain(name=names[0], subsets=names)


def test_no_image_is_in_two_parts_and_test_images_never_train() -> None:
    subsets = drifting()
    train = [domain("cat(c0)", "cat(c1)"), domain("dog(c0)")]
    test = [domain("cat(c2)"), domain("dog(c1)", "dog(c2)")]
    split = domain_split(subsets, train=train, test=test, sizes={"test": 40})
    used = [row.image for rows in split.parts.values() for row in rows]
    assert len(used) == len(set(used))
    assert [len([r for r in split.parts["test"] if r.label == c]) for c in ("cat", "dog")] == [
        40,
        40,
    ]
    held = {str(image) for item in test for image in subsets.image_ids[item.members(subsets)]}
    learned = {row.image for part in ("train", "validation") for row in split.parts[part]}
    assert not learned & held  # not even those that the test did not draw
    assert {row.group for row in split.parts["train"]} == {"cat(c0)", "dog(c0)"}
    trained = sum(len(split.parts[part]) for part in ("train", "validation"))
    assert abs(len(split.parts["validation"]) - 0.1 * trained) <= 2


def test_images_of_two_classes_are_left_out() -> None:
    sets = {
        "cat(a)": {"1", "2", "both"}, "cat(b)": {"3", "4"}, "cat(dog)": {"both"},
        "dog(a)": {"5", "6", "both"}, "dog(b)": {"7", "8"},
    }  # fmt: skip
    subsets = subsets_from(sets)
    assert subsets.image_ids[shared_images(subsets, ["cat", "dog"])].tolist() == ["both"]
    split = domain_split(
        subsets,
        train=[domain("cat(a)"), domain("dog(a)")],
        test=[domain("cat(b)"), domain("dog(b)")],
        sizes={},
        validation=0.5,
    )
    counts = split.counts()
    assert (counts["train"], counts["validation"], counts["test"]) == (2, 2, 4)
    assert split.notes == ("1 images are of two of the classes and are left out",)


def test_an_image_of_two_training_domains_counts_once() -> None:
    subsets = subsets_from({"cat(a)": {"1", "2"}, "cat(b)": {"2", "3"}, "cat(c)": {"4"}})
    split = domain_split(
        subsets,
        train=[domain("cat(a)"), domain("cat(b)")],
        test=[domain("cat(c)")],
        sizes={},
        validation=0.0,
    )
    assert sorted((r.image, r.group) for r in split.parts["train"]) == [
        ("1", "cat(a)"), ("2", "cat(a)"), ("3", "cat(b)"),
    ]  # fmt: skip
    assert "validation" not in split.parts


def test_what_cannot_be_is_said() -> None:
    subsets = drifting()
    with pytest.raises(UserError, match=r"too few images: class 'cat' has \d+ to train, 900"):
        domain_split(
            subsets,
            train=[domain("cat(c0)")],
            test=[domain("cat(c2)")],
            sizes={"train": 900},
        )
    with pytest.raises(UserError, match="'dog' is tested and never trained"):
        domain_split(subsets, train=[domain("cat(c0)")], test=[domain("dog(c2)")], sizes={})
    with pytest.raises(UserError, match="no image of class 'cat' is left for train"):
        domain_split(subsets, train=[domain("cat(c0)")], test=[domain("cat(c0)")], sizes={})
    with pytest.raises(UserError, match="mixes cat and dog"):
        domain("cat(c0)", "dog(c0)")
    with pytest.raises(UserError, match="has no subsets"):
        Domain(name="x", subsets=())
    with pytest.raises(NotFound, match=r"did you mean cat\(c0\)"):
        domain_split(subsets, train=[domain("cat(c00)")], test=[domain("cat(c1)")], sizes={})


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 10))
def test_smaller_requests_are_parts_of_larger_ones(seed: int, size: int, more: int) -> None:
    subsets = drifting(("cat",), images=40)
    train, test = [domain("cat(c0)")], [domain("cat(c4)")]

    def images(number: int, part: str) -> set[str]:
        sizes = {"train": number, "test": number}
        split = domain_split(
            subsets, train=train, test=test, sizes=sizes, validation=0.0, seed=seed
        )
        return {row.image for row in split.parts[part]}

    for part in ("train", "test"):
        small, large = images(size, part), images(size + more, part)
        assert small <= large and len(small) == size


def test_domains_are_communities_and_single_subsets() -> None:
    sets = {f"cat(s{i})": {f"x{n}" for n in range(i, i + 20)} for i in range(3)}
    sets["cat(far)"] = {f"y{n}" for n in range(9)}
    found = domains_of(subsets_from(sets), "cat")
    assert [item.name for item in found] == [
        "cat(s0+s1+1)",
        "cat(far)",
        "cat(s0)",
        "cat(s1)",
        "cat(s2)",
    ]
    assert found[0].subsets == ("cat(s0)", "cat(s1)", "cat(s2)")
    assert all(split_subset_name(item.name).subject == "cat" for item in found)


def test_the_training_found_is_the_best_of_all() -> None:
    subsets = drifting(("cat",))
    members = {n: set(subsets.image_ids[subsets.members(n)]) for n in subsets.names}
    for wanted, test, least in ((0.6, ("cat(c0)",), 30), (0.9, ("cat(c3)", "cat(c4)"), 60)):
        held = set().union(*(members[name] for name in test))
        tried = []
        for item in domains_of(subsets, "cat"):
            left = set().union(*(members[name] for name in item.subsets)) - held
            if not set(item.subsets) & set(test) and len(left) >= least:
                apart = distance(subsets, item.subsets, test, replicates=0).value
                tried.append((int(100 * abs(apart - wanted)), -len(left), item.name))
        (found,) = nearest_training(subsets, [domain(*test)], distance=wanted, images=least)
        assert found.name == min(tried)[2]


def test_a_found_split_is_what_it_says() -> None:
    subsets = drifting()
    tests = [domain("cat(c0)"), domain("dog(c6)")]
    found = nearest_training(subsets, tests, distance=0.9, images=50)
    assert [item.label for item in found] == ["cat", "dog"]
    split = domain_split(subsets, train=found, test=tests, sizes={}, validation=0.0)
    for item in found:
        assert sum(row.label == item.label for row in split.parts["train"]) >= 50
    apart = split_distances(subsets, found, tests, replicates=20)
    assert all(abs(each.value - 0.9) < 0.15 for each in apart.values())


def test_a_class_whose_images_are_all_tested_is_refused() -> None:
    sets = {"cat(a)": {"1", "2"}, "cat(b)": {"1", "2", "3"}, "dog(a)": {"5", "6"}, "dog(b)": {"8"}}
    subsets = subsets_from(sets)
    train = [domain("cat(a)"), domain("dog(a)")]
    with pytest.raises(UserError, match="no image of class 'cat' is left for train"):
        domain_split(subsets, train=train, test=[domain("cat(b)"), domain("dog(b)")], sizes={})


def test_a_class_may_train_without_being_tested() -> None:
    split = domain_split(
        drifting(),
        train=[domain("cat(c0)"), domain("dog(c0)")],
        test=[domain("dog(c5)")],
        sizes={"test": 5},
    )
    assert {row.label for row in split.parts["test"]} == {"dog"} and len(split.parts["test"]) == 5
    assert {row.label for row in split.parts["train"]} == {"cat", "dog"}


def test_a_known_shift_ranks_right() -> None:
    """Contexts lie on a line: training farther away is farther in distance."""
    subsets = drifting(("cat",), images=80)
    tests = [domain("cat(c0)")]
    values = [
        split_distances(subsets, [domain(f"cat(c{k})")], tests, replicates=0)["cat"].value
        for k in (1, 2, 3)
    ]
    assert values == sorted(values) and values[0] < values[-1]
    near = nearest_training(subsets, tests, distance=0.0, images=20)
    far = nearest_training(subsets, tests, distance=1.0, images=20)

    def places(found: list[Domain]) -> float:
        return float(np.mean([int(n[5]) for item in found for n in item.subsets]))

    assert places(near) < places(far)


def test_it_refuses_with_the_reason() -> None:
    subsets = drifting()
    with pytest.raises(NotApplicable, match=r"with 5000 images to train: the best have"):
        nearest_training(subsets, [domain("cat(c0)")], distance=0.5, images=5000)
    with pytest.raises(UserError, match="never trained"):
        split_distances(subsets, [domain("dog(c0)")], [domain("cat(c0)")])
