from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import BadFile, NotFound
from heldout.models.adapters.safetensors_file import read_safetensors


def written(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def test_arrays_of_every_type_are_read(tmp_path: Path) -> None:
    numbers = np.arange(6, dtype="<f4").reshape(2, 3)
    data = b"\x01" + numbers.tobytes() + np.float16([0.5]).tobytes()
    header = {
        "__metadata__": {"format": "pt"},
        "flag": entry("BOOL", [1], 0, 1),
        "m": entry("F32", [2, 3], 1, 25),  # at an odd place: still read
        "h": entry("F16", [], 25, 27),
        "none": entry("I64", [0, 4], 27, 27),
    }
    found = read_safetensors(written(tmp_path / "a.safetensors", header, data))
    assert list(found) == ["flag", "h", "m", "none"]
    np.testing.assert_array_equal(found["m"], numbers)
    assert (found["h"], found["flag"].tolist(), found["none"].shape) == (0.5, [True], (0, 4))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{", "no JSON object"),
        (b"[1, 2]", "no JSON object"),
        ({"a": entry("F8", [1], 0, 1)}, "no proper type"),
        ({"a": {"dtype": "F32"}}, "no proper type"),
        ({"a": entry("F32", [2], 0, 4)}, "another size"),
        ({"a": entry("F32", [2], 0, 8)}, "does not lie inside"),
        ({"a": entry("F32", [1], -4, 0)}, "does not lie inside"),
        ({"a": entry("F32", [-1], 0, 4)}, "another size"),
        ({"a": entry("F32", [2**40, 2**40], 0, 4)}, "another size"),
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, header: Any, words: str) -> None:
    with pytest.raises(BadFile, match=words):
        read_safetensors(written(tmp_path / "a.safetensors", header, b"\0" * 4))


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\xff" * 8, (99).to_bytes(8, "little") + b"{}"])
def test_what_is_cut_short_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(BadFile, match="cut short"):
        read_safetensors(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_safetensors(tmp_path / "a.safetensors")
