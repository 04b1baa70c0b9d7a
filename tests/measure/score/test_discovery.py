"""Slice discovery against brute force, and its corrections against simulated worlds."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.data.testset import ColumnType
from heldout.measure.score.measure import measure
from heldout.measure.score.slice_search import (
    conjunctions,
    discover,
    discovery_records,
    excesses,
    search_entries,
)
from heldout.measure.score.slices import format_slice
from tests.measure.score.worlds import single_label, world_testset


def made(hits: np.ndarray, *, types: Any = None, members: Any = (), **columns: Any) -> Any:
    """A measurement of one model that is right where ``hits`` says."""
    labels = [i % 2 for i in range(len(hits))]
    logits = [
        [float(c == (label if hit else 1 - label)) for c in range(2)]
        for label, hit in zip(labels, hits, strict=True)
    ]
    world = single_label(labels, 2, {"m": logits})
    testset = world_testset(world, types=types, members=members, **columns)
    return measure(testset, world.predictions())[0]


def brute(columns: dict[str, list[set[str]]], minimum_n: int, depth: int) -> dict[str, list[int]]:
    """Every conjunction by looking at each image for each combination of values."""
    n = len(next(iter(columns.values())))
    values = {c: sorted(set().union(*given)) for c, given in columns.items()}
    found = {}
    for k in range(1, depth + 1):
        for chosen in combinations(sorted(columns), k):
            for combo in product(*(values[c] for c in chosen)):
                rows = [
                    i
                    for i in range(n)
                    if all(v in columns[c][i] for c, v in zip(chosen, combo, strict=True))
                ]
                if minimum_n <= len(rows) < n:
                    found[format_slice(dict(zip(chosen, combo, strict=True)))] = rows
    return found


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4))
def test_conjunctions_are_those_of_brute_force(data: st.DataObject, minimum_n: int) -> None:
    n = data.draw(st.integers(6, 14))
    few = st.sampled_from(["a", "b&c", "é"])
    single = {
        name: data.draw(st.lists(st.one_of(st.none(), few), min_size=n, max_size=n))
        for name in ("z", "a b", "k")
    }
    member = data.draw(st.lists(st.sets(few), min_size=n, max_size=n))
    members = [
        (f"i{i:02d}", "m", value) for i, values in enumerate(member) for value in sorted(values)
    ]
    columns: dict[str, list[set[str]]] = {
        name: [set() if v is None else {v} for v in given] for name, given in single.items()
    }
    columns["m"] = member
    hits = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    measured = made(hits)
    ids = [measured.testset.image_ids[int(r)].as_py() for r in measured.rows]
    place = {image: i for i, image in enumerate(ids)}
    members = [(ids[int(image[1:])], column, value) for image, column, value in members]
    types = {name: ColumnType(kind="categorical") for name in single}
    types["m"] = ColumnType(kind="categorical", multi=True)
    measured = made(hits, types=types, members=members, **single)
    assert place  # the world names its images in order, so columns and ids agree
    expected = brute(columns, minimum_n, 3)
    every = np.ones(n, dtype=bool)
    if not expected:
        with pytest.raises(NotApplicable):
            conjunctions(measured, ["z", "a b", "k", "m"], minimum_n=minimum_n, among=every)
        return
    got = conjunctions(measured, ["z", "a b", "k", "m"], minimum_n=minimum_n, among=every)
    assert {name: rows.tolist() for name, rows in got.slices().items()} == expected
    errors = ~hits
    excess = excesses(got, errors, every)
    rate = errors.mean()
    for i, name in enumerate(got.names):
        rows = expected[name]
        m = len(rows)
        variance = m * rate * (1 - rate) * (n - m) / (n - 1)
        wanted = (errors[rows].sum() - m * rate) / np.sqrt(variance) if variance > 0 else 0.0
        assert excess[i] == pytest.approx(wanted)


def columns_of(rng: np.random.Generator, n: int, count: int = 4, values: int = 3) -> dict[str, Any]:
    return {f"c{i}": [f"v{v}" for v in rng.integers(0, values, n)] for i in range(count)}


def test_a_planted_conjunction_is_found_and_believed() -> None:
    rng = np.random.default_rng(3)
    columns = columns_of(rng, 1500)
    bad = np.array(columns["c0"]) == "v1"
    bad &= np.array(columns["c2"]) == "v0"
    hits = rng.random(1500) < np.where(bad, 0.45, 0.9)
    found = discover(made(hits, **columns), list(columns))
    worst = found.found[0]
    assert worst.slice == "c0=v1&c2=v0"
    assert worst.p is not None and worst.p <= 0.01
    assert worst.interval is not None
    assert worst.interval.low < 0.45 < worst.interval.high < 0.9
    assert found.searched == 4 * 3 + 6 * 9 + 4 * 27


def test_the_worst_of_many_is_called_chance_where_it_is() -> None:
    """Under no effect, the corrected p falls to 0.1 or below about one time in ten, not more."""
    rng = np.random.default_rng(11)
    low, runs = 0, 120
    for run in range(runs):
        columns = columns_of(rng, 160, count=3)
        measured = made(rng.random(160) < 0.7, **columns)
        found = discover(measured, list(columns), minimum_n=10, seed=run)
        low += bool(found.found) and min(f.p or 1.0 for f in found.found) <= 0.1
    # 99 % binomial limits about 12 of 120 are 5 to 21.
    assert low <= 21


def test_intervals_hold_after_the_search() -> None:
    """The slice that looks worst is worse than it is; the half that was not searched is honest."""
    rng = np.random.default_rng(5)
    covered, runs = 0, 80
    for run in range(runs):
        columns = columns_of(rng, 300, count=3)
        measured = made(rng.random(300) < 0.7, **columns)
        worst = discover(measured, list(columns), minimum_n=10, seed=run).found[0]
        assert worst.interval is not None
        covered += worst.interval.low <= 0.7 <= worst.interval.high
    assert covered >= 0.95 * runs


def test_clusters_go_to_one_half_and_chance_among_them_is_not_believed() -> None:
    """Twenty objects, each right or wrong as a whole: single images would look conclusive."""
    rng = np.random.default_rng(0)
    believed = 0
    for run in range(40):
        objects = np.repeat(np.arange(40), 20)
        right = rng.random(40) < 0.6
        hits = right[objects]
        kinds = rng.integers(0, 4, 40)
        measured = made(
            hits,
            object=[f"o{o}" for o in objects],
            kind=[f"k{kinds[o]}" for o in objects],
            size=[float(i % 5) for i in range(800)],
        )
        found = discover(measured, ["kind", "size"], cluster="object", seed=run)
        for item in found.found:
            inside = set(objects[item.rows])
            assert inside <= set(range(40))
        believed += any(f.p is not None and f.p < 0.05 for f in found.found)
    assert believed <= 8


def of_objects(count: int) -> Any:
    """What a search finds among images of some objects, half of which are held out."""
    objects = np.repeat(np.arange(count), 30)
    measured = made(
        np.random.default_rng(0).random(30 * count) < 0.5,
        object=[f"o{o}" for o in objects],
        size=[float(i % 3) for i in range(30 * count)],
    )
    return discover(measured, ["size"], cluster="object")


def test_few_clusters_say_why_there_is_no_interval() -> None:
    enough = of_objects(16)
    assert enough.found and all(f.p is not None and f.reason is None for f in enough.found)
    found = of_objects(6)
    assert found.found
    assert all(f.p is None and "(object) are too few" in str(f.reason) for f in found.found)
    records = discovery_records(found)
    assert all(r.value is None for r in records if r.name == "discovered_p")


def test_numbers_of_many_values_are_cut_and_text_is_not_searched() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.random(400)
    hits = numbers < 0.75
    measured = made(
        hits,
        types={"note": ColumnType(kind="text"), "x": ColumnType(kind="ordered")},
        x=numbers.tolist(),
        note=[f"note {i}" for i in range(400)],
    )
    entries = search_entries(measured.testset)
    assert [entry.partition("@")[0] for entry in entries] == ["class", "x"]
    found = discover(measured)
    assert found.found[0].slice.startswith("x=0.7")
    assert found.found[0].value < 0.05


def test_near_copies_are_told_once_and_shorter_ones_first() -> None:
    hits = np.array([i % 4 != 0 for i in range(200)])
    four = [f"r{i % 4}" for i in range(200)]
    measured = made(hits, a=four, b=four, c=["x"] * 200)
    found = discover(measured, ["a", "b", "c"])
    assert [item.slice for item in found.found] == ["a=r0"]


def test_records_and_refusals() -> None:
    rng = np.random.default_rng(1)
    columns = columns_of(rng, 300)
    measured = made(rng.random(300) < 0.8, **columns)
    found, again = discover(measured), discover(measured)
    assert discovery_records(found) == discovery_records(again)
    records = discovery_records(found)
    assert records[0].name == "searched" and records[0].n == found.searched
    assert len(records) == 1 + 3 * len(found.found)
    for record, item in zip(records[1::3], found.found, strict=True):
        assert (record.name, record.at, record.n) == ("discovered", item.slice, item.n)
    with pytest.raises(UserError, match="single columns"):
        discover(measured, ["c0&c1"])
    with pytest.raises(NotApplicable, match="no slice"):
        discover(measured, minimum_n=301)


def test_a_slice_that_is_all_wrong_among_all_right_is_no_chance() -> None:
    place = np.arange(400) // 5
    bad = place % 4 == 0
    measured = made(
        ~bad,
        kind=np.where(bad, "bad", "good").tolist(),
        film=[f"f{number}" for number in place],
        types={"kind": ColumnType(kind="categorical"), "film": ColumnType(kind="categorical")},
    )
    (found,) = discover(measured, ["kind"], cluster="film").found
    assert (found.slice, found.value, found.rest) == ("kind=bad", 0.0, 1.0)
    assert found.p is not None and found.p < 0.01
