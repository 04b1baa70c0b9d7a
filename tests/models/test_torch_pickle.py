from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.errors import BadFile, NotFound
from heldout.models.torch_pickle import read_state_dict

from .torch_files import (
    ORDERED,
    legacy_file,
    name,
    number,
    plain_entries,
    state_dict,
    storage,
    tensor,
    text,
    tuple_of,
    zip_file,
)

RNG = np.random.default_rng(0)
ARRAYS = {
    "conv.weight": RNG.standard_normal((4, 3, 2, 2)).astype(np.float32),
    "conv.bias": RNG.standard_normal(4),
    "half": RNG.standard_normal((3, 5)).astype(np.float16),
    "count": np.array(7),
    "bytes": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "empty": np.zeros((0, 3), np.float32),
    "flags": np.array([True, False]),
}


def written(path: Path, body: bytes, arrays: list[np.ndarray], *, legacy: bool) -> Path:
    path.write_bytes((legacy_file if legacy else zip_file)(body, arrays))
    return path


@pytest.mark.parametrize("legacy", [True, False])
def test_arrays_come_back(tmp_path: Path, legacy: bool) -> None:
    body = state_dict(plain_entries(ARRAYS, legacy=legacy))
    found = read_state_dict(written(tmp_path / "w.pth", body, list(ARRAYS.values()), legacy=legacy))
    assert list(found) == list(ARRAYS)
    for key, array in ARRAYS.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_array_equal(found[key], array)
        assert found[key].flags.owndata or found[key].size == 0


def test_views_share_a_storage(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32)
    held = storage("0", "FloatStorage", 24, legacy=False)
    body = state_dict(
        {
            "all": tensor(held, (24,), (1,)),
            "transposed": tensor(held, (3, 4), (1, 3), offset=12),
            "scalar": tensor(held, (), (), offset=5),
        }
    )
    found = read_state_dict(written(tmp_path / "w.pth", body, [base], legacy=False))
    np.testing.assert_array_equal(found["transposed"], base[12:].reshape(4, 3).T)
    assert found["scalar"] == 5
    assert found["scalar"].shape == ()


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    exact = np.array([1.5, -2.25, 0.0, 3.0e38], np.float32)
    exact = (exact.view(np.uint32) >> 16 << 16).view(np.float32)
    data = (exact.view(np.uint32) >> 16).astype(np.uint16)
    body = state_dict({"x": tensor(storage("0", "BFloat16Storage", 4, legacy=True), (4,), (1,))})
    found = read_state_dict(written(tmp_path / "w.pth", body, [data], legacy=True))
    np.testing.assert_array_equal(found["x"], exact)


