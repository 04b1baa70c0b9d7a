"""The plan: numbers, filter, counts and warnings, all before any pixels."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import UserError
from heldout.core.request import make
from heldout.curate.compose.build import notes_of
from heldout.curate.compose.inputs import Inputs
from heldout.curate.compose.plan import Plan, in_units, make_plan, shot_seed
from heldout.curate.compose.requests import ComposeRequest
from tests.curate.compose import compose_examples as examples


@pytest.fixture
def inputs(folder: Path) -> Inputs:
    return examples.read_inputs(folder / "f", folder / "b")


def plan(inputs: Inputs, seed: int = 0, **values: Any) -> Plan:
    request = make(ComposeRequest, {"foregrounds": "f", "backgrounds": "b", **values})
    return make_plan(inputs, request, seed=seed)


def test_numbers_follow_the_formula_and_keep_their_gaps(inputs: Inputs) -> None:
    values = {"x": [0.2, 0.5], "y": [0.4], "size": [0.1, 0.9, 2.0], "rotation": [0, 30]}
    values |= {"blur": [0, 1], "flip": ["none", "horizontal"]}
    made = plan(inputs, factors=values, resolution=["64", "96x64"], backgrounds_per_object=3)
    pairs = len(inputs.cutouts) * 3
    assert made.candidates == 2 * 3 * 2 * 4 * pairs * 2
    assert 0 < len(made) < made.candidates
    grid = list(product(range(2), range(3), range(2), range(2), range(2), range(pairs), range(2)))
    further = [{"blur": b, "flip": f} for b in (0, 1) for f in ("none", "horizontal")]
    for shot in made.shots:
        c, a, r, blur, flip, k, j = grid[shot.number]
        number = c
        for place, size in ((a, 3), (r, 2), (blur, 2), (flip, 2), (k, pairs), (j, 2)):
            number = number * size + place
        assert number == shot.number
        assert (shot.x, shot.area, shot.rotation) == (
            values["x"][c],
            values["size"][a],
            values["rotation"][r],
        )
        assert (shot.foreground, shot.background) == made.pairs[k]
        assert (shot.width, shot.height) == [(64, 64), (96, 64)][j]
        wanted = further[blur * 2 + flip]
        assert shot.values.get("blur", 0) == wanted["blur"]
        assert shot.values.get("flip", "none") == wanted["flip"]


def test_the_kept_are_those_of_the_closed_form(tmp_path: Path) -> None:
    """Unrotated and centred, an object is kept while area times aspect is up to 1/0.95²."""
    for place, (width, height) in enumerate(((1444, 1000), (1000, 1000), (1000, 1200))):
        examples.save(examples.cutout(width, height), tmp_path / "f" / "zebra" / f"{place}.png")
    examples.make_backgrounds(tmp_path / "b")
    inputs = examples.read_inputs(tmp_path / "f", tmp_path / "b")
    made = plan(inputs, preset="size")
    most = {
        place: max(shot.area for shot in made.shots if shot.foreground == place)
        for place in range(3)
    }
    assert most[0] == 0.76  # aspect 1.444: 152 of 200 kept, as the original
    assert sum(shot.foreground == 0 for shot in made.shots) == 152
    for place, (width, height) in enumerate(((1444, 1000), (1000, 1000), (1000, 1200))):
        limit = 1 / 0.95**2 / (max(width, height) / min(width, height))
        assert most[place] == min(1.0, math.floor(limit * 100) / 100)
    assert made.candidates == 600 and made.filtered == 600 - len(made)


def test_an_object_outside_is_dropped_unless_asked_for(inputs: Inputs) -> None:
    far = {"x": [0.5, 2.0], "y": [0.5, 2.0], "size": [0.1]}
    made = plan(inputs, factors=far, min_inside=0)
    assert made.empty == 3 * 8 and all(shot.inside > 0 for shot in made.shots)
    kept = plan(inputs, factors=far, min_inside=0, keep_empty=True)
    assert len(kept) == 32 and kept.empty == 0
    assert {shot.inside for shot in kept.shots if shot.x == 2.0 or shot.y == 2.0} == {0.0}
    assert len(plan(inputs, factors=far, min_inside=0.1, keep_empty=True)) == 8


def test_objects_under_a_pixel_are_counted_and_dropped(tmp_path: Path) -> None:
    examples.save(examples.cutout(300, 3), tmp_path / "f" / "flute" / "thin.png")
    examples.save(examples.cutout(30, 30), tmp_path / "f" / "lemon" / "round.png")
    examples.make_backgrounds(tmp_path / "b")
    inputs = examples.read_inputs(tmp_path / "f", tmp_path / "b")
    made = plan(inputs, resolution="64", factors={"size": [0.001, 0.1]}, min_inside=0)
    assert made.too_small == 2
    text = " ".join(notes_of(made))
    assert "under a pixel" in text
    assert "class flute has no images at size 0.001" in text


def test_nothing_left_is_an_error(inputs: Inputs) -> None:
    with pytest.raises(UserError, match=r"none of the 8 images would be kept \(8 filtered out"):
        plan(inputs, factors={"size": [3.0]}, min_inside=1.0)


def test_an_object_too_large_for_memory_is_refused(inputs: Inputs) -> None:
    with pytest.raises(UserError, match="use smaller sizes"):
        plan(inputs, factors={"size": [100_000.0]}, min_inside=0)


def test_area_above_one_overflows_as_in_the_original(inputs: Inputs) -> None:
    made = plan(inputs, factors={"size": [3]}, min_inside=0)
    assert all(0.3 < shot.inside < 0.4 for shot in made.shots)


def test_seeds_of_images_follow_from_set_and_number_alone(inputs: Inputs) -> None:
    one = plan(inputs, seed=3, factors={"size": [0.1, 0.2]})
    assert {shot.seed for shot in one.shots} == {shot_seed(3, s.number) for s in one.shots}
    many = {shot_seed(seed, number) for seed in range(30) for number in range(300)}
    assert len(many) == 9000 and all(0 <= value < 2**63 for value in many)


def test_units_hold_every_shot_once_and_one_object_each(inputs: Inputs) -> None:
    made = plan(inputs, preset="location", factors={"size": [0.1, 0.2]})
    units = list(in_units(made.shots))
    assert sorted(s.number for unit in units for s in unit) == [s.number for s in made.shots]
    assert all(len({s.foreground for s in unit}) == 1 for unit in units)
    assert max(map(len, units)) <= 128
    again = list(in_units(tuple(reversed(made.shots))))
    assert [[s.number for s in unit] for unit in again] == [[s.number for s in u] for u in units]


def test_a_filter_that_changes_the_mix_is_named(inputs: Inputs) -> None:
    grid = {"size": [0.2, 0.5, 0.8, 1.0], "rotation": [1, 41, 90]}
    notes = "\n".join(notes_of(plan(inputs, factors=grid)))
    assert "class lemon has no images at size 0.8, 1" in notes
    assert "size 0.8 has no images at rotation 41" in notes
    assert "rotations by 90 degrees need no resampling" in notes
    assert notes_of(plan(inputs, factors={"size": [0.1, 0.2]})) == ()
