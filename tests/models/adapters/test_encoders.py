from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import NotFound, UserError
from heldout.models.adapters import Encoder, load_encoder
from heldout.models.adapters.model import unit_rows
from heldout.testing.encoder import FakeEncoder

SOURCE = """
from heldout.testing.encoder import FakeEncoder

ready = FakeEncoder(name="mine")


def made(side=16):
    return FakeEncoder(side=side)


def wrong():
    return object()
"""


def test_colours_are_near_to_their_names() -> None:
    encoder = FakeEncoder()
    assert isinstance(encoder, Encoder)
    names = ["red", "green", "blue", "black", "white"]
    paints = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)]
    pixels = np.stack([np.full((16, 16, 3), paint, np.uint8) for paint in paints])
    images = encoder.encode_images(pixels)
    texts = encoder.encode_texts([f"a photo of a {name}." for name in names])
    assert (images @ texts.T).argmax(axis=1).tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(encoder.encode_images(pixels[3:4])[0], images[3])
    assert encoder.encode_texts([""]).shape == (1, 27)


def test_encoders_of_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    assert load_encoder(f"{path}:ready").name == "mine"
    assert load_encoder(f"{path}:made", side=8).preprocessing.geometry.crop_height == 8
    with pytest.raises(UserError, match="is not an encoder"):
        load_encoder(f"{path}:wrong")
    with pytest.raises(UserError, match="it takes side"):
        load_encoder(f"{path}:made", colour=1)
    with pytest.raises(UserError, match="takes no encoder arguments"):
        load_encoder(f"{path}:ready", side=8)
    with pytest.raises(NotFound):
        load_encoder(f"{path}:none")


@pytest.mark.parametrize("name", ["consee", "open_clip", "lite0", "x:y"])
def test_unknown_names_are_told_with_what_there_is(name: str) -> None:
    with pytest.raises(NotFound, match=r"use .*(conse|open_clip:ARCH/TAG)"):
        load_encoder(name)


def test_arguments_that_an_encoder_does_not_take_are_named() -> None:
    with pytest.raises(UserError, match="fake does not take the encoder arguments colour"):
        load_encoder("fake", colour=1)


def test_unit_rows() -> None:
    rows = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 1], [1e-300, 0], [1e300, -1e300]])
    found = unit_rows(rows)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found[[0, 4, 5]], [[0.6, 0.8], [1, 0], [0.5**0.5, -(0.5**0.5)]], rtol=1e-7
    )
    assert np.isnan(found[1:4]).all()
    assert unit_rows(np.zeros((0, 3))).shape == (0, 3)