ONE = [np.arange(4, dtype=np.float32)]
HELD = storage("0", "FloatStorage", 4, legacy=False)
GOOD = tensor(HELD, (4,), (1,))
EVIL = name("os", "system") + tuple_of(text("touch pwned")) + b"R"
HOSTILE = {
    "a call": state_dict({"x": EVIL}),
    "builtins": state_dict({"x": name("builtins", "eval") + tuple_of(text("1")) + b"R"}),
    "torch's own loader": state_dict({"x": name("torch", "load") + tuple_of(text("x")) + b"R"}),
    "a class by its module": state_dict({"x": name("collections", "Counter") + b")R"}),
    "new object": b"\x80\x02" + name("collections", "OrderedDict") + b")\x81.",
    "extension": b"\x80\x02\x82\x01.",
    "instance": b"\x80\x02(icollections\nOrderedDict\n.",
    "beyond its storage": state_dict({"x": tensor(HELD, (5,), (1,))}),
    "offset beyond": state_dict({"x": tensor(HELD, (2,), (1,), offset=3)}),
    "stride beyond": state_dict({"x": tensor(HELD, (2,), (4,))}),
    "negative stride": state_dict({"x": tensor(HELD, (2,), (-1,), offset=1)}),
    "negative offset": state_dict({"x": tensor(HELD, (1,), (1,), offset=-4)}),
    "negative shape": state_dict({"x": tensor(HELD, (-1,), (1,))}),
    "an array from nothing": state_dict({"x": tensor(HELD, (1 << 30, 1 << 30), (0, 0))}),
    "huge numbers": state_dict({"x": tensor(HELD, (1 << 62,), (1 << 62,))}),
    "ragged": state_dict({"x": tensor(HELD, (2, 2), (1,))}),
    "storage of text": state_dict({"x": tensor(text("s"), (1,), (1,))}),
    "no mapping": b"\x80\x02" + GOOD + b".",
    "nothing": b"\x80\x02}.",
    "nested": state_dict({"x": b"}"}),
    "a number as a name": b"\x80\x02}(" + number(1) + GOOD + b"u.",
    "two sizes of one storage": state_dict(
        {"x": GOOD, "y": tensor(storage("0", "FloatStorage", 2, legacy=False), (2,), (1,))}
    ),
    "missing storage": state_dict(
        {"x": tensor(storage("9", "FloatStorage", 4, legacy=False), (4,), (1,))}
    ),
    "outside path": state_dict(
        {"x": tensor(storage("../data.pkl", "FloatStorage", 4, legacy=False), (4,), (1,))}
    ),
    "another reference": state_dict({"x": text("elsewhere") + b"Q"}),
    "huge memo": b"\x80\x02}r\xff\xff\xff\x7f.",
    "cut short": state_dict({"x": GOOD})[:-3],
    # BUILD after the check: a tensor, and the function itself, must not take attributes.
    "changed tensor": state_dict(
        {"x": GOOD + b"}(" + text("strides") + tuple_of(number(-9)) + b"ub"}
    ),
    "changed tensor by slots": state_dict(
        {"x": GOOD + b"N}(" + text("strides") + tuple_of(number(-9)) + b"u\x86b"}
    ),
    "changed function": state_dict(
        {"x": name("torch._utils", "_rebuild_tensor_v2") + b"}(" + text("a") + number(1) + b"ub"}
    ),
    "called storage type": state_dict({"x": name("torch", "FloatStorage") + b")R"}),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_pickles_are_refused(tmp_path: Path, body: bytes) -> None:
    path = written(tmp_path / "w.pth", body, ONE, legacy=False)
    with pytest.raises(BadFile, match=r"w\.pth: not read as a state dict"):
        read_state_dict(path)
    assert [p.name for p in tmp_path.iterdir()] == ["w.pth"]


def test_refusal_names_what_was_named(tmp_path: Path) -> None:
    path = written(tmp_path / "w.pth", state_dict({"x": EVIL}), ONE, legacy=False)
    with pytest.raises(BadFile, match=r"it names os\.system"):
        read_state_dict(path)


def test_attributes_on_the_mapping_are_ignored(tmp_path: Path) -> None:
    # torch itself leaves _metadata there; a hostile file may leave a name that is a method's.
    for attribute in ("_metadata", "items", "keys", "values"):
        body = state_dict({"x": GOOD})[:-1] + b"}(" + text(attribute) + ORDERED + b"ub."
        path = written(tmp_path / "w.pth", body, ONE, legacy=False)
        np.testing.assert_array_equal(read_state_dict(path)["x"], ONE[0])


def test_compressed_and_misfit_archives(tmp_path: Path) -> None:
    body = state_dict({"x": GOOD})
    path = tmp_path / "w.pth"
    path.write_bytes(zip_file(body, [np.zeros(4, np.float32)], compress=True))
    with pytest.raises(BadFile, match="compressed"):
        read_state_dict(path)
    path.write_bytes(zip_file(body, [np.zeros(400, np.float32)]))
    with pytest.raises(BadFile, match="bytes instead of"):
        read_state_dict(path)


def test_legacy_head_and_tail(tmp_path: Path) -> None:
    body = state_dict(plain_entries({"x": ONE[0]}, legacy=True))
    whole = legacy_file(body, ONE)
    path = tmp_path / "w.pth"
    for data in (
        whole[:-1],
        pickle.dumps({"x": 1}, 2),
        legacy_file(body, ONE, little=False),
        legacy_file(body, [np.arange(5, dtype=np.float32)]),
        legacy_file(body, []),
        b"",
        b"PK\x03\x04",
        b"\x00" * 100,
    ):
        path.write_bytes(data)
        with pytest.raises(BadFile):
            read_state_dict(path)
    path.write_bytes(whole)
    np.testing.assert_array_equal(read_state_dict(path)["x"], ONE[0])
    with pytest.raises(NotFound):
        read_state_dict(tmp_path / "other.pth")


@given(st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_a_changed_byte_is_read_or_refused(place: int, value: int, legacy: bool) -> None:
    import tempfile

    arrays = {key: ARRAYS[key] for key in ("conv.weight", "count")}
    body = state_dict(plain_entries(arrays, legacy=legacy))
    data = bytearray((legacy_file if legacy else zip_file)(body, list(arrays.values())))
    data[place % len(data)] = value
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "w.pth")
        path.write_bytes(data)
        try:
            found = read_state_dict(path)
        except BadFile:
            return
        assert all(isinstance(array, np.ndarray) for array in found.values())
