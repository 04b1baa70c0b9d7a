from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.contexts.split import Split, SplitRow, read_columns, save_split
from heldout.curate.contexts.subpopulation import (
    Groups,
    Sizes,
    pair_groups,
    published_split,
    read_groups,
    subpopulation_split,
)

MINORITY = ("cat(outdoor)", "dog(indoor)")
PUBLISHED = Sizes(minority_count=100, test=144, minority=294, majority=994)


def cats_and_dogs() -> Groups:
    """Four groups of the published shape; ids are numbers of different lengths."""
    sizes = {"cat(outdoor)": 300, "dog(indoor)": 350, "cat(indoor)": 1000, "dog(outdoor)": 1100}
    images = {
        name: tuple(str((j * 100003 + i * 7919) % 2400000 + j * 2400000) for i in range(n))
        for j, (name, n) in enumerate(sizes.items())
    }
    return Groups(images)


def digest(rows: tuple[SplitRow, ...]) -> str:
    return hashlib.sha256("\n".join(row.image for row in rows).encode()).hexdigest()


def test_published_ids_in_the_published_order() -> None:
    """Golden: MetaShift's steps with scikit-learn 1.9.1's train_test_split on the same groups."""
    split = published_split(cats_and_dogs(), MINORITY, PUBLISHED)
    train, test = split.parts["train"], split.parts["test"]
    assert list(split.parts) == ["train", "test"]
    assert (len(train), len(test)) == (1700, 576)
    assert [row.image for row in train[:3]] == ["1821370", "1655071", "1053227"]
    assert [row.image for row in train[100:102]] == ["6393207", "5752311"]
    assert [row.image for row in train[-2:]] == ["7981982", "9376812"]
    assert [row.image for row in test[:3]] == ["1243283", "47514", "63352"]
    assert digest(train) == "ee34eee1fc2a6ebfff59ab71ae6fbc7cab19ed9ea39c041fc455e1c6e37c529c"
    assert digest(test) == "8bf9400f9791e8767bd7dd039afaa2fc886c44a2b3111b23357019f5557eaea1"
    # class by class, the minority group first
    runs = list(dict.fromkeys((row.label, row.group) for row in train))
    assert runs == [
        ("cat", "cat(outdoor)"),
        ("cat", "cat(indoor)"),
        ("dog", "dog(indoor)"),
        ("dog", "dog(outdoor)"),
    ]
    assert [len([r for r in train if r.group == g]) for _, g in runs] == [100, 750, 100, 750]


def written_out(groups: Groups, sizes: Sizes, seed: int) -> dict[str, list[str]]:
    """The published steps again, by positions and one image at a time."""
    minority, majority, test = sizes.minority or 0, sizes.majority or 0, sizes.test

    def drawn(name: str, size: int) -> tuple[list[str], list[str]]:
        ids = sorted(groups.images[name])
        random.Random(seed).shuffle(ids)
        ids = ids[:size]
        order = np.random.RandomState(seed).permutation(len(ids)).tolist()
        return [ids[i] for i in order[test:]], [ids[i] for i in order[:test]]

    found: dict[str, list[str]] = {"train": [], "test": []}
    for small, large in (("cat(outdoor)", "cat(indoor)"), ("dog(indoor)", "dog(outdoor)")):
        rare, rare_test = drawn(small, minority)
        usual, usual_test = drawn(large, majority)
        for position, image in enumerate(rare):
            if position < sizes.minority_count:
                found["train"].append(image)
        for position, image in enumerate(usual):
            if position >= sizes.minority_count:
                found["train"].append(image)
        found["test"] += rare_test + usual_test
    return found


@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(1, 20), st.integers(0, 30))
def test_published_rule_for_any_sizes(seed: int, count: int, test: int, more: int) -> None:
    sizes = Sizes(minority_count=count, test=test, minority=count + test, majority=60 + more)
    generator = random.Random(seed)
    ids = [str(n) for n in generator.sample(range(10**6), 400)]
    groups = Groups(
        {
            "cat(outdoor)": tuple(ids[:60]),
            "dog(indoor)": tuple(ids[60:110]),
            "cat(indoor)": tuple(ids[110:210]),
            "dog(outdoor)": tuple(ids[210:400]),
        }
    )
    split = published_split(groups, MINORITY, sizes, seed=seed)
    expected = written_out(groups, sizes, seed)
    for part, images in expected.items():
        assert [row.image for row in split.parts[part]] == images


def test_the_training_size_does_not_depend_on_the_minority_count() -> None:
    groups = cats_and_dogs()
    splits = [
        published_split(groups, MINORITY, replace(PUBLISHED, minority_count=m))
        for m in (10, 50, 100)
    ]
    assert {len(split.parts["train"]) for split in splits} == {1700}
    assert len({digest(split.parts["test"]) for split in splits}) == 1


