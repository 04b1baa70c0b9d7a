"""Factors by key, configurations, and plug-ins: a file and an installed entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heldout.core.errors import ExistsError, NotFound, UserError
from heldout.curate.compose.factors import Factors, Stage, finish
from heldout.data.testset.columns import ColumnType

from .factor_examples import FACTORS, layers, placed, shot, stock

VIGNETTE = """
import numpy as np
from heldout.curate.compose.factors import factor


@factor("vignette", neutral=0.0, values=(0.0, 0.5, 1.0), low=0.0, high=1.0)
def vignette(region, value):
    "Dark corners."
    height, width = region.pixels.shape[:2]
    ys, xs = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
    return region.pixels * (1 - value * (xs**2 + ys**2) / 2)[:, :, None]
"""


def test_every_factor_is_described() -> None:
    for one in FACTORS:
        assert one.help and not one.help.endswith(".")
        assert one.measured or one.needs
        assert one.values and isinstance(one.column, ColumnType)
        assert all(one.check(value) == value for value in one.values)
        assert set(one.needs) <= set(FACTORS.by_key)
        if one.neutral is not None:
            assert one.check(one.neutral) == one.neutral
        if one.column.order:
            assert set(one.values) <= set(one.column.order)


def test_the_factors_that_must_be_there() -> None:
    both = "brightness contrast gamma temperature hue saturation greyscale light blur noise"
    for name in (both + " shot_noise downsample").split():
        assert {name, f"foreground.{name}", f"background.{name}"} <= set(FACTORS.by_key)
    rest = "size_by aspect flip shear tilt_x tilt_y offset_x patch_phase occlusion distractors"
    rest += " instances backdrop variant texture blending jpeg_quality"
    assert set(rest.split()) <= set(FACTORS.by_key)


def test_stages_act_in_order() -> None:
    assert [stage.name for stage in Stage] == [
        "PLAN", "FOREGROUND", "GEOMETRY", "COMPOSITION", "BACKGROUND", "BLEND", "IMAGE", "ENCODING"
    ]  # fmt: skip
    background = [one.key for one in FACTORS.of_stage(Stage.BACKGROUND)]
    assert background.index("backdrop") < background.index("background.blur")


def test_a_grid_is_checked() -> None:
    grid = FACTORS.checked(
        {
            "image.blur": [0, 2],
            "foreground.brightness": [0.5, 1],
            "background.noise": "default",
            "flip": "horizontal",
        }
    )
    assert list(grid) == ["blur", "foreground.brightness", "background.noise", "flip"]
    assert grid["blur"] == (0.0, 2.0)
    assert grid["flip"] == ("horizontal",)
    assert grid["background.noise"] == FACTORS["noise"].values
    assert FACTORS.checked({"noise": ["default"]}) == {"noise": FACTORS["noise"].values}


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"brigthness": [1]}, "no factor 'brigthness': did you mean brightness"),
        ({"blur": []}, "factor blur has no values: give one or more"),
        ({"blur": [1, 1.0]}, "factor blur has a value twice: give each once"),
        ({"blur": 1, "image.blur": 2}, "factor 'blur' is given twice: give it once"),
        ({"blur": [-1]}, "factor blur: -1 is out of range: give a number from 0 to 200"),
        ({"flip": ["horizntal"]}, "factor flip: no value 'horizntal': did you mean horizontal"),
        (
            {"occlusion_kind": ["bars"]},
            "factor occlusion_kind has no effect without occlusion: "
            "add that factor, or leave this one out",
        ),
        (
            {"distractors": [1.5]},
            "factor distractors: 1.5 is out of range: give a whole number from 0 to 64",
        ),
        ({"blur": [True]}, "factor blur: True is not a number: give a number from 0 to 200"),
    ],
)
def test_a_bad_grid_is_one_line(table: dict[str, object], line: str) -> None:
    with pytest.raises(UserError) as caught:
        FACTORS.checked(table)
    assert caught.value.line == line


def test_columns_have_a_measured_one_beside_them() -> None:
    columns = FACTORS.columns(["hue", "light_angle", "flip"])
    assert list(columns) == ["hue", "hue_measured", "light_angle", "flip", "flip_measured"]
    assert columns["hue"].period == 360
    assert columns["hue_measured"].unit == "hue of the mean colour"


def test_a_factor_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(VIGNETTE)
    found = Factors.load(["mine.py:vignette"], base=tmp_path)
    assert {"vignette", "foreground.vignette", "background.vignette"} <= set(found.by_key)
    assert list(found.identity) == ["mine.py:vignette"]
    inputs = stock()
    plain, dark = shot(), shot({"vignette": 1.0})
    images = [
        finish(layers(one, inputs), one, inputs, factors=found, keys=["vignette"])
        for one in (plain, dark)
    ]
    assert images[1][1]["vignette_measured"] < images[0][1]["vignette_measured"]
    assert (images[1][0][0, 0] == 0).all()
    (tmp_path / "mine.py").write_text(VIGNETTE + "\n")
    again = Factors.load(["mine.py:vignette"], base=tmp_path)
    assert again.identity != found.identity


def test_files_of_one_name_in_two_folders_both_count(tmp_path: Path) -> None:
    specs = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        text = VIGNETTE.replace('"vignette"', f'"vignette_{folder}"')
        (tmp_path / folder / "mine.py").write_text(text)
        specs.append(f"{folder}/mine.py:vignette")
    found = Factors.load(specs, base=tmp_path)
    assert list(found.identity) == ["mine.py:vignette", "two/mine.py:vignette"]
    (tmp_path / "one" / "mine.py").write_text((tmp_path / "one" / "mine.py").read_text() + "\n")
    assert Factors.load(specs, base=tmp_path).identity != found.identity


@pytest.mark.parametrize(
    ("code", "spec", "error", "words"),
    [
        ("x = 3", "mine.py:x", UserError, "is not a factor"),
        ("x = 'blur'", "mine.py:x", UserError, "is not a factor"),
        ("class x:\n    key = 'x'", "mine.py:x", UserError, "is not a factor"),
        ("x = 3", "mine.py:y", NotFound, "has no 'y'"),
        ("x = 3", "other.py:x", UserError, "other.py"),
        ("x = 3", "mine.py", UserError, "does not name a factor"),
        (VIGNETTE.replace('"vignette"', '"blur"'), "mine.py:vignette", ExistsError, "already"),
        (VIGNETTE.replace('"vignette"', '"Vig nette"'), "mine.py:vignette", UserError, "key"),
        (VIGNETTE.replace('"vignette"', '"rotation"'), "mine.py:vignette", UserError, "key"),
        (VIGNETTE.replace("(0.0, 0.5", "(-1.0, 0.5"), "mine.py:vignette", UserError, "-1.0"),
    ],
)
def test_a_bad_plug_in_is_one_line(
    tmp_path: Path, code: str, spec: str, error: type[UserError], words: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(error) as caught:
        Factors.load([spec], base=tmp_path)
    assert words in caught.value.line


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("region.pixels[:2]", "gave pixels of shape"),
        ("region.pixels * float('nan')", "not numbers"),
    ],
)
def test_a_plug_in_that_gives_no_pixels_is_named(tmp_path: Path, result: str, words: str) -> None:
    code = VIGNETTE[: VIGNETTE.index("    height")] + f"    return {result}\n"
    (tmp_path / "mine.py").write_text(code)
    found = Factors.load(["mine.py:vignette"], base=tmp_path)
    one, inputs = shot({"vignette": 1.0}), stock()
    with pytest.raises(UserError, match=words):
        finish(layers(one, inputs), one, inputs, factors=found)


def test_an_installed_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vignette_plugin.py").write_text(VIGNETTE)
    info = tmp_path / "vignette_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vignette-plugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[heldout.factors]\nvignette = vignette_plugin:vignette\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = Factors.load()
    finally:
        sys.modules.pop("vignette_plugin", None)
    assert "foreground.vignette" in found.by_key
    assert found.identity == {"vignette_plugin:vignette": "1.2"}


def test_a_class_with_a_matrix_changes_the_outline(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        """
import numpy as np
from heldout.curate.compose.factors import Factor, Stage


class Wide(Factor):
    def matrix(self, size, value):
        return np.diag([value, 1.0, 1.0])


wide = Wide(
    key="wide", neutral=1.0, values=(1.0, 2.0), low=0.1, high=10, stage=Stage.GEOMETRY, help="wider"
)
"""
    )
    found = Factors.load(["wide.py:wide"], base=tmp_path)
    one, inputs = placed(shot({"wide": 2.0}), found), stock()
    assert one.box == (8, 24, 80, 32)
    image, measured = finish(layers(one, inputs), one, inputs, factors=found)
    plain = finish(layers(shot(), inputs), shot(), inputs, factors=found)[1]
    assert measured["mask_fraction"] == pytest.approx(2 * plain["mask_fraction"], rel=0.02)
    assert image.shape == (80, 96, 3)
