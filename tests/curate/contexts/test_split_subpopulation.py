from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.contexts.split import Split, SplitRow, read_columns, save_split
from heldout.curate.contexts.subpopulation import (
    Groups,
    pair_groups,
    read_groups,
    subpopulation_split,
)

MINORITY = ("cat(outdoor)", "dog(indoor)")
PUBLISHED = {"test": 144, "minority": 294, "majority": 994}


def published(
    groups: Groups | None = None, count: int = 100, seed: int = 42, **sizes: Any
) -> Split:
    """The split of cats and dogs, in the published sizes unless others are given."""
    return subpopulation_split(
        groups or cats_and_dogs(),
        MINORITY,
        minority_count=count,
        sizes={**PUBLISHED, **sizes},
        seed=seed,
    )


def cats_and_dogs() -> Groups:
    """Four groups of the published shape; ids are numbers of different lengths."""
    sizes = {"cat(outdoor)": 300, "dog(indoor)": 350, "cat(indoor)": 1000, "dog(outdoor)": 1100}
    images = {
        name: tuple(str((j * 100003 + i * 7919) % 2400000 + j * 2400000) for i in range(n))
        for j, (name, n) in enumerate(sizes.items())
    }
    return Groups(images)


def digest(rows: Sequence[SplitRow]) -> str:
    return hashlib.sha256("\n".join(row.image for row in rows).encode()).hexdigest()


def test_published_ids_in_the_published_order() -> None:
    """Golden: MetaShift's steps with scikit-learn 1.9.1's train_test_split on the same groups."""
    split = published()
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


def written_out(
    groups: Groups, count: int, sizes: Mapping[str, int], seed: int
) -> dict[str, list[str]]:
    """The published steps again, by positions and one image at a time."""
    test = sizes["test"]

    def drawn(name: str, size: int) -> tuple[list[str], list[str]]:
        ids = sorted(groups.images[name])
        random.Random(seed).shuffle(ids)
        ids = ids[:size]
        order = np.random.RandomState(seed).permutation(len(ids)).tolist()
        return [ids[i] for i in order[test:]], [ids[i] for i in order[:test]]

    found: dict[str, list[str]] = {"train": [], "test": []}
    for small, large in (("cat(outdoor)", "cat(indoor)"), ("dog(indoor)", "dog(outdoor)")):
        rare, rare_test = drawn(small, sizes["minority"])
        usual, usual_test = drawn(large, sizes["majority"])
        for position, image in enumerate(rare):
            if position < count:
                found["train"].append(image)
        for position, image in enumerate(usual):
            if position >= count:
                found["train"].append(image)
        found["test"] += rare_test + usual_test
    return found


@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(1, 20), st.integers(0, 30))
def test_published_rule_for_any_sizes(seed: int, count: int, test: int, more: int) -> None:
    sizes = {"test": test, "minority": count + test, "majority": 60 + more}
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
    split = published(groups, count, seed, **sizes)
    expected = written_out(groups, count, sizes, seed)
    for part, images in expected.items():
        assert [row.image for row in split.parts[part]] == images


def test_the_training_size_does_not_depend_on_the_minority_count() -> None:
    splits = [published(count=m) for m in (10, 50, 100)]
    assert {len(split.parts["train"]) for split in splits} == {1700}
    assert len({digest(split.parts["test"]) for split in splits}) == 1


def test_a_validation_part_beside_the_published_split_changes_nothing_else() -> None:
    plain, more = published(), published(validation=50)
    assert more.parts["train"] == plain.parts["train"]
    assert more.parts["test"] == plain.parts["test"]
    assert len(more.parts["validation"]) == 200
    for count, validation in ((100, 51), (5, 6)):  # no more than training leaves over
        with pytest.raises(UserError, match="too few images"):
            published(count=count, validation=validation)


def test_smaller_counts_nest() -> None:
    split, smaller = published(), published(count=10)

    def rare(found: Split) -> set[str]:
        return {row.image for row in found.parts["train"] if row.group in MINORITY}

    assert rare(smaller) < rare(split)
    assert published(seed=1).parts["test"] != split.parts["test"]


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
    one, two = (
        subpopulation_split(Groups(g), MINORITY, minority_count=m, sizes={"test": 4})
        for g in (images, shuffled)
    )
    assert one.parts == two.parts and one.groups == two.groups
    used = [row.image for rows in one.parts.values() for row in rows]
    assert len(used) == len(set(used))


def test_too_few_images_is_one_line_with_the_numbers() -> None:
    for asked, said in (
        ({"minority": 400}, "cat(outdoor) has 300 of 400"),
        ({"count": 200}, "294 of each minority and 994 of each majority"),
        ({"majority": 200}, "294 of each minority and 200 of each majority"),
    ):
        with pytest.raises(UserError, match="too few images") as caught:
            published(**asked)
        assert said in caught.value.line
    with pytest.raises(UserError, match="below 2"):
        published(seed=2**32)


def test_groups_must_fit_together() -> None:
    groups = cats_and_dogs()
    with pytest.raises(NotFound, match=r"no group 'cat\(outdor\)'.*did you mean cat\(outdoor\)"):
        pair_groups(groups, ["cat(outdor)"])
    three = Groups({**groups.images, "cat(zoo)": ("z1",)})
    one = Groups({"cat(outdoor)": ("1",)})
    for chosen, minority in (
        (groups, ["cat(outdoor)", "cat(indoor)"]),
        (three, MINORITY),
        (one, MINORITY),
    ):
        with pytest.raises(UserError, match="give each class two groups"):
            pair_groups(chosen, minority)


def test_groups_are_read_from_tables(tmp_path: Path) -> None:
    path = tmp_path / "groups.csv"
    path.write_text("group,image,more\ncat(a),007,x\ncat(b),7,\ncat(a),007,y\n")
    groups = read_groups(path)
    assert groups.images == {"cat(a)": ["007"], "cat(b)": ["7"]}  # ids stay texts
    path.write_text(groups.table())
    assert read_groups(path).images == groups.images
    for text, said in (
        ("image,set\n1,cat(a)\n", "has no column 'group'"),
        ("image,group\n1,\n", "row 1 has no group"),
        ("image,group\n", "no rows"),
        ("image,group\n1,cat(a)\n1,cat(b)\n", r"image 1 is in cat\(a\) and in cat\(b\)"),
    ):
        path.write_text(text)
        with pytest.raises(BadFile, match=said):
            read_groups(path)
    path.write_text("image,group\n1,cat\n")
    with pytest.raises(UserError, match="'cat' is not a subset"):
        read_groups(path)


def test_a_split_is_saved_and_read_back(tmp_path: Path) -> None:
    split = published(validation=50)
    folder = tmp_path / "out"
    assert save_split(split, folder)
    assert (folder / "train.csv").read_text().startswith("image,class,group\n")
    for part, rows in split.parts.items():
        assert read_columns(folder / f"{part}.csv", ("image", "class", "group")) == rows
    images = (folder / "images.csv").read_text().splitlines()
    assert len(images) == 1 + 300 + 350 + 1000 + 1100
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert not save_split(split, folder)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
