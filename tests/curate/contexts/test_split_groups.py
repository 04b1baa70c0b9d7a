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
)
from tests.curate.contexts.contexts_examples import (
    published_objects,
    published_sets,
    slow_pairs,
    subsets_from,
)


def test_subsets_are_merged_into_groups() -> None:
    subsets = subsets_from(
        {
            "cat(car)": {"1", "2", "both"},
            "cat(fence)": {"2", "3"},
            "cat(sofa)": {"3", "4"},
            "dog(sofa)": {"5", "both"},
        }
    )
    scheme = {"cat(outdoor)": ["cat(car)", "cat(fence)"], "cat(in)": ["cat(sofa)"]}
    groups = merged_groups(subsets, scheme | {"dog(in)": ["dog(sofa)"]})
    assert groups.images == {"cat(outdoor)": ["1", "2", "3"], "cat(in)": ["4"], "dog(in)": ["5"]}
    assert groups.notes == (
        "2 images are in more than one group: 1 dropped, 1 kept in the group named first",
    )
    with pytest.raises(NotFound, match=r"no subset 'cat\(cra\)'.*did you mean cat\(car\)"):
        merged_groups(subsets, {"cat(outdoor)": ["cat(cra)"]})


def test_schemes_are_toml(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
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
        "cat(indoor)": ["3"],
        "cat(outdoor)": ["1", "2"],
        "dog(indoor)": [],
        "dog(outdoor)": ["4"],
    }
    assert groups.notes == (
        "1 images show two of the classes and are left out",
        "1 images show indoor and outdoor objects and are left out",
        "1 images show neither kind and are left out",
    )


def test_a_class_does_not_tell_its_own_place() -> None:
    groups = place_groups([("1", "couch"), ("2", "couch"), ("2", "tv")], ["couch"])
    assert groups.images["couch(indoor)"] == ["2"]


def shares_groups() -> Groups:
    """As many images in each group as the published set has."""
    sizes = {"cat(indoor)": 1000, "dog(outdoor)": 1000, "cat(outdoor)": 749, "dog(indoor)": 750}
    return Groups(
        {name: tuple(f"{name[:5]}{i:05d}" for i in range(n)) for name, n in sizes.items()}
    )


def test_shares_are_subpopbenchs() -> None:
    order = ["cat(indoor)", "cat(outdoor)", "dog(indoor)", "dog(outdoor)"]
    split = shares_split(shares_groups())
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


def test_too_few_images_for_shares_are_refused() -> None:
    with pytest.raises(UserError, match="a split of 1 images"):
        shares_split(Groups({"cat(a)": ("1",)}))


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
    made = subsets_from(subsets)
    assert len(merged_groups(made, scheme).images["cat(outdoor)"]) == 81
    groups = merged_groups(made, {**scheme, "dog(cat)": ["dog(cat)"]})
    assert len(groups.images["cat(outdoor)"]) == 79 and "2 dropped" in groups.notes[0]


def test_subpopbench_numbers() -> None:
    """The benchmark's own numbers: cat 1, dog 0; indoor 1, outdoor 0; train, val, test 0, 1, 2."""
    parts = {
        "train": (SplitRow("11", "cat", "cat(indoor)"),),
        "validation": (SplitRow("12", "dog", "dog(outdoor)"),),
        "test": (SplitRow("13", "dog", "dog(indoor)"),),
    }
    split = Split(parts=parts, rule={})
    assert subpopbench_document(split) == "filename,y,a,split\n11,1,1,0\n12,0,0,1\n13,0,1,2\n"
