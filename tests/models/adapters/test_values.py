from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import MismatchError, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters.model import (
    ModelOutput,
    finite_rows,
    look_like_probabilities,
    model_input,
    model_output,
)

GEOMETRY = Geometry(crop_height=3, crop_width=4)


@given(
    st.floats(0.5, 255, width=32),
    st.tuples(*[st.floats(-2, 200, width=32)] * 3),
    st.tuples(*[st.floats(0.125, 130, width=32)] * 3),
    st.sampled_from(["RGB", "BGR"]),
    st.sampled_from(["NCHW", "NHWC"]),
)
def test_values_number_by_number(
    scale: float,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    colours: str,
    layout: str,
) -> None:
    made = Preprocessing(
        geometry=GEOMETRY, scale=scale, mean=mean, std=std, colours=colours, layout=layout
    )  # type: ignore[arg-type]
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    values = model_input(pixels, made)
    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    f = np.float32
    for b in range(2):
        for y in range(3):
            for x in range(4):
                for c in range(3):
                    source = c if colours == "RGB" else 2 - c
                    expected = (f(pixels[b, y, x, source]) / f(scale) - f(mean[c])) / f(std[c])
                    place = (b, c, y, x) if layout == "NCHW" else (b, y, x, c)
                    assert values[place] == expected


def test_pixels_of_another_kind_are_refused() -> None:
    made = Preprocessing(geometry=GEOMETRY)
    for wrong in (
        np.zeros((1, 4, 3, 3), np.uint8),
        np.zeros((3, 4, 3), np.uint8),
        np.zeros((1, 3, 4, 3), np.float32),
    ):
        with pytest.raises(ValueError, match="instead of uint8"):
            model_input(wrong, made)


def test_whole_numbers_and_floats_are_one_preprocessing() -> None:
    whole = Preprocessing(scale=1, mean=(127, 127, 127), std=(128, 128, 128))
    floats = Preprocessing(scale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3)
    assert whole.key == floats.key


def test_answers_are_checked() -> None:
    answer = model_output(
        np.ones((2, 3, 1, 1)), np.ones((2, 5), np.float16), rows=2, classes=3, model="m"
    )
    assert answer.logits.shape == (2, 3)
    assert answer.logits.dtype == np.float32
    assert answer.features is not None
    assert answer.features.dtype == np.float32
    with pytest.raises(MismatchError, match="m gives 3 outputs per image, its label space has 4"):
        model_output(np.ones((2, 3)), rows=2, classes=4, model="m")
    for wrong in (np.ones(3), np.ones((3, 3)), np.ones((2, 3, 2)), np.array([["a"] * 3] * 2)):
        with pytest.raises(UserError, match="one row of numbers per image"):
            model_output(wrong, rows=2, classes=3, model="m")


def test_a_probability_of_nothing_stays_finite() -> None:
    answer = model_output(
        np.array([[0.0, 1.0]]), rows=1, classes=2, model="m", outputs="probabilities"
    )
    assert np.isfinite(answer.logits).all()
    assert answer.logits[0, 1] == 0
    assert answer.logits[0, 0] < -80


def test_rows_that_are_not_numbers() -> None:
    logits = np.zeros((4, 3), np.float32)
    logits[1, 2], logits[2, 0] = np.nan, np.inf
    assert finite_rows(ModelOutput(logits)).tolist() == [True, False, False, True]
    features = np.zeros((4, 2), np.float32)
    features[0, 0] = -np.inf
    assert finite_rows(ModelOutput(logits, features)).tolist() == [False, False, False, True]


def test_what_looks_like_probabilities() -> None:
    assert look_like_probabilities(np.array([[0.2, 0.8], [1.0, 0.0]]))
    assert not look_like_probabilities(np.array([[0.2, 0.8], [1.0, 0.5]]))
    assert not look_like_probabilities(np.array([[-0.5, 1.5]]))
    assert not look_like_probabilities(np.array([[1.0]]))
