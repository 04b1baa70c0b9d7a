from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile
from heldout.models.adapters.efficientnet_lite import read_state_dict

from .torch_files import (
    ORDERED,
    legacy_file,
    name,
    plain_entries,
    state_dict,
    storage,
    tensor,
    text,
    tuple_of,
)

RNG = np.random.default_rng(0)
ARRAYS = {
    "conv.weight": RNG.standard_normal((4, 3, 2, 2)).astype(np.float32),
    "count": np.array(7),
    "empty": np.zeros((0, 3), np.float32),
}


def written(path: Path, body: bytes, arrays: list[np.ndarray]) -> Path:
    path.write_bytes(legacy_file(body, arrays))
    return path


def test_arrays_come_back(tmp_path: Path) -> None:
    body = state_dict(plain_entries(ARRAYS))
    found = read_state_dict(written(tmp_path / "w.pth", body, list(ARRAYS.values())))
    assert list(found) == list(ARRAYS)
    for key, array in ARRAYS.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_array_equal(found[key], array)


def test_views_share_a_storage(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32)
    held = storage("0", "FloatStorage", 24)
    body = state_dict(
        {
            "all": tensor(held, (24,), (1,)),
            "transposed": tensor(held, (3, 4), (1, 3), offset=12),
            "scalar": tensor(held, (), (), offset=5),
        }
    )
    found = read_state_dict(written(tmp_path / "w.pth", body, [base]))
    np.testing.assert_array_equal(found["transposed"], base[12:].reshape(4, 3).T)
    assert found["scalar"] == 5
    assert found["scalar"].shape == ()


def test_a_call_is_refused_by_name(tmp_path: Path) -> None:
    evil = name("os", "system") + tuple_of(text("touch pwned")) + b"R"
    path = written(tmp_path / "w.pth", state_dict({"x": evil}), [])
    with pytest.raises(BadFile, match=r"w\.pth: not read as a state dict .*it names os\.system"):
        read_state_dict(path)
    assert [p.name for p in tmp_path.iterdir()] == ["w.pth"]


def test_attributes_on_the_mapping_are_ignored(tmp_path: Path) -> None:
    one = np.arange(4, dtype=np.float32)
    entries = plain_entries({"x": one})
    body = state_dict(entries)[:-1] + b"}(" + text("_metadata") + ORDERED + b"ub."
    np.testing.assert_array_equal(read_state_dict(written(tmp_path / "w", body, [one]))["x"], one)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x00" * 100])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "w.pth").write_bytes(data)
    with pytest.raises(BadFile):
        read_state_dict(tmp_path / "w.pth")
