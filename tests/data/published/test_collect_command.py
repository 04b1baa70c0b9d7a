"""``heldout collect`` from end to end: exit codes, records, one line for every fault."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from heldout.data.testset.testset import load
from tests.cli.conftest import Run, run

__all__ = ["run"]
Written = Callable[..., Path]
SCENES = {
    "1": {"width": 10, "height": 10, "objects": {
        "a": {"name": "cat", "x": 0, "y": 0, "w": 5, "h": 5, "attributes": ["black"]},
        "b": {"name": "rug", "x": 0, "y": 0, "w": 1, "h": 1, "attributes": ["red"]}}},
    "2": {"location": "street", "objects": {}},
}  # fmt: skip


def test_a_pool_in_the_workspace(run: Run, written: Written, tmp_path: Path) -> None:
    path = written(SCENES)
    ran = run("collect", "gqa", path, "--name", "small", "-w", tmp_path, "--json")
    assert ran.code == 0
    counts = {record["name"]: record["value"] for record in ran.json}
    assert all(record["record"] == "count" for record in ran.json)
    assert counts["images"] == 2 and counts["object_values"] == 2 and counts["memberships"] == 5
    pool = load(tmp_path / "pools" / "small")
    assert pool.image_ids.to_pylist() == ["1", "2"]
    again = run("collect", "gqa", path, "--name", "small", "-w", tmp_path)
    assert again.code == 0 and "object_values" in again.out and "small: 2 images" in again.out
    other = run("collect", "gqa", path, "--name", "small", "-w", tmp_path, "--min-box-area", "0.1")
    assert other.code == 2 and "another pool" in other.err
    other = run(
        "collect", "gqa", path, "--name", "small", "-w", tmp_path, "--min-box-area", "0.1", "--replace"
    )  # fmt: skip
    assert other.code == 0 and "note: 1 × object below the least box area" in other.err


def test_lost_images_are_said_with_their_own_exit_code(
    run: Run, written: Written, tmp_path: Path
) -> None:
    text = json.dumps(SCENES)
    path = written(text[:-20])
    ran = run("collect", "gqa", path, "-o", tmp_path / "out")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "not valid JSON" in ran.err
    assert not (tmp_path / "out").exists()
    ran = run("collect", "gqa", written({**SCENES, "9": None}), "-o", tmp_path / "out")
    assert ran.code == 3 and "image that is no object" in ran.err
    assert len(load(tmp_path / "out")) == len(SCENES)


def test_options_reach_the_reader(run: Run, written: Written, tmp_path: Path) -> None:
    ran = run(
        "collect", "gqa", written(SCENES), "-o", tmp_path / "out",
        "--ontology", written({"color": ["black"]}, "o.json"),
        "--write-subsets", tmp_path / "s.json",
    )  # fmt: skip
    assert ran.code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == {"color": {"cat": {"black": ["1"]}}}
    table = written("image_id;x\n", "bad.csv")
    assert run("collect", "table", table, "--tag", "t").code == 2
    table = written("image_id,t,f\na,x/y,true\n", "good.csv")
    ran = run(
        "collect", "table", table, "--tag", "t=object", "--separator", "t=/", "--tag", "f",
        "--name", "t", "-w", tmp_path,
    )  # fmt: skip
    assert ran.code == 0
    rows = load(tmp_path / "pools" / "t").memberships.to_pylist()
    assert {(row["column"], row["value"]) for row in rows} == {
        ("object", "x"), ("object", "y"), ("tag", "f"),
    }  # fmt: skip


def test_faults_are_one_line(run: Run, written: Written, tmp_path: Path) -> None:
    evil = tmp_path / "evil.pkl"
    evil.write_bytes(pickle.dumps(print))
    for arguments in (
        ("nonsense", written(SCENES)),
        ("gqa", tmp_path / "no.json"),
        ("gqa", written("", "empty.json")),
        ("gqa", written(SCENES), "--vocabulary", "object"),
        ("gqa", written(SCENES), "--min-box-area", "7"),
        ("gqa", written(SCENES), "--name", "a/b"),
        ("metashift", evil),
        ("coco", written(SCENES)),
        ("table", written("image_id\na\n", "x.csv")),
    ):
        ran = run("collect", *arguments, "-w", tmp_path)
        assert ran.code == 2 and ran.err.startswith("error: ") and ran.err.count("\n") == 1


@pytest.mark.shared
def test_the_published_subsets(run: Run, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "metashift" / "attributes-candidate-subsets.pkl"
    ran = run("collect", "metashift", path, "--name", "m", "-w", tmp_path, "--json")
    counts = {record["name"]: record["value"] for record in ran.json}
    assert ran.code == 0 and counts == {
        "images": 59_663, "memberships": 321_526, "attribute_memberships": 172_039,
        "attribute_values": 4962, "object_memberships": 149_487, "object_values": 337,
    }  # fmt: skip
