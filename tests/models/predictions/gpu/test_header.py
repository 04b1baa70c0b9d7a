"""Which JPEGs a GPU may decode, and what their headers say."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.models.gpu import jpeg_header as header
from heldout.models.gpu.jpeg_header import JpegShape, are_plain, jpeg_header


def jpeg_shape(data: bytes | memoryview, *, exif: bool = False) -> JpegShape | None:
    """The shape of a stream that a GPU may decode, header and coded data looked at."""
    found = jpeg_header(data, exif=exif)
    if found is None:
        return None
    where = np.array([[found.coded], [len(data) - 2], [found.restarts]])
    return found.shape if are_plain(np.frombuffer(data, np.uint8), *where).all() else None


def encoded(mode: str = "RGB", size: tuple[int, int] = (50, 37), **how: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 90 if mode == "L" else None).save(out, "JPEG", **how)
    return out.getvalue()


@pytest.mark.parametrize(("subsampling", "across", "down"), [(0, 1, 1), (1, 2, 1), (2, 2, 2)])
def test_size_and_sampling_are_read(subsampling: int, across: int, down: int) -> None:
    data = encoded(subsampling=subsampling)
    assert jpeg_shape(data) == JpegShape(37, 50, across, down)
    assert jpeg_shape(memoryview(data)) == JpegShape(37, 50, across, down)


def test_grey_has_no_chroma() -> None:
    assert jpeg_shape(encoded("L")) == JpegShape(37, 50, 0, 0)


def test_comments_and_tables_before_the_frame_are_skipped() -> None:
    data = encoded(
        comment=b"x" * 5000, icc_profile=b"p" * 100_000, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"
    )
    assert jpeg_shape(data) == JpegShape(37, 50, 2, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        encoded(progressive=True),
        encoded("CMYK"),
        encoded(size=(8, 300)),
        encoded()[:-2],
        encoded()[:400],
        encoded() + b"more",
        b"\x89PNG" + encoded(),
    ],
    ids=["empty", "start", "progressive", "cmyk", "narrow", "no end", "cut", "tail", "png"],
)
def test_others_take_the_cpu(data: bytes) -> None:
    assert jpeg_shape(data) is None


def test_rgb_that_is_stored_as_such_takes_the_cpu() -> None:
    data = bytearray(encoded())
    jfif = data.index(b"JFIF\0")
    data[jfif : jfif + 5] = b"XXXX\0"
    frame = data.index(b"\xff\xc0") + 10
    for number, name in enumerate(b"RGB"):
        data[frame + 3 * number] = name
    assert jpeg_shape(bytes(data)) is None


def test_exif_takes_the_cpu_only_where_it_turns_images() -> None:
    data = encoded(exif=b"Exif\0\0II*\0\x08\0\0\0\0\0")
    assert jpeg_shape(data, exif=False) is not None
    assert jpeg_shape(data, exif=True) is None


def segment(data: bytes, marker: int) -> slice:
    """Where the first segment of a kind lies, with its marker."""
    at = data.index(bytes([0xFF, marker]))
    return slice(at, at + 2 + int.from_bytes(data[at + 2 : at + 4], "big"))


def changed(data: bytes, marker: int, place: int, value: int) -> bytes:
    """With one byte of a segment's content replaced."""
    found = bytearray(data)
    found[segment(data, marker).start + 4 + place] = value
    return bytes(found)


def without(data: bytes, marker: int) -> bytes:
    where = segment(data, marker)
    return data[: where.start] + data[where.stop :]


def test_a_frame_without_a_scan_takes_the_cpu() -> None:
    """nvJPEG ends the process on it."""
    data = encoded()
    assert jpeg_shape(data[: segment(data, 0xC0).stop] + b"\xff\xd9") is None
    assert jpeg_shape(data[: segment(data, 0xDA).start] + b"\xff\xd9") is None
    assert jpeg_shape(data[: segment(data, 0xDA).stop] + b"\xff\xd9") is None
    assert jpeg_shape(data[: segment(data, 0xDA).stop + 9] + b"\xff\xd9") is None  # too short


@pytest.mark.parametrize(
    "data",
    [
        without(encoded(), 0xDB),
        without(encoded(), 0xC4),
        changed(encoded(), 0xDB, 0, 0x10),
        changed(encoded(), 0xDB, 0, 4),
        changed(encoded(), 0xDB, 1, 0),
        changed(encoded(), 0xC4, 0, 2),
        changed(encoded(), 0xC4, 1, 3),
        changed(encoded(), 0xC4, 17, 12),
        changed(encoded(), 0xC4, 18, 0),
        changed(encoded(), 0xC0, 8, 3),
        changed(encoded(), 0xC0, 7, 0x41),
        changed(encoded(), 0xC0, 9, 1),
        changed(encoded(), 0xC0, 1, 0x20),
        changed(encoded(), 0xDA, 0, 1),
        changed(encoded(), 0xDA, 2, 0x22),
        changed(encoded(), 0xDA, 8, 5),
        changed(encoded(), 0xDA, 9, 1),
        encoded().replace(b"\xff\xda", encoded()[segment(encoded(), 0xC0)] + b"\xff\xda"),
        encoded().replace(b"\xff\xda", b"\xff\xdd\0\5\0\1\0\xff\xda"),
        encoded().replace(b"\xff\xda", b"\xff\xdc\0\4\0\1\xff\xda"),
    ],
    ids=[
        "no divisors", "no codes", "divisors of 16 bits", "a fifth table", "divided by 0",
        "a third table of codes", "too many codes", "means too large", "a symbol twice",
        "divisors that are not there", "sampling", "a name twice", "more than the data can hold",
        "a scan of one component", "codes that are not there", "not from the start", "not to the end",
        "two frames", "restarts too long", "lines told later",
    ],
)  # fmt: skip
def test_unsound_headers_take_the_cpu(data: bytes) -> None:
    assert jpeg_shape(encoded()) is not None
    assert jpeg_shape(data) is None


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 11, 12, 13, 100])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_restarts_and_own_tables_are_sound(mode: str, blocks: int) -> None:
    data = encoded(mode, restart_marker_blocks=blocks, optimize=True, quality=100)
    assert jpeg_shape(data) == JpegShape(37, 50, *((2, 2) if mode == "RGB" else (0, 0)))


