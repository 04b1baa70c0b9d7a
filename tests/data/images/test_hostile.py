"""More than a hundred odd and hostile files: each is decoded right, or failed with a reason."""

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

from heldout.data.images import (
    BadImage,
    FolderSource,
    Geometry,
    ImageInfo,
    bytes_of,
    check,
    decode,
    pixels_of,
    probe,
)
from tests.data.images.odd_images import CASES, PIXELS, black_png, gif_canvas, saved, webp_canvas

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
