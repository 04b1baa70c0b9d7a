from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.contexts.split import Split, SplitRow, subpopbench_document
from heldout.curate.contexts.subpopulation import (
    COCO_PLACES,
    Groups,
    merged_groups,
    place_groups,
    read_scheme,
    shares_split,
    without_ambiguous,
)
from tests.curate.contexts.contexts_examples import published_objects, published_sets, slow_pairs


def test_subsets_are_merged_into_groups() -> None:
    subsets = {"cat(car)": ["2", "1"], "cat(fence)": ["3", "2"], "cat(sofa)": ["4"]}
    groups = merged_groups(subsets, {"cat(outdoor)": ["cat(car)", "cat(fence)"]})
    assert groups.images == {"cat(outdoor)": ("1", "2", "3")}
    with pytest.raises(
        NotFound, match=r"'cat\(cra\)', which is not a subset: did you mean cat\(car\)"
    ):
        merged_groups(subsets, {"cat(outdoor)": ["cat(cra)"]})


def test_schemes_are_toml(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[groups]\n"cat(outdoor)" = ["cat(car)"]\n')
    assert read_scheme(path) == {"cat(outdoor)": ["cat(car)"]}
    path.write_text('"cat(outdoor)" = ["cat(car)"]\n')
    assert read_scheme(path) == {"cat(outdoor)": ["cat(car)"]}
    for text, said in (
        ("x", "not valid TOML"),
        ("", "names no groups"),
        ('"cat(a)" = "cat(b)"', "array"),
        ('"cat(a)" = []', "a group without subsets"),
    ):
        path.write_text(text)
        with pytest.raises(BadFile, match=said):
            read_scheme(path)


def test_every_object_tells_the_place_whatever_its_number() -> None:
    # COCO numbers car, bench and person before cat: pairs of i < j would lose them
    objects = [
        ("1", "cat"), ("1", "car"),
        ("2", "bench"), ("2", "cat"), ("2", "person"),
        ("3", "cat"), ("3", "couch"),
        ("4", "dog"), ("4", "surfboard"),
        ("5", "cat"), ("5", "couch"), ("5", "car"),
        ("6", "cat"), ("6", "dog"), ("6", "couch"),
        ("7", "cat"), ("7", "person"),
        ("8", "couch"), ("8", "car"),
    ]  # fmt: skip
    groups = place_groups(reversed(objects), ["cat", "dog"])
    assert groups.images == {
        "cat(indoor)": ("3",),
        "cat(outdoor)": ("1", "2"),
        "dog(indoor)": (),
        "dog(outdoor)": ("4",),
    }
    assert groups.notes == (
        "1 images show two of the classes and are left out",
        "1 images show indoor and outdoor objects and are left out",
        "1 images show neither kind and are left out",
    )


def test_a_class_does_not_tell_its_own_place() -> None:
    groups = place_groups([("1", "couch"), ("2", "couch"), ("2", "tv")], ["couch"])
    assert groups.images["couch(indoor)"] == ("2",)
    with pytest.raises(UserError, match="missing or repeated"):
        place_groups([], ["cat", "cat"])


def shares_groups() -> Groups:
    """As many images in each group as the published set has."""
    sizes = {"cat(indoor)": 1000, "dog(outdoor)": 1000, "cat(outdoor)": 749, "dog(indoor)": 750}
    return Groups(
        {name: tuple(f"{name[:5]}{i:05d}" for i in range(n)) for name, n in sizes.items()}
    )


def test_shares_are_subpopbenchs() -> None:
    order = ["cat(indoor)", "dog(outdoor)", "cat(outdoor)", "dog(indoor)"]
    split = shares_split(shares_groups(), order)
    parts = {part: len(rows) for part, rows in split.parts.items()}
    assert parts == {"train": 2276, "validation": 349, "test": 874}  # of 3,499, as published
    numbers = {
        image: n for n, image in enumerate(i for g in order for i in shares_groups().images[g])
    }
    for rows in split.parts.values():
        places = [numbers[row.image] for row in rows]
        assert places == sorted(places)
    # the draws of the benchmark's script, by position
    generator = np.random.RandomState(42)
    tested = generator.choice(np.arange(3499), size=874, replace=False)
    assert {numbers[row.image] for row in split.parts["test"]} == set(tested.tolist())
    assert tested[:4].tolist() == [1650, 2456, 2232, 1945]


def test_shares_refuse_what_cannot_be() -> None:
    groups = shares_groups()
    with pytest.raises(UserError, match="leave some for training"):
        shares_split(groups, list(groups.images), test=0.6, validation=0.4)
    with pytest.raises(NotFound, match=r"no group 'cat\(door\)'"):
        shares_split(groups, ["cat(door)"])
    with pytest.raises(UserError, match="named twice"):
        shares_split(groups, ["cat(indoor)", "cat(indoor)"])
    with pytest.raises(UserError, match="too few images: 1 leave none for the test"):
        shares_split(Groups({"cat(a)": ("1",)}), ["cat(a)"])


@pytest.mark.shared
def test_the_lists_are_cocos_supercategories(shared_data: Path) -> None:
    path = shared_data / "metashift/coco-mini/instances_val2017.json"
    kinds: dict[str, set[str]] = {}
    for category in json.loads(path.read_text())["categories"]:
        kinds.setdefault(category["supercategory"], set()).add(category["name"])
    indoor = ("indoor", "kitchen", "electronic", "appliance", "furniture")
    assert set().union(*(kinds[kind] for kind in indoor)) == COCO_PLACES["indoor"]
    outdoor = ("outdoor", "vehicle", "sports")
    assert set().union(*(kinds[kind] for kind in outdoor)) == COCO_PLACES["outdoor"]


@pytest.mark.shared
def test_the_published_cat_outdoors_on_published_images(shared_data: Path) -> None:
    """The seven subsets of MetaShift's cat(outdoor), from objects that share an image."""
    subsets = slow_pairs(published_objects(published_sets(shared_data)))
    contexts = ("car", "fence", "grass", "roof", "bench", "bird", "house")
    scheme = {"cat(outdoor)": [f"cat({context})" for context in contexts]}
    groups = merged_groups(subsets, scheme)
    assert len(groups.images["cat(outdoor)"]) == 81
    both = subsets["cat(dog)"]
    kept, notes = without_ambiguous(
        Groups({**groups.images, "dog(cat)": tuple(sorted(both))}),
        ["cat(outdoor)", "dog(cat)"],
        policy="published",
    )
    assert len(kept["cat(outdoor)"]) == 79 and "2 dropped" in notes[0]


def test_subpopbench_numbers() -> None:
    """The benchmark's own numbers: cat 1, dog 0; indoor 1, outdoor 0; train, val, test 0, 1, 2."""
    parts = {
        "train": (SplitRow("11", "cat", "cat(indoor)"),),
        "validation": (SplitRow("12", "dog", "dog(outdoor)"),),
        "test": (SplitRow("13", "dog", "dog(indoor)"),),
    }
    split = Split(parts=parts, rule={})
    assert subpopbench_document(split, filename="im/{image}.jpg") == (
        "filename,y,a,split\nim/11.jpg,1,1,0\nim/12.jpg,0,0,1\nim/13.jpg,0,1,2\n"
    )
    with pytest.raises(UserError, match=r"write \{image\} where the id goes"):
        subpopbench_document(split, filename="x.jpg")