def test_markers_in_the_coded_data_take_the_cpu() -> None:
    """nvJPEG makes something of them, where Pillow refuses the stream or warns."""
    data = noisy()
    start, end = segment(data, 0xDA).stop, len(data) - 2
    assert jpeg_shape(data) is not None
    assert b"\xff\0" in data[start:end]
    for marker in (0xD0, 0xD3, 0xD8, 0xD9, 0xDA, 0xDC, 0xE0, 0xFE, 0xFF, 0x01):
        for at in (start, (start + end) // 2, end):
            assert jpeg_shape(data[:at] + bytes([0xFF, marker]) + data[at:]) is None
    assert jpeg_shape(data[:end] + b"\xff" + data[end:]) is None


def test_restarts_out_of_turn_take_the_cpu() -> None:
    data = noisy(restart_marker_blocks=2)
    start = segment(data, 0xDA).stop
    assert jpeg_shape(data) is not None
    first, second = (data.index(bytes([0xFF, 0xD0 + i]), start) for i in (0, 1))
    swapped = bytearray(data)
    swapped[first + 1], swapped[second + 1] = 0xD1, 0xD0
    for other in (bytes(swapped), data[:first] + data[second:], data[:first] + data[first + 2 :]):
        assert jpeg_shape(other) is None
    plain = segment(data, 0xDD)
    assert jpeg_shape(data[: plain.start] + data[plain.stop :]) is None


def noisy(**how: object) -> bytes:
    """With enough coded data that some of its bytes look like markers."""
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "JPEG", quality=95, **how)
    return out.getvalue()


def is_plain(coded: bytes, restarts: int) -> bool:
    """The rule, a byte at a time; behind the data comes the marker of the end."""
    found = []
    for one, after in zip(coded, coded[1:] + b"\xff", strict=True):
        if one == 0xFF and after != 0:
            found.append(after)
    return found == [0xD0 + i % 8 for i in range(restarts)]


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.sampled_from([b"\xff\0", b"\x07", b"\xff\xd0", b"\xff\xd1", b"\xff\xd9", b"\xff"])
            ),
            st.booleans(),
            st.integers(0, 2),
            st.binary(max_size=6),
        ),
        max_size=6,
    ),
    st.integers(1, 9),
)  # fmt: skip
def test_coded_data_of_many_images_are_judged_as_one_by_one(
    made: list[tuple[list[bytes], bool, int, bytes]], piece: int
) -> None:
    whole, starts, stops, restarts, expected = b"", [], [], [], []
    for parts, with_restarts, wanted, gap in made:
        coded = b"\1" + b"".join(parts)
        if with_restarts:
            coded += b"".join(bytes([0xFF, 0xD0 + i % 8, 5]) for i in range(wanted))
        whole += b"\xff\xd8\xff" + gap
        starts.append(len(whole))
        whole += coded
        stops.append(len(whole))
        whole += b"\xff\xd9" + gap
        restarts.append(wanted)
        expected.append(is_plain(coded, wanted))
    header._thread.scratch = np.empty(piece, bool)  # so that data are cut anywhere
    try:
        found = are_plain(
            np.frombuffer(whole, np.uint8), np.array(starts), np.array(stops), np.array(restarts)
        )
    finally:
        del header._thread.scratch
    assert found.tolist() == expected


def test_headers_of_any_length_are_read() -> None:
    """Also those behind what looks like a scan, as a preview in the metadata does."""
    preview = b"Exif\0\0" + encoded()
    for exif in (b"Exif\0\0" + bytes(2000), preview, preview + bytes(3000)):
        data = encoded(exif=exif)
        for _ in range(2):
            assert jpeg_shape(data) == JpegShape(37, 50, 2, 2)
        assert jpeg_shape(data, exif=True) is None


def test_equal_headers_do_not_vouch_for_the_data() -> None:
    data = encoded()
    end = segment(data, 0xDA).stop
    assert jpeg_shape(data) is not None
    assert jpeg_shape(data[: end + 9] + b"\xff\xd9") is None
    assert jpeg_shape(data[:-1] + b"\xd8") is None
    assert jpeg_shape(data) is not None


@given(st.data())
def test_what_passes_is_what_pillow_reads(data: st.DataObject) -> None:
    """Whatever a header's bytes are changed to: a stream that passes has Pillow's size and loads."""
    whole = bytearray(encoded(optimize=True))
    end = segment(bytes(whole), 0xDA).stop
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(2, end - 1))] = data.draw(st.integers(0, 255))
    found = jpeg_shape(bytes(whole))
    if found is not None:
        with Image.open(io.BytesIO(bytes(whole))) as image:
            image.load()
            assert image.size == (found.width, found.height)
            assert image.mode == ("RGB" if found.across else "L")


@given(st.binary(max_size=300), st.integers(0, 600))
def test_no_bytes_raise(noise: bytes, at: int) -> None:
    data = bytearray(encoded())
    data[at : at + len(noise)] = noise
    found = jpeg_shape(bytes(data))
    assert found is None or found.height >= 16
