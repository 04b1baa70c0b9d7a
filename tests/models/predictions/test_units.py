from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.core.workspace import Workspace
from heldout.data.images import BadImage
from heldout.data.images.preprocessing import Geometry, pixels_of
from heldout.models.predictions.pixels import image_files, load_pixels
from heldout.models.predictions.run_models import (
    PredictWork,
    job_name,
    pack,
    plan_predictions,
    prediction_units,
    unit_images,
    unpack,
)

from .running_case import ColourModel, make_set


@given(st.integers(0, 3_000_000))
def test_the_size_of_units(images: int) -> None:
    fewest, most = 8, 64
    size = unit_images(images)
    assert fewest <= size <= most and size % fewest == 0
    assert size <= unit_images(images + 1)
    # The last unit of a worker is a small share of a job, except where units are as small as can be.
    assert size == fewest or size <= images / 128


@pytest.mark.parametrize("images", [1, 8, 9, 150])
def test_units_cover_every_row_once_and_depend_on_nothing_else(tmp_path: Path, images: int) -> None:
    testset = make_set(tmp_path, images=images, broken=())
    units = prediction_units(testset, image_files(testset))
    rows = [row for unit in units for row in range(unit.payload.start, unit.payload.stop)]
    assert rows == list(range(images))
    assert len({unit.key for unit in units}) == len(units)
    assert [unit.payload.key for unit in units] == [unit.key for unit in units]
    assert units == prediction_units(testset, image_files(testset))


def test_no_two_models_keep_their_results_in_one_folder(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=10)
    models = [
        ColourModel("a"), ColourModel("b"), ColourModel("a", version=2), ColourModel("a", size=6),
    ]  # fmt: skip
    plan = plan_predictions(testset, models, workspace=Workspace(tmp_path))
    assert len({job_name(testset, entry) for entry in plan.pending}) == len(models)


def turned(width: int, height: int) -> bytes:
    """A JPEG with an EXIF orientation: its left side goes up."""
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    handle = io.BytesIO()
    Image.fromarray(values).save(handle, "JPEG", exif=exif, quality=95)
    return handle.getvalue()


def test_geometries_of_one_image_are_those_of_each_alone(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=1, broken=())
    files = image_files(testset)
    data = turned(40, 30)
    (tmp_path / "files" / files.names[0]).write_bytes(data)
    geometries = [
        Geometry(resize_height=20, crop_height=16, crop_width=16, exif=exif, interpolation=way)
        for exif in (False, True)
        for way in ("bilinear", "bicubic")
    ]
    found = load_pixels(files, 0, geometries)
    assert not isinstance(found, BadImage) and len(found) == len(geometries)
    for geometry in geometries:
        np.testing.assert_array_equal(found[geometry.key], pixels_of(data, geometry))
    upright, as_stored = (pixels_of(data, geometry) for geometry in geometries[1::2])
    assert not np.array_equal(upright, as_stored)


def test_a_line_that_would_be_blown_up_is_an_image_that_fails(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=1, broken=())
    files = image_files(testset)
    handle = io.BytesIO()
    Image.new("RGB", (1, 60_000)).save(handle, "PNG")
    (tmp_path / "files" / files.names[0]).write_bytes(handle.getvalue())
    found = load_pixels(files, 0, [Geometry()])  # resized it would be 256 x 15,360,000
    assert isinstance(found, BadImage) and found.trouble == "too large"


@pytest.mark.parametrize("keep", ["logits", "topk"])
@pytest.mark.parametrize("features", [False, True])
def test_what_is_packed_comes_back(tmp_path: Path, keep: str, features: bool) -> None:
    testset = make_set(tmp_path, images=20, broken=(3,))
    models = [ColourModel("a"), ColourModel("b", size=6, version=2)]
    work = PredictWork(image_files(testset), models, keep, features)
    rows = list(work.predict(0, 20))
    assert [set(model.failures) for model in rows] == [{3}, {3}]
    if keep == "logits":  # or places could be confused unseen
        first, second = (model.logits for model in rows)
        assert not np.array_equal(first, second)  # type: ignore[arg-type]
    (second_alone,) = work.predict(0, 20, [1])
    assert pack(second_alone, "b") == pack(rows[1], "b") != pack(rows[0], "b")
    # Earlier versions kept the models that ran together in one archive.
    arrays = {}
    for name, one in zip("ab", rows, strict=True):
        with np.load(io.BytesIO(pack(one, name))) as packed:
            arrays |= dict(packed)
    together = io.BytesIO()
    np.savez(together, **arrays)
    for name, expected in zip("ab", rows, strict=True):
        assert pack(unpack(io.BytesIO(together.getvalue()), name), name) == pack(expected, name)
        mine = unpack(io.BytesIO(pack(expected, name)), name)
        assert mine.failures == expected.failures
        np.testing.assert_array_equal(mine.topk, expected.topk)
        for name, wanted in (("logits", keep == "logits"), ("features", features)):
            assert (getattr(mine, name) is not None) == wanted
            if wanted:
                np.testing.assert_array_equal(getattr(mine, name), getattr(expected, name))
