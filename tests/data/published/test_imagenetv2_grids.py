"""ImageNetV2's candidate lists and grids come back as equal JSON; what is wrong is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import BadFile
from heldout.data.published.imagenetv2_grids import (
    read_candidates,
    read_grids,
    write_candidates,
    write_grids,
)


def grid(**other: Any) -> dict[str, Any]:
    return {
        "wnid": "n01440764",
        "images_to_label": ["a", "é"],
        "images_pos_control": ["p"],
        "images_neg_control": [],
        "images_all": ["p", "é", "a"],
        "user": "ubuntu",
        "uuid": "0481ea9c-6c76-4fce-8fa1-2de957c869b2",
        "time": "2018-09-19 06:27:13.214105+00:00",
        "submitted": True,
        "hit_id": "3NZ1",
        "hit_type_id": "3PS3",
    } | other


def test_files_come_back(tmp_path: Path) -> None:
    path, again = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text(json.dumps([grid(), grid(wnid="n01443537", submitted=False)]))
    write_grids(again, read_grids(path))
    assert json.loads(again.read_text()) == json.loads(path.read_text())
    path.write_text(json.dumps(["b", "a", "é"]))
    write_candidates(again, read_candidates(path))
    assert json.loads(again.read_text()) == ["b", "a", "é"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "Expected"),
        ([grid(colour="red")], "unknown field 'colour'"),
        ([{k: v for k, v in grid().items() if k != "uuid"}], "uuid"),
        ([grid(images_all=["p", "a", "a"])], "0481ea9c-6c76-4fce-8fa1-2de957c869b2"),
        ([grid(submitted="yes")], "submitted"),
    ],
)
def test_a_wrong_file_of_grids_is_refused(tmp_path: Path, value: Any, said: str) -> None:
    path = tmp_path / "hits.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadFile, match=said):
        read_grids(path)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": "b"}, "Expected"),
        (["a", 1], "Expected"),
        (["a", "b", "a"], "lists candidate 'a' twice"),
    ],
)
def test_a_wrong_list_of_candidates_is_refused(tmp_path: Path, value: Any, said: str) -> None:
    path = tmp_path / "candidates.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadFile, match=said):
        read_candidates(path)


@pytest.mark.shared
def test_the_published_files_come_back(shared_data: Path, tmp_path: Path) -> None:
    folder, again = shared_data / "imagenetv2", tmp_path / "again.json"
    for path in sorted((folder / "hits").glob("*.json")):
        write_grids(again, read_grids(path))
        assert again.read_bytes() == path.read_bytes()
    for path in sorted((folder / "hit_candidates").glob("*.json")):
        write_candidates(again, read_candidates(path))
        assert again.read_bytes() == path.read_bytes()