def test_a_validation_part_beside_the_published_split_changes_nothing_else() -> None:
    groups = cats_and_dogs()
    plain = published_split(groups, MINORITY, PUBLISHED)
    more = published_split(groups, MINORITY, replace(PUBLISHED, validation=50))
    assert more.parts["train"] == plain.parts["train"]
    assert more.parts["test"] == plain.parts["test"]
    assert len(more.parts["validation"]) == 200
    with pytest.raises(UserError, match="leave 150 where 151 are needed"):
        published_split(groups, MINORITY, replace(PUBLISHED, validation=51))


def test_our_own_split_has_validation_and_nests() -> None:
    groups = cats_and_dogs()
    split = subpopulation_split(groups, MINORITY, PUBLISHED)
    counts = split.counts()
    assert (counts["train"], counts["validation"], counts["test"]) == (1600, 200, 576)
    assert {counts[f"test {group}"] for group in groups.images} == {144}
    smaller = subpopulation_split(
        groups, MINORITY, replace(PUBLISHED, minority_count=10, validation=50)
    )
    assert smaller.parts["test"] == split.parts["test"]
    assert smaller.parts["validation"] == split.parts["validation"]
    assert len(smaller.parts["train"]) == len(split.parts["train"])

    def rare(found: Split) -> set[str]:
        return {row.image for row in found.parts["train"] if row.group in MINORITY}

    assert rare(smaller) < rare(split)
    other = subpopulation_split(groups, MINORITY, PUBLISHED, seed=1)
    assert other.parts["test"] != split.parts["test"]


GROUPS = st.integers(12, 30).flatmap(
    lambda n: st.lists(
        st.text("abcdefgh0123", min_size=1, max_size=6), min_size=4 * n, max_size=4 * n, unique=True
    )
)


@given(GROUPS, st.randoms(), st.integers(0, 3))
def test_order_of_input_never_matters(ids: list[str], chance: random.Random, m: int) -> None:
    n = len(ids) // 4
    names = ["cat(outdoor)", "dog(indoor)", "cat(indoor)", "dog(outdoor)"]
    images = {name: tuple(ids[i * n : (i + 1) * n]) for i, name in enumerate(names)}
    shuffled = dict(chance.sample(list(images.items()), 4))
    shuffled = {name: tuple(chance.sample(list(group), n)) for name, group in shuffled.items()}
    sizes = Sizes(minority_count=m, test=4)
    for rule in (published_split, subpopulation_split):
        one, two = (rule(Groups(g), MINORITY, sizes) for g in (images, shuffled))
        assert one.parts == two.parts and one.groups == two.groups
        used = [row.image for rows in one.parts.values() for row in rows]
        assert len(used) == len(set(used))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            replace(PUBLISHED, minority=400),
            "too few images: cat(outdoor) has 300 of 400, dog(indoor) has 350 of 400",
        ),
        (
            replace(PUBLISHED, minority_count=200),
            "294 of each minority group (cat(outdoor), dog(indoor)), 144 of them held out, leave 150 "
            "where 200 are needed",
        ),
        (
            replace(PUBLISHED, majority=200),
            "200 of each majority group (cat(indoor), dog(outdoor)), 144 of them held out, leave 56",
        ),
    ],
)
def test_too_few_images_is_one_line_with_the_numbers(sizes: Sizes, said: str) -> None:
    for rule in (published_split, subpopulation_split):
        with pytest.raises(UserError) as caught:
            rule(cats_and_dogs(), MINORITY, sizes)
        assert said in caught.value.line
        assert "\n" not in caught.value.line


def test_no_room_for_validation_is_said() -> None:
    sizes = replace(PUBLISHED, minority_count=150)
    with pytest.raises(UserError, match=r"none for validation.*--sizes validation=0"):
        subpopulation_split(cats_and_dogs(), MINORITY, sizes)
    without = replace(sizes, validation=0)
    assert "validation" not in subpopulation_split(cats_and_dogs(), MINORITY, without).parts


def test_groups_must_fit_together() -> None:
    groups = cats_and_dogs()
    with pytest.raises(NotFound, match=r"no group 'cat\(outdor\)'.*did you mean cat\(outdoor\)"):
        pair_groups(groups, ["cat(outdor)"])
    with pytest.raises(UserError, match="two minority groups"):
        pair_groups(groups, ["cat(outdoor)", "cat(indoor)"])
    with pytest.raises(UserError, match="no minority groups"):
        pair_groups(groups, [])
    three = Groups({**groups.images, "cat(zoo)": ("z1",)})
    with pytest.raises(UserError, match=r"2 groups besides cat\(outdoor\).*--majority-group"):
        pair_groups(three, MINORITY)
    chosen = pair_groups(three, MINORITY, ["dog(outdoor)", "cat(zoo)"])
    assert chosen.majority == ("cat(zoo)", "dog(outdoor)")
    with pytest.raises(UserError, match="0 groups besides"):
        pair_groups(Groups({"cat(outdoor)": ("1",)}), ["cat(outdoor)"])
    with pytest.raises(UserError, match=r"'cat\(zoo\)' is empty"):
        pair_groups(Groups({**groups.images, "cat(zoo)": ()}), ["cat(zoo)"])
    with pytest.raises(UserError, match="a class without a minority group"):
        pair_groups(groups, ["cat(outdoor)"], ["cat(indoor)", "dog(outdoor)"])


