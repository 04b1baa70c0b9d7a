"""Tests of :mod:`heldout.measure.mistakes.verdicts`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, LabelError, NotFound, UserError
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import Card, image_table, make_testset, truth_table
from heldout.measure.mistakes.verdicts import (
    NOTHING,
    RIGHT,
    UNREVIEWED,
    Collapse,
    Mistake,
    load_collapse,
    mistakes_of,
    verdicts,
)
from heldout.measure.score.truth import truth_arrays
from heldout.models.predictions import Predictions
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.score.worlds import Image, World, single_label, space_of, world_testset, worlds

# Collapse tables: the built-in one, and files of every form.


IMAGENET = LabelSpace.load("imagenet-1k")


def test_the_built_in_table() -> None:
    table = load_collapse("imagenet-1k", label_space=IMAGENET)
    assert len(table.also) == 21
    by_name = {
        IMAGENET.get(key).name: [IMAGENET.get(other).name for other in others]
        for key, others in table.also.items()
    }
    assert by_name["malamute"] == ["Eskimo dog"]
    assert by_name["Siberian husky"] == ["Eskimo dog"]
    assert "Eskimo dog" not in by_name
    assert by_name["sunglass"] == ["sunglasses"] and by_name["sunglasses"] == ["sunglass"]
    assert sorted(by_name["polecat"]) == ["black-footed ferret", "mink", "weasel"]
    assert by_name["coffee mug"] == ["cup"] and "cup" not in by_name
    assert sum(map(len, table.also.values())) == 7 + 5 * 2 + 4 * 3


def test_the_built_in_table_for_some_classes() -> None:
    ids = [IMAGENET.ids[c] for c in (248, 249, 836)]
    table = load_collapse("imagenet-1k", label_space=IMAGENET.subset("few", ids))
    assert table.also == {ids[1]: (ids[0],)}
    with pytest.raises(LabelError, match="about no class of other"):
        load_collapse("imagenet-1k", label_space=LabelSpace.from_ids("other", ["x", "y"]))


def test_forms_of_files(tmp_path: Path) -> None:
    space = space_of(5)
    same = {"c0": ("c1",), "c2": ("c1", "c3")}
    forms = {
        "plain.json": json.dumps({"c0": "c1", "c2": ["c1", "c3"]}),
        "numbers.json": json.dumps({"0": 1, "2": [1, 3]}),
        "names.json": json.dumps({"class 0": "class 1", "class 2": ["class 1", "class 3"]}),
        "plain.toml": 'c0 = "c1"\nc2 = ["c1", "c3"]\n',
    }
    for name, text in forms.items():
        (tmp_path / name).write_text(text)
        table = load_collapse(tmp_path / name, label_space=space)
        assert table.also == same, name
        assert table.name == name.partition(".")[0]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "[1, 2]", "Expected object"),
        ("a.json", '{"c0": "c9"}', "no class named 'c9'"),
        ("a.json", '{"c0": 99}', "99"),
        ("a.json", '{"c0": true}', "Expected .*, got bool"),
        ("a.json", "{}", "names no two classes"),
        ("a.json", '{"c0": "c0"}', "names no two classes"),
        ("a.toml", "c0 = ", "not valid TOML"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadFile, match=message):
        load_collapse(tmp_path / name, label_space=space_of(3))


def test_a_name_of_two_classes_is_refused(tmp_path: Path) -> None:
    space = LabelSpace("made", (Class("a", ("crane",)), Class("b", ("crane",)), Class("c", ("x",))))
    (tmp_path / "t.json").write_text('{"x": "crane"}')
    with pytest.raises(BadFile, match="fits 2 classes"):
        load_collapse(tmp_path / "t.json", label_space=space)


def test_no_such_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no collapse table 'imagenet'"):
        load_collapse("imagenet", label_space=IMAGENET)
    with pytest.raises(NotFound, match="no collapse table"):
        load_collapse(tmp_path / "none.json", label_space=IMAGENET)


def test_widening_keeps_lists_apart() -> None:
    world = World(4, (Image("a", 0, (0,), (2,), (3,)), Image("b", 3, (3, 1))))
    truth = truth_arrays(world_testset(world))
    wide = Collapse("t", {"c0": ("c1",), "c2": ("c3",), "unknown": ("c0",)}).widen(truth)
    assert wide.correct.keys.tolist() == [0, 1, 5, 7]
    assert wide.unclear.keys.tolist() == [2, 3]
    assert wide.wrong is truth.wrong


# The list of mistakes against plain loops.


@settings(max_examples=120)
@given(worlds(models=3), st.sampled_from(["single", "multilabel"]))
def test_against_loops(world: World, kind: str) -> None:
    found = mistakes_of(verdicts(set_of_kind(world, kind), world.predictions()))
    expected: dict[tuple[str, str], Mistake] = {}
    reviewed: dict[tuple[str, str], bool] = {}
    for row, image in counted(world, kind):
        for model in world.logits:
            guess, state = plain_state(world, kind, model, row)
            if state in (RIGHT, NOTHING):
                continue
            listed = list(dict.fromkeys([*image.correct, *image.unclear]))
            if image.label in listed:
                listed = [image.label, *(c for c in listed if c != image.label)]
            key = (image.id, f"c{guess}")
            before = expected[key].models if key in expected else ()
            expected[key] = Mistake(
                image.id,
                f"c{guess}",
                tuple(f"c{c}" for c in listed),
                (*before, model),
            )
            reviewed[key] = state != UNREVIEWED
    assert list(found) == [expected[key] for key in sorted(expected)]
    assert found.keys == sorted(expected)
    assert found.reviewed.tolist() == [reviewed[key] for key in sorted(expected)]


def test_sorted_by_id_and_not_by_position() -> None:
    world = single_label([0] * 2, 12, {"m": [_hot(10), _hot(10)], "o": [_hot(2), _hot(2)]})
    found = mistakes_of(verdicts(world_testset(world), world.predictions()))
    assert [(m.image_id, m.prediction) for m in found] == [
        ("i000", "c10"), ("i000", "c2"), ("i001", "c10"), ("i001", "c2"),
    ]  # fmt: skip


def test_no_mistakes() -> None:
    world = single_label([0, 1], 2, {"m": [_hot(0, 2), _hot(1, 2)]})
    assert mistakes_of(verdicts(world_testset(world), world.predictions())).keys == []


def test_rows_of_one_image_belong_together() -> None:
    space = space_of(4)
    testset = make_testset(
        Card(name="made", label_space="made"),
        images=image_table({"image_id": ["a", "b"]}),
        truths={"original": truth_table(["a", "a", "b"], ["c0", "c1", "c0"])},
        label_space=space,
    )
    outputs = [
        Predictions(
            model=model,
            image_ids=pa.array(["a", "b"], pa.string()),
            topk=np.array(guesses, dtype=np.int32),
            label_space=space,
        )
        for model, guesses in {"m": [[1], [3]], "o": [[2], [0]]}.items()
    ]
    found = mistakes_of(verdicts(testset, outputs))
    # m says c1 of image a: wrong for its row c0, right for its row c1, so it is no mistake.
    assert [(m.image_id, m.prediction, m.acceptable, m.models) for m in found] == [
        ("a", "c2", ("c0", "c1"), ("o",)),
        ("b", "c3", ("c0",), ("m",)),
    ]


def _hot(place: int, size: int = 12) -> tuple[float, ...]:
    return tuple(float(c == place) for c in range(size))
