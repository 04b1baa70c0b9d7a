"""Pools at the command line: listed beside test sets, and verified like them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from heldout.curate.pool_images import folder_pool
from heldout.data.testset import save
from tests.cli.conftest import Run


def test_pools_are_listed_and_verified(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos.csv").write_text("image_id,tags\na,cat|sofa\nb,dog\n")
    assert (
        run("collect", "table", "photos.csv", "--tag", "tags=object", "--separator", "tags=|").code
        == 0
    )
    pools = Path("pools")
    (name,) = [folder.name for folder in pools.iterdir()]
    (listed,) = run("ls", "--json").json
    assert (listed["pool"], listed["images"], listed["source"]) == (name, 2, "table")
    shown = run("ls", "--columns")
    assert shown.code == 0 and name in shown.out and "pool" in shown.out
    for arguments in ((), (name,), (pools / name,)):
        ran = run("verify", *arguments)
        assert ran.code == 0 and ran.out.splitlines()[1].split()[1:] == ["yes", "2", "0"]
    (pools / name / "notes.txt").write_text("mine")
    assert "warning: notes.txt: not part of a pool" in run("verify", name).out
    other = pools / "other"
    shutil.copytree(pools / name, other)
    memberships = pq.read_table(other / "memberships.parquet")
    pq.write_table(memberships.take([1, 1, 2]), other / "memberships.parquet")
    ran = run("verify", "other", "--json")
    assert ran.code == 1
    (found,) = ran.json
    errors = [f["file"] for f in found["findings"] if f["severity"] == "error"]
    assert errors == ["memberships.parquet"]
    (other / "pool.json").unlink()
    assert run("verify", "other").code == 1, "a pool whose pool.json is gone"
    assert run("verify").code == 0, "what is no pool is passed over"


def test_images_of_a_pool_are_looked_at(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number in range(2):
        Image.new("RGB", (4, 4), (number, 9, 9)).save(f"photos/{number}.png")
    Path("photos/2.png").write_bytes(b"no image from the start")
    save(folder_pool(Path("photos")), Path("pools/photos"))
    ran = run("verify", "pools/photos")
    assert ran.code == 0 and ran.out.splitlines()[1].split()[1:] == ["yes", "2", "3"]
    assert "warning: ../../photos/2.png: is unsupported" in ran.out
    Path("photos/1.png").write_bytes(b"something else")
    Path("photos/2.png").unlink()
    ran = run("verify", "pools/photos")
    assert ran.code == 1
    assert "../../photos/1.png: its bytes are not those that were recorded" in ran.out
    assert "error: ../../photos/2.png: is missing" in ran.out
