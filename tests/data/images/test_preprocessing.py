"""Tests of :mod:`heldout.data.images.preprocessing`."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.core.errors import UserError
from heldout.data.images import (
    BadImage,
    FolderSource,
    Geometry,
    ImageInfo,
    Preprocessing,
    apply_geometry,
    bytes_of,
    check,
    decode,
    normalise,
    pixels_of,
    pixels_of_each,
    probe,
)
from heldout.data.images.preprocessing import (
    INTERPOLATIONS,
    Interpolation,
    crop_starts,
    resized,
)
from tests.data.images.odd_images import CASES, PIXELS, black_png, gif_canvas, saved, webp_canvas

# Resize, crop and values against slow and obvious ways of doing the same.


sides = st.integers(1, 90)


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def resized_size(width: int, height: int, made: Geometry) -> tuple[int, int]:
    """Width and height after the resize, in plain Python."""
    if made.resize == "none":
        return width, height
    if made.resize == "exact":
        return made.resize_width, made.resize_height
    shorter = made.resize_height
    if width <= height:
        return shorter, int(shorter * height / width)
    return int(shorter * width / height), shorter


def crop_offset(size: int, crop: int) -> int:
    """Where a centre crop begins, in plain Python."""
    return -((crop - size) // 2) if crop > size else round((size - crop) / 2)


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
    ("size", "expected"),
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
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert tuple(map(int, resized(*size[::-1], Geometry())))[::-1] == expected


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=1),
    st.builds(
        Geometry,
        resize=st.sampled_from(["shorter", "exact", "none"]),
        resize_height=st.integers(1, 600),
        crop_width=st.integers(1, 600),
    ),
)
def test_sizes_and_offsets_of_many_images(shapes: list[tuple[int, int]], made: Geometry) -> None:
    after = resized(*np.array(shapes).T, made)
    starts = crop_starts(after[1], made.crop_width)
    for i, (height, width) in enumerate(shapes):
        expected = resized_size(width, height, made)
        assert (after[1][i], after[0][i]) == expected
        assert starts[i] == crop_offset(expected[0], made.crop_width)


def test_offsets_by_hand() -> None:
    """Halves go to the even number; where the crop is larger, the smaller half comes first."""
    assert crop_starts(np.arange(224, 232), 224).tolist() == [0, 0, 1, 2, 2, 2, 3, 4]
    assert crop_starts(np.arange(224, 219, -1), 224).tolist() == [0, 0, -1, -1, -2]


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


# More than a hundred odd and hostile files: each is decoded right, or failed with a reason.


every_case = pytest.mark.parametrize("name", CASES)


def by_pillow(data: bytes) -> np.ndarray:
    """What torchvision and timm get."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@every_case
def test_each_is_right_or_failed_with_a_reason(name: str) -> None:
    data, expected = CASES[name]
    result = decode(data)
    if isinstance(expected, str) and expected != "pillow":
        assert isinstance(result, BadImage), name
        assert result.trouble == expected, result
        assert result.reason and "\n" not in result.reason
    else:
        assert not isinstance(result, BadImage), result
        assert result.mode == "RGB"
        right = by_pillow(data) if isinstance(expected, str) else expected
        np.testing.assert_array_equal(np.asarray(result), right)


@every_case
def test_the_check_and_the_decoder_agree(name: str) -> None:
    data, _ = CASES[name]
    result, checked, header = decode(data), check(data), probe(data)
    if isinstance(result, BadImage):
        assert checked == result
    else:
        assert isinstance(checked, ImageInfo) and header == checked


@every_case
def test_what_pillow_decodes_is_equal_to_it(name: str) -> None:
    """Only 16-bit grey differs (scaled, not clipped), and they carry a note."""
    data, _ = CASES[name]
    result, info = decode(data), probe(data)
    if isinstance(result, BadImage) or isinstance(info, BadImage):
        return
    equal = np.array_equal(np.asarray(result), by_pillow(data))
    assert equal == (not info.mode.startswith("I")), name


@every_case
def test_warnings_as_errors_or_not_change_nothing(name: str) -> None:
    data, _ = CASES[name]
    strict = pixels_of(data, Geometry(resize_height=20, crop_height=16, crop_width=16))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet = pixels_of(data, Geometry(resize_height=20, crop_height=16, crop_width=16))
    if isinstance(strict, BadImage):
        assert quiet == strict
    else:
        assert strict.shape == (16, 16, 3) and strict.dtype == np.uint8
        np.testing.assert_array_equal(strict, quiet)