def test_sizes_are_checked() -> None:
    with pytest.raises(UserError, match="a test size of 0"):
        Sizes(minority_count=1, test=0)
    with pytest.raises(UserError, match="a minority count of -1"):
        Sizes(minority_count=-1, test=1)
    with pytest.raises(UserError, match="a legacy seed of -1"):
        published_split(cats_and_dogs(), MINORITY, PUBLISHED, seed=-1)


def test_images_in_two_groups() -> None:
    images = {name: set(ids) for name, ids in cats_and_dogs().images.items()}
    both_classes, one_class = "77777777", "88888888"
    for group in ("cat(outdoor)", "dog(outdoor)"):
        images[group].add(both_classes)
    for group in ("cat(outdoor)", "cat(indoor)"):
        images[group].add(one_class)
    groups = Groups({name: tuple(sorted(ids)) for name, ids in images.items()})
    with pytest.raises(UserError, match=r"2 images are in more than one group, such as 77777777"):
        published_split(groups, MINORITY, PUBLISHED)
    # dropped, the split is that of the groups without them
    dropped = published_split(groups, MINORITY, PUBLISHED, ambiguous="drop")
    assert dropped.parts == published_split(cats_and_dogs(), MINORITY, PUBLISHED).parts
    assert "2 dropped, 0 kept" in dropped.notes[0]
    kept = published_split(groups, MINORITY, PUBLISHED, ambiguous="published")
    assert "1 dropped, 1 kept in the group named first" in kept.notes[0]
    assert kept.groups[one_class] == ("cat(indoor)", "cat(outdoor)")
    for rows in kept.parts.values():
        assert not [r for r in rows if r.image == both_classes]
        assert not [r for r in rows if r.image == one_class and r.group == "cat(indoor)"]


def test_groups_are_read_from_tables(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("group,image,more\ncat(a),007,x\ncat(b),7,\ncat(a),007,y\n")
    groups = read_groups(path)
    assert groups.images == {"cat(a)": ("007",), "cat(b)": ("7",)}  # ids stay texts
    assert "1 rows are there twice and count once" in groups.notes[0]
    path.write_text(groups.table())
    assert read_groups(path).images == groups.images
    for text, said in (
        ("image,set\n1,cat(a)\n", "lacks the column group"),
        ("image,group\n1,\n", "row 1 has no group"),
        ("image,group\n", "no rows"),
    ):
        path.write_text(text)
        with pytest.raises(BadFile, match=said):
            read_groups(path)
    path.write_text("image,group\n1,cat\n")
    with pytest.raises(UserError, match="'cat' is not a subset"):
        read_groups(path)


def test_a_test_of_one_image_still_has_a_validation_part() -> None:
    split = subpopulation_split(cats_and_dogs(), MINORITY, Sizes(minority_count=1, test=1))
    assert split.counts()["validation"] == split.counts()["test"] == 4


def test_a_split_is_saved_and_read_back(tmp_path: Path) -> None:
    split = subpopulation_split(cats_and_dogs(), MINORITY, PUBLISHED)
    folder = tmp_path / "out"
    assert save_split(split, folder)
    assert (folder / "train.csv").read_text().startswith("image,class,group\n")
    for part, rows in split.parts.items():
        read = read_columns(folder / f"{part}.csv", ("image", "class", "group"), "part of a split")
        assert read == list(rows)
    images = (folder / "images.csv").read_text().splitlines()
    assert len(images) == 1 + 300 + 350 + 1000 + 1100
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert not save_split(split, folder)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_no_image_twice_in_a_split() -> None:
    row = SplitRow("1", "cat", "cat(a)")
    with pytest.raises(UserError, match="image '1' is in train and again in test"):
        Split(parts={"train": (row,), "test": (row,)}, rule={})


def test_a_published_split_has_no_more_validation_than_training_leaves_over() -> None:
    sizes = Sizes(minority_count=5, test=20, minority=200, majority=200, validation=6)
    with pytest.raises(UserError, match="a validation size of 6: training leaves 5 images"):
        published_split(cats_and_dogs(), MINORITY, sizes)
