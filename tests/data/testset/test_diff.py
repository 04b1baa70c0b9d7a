from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotFound
from heldout.core.workspace import Workspace
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.testset import (
    Card,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    save,
    truth_table,
)
from heldout.data.testset.catalogue import Lineage, lineage
from heldout.data.testset.diff import Diff, diff

from .conftest import SPACE

Maker = Callable[..., TestSet]


def simple(rows: dict[str, str], name: str = "a", **fields: Any) -> TestSet:
    ids = list(rows)
    return make_testset(
        Card(name=name, label_space="pets", **fields),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, list(rows.values()))},
        label_space=SPACE,
    )


def test_a_set_and_itself(pets: TestSet) -> None:
    result = diff(pets, pets)
    assert result.same_content
    assert result.in_both == 6
    lists = (result.only_in_a, result.only_in_b, result.changes, result.classes, result.card)
    assert lists == ((), (), (), (), ())


def test_images_classes_and_counts() -> None:
    a = simple({"i1": "cat", "i2": "cat", "i3": "dog"})
    b = simple({"i2": "dog", "i3": "dog", "i4": "cat", "i5": "cat"}, name="b")
    result = diff(a, b)
    assert (result.only_in_a, result.only_in_b, result.in_both) == (("i1",), ("i4", "i5"), 2)
    (change,) = result.changes
    assert (change.image_id, change.table, change.field) == ("i2", "truth/original", "class_id")
    assert (change.before, change.after) == (["cat"], ["dog"])
    cat, dog = result.classes
    assert (cat.class_id, cat.before, cat.after) == ("cat", 2, 2)
    assert (cat.removed, cat.added) == (("i1", "i2"), ("i4", "i5"))
    assert (dog.removed, dog.added, dog.before, dog.after) == ((), ("i2",), 1, 2)
    assert [(c.field, c.before, c.after) for c in result.card] == [
        ("licences.unknown", 3, 4),
        ("name", "a", "b"),
    ]
    counts = result.to_dict()["counts"]
    assert counts == {"only_in_a": 1, "only_in_b": 2, "in_both": 2, "changed": 1, "classes": 2}
    json.dumps(result.to_dict())


def test_a_truth_that_only_one_set_has_is_another_content(make_pets: Maker, pets: TestSet) -> None:
    more = make_pets(truths={**pets.truths, "panel": pets.truths["original"]})
    for a, b, where in ((pets, more, "b"), (more, pets, "a")):
        result = diff(a, b)
        assert not result.same_content and result.changes == ()
        assert result.only_truths == {"panel": where}


ROWS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(SPACE.ids), min_size=1)


@settings(deadline=None)
@given(ROWS, ROWS)
def test_agrees_with_plain_sets_and_is_mirrored(a: dict[str, str], b: dict[str, str]) -> None:
    there, back = diff(simple(a), simple(b)), diff(simple(b), simple(a))
    assert set(there.only_in_a) == set(a) - set(b) == set(back.only_in_b)
    assert set(there.only_in_b) == set(b) - set(a) == set(back.only_in_a)
    assert set(there.changed) == {i for i in set(a) & set(b) if a[i] != b[i]} == set(back.changed)
    assert there.same_content == (a == b)
    for change in there.classes:
        old = {i for i, label in a.items() if label == change.class_id}
        new = {i for i, label in b.items() if label == change.class_id}
        assert (set(change.removed), set(change.added)) == (old - new, new - old)
        assert (change.before, change.after) == (len(old), len(new))
    touched = {label for rows in (a, b) for label in rows.values()}
    same = {c for c in touched if {i for i in a if a[i] == c} == {i for i in b if b[i] == c}}
    assert {change.class_id for change in there.classes} == touched - same


def test_truth_lists_flags_columns_and_memberships(make_pets: Maker, pets: TestSet) -> None:
    multi = pets.truths["multi"].to_pylist()
    multi[0]["correct"] = ["dog", "cat"]
    multi[1]["correct"] = ["dog", "cat"]  # the same labels in another order
    multi[3]["problematic"] = False
    names = ("image_id", "class_id", "correct", "unclear", "wrong", "problematic")
    columns = {name: [row[name] for row in multi] for name in names}
    size = pets.images.column_names.index("size")
    values = [0.1, float("nan"), 1.0, None, None, 0.5]
    b = make_pets(
        images=pets.images.set_column(size, "size", [values]).append_column("new", [["x"] * 6]),
        truths={
            "original": pets.truths["original"],
            "multi": truth_table(columns.pop("image_id"), columns.pop("class_id"), **columns),
            "real": pets.truths["original"],
        },
        memberships=membership_table([("i1", "context", "water"), ("i4", "context", "grass")]),
    )
    result = diff(pets, b)
    found = [(c.image_id, c.table, c.field, c.before, c.after) for c in result.changes]
    assert found[0] == ("i1", "memberships", "context", ["grass", "water"], ["water"])
    assert found[1] == ("i1", "truth/multi", "correct", ["cat"], ["cat", "dog"])
    assert found[2][:4] == ("i2", "images", "size", 0.25)
    assert found[3:] == [
        ("i4", "images", "size", 3.0, None),
        ("i4", "truth/multi", "problematic", True, False),
    ]
    assert result.only_columns == {"new": "b"}
    assert result.only_truths == {"real": "b"}
    assert not result.same_content
    assert diff(b, b).changes == ()  # NaN equals NaN


