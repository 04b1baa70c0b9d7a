"""Files made of a background's own bits are byte for byte those of whole images."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.recipes.compose import coded as coding
from heldout.recipes.compose import exact
from heldout.recipes.compose.coded import (
    CodedBackground,
    CodedSprite,
    Room,
    machine_code,
    tables_of,
)
from tests.recipes.compose import compose_examples as examples

sides = st.one_of(st.integers(1, 70), st.sampled_from([16, 17, 24, 25, 32, 40, 41, 48, 112, 200]))
qualities = st.one_of(st.just(75), st.integers(1, 100))
kinds = st.sampled_from(["smooth", "noise", "extremes", "pairs", "flat"])
ROOM = Room()


def pillow(image: Image.Image, quality: int = 75, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, **options)
    return file.getvalue()


def picture(kind: str, width: int, height: int, seed: int) -> Image.Image:
    """RGB: from what is easily coded to what fills every coefficient."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == "smooth":
        small = Image.fromarray(pixels[: height // 7 + 1, : width // 7 + 1])
        return small.resize((width, height), Image.Resampling.BICUBIC)
    if kind == "extremes":
        pixels = (pixels > 127).astype(np.uint8) * np.uint8(255)
    elif kind == "pairs":  # colour that changes from pair to pair: the finest chroma there is
        rows, columns = np.mgrid[:height, :width] // 2
        pixels = np.zeros_like(pixels)
        pixels[..., 0] = 255 * ((rows + columns) % 2)
    elif kind == "flat":
        pixels[:] = pixels[0, 0]
    return Image.fromarray(pixels)


def sprite_of(kind: str, mask: str, width: int, height: int, seed: int) -> Image.Image:
    rng = np.random.default_rng(seed + 1)
    pixels = np.dstack([picture(kind, width, height, seed), np.zeros((height, width), np.uint8)])
    rows, columns = np.mgrid[:height, :width]
    alpha = {
        "opaque": np.full((height, width), 255),
        "clear": np.zeros((height, width)),
        "any": rng.integers(0, 256, (height, width)),
        "edges": rng.choice([0, 1, 254, 255], (height, width)),
        "disc": 255 * ((2 * rows - height) ** 2 + (2 * columns - width) ** 2 < height * width),
    }
    pixels[..., 3] = alpha[mask]
    return Image.fromarray(pixels)


@settings(max_examples=250, deadline=None)
@given(sides, sides, qualities, kinds, st.integers(0, 999))
def test_any_image_is_encoded_as_pillow_does_it(
    width: int, height: int, quality: int, kind: str, seed: int
) -> None:
    coded = CodedBackground(picture(kind, width, height, seed), machine_code(), quality=quality)
    assert coded.usable  # compared with Pillow's file there


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_sprite_on_any_background(data: st.DataObject) -> None:
    draw = data.draw
    background = picture(draw(kinds), draw(sides), draw(sides), draw(st.integers(0, 99)))
    masks = st.sampled_from(["opaque", "clear", "any", "edges", "disc"])
    sprite = sprite_of(draw(kinds), draw(masks), draw(sides), draw(sides), draw(st.integers(0, 99)))
    left = draw(st.integers(-sprite.width - 3, background.width + 3))
    top = draw(st.integers(-sprite.height - 3, background.height + 3))
    quality = draw(qualities)
    coded = CodedBackground(background, machine_code(), quality=quality)
    made = coded.file(CodedSprite(np.asarray(sprite), machine_code()), left, top, ROOM)
    background.paste(sprite, (left, top), sprite)
    assert made == pillow(background, quality)


def test_one_background_serves_many_sprites() -> None:
    """What was written before, longer or shorter, leaves nothing behind."""
    background = picture("smooth", 130, 90, 3)
    coded = CodedBackground(background, machine_code())
    for seed, kind in enumerate(["noise", "flat", "extremes", "smooth"] * 3):
        sprite = sprite_of(kind, "disc", 60 - 4 * seed, 20 + 3 * seed, seed)
        made = coded.file(CodedSprite(np.asarray(sprite), machine_code()), 9 * seed, seed, ROOM)
        image = background.copy()
        image.paste(sprite, (9 * seed, seed), sprite)
        assert made == pillow(image)


def test_the_room_for_bits_is_enough_for_any_unit() -> None:
    """Every coefficient as long as it can be: 16 bits of code and 10 of value, and the mean."""
    kernels = machine_code()
    _, tables = tables_of(pillow(picture("flat", 16, 16, 0)), kernels) or (0, None)
    assert tables is not None
    longest = int((tables.codes & 255).max())
    assert 6 * (64 * (longest + 11)) <= 64 * kernels.WORDS


@pytest.mark.parametrize(
    "options",
    [{"progressive": True}, {"subsampling": "4:4:4"}, {"restart_marker_blocks": 2}],
)
def test_files_of_another_kind_have_no_tables(options: dict[str, Any]) -> None:
    image = picture("smooth", 40, 40, 0)
    assert tables_of(pillow(image), machine_code()) is not None
    assert tables_of(pillow(image, **options), machine_code()) is None
    assert tables_of(pillow(image.convert("L")), machine_code()) is None


def test_code_that_writes_anything_else_is_not_used() -> None:
    kernels = machine_code()

    def darker(words: Any) -> Any:
        planes = kernels.planes_of(words)
        planes[:10] //= 2
        return planes

    wrong = SimpleNamespace(**{**vars(kernels), "planes_of": darker})
    image = picture("smooth", 50, 40, 1)
    assert CodedBackground(image, kernels).usable
    assert not CodedBackground(image, wrong).usable


def test_arrays_of_pillows_images() -> None:
    image = examples.cutout(33, 21, 5)
    assert np.array_equal(exact.rgba_of(image), np.asarray(image))


def test_without_the_machine_code_files_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from heldout.recipes.compose.config import ComposeParameters
    from heldout.recipes.compose.encode import JPEG_75
    from heldout.recipes.compose.inputs import inputs_of
    from heldout.recipes.compose.plan import make_plan

    assert machine_code() is not None, "numba is among the requirements of the tests"
    sources = examples.make_sources()
    inputs = inputs_of(sources["foregrounds"], sources["backgrounds"])  # type: ignore[arg-type]
    grid = tuple(i / 10 for i in range(11))
    asked = ComposeParameters(
        x=grid, y=grid[::2], size=(0.05,), resolution=("150x170",), min_inside=0.0
    )
    shots = make_plan(inputs, asked, seed=0).shots
    assert len(shots) > 400
    made = []
    file = CodedBackground.file

    def counted(self: CodedBackground, *given: Any) -> bytes:
        made.append(given)
        return file(self, *given)

    monkeypatch.setattr(CodedBackground, "file", counted)
    quick = {s.number: (d, m) for s, d, m in exact.ExactRenderer().encoded(inputs, shots, JPEG_75)}
    assert len(made) > 350
    monkeypatch.setattr(exact, "machine_code", lambda: None)
    plain = {s.number: (d, m) for s, d, m in exact.ExactRenderer().encoded(inputs, shots, JPEG_75)}
    assert quick == plain


def test_few_files_are_not_worth_loading_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = SimpleNamespace(cache_info=lambda: SimpleNamespace(currsize=0))
    monkeypatch.setattr(coding, "machine_code", fresh)
    assert not coding.worth_it(10)
    assert coding.worth_it(5000)
