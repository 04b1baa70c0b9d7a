"""Resize, crop and values against slow and obvious ways of doing the same."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.core.errors import UserError
from heldout.data.images import (
    BadImage,
    Geometry,
    Preprocessing,
    apply_geometry,
    normalise,
    pixels_of,
    pixels_of_each,
)
from heldout.data.images.preprocessing import (
    INTERPOLATIONS,
    Interpolation,
    crop_offset,
    resized_size,
)

sides = st.integers(1, 90)


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def slowly(image: Image.Image, made: Geometry) -> np.ndarray:
    """Resize all of it; then pixel by pixel, zeros where there is no image."""
    size = resized_size(*image.size, made)
    method = Image.Resampling[made.interpolation.upper()]
    pixels = np.asarray(image if made.resize == "none" else image.resize(size, method))
    result = np.zeros((made.crop_height, made.crop_width, 3), np.uint8)
    top = crop_offset(size[1], made.crop_height)
    left = crop_offset(size[0], made.crop_width)
    for y in range(made.crop_height):
        for x in range(made.crop_width):
            if 0 <= y + top < size[1] and 0 <= x + left < size[0]:
                result[y, x] = pixels[y + top, x + left]
    return result


@settings(max_examples=300)
@given(sides, sides, sides, sides, sides, sides, st.sampled_from(INTERPOLATIONS), st.data())
def test_equal_to_resizing_all_of_it(
    width: int,
    height: int,
    resize_width: int,
    resize_height: int,
    crop_width: int,
    crop_height: int,
    interpolation: Interpolation,
    data: st.DataObject,
) -> None:
    """To the bit."""
    resize = data.draw(st.sampled_from(["shorter", "exact", "none"]))
    if resize == "shorter" and max(width, height) > 30 * min(width, height):
        resize = "exact"  # a line, blown up, only costs time
    made = Geometry(
        resize=resize,
        resize_height=resize_height,
        resize_width=resize_width,
        interpolation=interpolation,
        crop_height=crop_height,
        crop_width=crop_width,
    )
    image = noise(width, height)
    result = apply_geometry(image, made)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, slowly(image, made))


@pytest.mark.parametrize(
    ("size", "resized"),
    [
        ((500, 375), (341, 256)),
        ((375, 500), (256, 341)),
        ((256, 256), (256, 256)),
        ((1, 1), (256, 256)),
        ((768, 512), (384, 256)),
        ((683, 512), (341, 256)),
    ],
)
def test_the_longer_side_is_cut_not_rounded(
    size: tuple[int, int], resized: tuple[int, int]
) -> None:
    assert resized_size(*size, Geometry()) == resized


def test_offsets_by_hand() -> None:
    """Halves go to the even number; where the crop is larger, the smaller half comes first."""
    assert [crop_offset(224 + n, 224) for n in range(8)] == [0, 0, 1, 2, 2, 2, 3, 4]
    assert [crop_offset(224 - n, 224) for n in range(5)] == [0, 0, -1, -1, -2]


def test_padding_by_hand() -> None:
    image = Image.fromarray(np.full((1, 2, 3), 9, np.uint8))
    result = apply_geometry(image, Geometry(resize="none", crop_height=4, crop_width=5))
    assert result[..., 0].tolist() == [[0] * 5, [0, 9, 9, 0, 0], [0] * 5, [0] * 5]


def test_only_rgb_is_taken() -> None:
    with pytest.raises(UserError, match="mode L"):
        apply_geometry(noise(4, 4).convert("L"), Geometry())


def test_many_geometries_decode_once_and_are_the_same() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    buffer = io.BytesIO()
    noise(60, 40).save(buffer, "PNG", exif=turned.tobytes())
    wanted = [
        Geometry(resize_height=20, crop_height=16, crop_width=16),
        Geometry(resize_height=20, crop_height=16, crop_width=16, exif=True),
        Geometry(resize="exact", crop_height=99, crop_width=7),
    ]
    together = pixels_of_each(buffer.getvalue(), wanted)
    assert not isinstance(together, BadImage)
    for made, pixels in zip(wanted, together, strict=True):
        alone = pixels_of(buffer.getvalue(), made)
        assert isinstance(alone, np.ndarray)
        np.testing.assert_array_equal(pixels, alone)
    assert not np.array_equal(together[0], together[1])
    bad = pixels_of_each(b"no image", wanted)
    assert isinstance(bad, BadImage) and bad == pixels_of(b"no image", wanted[0])


@given(
    st.tuples(*[st.floats(-3, 3, width=32)] * 3),
    st.tuples(*[st.floats(0.125, 130, width=32)] * 3),
    st.sampled_from([1.0, 255.0]),
    st.sampled_from(["RGB", "BGR"]),
    st.sampled_from(["NCHW", "NHWC"]),
)
def test_values_one_by_one(
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    scale: float,
    colours: str,
    layout: str,
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    made = Preprocessing(mean=mean, std=std, scale=scale, colours=colours, layout=layout)  # type: ignore[arg-type]
    result = normalise(pixels, made)
    assert result.dtype == np.float32 and result.flags.c_contiguous
    f = np.float32
    for b, y, x, c in np.ndindex(2, 3, 4, 3):
        value = f(pixels[b, y, x, 2 - c if colours == "BGR" else c])
        expected = (value / f(scale) - f(mean[c])) / f(std[c])
        assert result[(b, c, y, x) if layout == "NCHW" else (b, y, x, c)] == expected


def test_no_images_have_values_of_that_shape() -> None:
    assert normalise(np.zeros((0, 3, 4, 3), np.uint8), Preprocessing()).shape == (0, 3, 3, 4)
