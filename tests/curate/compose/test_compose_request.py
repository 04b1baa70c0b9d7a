"""Presets, ranges, TOML files, pairs and classes: what is asked for is what is meant, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import BadFile, LabelError, NotFound, UserError
from heldout.core.request import make
from heldout.curate.compose.build import recipe
from heldout.curate.compose.inputs import folder_classes
from heldout.curate.compose.plan import pair_backgrounds
from heldout.curate.compose.requests import (
    PRESETS,
    ComposeRequest,
    expand_values,
    load_request,
)
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.siscore import released_names, siscore_names
from tests.curate.compose import oracle


def request(**values: Any) -> ComposeRequest:
    return make(ComposeRequest, {"foregrounds": "f", "backgrounds": "b", **values})


@pytest.mark.parametrize("name", ["size", "demo", "rotation", "location"])
def test_presets_are_the_published_grids(name: str) -> None:
    grid, made = oracle.preset(name), request(preset=name)
    assert [(x, y) for x in made.x for y in made.y] == grid.coords
    assert list(made.size) == grid.areas
    assert list(made.rotation) == grid.rotations
    assert all(isinstance(angle, int) for angle in made.rotation)
    assert list(made.sizes) == grid.resolutions
    assert made.min_inside == grid.min_pct


def test_a_preset_can_be_changed_in_part() -> None:
    made = request(preset="location", min_inside=0.75, factors={"size": 0.3})
    assert (made.min_inside, made.size, len(made.x)) == (0.75, (0.3,), 21)


def test_parameters_survive_being_written() -> None:
    made = request(preset="rotation", factors={"blur": [0, 2]}, resolution=["64", "90x50"])
    recorded = json.loads(json.dumps(recipe.recorded(made)))
    again = recipe.read(recorded)
    assert recipe.recorded(again) == recorded
    assert again.sizes == ((64, 64), (90, 50))


def test_ranges() -> None:
    assert expand_values({"from": 0, "to": 1, "step": 0.25}, "x") == [0, 0.25, 0.5, 0.75, 1.0]
    assert expand_values({"from": 0.01, "to": 1, "step": 0.01}, "x") == [
        i / 100 for i in range(1, 101)
    ]
    assert expand_values({"from": 9, "to": 0, "step": -3}, "x") == [9, 6, 3, 0]
    assert expand_values("1,2.5,hard", "x") == [1, 2.5, "hard"]
    for bad in (
        {"from": 0, "to": 1},
        {"from": 0, "to": 1, "step": 0},
        {"from": "a", "to": 1, "step": 1},
    ):
        with pytest.raises(UserError):
            expand_values(bad, "x")
    with pytest.raises(UserError, match="larger step"):
        expand_values({"from": 0, "to": 1, "step": 1e-9}, "x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"factors": {"size": [0]}}, "size has the value 0"),
        ({"factors": {"size": [float("inf")]}}, "size has the value inf"),
        ({"factors": {"size": []}}, "size has no values"),
        ({"factors": {"size": [0.1, 0.1]}}, "size has 0.1 twice"),
        ({"factors": {"rotation": "left"}}, "rotation has the value left"),
        ({"factors": {"rotation": [0, 90, 360]}}, "rotation has values that are"),
        ({"factors": {"rotation": [-90, 270]}}, "full turns apart"),
        ({"min_inside": 1.5}, "min_inside is 1.5: give a number <= 1"),
        ({"quality": 0}, "quality is 0: give a whole number >= 1"),
        ({"preset": "sizes"}, "no preset 'sizes': did you mean size"),
        ({"presets": "size"}, "did you mean preset"),
        ({"resolution": "0"}, "resolution is '0'"),
        ({"resolution": "5x"}, "resolution is '5x'"),
        ({"backgrounds_per_object": 0}, "backgrounds_per_object is 0"),
        ({"format": "gif"}, "one of jpeg, png, webp"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"factors": 3}, "factors is 3"),
        ({"foregrounds": None}, "foregrounds is missing"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        request(**values)


def test_a_file_names_paths_from_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text("{}")
    (tmp_path / "set.toml").write_text(
        'foregrounds = "cut"\nbackgrounds = "../scenes"\nlabels = "map.json"\n'
        'backgrounds-per-object = 3\nformat = "png"\n[factors]\nx = {from = 0, to = 1, step = 0.5}\n'
        "foreground.blur = [0, 1]\n"
    )
    made = load_request(tmp_path / "set.toml")
    assert made.foregrounds == tmp_path / "cut"
    assert made.backgrounds == tmp_path / ".." / "scenes"
    assert made.labels == (tmp_path / "map.json").as_posix()
    assert made.title == "set"
    assert made.x == (0.0, 0.5, 1.0)
    assert made.extra_factors == {"foreground.blur": (0, 1)}
    assert made.backgrounds_per_object == 3
    assert made.format == "png"
    with pytest.raises(NotFound):
        load_request(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("x = [")
    with pytest.raises(BadFile, match="not valid TOML"):
        load_request(tmp_path / "bad.toml")


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_pairs_are_those_of_the_legacy_generator(seed: int) -> None:
    np.random.seed(seed)
    wanted = [(f, int(b)) for f in range(7) for b in np.random.choice(11, 3, replace=False)]
    assert list(pair_backgrounds(7, 11, per_object=3, seed=seed)) == wanted


def test_pairs_of_large_seeds_and_of_too_few_backgrounds() -> None:
    made = {pair_backgrounds(5, 9, per_object=2, seed=s) for s in (0, 2**32, 2**40, 2**63 + 5)}
    assert len(made) == 4
    with pytest.raises(UserError, match="3 backgrounds for each object were asked for"):
        pair_backgrounds(1, 2, per_object=3, seed=0)
    with pytest.raises(UserError, match="--seed is -1"):
        pair_backgrounds(1, 2, per_object=1, seed=-1)


def test_the_global_generator_is_left_alone() -> None:
    np.random.seed(5)
    before = np.random.get_state()[1].tolist()
    pair_backgrounds(3, 4, per_object=2, seed=0)
    assert np.random.get_state()[1].tolist() == before


def test_the_112_names() -> None:
    names = siscore_names()
    assert len(names) == 112 and len({entry.index for entry in names.values()}) == 112
    assert len(released_names()) == 61
    assert (names["bagel"].index, names["kite"].index) == (931, 21)
    assert not names["polar bear"].released


@pytest.mark.shared
def test_the_names_are_the_published_ones(shared_data: Path) -> None:
    published = oracle.read_labels(shared_data / "siscore" / "label_map.json")
    assert {name: entry.index for name, entry in siscore_names().items()} == published


def test_folders_are_classes_of_imagenet() -> None:
    space = LabelSpace.load("imagenet-1k")
    found, classes = folder_classes(["bagel", "kite", "n02123045", "tabby"])
    assert found.name == "imagenet-1k"
    assert classes["bagel"] == (space.ids[931],)
    assert classes["n02123045"] == classes["tabby"] == ("n02123045",)


def test_unknown_folders_are_named_with_what_is_near() -> None:
    with pytest.raises(LabelError, match=r"1 folder has a name.*'bagell' \(near: bagel"):
        folder_classes(["bagell", "lemon"])
    with pytest.raises(LabelError, match=r"7 folders have names.* and 2 more"):
        folder_classes([f"nothing{i}" for i in range(7)])


def test_folders_as_their_own_label_space() -> None:
    space, classes = folder_classes(["b", "a"], labels="folders")
    assert space.ids == ("a", "b")
    assert classes == {"a": ("a",), "b": ("b",)}


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_a_users_own_map(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"map.{ending}"
    path.write_text(
        {
            "json": '{"mug": "n03063599", "cup": [504, "n07930864"]}',
            "toml": 'mug = "n03063599"\ncup = [504, "n07930864"]\n',
        }[ending]
    )
    _, classes = folder_classes(["mug", "cup"], labels=str(path))
    assert classes["mug"] == ("n03063599",)
    assert classes["cup"] == ("n03063599", "n07930864")
    with pytest.raises(LabelError, match="add it to"):
        folder_classes(["mugs"], labels=str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "n0"}', "which imagenet-1k does not have"),
        ('{"a": 1000}', "which imagenet-1k does not have"),
        ('{"a": true}', "has the class True"),
        ('{"a": []}', "has no class"),
        ("[1]", "maps no names"),
        ("{", "not valid JSON"),
    ],
)
def test_maps_that_make_no_sense(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        folder_classes(["a"], labels=str(path))


def test_custom_is_one_image_a_pair() -> None:
    assert PRESETS["custom"]["size"] == (0.25,)
    made = request()
    assert (len(made.x), len(made.y), len(made.size), len(made.rotation)) == (1, 1, 1, 1)