def test_threads_get_the_same_as_one_by_one() -> None:
    names = sorted(CASES)
    geometry = Geometry(resize_height=24, crop_height=24, crop_width=24)

    def work(name: str) -> np.ndarray | BadImage:
        return pixels_of(CASES[name][0], geometry)

    alone = [work(name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(work, names * 3))
    for one, many in zip(alone * 3, together, strict=True):
        assert type(one) is type(many)
        assert one == many if isinstance(one, BadImage) else np.array_equal(one, many)


SMALL = sorted(name for name, (data, _) in CASES.items() if 0 < len(data) < 20_000)


@settings(max_examples=300)
@given(st.sampled_from(SMALL), st.randoms(use_true_random=False), st.booleans())
def test_damaged_files_give_an_answer(name: str, dice: Random, exif: bool) -> None:
    data = bytearray(CASES[name][0])
    for _ in range(dice.randrange(1, 8)):
        at = dice.randrange(min(len(data), dice.choice([120, 20_000])))
        match dice.randrange(3):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                data[at:at] = dice.choice([b"\0\0", b"\xff\xff", b"\x7f\xff"])
            case _:
                del data[at : min(at + dice.randrange(1, 20), len(data) - 1)]
    made = Geometry(resize_height=20, crop_height=16, crop_width=16, exif=exif)
    result = pixels_of(bytes(data), made)
    if isinstance(result, BadImage):
        assert result.reason and "\n" not in result.reason
    else:
        assert result.shape == (16, 16, 3)


def test_the_name_plays_no_part(tmp_path: Path) -> None:
    (tmp_path / "wrong.jpg").write_bytes(CASES["png"][0])
    data = bytes_of(FolderSource(tmp_path), "wrong.jpg")
    assert isinstance(data, bytes)
    result = decode(data)
    assert not isinstance(result, BadImage) and np.array_equal(np.asarray(result), PIXELS)


@pytest.mark.parametrize(("width", "height"), [(60_000, 1), (1, 60_000), (3, 40_000)])
def test_a_thin_image_is_not_blown_up(width: int, height: int) -> None:
    """Its shorter side at 256 would make billions of pixels of it."""
    data = saved(Image.new("L", (width, height)), "PNG")
    assert not isinstance(decode(data), BadImage)
    result = pixels_of(data, Geometry())
    assert isinstance(result, BadImage) and result.trouble == "too large"
    squashed = pixels_of(data, Geometry(resize="exact"))
    assert isinstance(squashed, np.ndarray) and squashed.shape == (224, 224, 3)


def test_a_file_too_long_to_be_an_image_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "long.jpg").open("wb") as handle:
        handle.truncate(10**12)  # a hole: takes no room
    result = bytes_of(FolderSource(tmp_path), "long.jpg")
    assert isinstance(result, BadImage) and result.trouble == "unreadable"
    assert "1,000,000,000,000 bytes" in result.reason


BOMBS = {
    "just allowed.png": lambda: black_png((7000, 7000)),
    "grey, just allowed.png": lambda: black_png((7000, 7000), colour=0),
    "alpha.png": lambda: black_png((7000, 7000), colour=6),
    "alpha, just allowed.png": lambda: black_png((5500, 5500), colour=6),
    "huge.png": lambda: black_png((12_000, 12_000)),
    "progressive.jpg": lambda: saved(
        Image.new("RGB", (4900, 4900)), "JPEG", progressive=True, subsampling=0
    ),
    "scans.jpg": lambda: CASES["jpeg, a thousand scans"][0],
    "thin.png": lambda: black_png((49_000_000, 1), colour=0),
    "strip.png": lambda: black_png((700, 70_000)),
    "canvas.webp": lambda: webp_canvas(13_000, 13_000),
    "canvas, just allowed.webp": lambda: webp_canvas(3900, 3900),
    "canvas.gif": lambda: gif_canvas(13_000, 13_000, disposal=2),
    "text.png": lambda: CASES["png, bomb in its text"][0],
    "profile.png": lambda: CASES["png, bomb in its profile"][0],
}

CHILD = """
import re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from heldout.data.images import BadImage, FolderSource, Geometry, bytes_of, check, pixels_of, probe
source = FolderSource(Path(sys.argv[1]))
def work(image_id):
    data = bytes_of(source, image_id)
    probe(data)
    check(data)
    result = pixels_of(data, Geometry(exif=True))
    return result.trouble if isinstance(result, BadImage) else "decoded"
with ThreadPoolExecutor(2) as pool:
    for image_id, result in zip(source.ids(), pool.map(work, source.ids())):
        print(image_id, result, sep=": ")
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's peak of memory")
def test_bombs_stay_below_500_megabytes(tmp_path: Path) -> None:
    """In a process of its own, two threads at once, all of them."""
    for name, make in BOMBS.items():
        (tmp_path / name).write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    *lines, peak = done.stdout.splitlines()
    results = dict(line.rsplit(": ", 1) for line in lines)
    assert set(results) == set(BOMBS)
    assert results["just allowed.png"] == results["grey, just allowed.png"] == "decoded"
    assert results["canvas, just allowed.webp"] == results["progressive.jpg"] == "decoded"
    assert results["huge.png"] == results["scans.jpg"] == results["thin.png"] == "too large"
    assert int(peak) < 500_000, f"{peak} kB"
