"""Several pools as one."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from heldout.data.testset import load
from tests.cli.conftest import Run, run

__all__ = ["run"]
PETS = {"schema_version": 1, "name": "pets", "classes": [{"id": "cat"}, {"id": "dog"}]}


def world(run: Run, folder: Path) -> None:
    """A pool of a list of addresses, and two of folders."""
    (folder / "pets.json").write_text(json.dumps(PETS))
    (folder / "list.csv").write_text(
        "uri,class_id,licence,owner\n"
        "http://a.org/1.jpg,cat,CC0-1.0,me\nhttp://a.org/2.jpg,dog,CC-BY-4.0,you\n"
    )
    for n, place in enumerate(("ours/cat/1.png", "ours/dog/2.png", "theirs/dog/3.png")):
        (folder / "photos" / place).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8 + n, 6)).save(folder / "photos" / place)
    for source, path, name in (
        ("addresses", "list.csv", "listed"),
        ("folders", "photos/ours", "ours"),
        ("folders", "photos/theirs", "theirs"),
    ):
        ran = run(
            "collect", source, folder / path, "--classes", folder / "pets.json",
            "--name", name, "-w", folder,
        )  # fmt: skip
        assert ran.code == 0, ran.err


def test_addresses_and_folders_become_one_pool(run: Run, tmp_path: Path) -> None:
    world(run, tmp_path)
    ran = run("collect", "pools", "listed", "ours", "theirs", "--name", "all", "-w", tmp_path)
    assert ran.code == 0, ran.err
    pool = load(tmp_path / "pools" / "all")
    assert list(pool.class_of_images().values()) == ["cat", "dog", "cat", "dog", "dog"]
    assert pool.images["licence"].to_pylist() == ["CC0-1.0", "CC-BY-4.0", None, None, None]
    assert pool.images["owner"].to_pylist()[:2] == ["me", "you"]
    paths = pool.images["path"].to_pylist()
    assert paths[:2] == [None, None] and paths[2:] == [
        "ours/cat/1.png",
        "ours/dog/2.png",
        "theirs/dog/3.png",
    ]
    assert [(pool.images_folder() / path).is_file() for path in paths[2:]] == [True] * 3
    assert pool.card.facts["counts"] == {"pools": 3, "duplicates": 0, "images": 5}
    assert [each["name"] for each in pool.card.facts["pools"]] == ["listed", "ours", "theirs"]


def test_an_image_of_several_pools_is_there_once(run: Run, tmp_path: Path) -> None:
    world(run, tmp_path)
    ran = run("collect", "pools", "listed", "ours", "listed", "--name", "all", "-w", tmp_path)
    assert ran.code == 0, ran.err
    pool = load(tmp_path / "pools" / "all")
    assert len(pool) == 4 and pool.card.facts["counts"]["duplicates"] == 2
    assert pool.images["path"].to_pylist()[2:] == ["cat/1.png", "dog/2.png"]


def test_what_cannot_be_joined(run: Run, tmp_path: Path) -> None:
    world(run, tmp_path)
    ran = run("collect", "folders", tmp_path / "photos/theirs", "--name", "named", "-w", tmp_path)
    assert ran.code == 0
    for pools, said in (
        (("ours", "named"), "pools ours and named have different classes"),
        (("ours", "missing"), "no pool 'missing'"),
        (("ours",), "PATHS"),
    ):
        ran = run("collect", "pools", *pools, "--name", "all", "-w", tmp_path)
        assert ran.code == 2 and said in ran.err and ran.err.count("\n") == 1, ran.err
    Image.new("RGB", (30, 30)).save(tmp_path / "photos/theirs/dog/2.png")
    ran = run(
        "collect", "folders", tmp_path / "photos/theirs", "--name", "more", "-w", tmp_path,
        "--classes", tmp_path / "pets.json",
    )  # fmt: skip
    ran = run("collect", "pools", "ours", "more", "--name", "all", "-w", tmp_path)
    assert ran.code == 2 and "two different candidates 'dog/2.png'" in ran.err
