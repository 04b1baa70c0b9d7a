"""Superclass files, and which superclass holds two classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound
from heldout.data.labels import LabelSpace, Superclasses, read_superclasses

PETS = LabelSpace.from_ids("pets", ["beagle", "boxer", "tabby", "manx", "carp"])


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"dog": ["beagle", "boxer"], "cat": ["tabby", 3]}'),
        (
            "b.json",
            '{"schema_version": 1, "superclasses": {"dog": ["beagle", "boxer"], "cat": [2, 3]}}',
        ),
        ("c.csv", "superclass,class\ndog,beagle\ndog,boxer\ncat,tabby\ncat,3\n"),
        ("d.csv", "class_id,note,superclass\nbeagle,x,dog\nboxer,,dog\ntabby,,cat\nmanx,,cat\n"),
    ],
)
def test_every_form_reads_the_same(tmp_path: Path, name: str, text: str) -> None:
    found = read_superclasses(_file(tmp_path / name, text), label_space=PETS)
    assert dict(found.groups) == {"dog": ("beagle", "boxer"), "cat": ("tabby", "manx")}


def test_lists_without_names_are_numbered(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.json", '[["beagle", "boxer"], ["carp"]]')
    found = read_superclasses(path, label_space=PETS)
    assert dict(found.groups) == {"superclass-1": ("beagle", "boxer"), "superclass-2": ("carp",)}


def test_a_node_stands_for_all_classes_under_it(tmp_path: Path) -> None:
    imagenet = LabelSpace.load("imagenet-1k")
    path = _file(tmp_path / "a.json", '{"dog": "n02084071", "cat": ["n02121620", "tabby"]}')
    found = read_superclasses(path, label_space=imagenet)
    assert len(found.groups["dog"]) == 118
    assert len(found.groups["cat"]) == 7  # the tabby is among them once


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.json", '{"dog": ["wolf"]}', "wolf"),
        ("a.json", '{"dog": [9]}', "class index 9 is outside"),
        ("a.json", '{"dog": []}', "has no classes"),
        ("a.json", '{"dog": ["beagle"], "dog": ["husky"]}', "'dog' is there twice"),
        ("a.json", '{"dog": [true]}', "not a superclass file"),
        ("a.json", "{}", "names no superclass"),
        ("a.json", '"dog"', "not a superclass file"),
        ("a.csv", "group,class\ndog,beagle\n", "has no column 'superclass'"),
        ("a.csv", "superclass,class\ndog,\n", "empty cell"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, text: str, match: str) -> None:
    with pytest.raises(BadFile, match=match):
        read_superclasses(_file(tmp_path / name, text), label_space=PETS)


def test_a_missing_file() -> None:
    with pytest.raises(NotFound):
        read_superclasses(Path("none.json"), label_space=PETS)


@given(
    st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20),
)
def test_common_is_the_first_group_with_both(
    groups: list[list[int]], pairs: list[tuple[int, int]]
) -> None:
    space = LabelSpace.from_ids("some", [f"c{i}" for i in range(7)])
    made = Superclasses(
        space, {f"g{n}": tuple(f"c{i}" for i in ids) for n, ids in enumerate(groups)}
    )
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    plain = [
        next((n for n, ids in enumerate(groups) if one in ids and other in ids), -1)
        for one, other in pairs
    ]
    assert made.common(a, b).tolist() == plain


def test_a_number_is_a_position_unless_it_is_another_classs_id(tmp_path: Path) -> None:
    space = LabelSpace.from_ids("numbered", ["0", "2", "1"])
    path = _file(tmp_path / "a.json", '{"x": [0], "y": ["2"]}')
    assert read_superclasses(path, label_space=space).groups == {"x": ("0",), "y": ("2",)}
    _file(path, '{"x": [1]}')
    with pytest.raises(BadFile, match="'1' by id and another by position"):
        read_superclasses(path, label_space=space)
