"""Tests of :mod:`heldout.measure.mistakes.confusions`."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, LabelError, NotFound, UserError
from heldout.data.labels import Class, LabelSpace
from heldout.measure.mistakes.confusions import (
    Confusions,
    compare_with_file,
    confusion_changes,
    confusions,
    read_confusion_file,
    write_confusion_file,
)
from heldout.measure.mistakes.verdicts import NOTHING, RIGHT, verdicts
from heldout.stats.intervals import wilson
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.score.worlds import World, single_label, world_testset, worlds

# Confusions of two models side by side, against subtracting counts.


@settings(max_examples=60)
@given(worlds(), st.sampled_from(["single", "multilabel"]))
def test_against_both_lists(world: World, kind: str) -> None:
    made = verdicts(set_of_kind(world, kind), world.predictions())
    found = confusion_changes(made, "m0", "m1")
    old, new = (
        Counter({(p.first_id, p.second_id): p.n for p in confusions(made, m).top()})
        for m in ("m0", "m1")
    )  # fmt: skip
    assert {(c.first_id, c.second_id): (c.old, c.new) for c in found} == {
        pair: (old[pair], new[pair]) for pair in {*old, *new} if old[pair] != new[pair]
    }
    keys = [(-abs(c.difference), c.first_id, c.second_id) for c in found]
    assert keys == sorted(keys)
    back = confusion_changes(made, "m1", "m0")
    assert [(c.old, c.new) for c in back] == [(c.new, c.old) for c in found]


# Confusions against counting in loops, and the published files.


@settings(max_examples=100)
@given(worlds(), st.sampled_from(["single", "multilabel"]), st.booleans(), st.booleans())
def test_against_loops(world: World, kind: str, directed: bool, alone: bool) -> None:
    made = verdicts(set_of_kind(world, kind), world.predictions())
    model = made.models[0] if alone else None
    found = confusions(made, model, directed=directed)
    chosen = [model] if model else list(made.models)
    counts: Counter[tuple[str, str]] = Counter()
    images: dict[tuple[str, str], set[str]] = {}
    errors, looks = 0, Counter[int]()
    for row, image in counted(world, kind):
        right = set(image.correct) | set(image.unclear)
        looks.update({c: len(chosen) for c in right})
        for name in chosen:
            guess, state = plain_state(world, kind, name, row)
            if state in (RIGHT, NOTHING):
                continue
            errors += 1
            for label in right:
                pair = (label, guess) if directed else (min(label, guess), max(label, guess))
                key = (f"c{pair[0]}", f"c{pair[1]}")
                counts[key] += 1
                images.setdefault(key, set()).add(image.id)
    pairs = found.top()
    assert {(p.first_id, p.second_id): p.n for p in pairs} == counts
    assert found.errors == errors and found.total == sum(counts.values())
    assert [(-p.n, p.first_id, p.second_id) for p in pairs] == sorted(
        (-p.n, p.first_id, p.second_id) for p in pairs
    )
    for p in pairs:
        key = (p.first_id, p.second_id)
        assert found.images(*key) == tuple(sorted(images[key]))
        assert found.images(*key[::-1]) == (
            tuple(sorted(images.get(key[::-1], ()))) if directed else tuple(sorted(images[key]))
        )
        assert p.first_name == f"class {key[0][1:]}"
        if not directed:
            assert p.of is None and p.share is None and p.low is None
            continue
        assert p.of == looks[int(p.first_id[1:])] and p.share == p.n / p.of
        limits = wilson(p.n, p.of)
        assert (p.low, p.high) == ((limits.low, limits.high) if len(chosen) == 1 else (None, None))


def test_top_and_absent_pairs() -> None:
    found = _made()
    assert [p.n for p in found.top(1)] == [2]
    assert found.images("c0", "c2") == ()
    assert len(found.top(99)) == len(found) == 2


def _made(directed: bool = False) -> Confusions:
    world = single_label([0, 0, 1, 2], 3, {"m": [(0, 1, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1)]})
    return confusions(verdicts(world_testset(world), world.predictions()), directed=directed)


def test_published_form(tmp_path: Path) -> None:
    found = _made()
    write_confusion_file(found, tmp_path / "ids.json")
    names = [["class 1", "class 2", 1], ["class 0", "class 1", 2]]
    (tmp_path / "names.json").write_text(json.dumps(names))
    for form, pairs in (
        ("ids", {("c1", "c2"): 1, ("c0", "c1"): 2}),
        ("names", {("class 1", "class 2"): 1, ("class 0", "class 1"): 2}),
    ):
        read = read_confusion_file(tmp_path / f"{form}.json", label_space=found.space)
        assert read.form == form and read.pairs == pairs and read.total == 3
        assert list(read.pairs) == list(pairs)  # rarest first, as published
        assert compare_with_file(found, read) == []


def test_differences_are_named(tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    # One count differs, one pair is turned round, one is theirs only, one is ours only.
    path.write_text(json.dumps([["c1", "c0", 1], ["c0", "c2", 4]]))
    found = _made()
    read = read_confusion_file(path, label_space=found.space)
    assert [(d.first, d.second, d.ours, d.theirs, d.images) for d in compare_with_file(found, read)] == [
        ("c0", "c1", 2, 1, ("i000", "i001")),
        ("c0", "c2", 0, 4, ()),
        ("c1", "c2", 1, 0, ("i002",)),
    ]  # fmt: skip
    directed = {
        (d.first, d.second): (d.ours, d.theirs) for d in compare_with_file(_made(True), read)
    }
    assert directed == {
        ("c0", "c1"): (2, 0), ("c1", "c0"): (0, 1), ("c0", "c2"): (0, 4), ("c1", "c2"): (1, 0),
    }  # fmt: skip


def test_names_that_two_classes_share(tmp_path: Path) -> None:
    items = (Class("a", ("crane",)), Class("b", ("crane",)), Class("c", ("Heron",)))
    space = LabelSpace("made", items)
    world = single_label([2, 2, 0], 3, {"m": [(1, 0, 0), (0, 1, 0), (0, 1, 0)]})
    testset = world_testset(world, space=space)
    found = confusions(verdicts(testset, [world.prediction("m", space=space)]))
    path = tmp_path / "names.json"
    path.write_text(json.dumps([[p.first_name, p.second_name, p.n] for p in found.top()]))
    read = read_confusion_file(path, label_space=space)
    # Heron is taken for either crane: two pairs of ids are one pair of names.
    assert read.pairs == {("crane", "Heron"): 2, ("crane", "crane"): 1}
    assert compare_with_file(found, read) == []
    path.write_text(json.dumps([["heron", "CRANE", 2]]))
    read = read_confusion_file(path, label_space=space)
    (left,) = compare_with_file(found, read)
    assert (left.first, left.second, left.ours, left.theirs) == ("crane", "crane", 1, 0)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "[[1, 2]]", '[["c0", "c1", 0]]', '[["c0", "c1", true]]', '[["c0", "c1", 1.5]]']
)  # fmt: skip
def test_bad_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadFile, match=r"\[first, second, n\]"):
        read_confusion_file(tmp_path / "x.json", label_space=_made().space)


def test_classes_of_another_label_space(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[["c0", "c77", 1]]')
    with pytest.raises(LabelError, match="'c77'"):
        read_confusion_file(tmp_path / "x.json", label_space=_made().space)
    (tmp_path / "x.json").write_text('[["class 0", "c1", 1]]')
    with pytest.raises(LabelError, match="not a usual name"):
        read_confusion_file(tmp_path / "x.json", label_space=_made().space)
    with pytest.raises(NotFound):
        read_confusion_file(tmp_path / "y.json", label_space=_made().space)


def test_tables(tmp_path: Path) -> None:
    write_confusion_file(_made(True), tmp_path / "x.csv")
    with (tmp_path / "x.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert rows[0] == {
        "first_id": "c0", "first_name": "class 0", "second_id": "c1", "second_name": "class 1",
        "n": "2", "of": "2", "share": "1.0",
    }  # fmt: skip
    with pytest.raises(UserError, match="neither"):
        write_confusion_file(_made(), tmp_path / "x.txt")


def test_nothing_wrong(tmp_path: Path) -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0), (0, 1)]})
    found = confusions(verdicts(world_testset(world), world.predictions()), directed=True)
    assert len(found) == found.total == found.errors == 0 and found.top() == []
    write_confusion_file(found, tmp_path / "none.json")
    assert json.loads((tmp_path / "none.json").read_text()) == []
