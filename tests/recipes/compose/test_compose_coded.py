"""Files made of a background's own bits are byte for byte those of whole images."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.recipes.compose import coded as coding
from heldout.recipes.compose import exact
from heldout.recipes.compose.coded import CodedBackground, bgr_of, encoder, rgba_of
from heldout.recipes.compose.pasting import Overlay
from tests.recipes.compose import compose_examples as examples

SIZES = [(500, 300), (96, 160), (129, 131), (40, 24), (16, 16), (333, 250), (200, 203)]
BACKGROUNDS = {size: CodedBackground(examples.noise(*size, 3, 50) // 2 + 60) for size in SIZES}


def pillow(bgr: np.ndarray, quality: int = 75) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(bgr[..., ::-1])).save(file, "JPEG", quality=quality)
    return file.getvalue()


def test_the_encoder_writes_what_pillow_writes() -> None:
    assert encoder() is not None
    for coded in BACKGROUNDS.values():
        assert coded.whole(coded.pixels) == pillow(coded.pixels)


@settings(max_examples=150)
@given(st.sampled_from(SIZES), st.data())
def test_any_changed_rectangle(size: tuple[int, int], data: st.DataObject) -> None:
    width, height = size
    coded = BACKGROUNDS[size]
    assert coded.usable
    left = data.draw(st.integers(0, width - 1))
    top = data.draw(st.integers(0, height - 1))
    right = data.draw(st.integers(left + 1, width))
    bottom = data.draw(st.integers(top + 1, height))
    kind = data.draw(st.sampled_from(["noise", "white", "black", "stripes"]))
    changed = coded.pixels.copy()
    part = changed[top:bottom, left:right]
    if kind == "noise":
        seed = data.draw(st.integers(0, 1000))
        part[:] = np.random.default_rng(seed).integers(0, 256, part.shape)
    elif kind == "stripes":
        part[:, ::2] = 255
        part[:, 1::2] = 0
    else:
        part[:] = 255 if kind == "white" else 0
    region = coded.region(left, top, right, bottom)
    if region is None:
        return
    x0, y0, x1, y1 = coded.framed(region)
    made = coded.file(region, np.ascontiguousarray(changed[y0:y1, x0:x1]))
    assert made == pillow(changed)


def test_most_rectangles_of_a_usual_image_are_taken() -> None:
    coded = BACKGROUNDS[500, 300]
    assert coded.region(200, 100, 300, 200) is not None  # in the middle
    assert coded.region(0, 100, 100, 200) is not None  # at the left edge: whole rows
    assert coded.region(450, 0, 500, 50) is not None
    assert coded.region(0, 0, 500, 290) is None  # nearly all
    assert coded.region(450, 250, 500, 300) is None  # the last block
    assert coded.region(5, 5, 5, 9) is None  # nothing


def test_a_background_whose_bits_cannot_be_told_apart_is_left_alone() -> None:
    """Colour that changes from pixel pair to pixel pair fills the very last coefficient."""
    rows, columns = np.mgrid[:64, :64] // 2
    wild = np.zeros((64, 64, 3), np.uint8)
    wild[..., 2] = 255 * ((rows + columns) % 2)
    coded = CodedBackground(wild)
    assert not coded.usable and coded.region(20, 20, 30, 30) is None
    fine = CodedBackground(examples.noise(96, 96, 3, 1), quality=100)
    assert not fine.usable


@pytest.mark.parametrize("quality", [10, 40, 75, 85])
def test_other_qualities(quality: int) -> None:
    pixels = examples.noise(160, 96, 1, 51).repeat(3, axis=2)
    coded = CodedBackground(pixels, quality=quality)
    assert coded.usable
    changed = pixels.copy()
    changed[20:60, 40:90] = 200
    region = coded.region(40, 20, 90, 60)
    assert region is not None
    x0, y0, x1, y1 = coded.framed(region)
    made = coded.file(region, np.ascontiguousarray(changed[y0:y1, x0:x1]))
    assert made == pillow(changed, quality)


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(-45, 60),
    st.integers(-45, 50),
    st.integers(0, 9),
)
def test_a_sprite_is_laid_as_pillow_pastes_it(
    width: int, height: int, left: int, top: int, seed: int
) -> None:
    sprite = examples.cutout(width, height, seed, soft=seed % 2 == 0)
    pixels = np.asarray(sprite)
    made = Overlay(pixels, np.ascontiguousarray(pixels[..., 3]), encoder())
    if not made.worth:
        return
    background = Image.fromarray(examples.noise(55, 48, 3, seed))
    image = bgr_of(background)
    made.lay(image, left, top)
    background.paste(sprite, (left, top), sprite)
    assert np.array_equal(image, bgr_of(background))


def test_arrays_of_pillows_images() -> None:
    image = examples.cutout(33, 21, 5)
    assert np.array_equal(rgba_of(image), np.asarray(image))
    plain = image.convert("RGB")
    assert np.array_equal(bgr_of(plain), np.asarray(plain)[..., ::-1])


def test_without_the_encoder_files_are_the_same(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heldout.recipes.compose.config import ComposeParameters
    from heldout.recipes.compose.encode import JPEG_75
    from heldout.recipes.compose.inputs import inputs_of
    from heldout.recipes.compose.plan import make_plan

    sources = examples.make_sources()
    inputs = inputs_of(sources["foregrounds"], sources["backgrounds"])  # type: ignore[arg-type]
    grid = tuple(i / 10 for i in range(11))
    asked = ComposeParameters(
        x=grid, y=grid[::2], size=(0.05,), resolution=("150x170",), min_inside=0.0
    )
    shots = make_plan(inputs, asked, seed=0).shots
    assert len(shots) > 400
    quick = {s.number: (d, m) for s, d, m in exact.ExactRenderer().encoded(inputs, shots, JPEG_75)}
    monkeypatch.setattr(exact, "encoder", lambda: None)
    plain = {s.number: (d, m) for s, d, m in exact.ExactRenderer().encoded(inputs, shots, JPEG_75)}
    assert quick == plain
    assert coding.encoder() is not None
