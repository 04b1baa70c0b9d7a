"""Threads that make the exact path's pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from heldout.data.images.preprocessing import Geometry, pixels_of
from heldout.models.gpu.pillow_workers import PillowWorkers

GEOMETRY = Geometry(resize_height=40, crop_height=32, crop_width=36)


@pytest.fixture(scope="module")
def pool() -> Iterator[PillowWorkers]:
    made = PillowWorkers(GEOMETRY, threads=2)
    yield made
    made.close()


def photo(seed: int, kind: str = "JPEG") -> bytes:
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (60 + seed, 70, 3), dtype=np.uint8)).save(out, kind)
    return out.getvalue()


def test_pixels_are_those_of_the_exact_path(pool: PillowWorkers) -> None:
    images = [photo(i, kind) for i, kind in enumerate(("JPEG", "PNG", "BMP", "JPEG", "JPEG"))]
    found = [future.result() for future in [pool.submit(lambda i=i: i) for i in images]]
    for data, pixels in zip(images, found, strict=True):
        np.testing.assert_array_equal(pixels, pixels_of(data, GEOMETRY))


def test_bad_images_give_a_reason_and_the_worker_goes_on(pool: PillowWorkers) -> None:
    for data, word in ((b"", "empty"), (b"nonsense", "unsupported"), (photo(1)[:300], "truncated")):
        found = pool.decode(data)
        assert isinstance(found, str) and found.startswith(word)
    assert isinstance(pool.decode(photo(2)), np.ndarray)


def test_what_cannot_be_read_is_a_reason(pool: PillowWorkers) -> None:
    def read() -> bytes:
        raise FileNotFoundError("gone.jpg")

    assert pool.submit(read).result() == "unreadable: gone.jpg"


def test_a_source_out_of_reach_is_a_fault(pool: PillowWorkers) -> None:
    def read() -> bytes:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        pool.submit(read).result()
