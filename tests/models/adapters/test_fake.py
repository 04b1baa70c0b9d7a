from __future__ import annotations

import numpy as np

from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters import Model
from heldout.testing.model import FakeModel


def test_counts_by_hand() -> None:
    model = FakeModel(preprocessing=Preprocessing(geometry=Geometry(crop_height=2, crop_width=2)))
    assert isinstance(model, Model)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 3), dtype=np.uint8)
    answer = model(pixels)
    assert answer.features is not None
    for row in range(3):
        counts = np.zeros(24)
        for place in pixels[row].reshape(4, 3):
            for channel in range(3):
                counts[8 * channel + place[channel] // 32] += 1
        np.testing.assert_array_equal(answer.features[row], (counts / 4).astype(np.float32))
    assert answer.logits.shape == (3, 10)
    assert len(np.unique(answer.logits)) > 20


def test_bits_do_not_depend_on_batches_and_names_matter() -> None:
    model = FakeModel("a")
    pixels = np.random.default_rng(0).integers(0, 256, (7, 8, 8, 3), dtype=np.uint8)
    whole = model(pixels).logits
    for row in range(7):
        np.testing.assert_array_equal(model(pixels[row : row + 1]).logits[0], whole[row])
    assert (FakeModel("b")(pixels).logits != whole).any()


def test_known_numbers() -> None:
    """The same on every machine and with every version of NumPy."""
    answer = FakeModel("fake")(np.full((1, 4, 4, 3), 40, np.uint8))
    assert answer.logits[0, :3].tolist() == [-3.21875, -5.5703125, -6.0390625]