def test_an_image_with_several_classes() -> None:
    images = image_table({"image_id": ["i"]})
    sets = [
        make_testset(
            Card(name="a", label_space="pets"),
            images=images,
            truths={"original": truth_table(["i"] * len(labels), labels)},
            label_space=SPACE,
        )
        for labels in (["cat", "dog"], ["dog", "crane-bird"])
    ]
    (change,) = diff(*sets).changes
    assert (change.before, change.after) == (["cat", "dog"], ["crane-bird", "dog"])


def test_card_changes() -> None:
    rows = {"i": "cat"}
    a = simple(rows, recipe={"name": "r", "parameters": {"k": 1, "old": True}, "seed": 1})
    b = simple(rows, recipe={"name": "r", "parameters": {"k": 2}, "seed": 9}, citation="Lee")
    assert [(c.field, c.before, c.after) for c in diff(a, b).card] == [
        ("citation", "", "Lee"),
        ("recipe.parameters.k", 1, 2),
        ("recipe.parameters.old", True, None),
        ("recipe.seed", 1, 9),
    ]
    assert diff(a, b).same_content


PAIRS = [
    ("c-9", "c-10", 32, 32),
    ("c-10", "c-11", 61, 61),
    ("c-11", "c-12", 4, 4),
    ("a-22", "a-23", 4, 4),
    ("a-23", "a-24", 3, 2),
    ("a-24", "a-25", 3, 4),
    ("a-22", "a-25", 8, 8),
    ("a-25", "a-44", 1829, 1829),
]


@pytest.mark.shared
@pytest.mark.parametrize(("first", "second", "removed", "added"), PAIRS)
def test_revisions_of_imagenetv2(
    shared_data: Path, first: str, second: str, removed: int, added: int
) -> None:
    paths = [
        shared_data / "imagenetv2" / "datasets" / f"imagenetv2-{name}.json"
        for name in (first, second)
    ]
    result: Diff = diff(*(read_imagenetv2(path) for path in paths))
    raw = [json.loads(path.read_text()) for path in paths]
    pairs = [{tuple(row) for row in value["image_filenames"]} for value in raw]
    images = [{image for image, _ in rows} for rows in pairs]
    assert set(result.only_in_a) == images[0] - images[1]
    assert set(result.only_in_b) == images[1] - images[0]
    assert (len(result.only_in_a), len(result.only_in_b)) == (removed, added)
    assert result.changes == ()
    touched = Counter(label for _, label in pairs[0] ^ pairs[1])
    assert {c.class_id: len(c.removed) + len(c.added) for c in result.classes} == touched
    seeds = {c.field: (c.before, c.after) for c in result.card}["recipe.seed"]
    assert seeds == tuple(value["seed"] for value in raw)


@pytest.mark.shared
def test_the_class_that_a_24_left_short(shared_data: Path) -> None:
    folder = shared_data / "imagenetv2" / "datasets"
    result = diff(*(read_imagenetv2(folder / f"imagenetv2-a-{n}.json") for n in (23, 24)))
    short = [c.class_id for c in result.classes if c.after < c.before]
    fields = {c.field: (c.before, c.after) for c in result.card}
    assert len(short) == 1
    assert fields["counts.images"] == (10_000, 9_999)
    assert fields["recipe.parameters.is_valid"] == (True, False)


def test_lineage_follows_parents(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    base = simple({"i": "cat"}, name="base", aliases=("first",))
    middle = simple(
        {"i": "cat"},
        name="middle",
        parents=({"file": "x.json", "sha256": "aa"}, {"name": "first", "hash": "other"}),
    )
    top = simple(
        {"i": "cat"},
        name="top",
        parents=(
            {"name": "middle", "hash": middle.card.content_hash, "relation": "earlier revision"},
            {"name": "gone"},
            {"name": "top"},
        ),
    )
    for made in (base, middle, top):
        save(made, workspace.testsets / made.name)
    found = lineage(workspace, "top")
    assert [(a.name, a.child, a.depth, a.state) for a in found.ancestors] == [
        ("middle", "top", 1, "present"),
        ("gone", "top", 1, "absent"),
        ("top", "top", 1, "present"),
        ("x.json", "middle", 2, "file"),
        ("first", "middle", 2, "changed"),
    ]
    assert found.ancestors[0].relation == "earlier revision"
    assert lineage(workspace, "first") == Lineage(name="base", ancestors=())
    with pytest.raises(NotFound, match="there is base, middle, top"):
        lineage(workspace, "none")


@pytest.mark.shared
def test_lineage_of_imagenetv2(tmp_path: Path, shared_data: Path) -> None:
    workspace = Workspace(tmp_path)
    for n in (22, 23, 24, 25):
        made = read_imagenetv2(shared_data / "imagenetv2" / "datasets" / f"imagenetv2-a-{n}.json")
        save(made, workspace.testsets / made.name)
    found = lineage(workspace, "imagenetv2-a-25")
    chain = [(a.name, a.state) for a in found.ancestors if a.state != "file"]
    assert chain == [
        ("imagenetv2-a-24", "present"),
        ("imagenetv2-a-23", "present"),
        ("imagenetv2-a-22", "present"),
        ("imagenetv2-a-21", "absent"),
    ]


def test_lineage_takes_a_name_before_an_alias(tmp_path: Path) -> None:
    for name, aliases in (("b", ()), ("z", ("b",))):
        made = simple({"i1": "cat"}, name, aliases=aliases)
        save(made, tmp_path / "testsets" / name)
    assert lineage(Workspace(tmp_path), "b").name == "b"
