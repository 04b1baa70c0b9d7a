from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import (
    BadFile,
    ExistsError,
    LabelError,
    NotApplicable,
    NotFound,
    UserError,
)
from heldout.core.files import is_temporary
from heldout.core.workspace import Workspace
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import Card, ColumnType, image_table, membership_table, truth_table
from heldout.data.testset.catalogue import find_pool, list_pools
from heldout.data.testset.testset import TestSet, load, make_pool, make_testset, save
from heldout.data.testset.verify import verify

SPACE = LabelSpace.from_ids("letters", ["a", "b"])


def example(name: str = "p", *, value: str = "sofa", truths: bool = True) -> TestSet:
    images = image_table(
        {"image_id": ["1", "x/2", "3"], "width": [5, None, 7], "light": ["day", None, "night"]}
    )
    return make_pool(
        name,
        images=images,
        memberships=membership_table([("1", "object", value), ("3", "object", "cat")]),
        truths={"original": truth_table(["1"], [SPACE.ids[0]])} if truths else None,
        label_space=SPACE if truths else None,
        columns={"light": ColumnType(kind="ordered", order=("day", "night"))},
        citation="someone",
        facts={"source": "test", "counts": {"images": 3}},
    )


BEFORE = """\
{
  "schema_version": 1,
  "name": "p",
  "content_hash": "81c43384b12392c677200aefab9552c68c83720cc5faf21a6323329805277766",
  "tables": {
    "images": "caa9ea0f42e31984b552607fade98b0787756539d4f3499f7e7d42f53e962c27",
    "truth/original": "0820072f1ad02f96390b53acf3b8a4920c1f0399f6195e66cbe2629ff84aef15",
    "memberships": "e2162782d0f55d3dbd0b7d164cc48f4bcd0a1323de8e2d5327e4dfd24fe58a9d"
  },
  "rows": {
    "images": 3,
    "memberships": 2,
    "truth/original": 1
  },
  "truths": [
    "original"
  ],
  "label_space": "letters",
  "columns": {
    "light": {
      "kind": "ordered",
      "order": [
        "day",
        "night"
      ]
    }
  },
  "images_root": null,
  "citation": "someone",
  "facts": {
    "source": "test",
    "counts": {
      "images": 3
    }
  }
}
"""
"""``pool.json`` of the example as it was written when pools were a class of their own."""


def test_a_pool_written_before_opens_and_is_written_the_same(tmp_path: Path) -> None:
    pool, folder = example(), tmp_path / "p"
    (folder / "truth").mkdir(parents=True)
    pq.write_table(pool.images, folder / "images.parquet", compression="zstd")
    pq.write_table(pool.memberships, folder / "memberships.parquet", compression="zstd")
    pq.write_table(pool.truth(), folder / "truth" / "original.parquet", compression="zstd")
    (folder / "label_space.json").write_text(json.dumps(SPACE.to_dict()))
    (folder / "pool.json").write_text(BEFORE)
    back = load(folder)
    assert back.card.facts == pool.card.facts and back.content_hash == pool.content_hash
    assert back.card.stage == "pool" and back.label_space.ids == SPACE.ids
    assert verify(folder).findings == ()
    save(pool, folder)  # nothing new
    save(pool, folder, replace=True)
    made = json.loads((folder / "pool.json").read_text())
    files = made.pop("files")
    assert len(made.pop("check")) == 32 and made == json.loads(BEFORE)
    assert list(files) == [
        "images.parquet", "truth/original.parquet", "memberships.parquet", "label_space.json"
    ]  # fmt: skip


@pytest.mark.parametrize("truths", [True, False])
def test_a_pool_goes_out_and_comes_back(tmp_path: Path, truths: bool) -> None:
    pool = example(truths=truths)
    back = save(pool, tmp_path / "pools" / "p")
    assert back.images.equals(pool.images) and back.memberships.equals(pool.memberships)
    for name in ("name", "columns", "citation", "facts", "tables", "content_hash", "label_space"):
        assert getattr(back.card, name) == getattr(pool.card, name)
    assert (back.space is None) == (pool.space is None) == (not truths)
    assert {name: table.to_pylist() for name, table in back.truths.items()} == {
        name: table.to_pylist() for name, table in pool.truths.items()
    }
    assert verify(tmp_path / "pools" / "p").ok


def test_a_pool_of_images_alone(tmp_path: Path) -> None:
    bare = make_pool("bare", images=image_table({"image_id": ["a", "b"]}))
    assert len(bare) == 2 and bare.image_ids.to_pylist() == ["a", "b"]
    with pytest.raises(NotFound, match="pool bare has no truth 'original'"):
        bare.truth()
    with pytest.raises(NotApplicable, match="no label space"):
        _ = bare.label_space
    assert len(save(bare, tmp_path / "bare").memberships) == 0
    assert verify(tmp_path / "bare").findings == ()


@given(st.integers(0, 1000))
def test_its_hash_knows_no_order_of_rows(seed: int) -> None:
    shuffled = example().reordered(seed)
    assert shuffled.content_hash == example().content_hash
    assert sorted(shuffled.image_ids.to_pylist()) == sorted(example().image_ids.to_pylist())


def test_its_hash_knows_every_table_and_is_that_of_a_test_set() -> None:
    pool = example()
    parts = {
        "images": pool.images,
        "memberships": pool.memberships,
        "truths": pool.truths,
        "label_space": pool.space,
    }
    testset = make_testset(Card(name="set", label_space="letters"), **parts)  # type: ignore[arg-type]
    hashes = {pool.content_hash, testset.content_hash}
    assert len(hashes) == 1
    for change in (
        {"memberships": membership_table([("1", "object", "other")])},
        {"truths": {"original": truth_table(["1"], ["b"])}},
        {"truths": {"again": pool.truth()}},
        {"images": pool.images.drop_columns(["light"])},
    ):
        hashes.add(make_pool("p", **{**parts, **change}).content_hash)  # type: ignore[arg-type]
    assert len(hashes) == 5


def test_tables_that_do_not_belong_together() -> None:
    images = image_table({"image_id": ["a"]})
    truths = {"original": truth_table(["a"], ["x"])}
    with pytest.raises(UserError, match="names image 'z'"):
        make_pool("p", images=images, memberships=membership_table([("z", "c", "v")]))
    with pytest.raises(UserError, match="no label space"):
        make_pool("p", images=images, truths=truths)
    with pytest.raises(LabelError):
        make_pool("p", images=images, truths=truths, label_space=SPACE)
    with pytest.raises(UserError, match="is not a name"):
        make_pool("p/q", images=images)


def test_pools_do_not_change(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    save(example(), folder)
    before = (folder / "pool.json").stat().st_mtime_ns
    save(example().reordered(1), folder)  # the same rows
    assert (folder / "pool.json").stat().st_mtime_ns == before
    with pytest.raises(ExistsError, match="holds another pool"):
        save(example(value="bed"), folder)
    assert load(folder).content_hash == example().content_hash
    told = replace(example(), card=example().card.updated(facts={"source": "other"}))
    with pytest.raises(ExistsError, match="other sources"):
        save(told, folder)
    assert save(told, folder, replace=True).card.facts == {"source": "other"}
    save(example(value="bed"), folder, replace=True)
    assert load(folder).content_hash == example(value="bed").content_hash
    assert not [path for path in tmp_path.iterdir() if is_temporary(path)]


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("x")
    for folder in ("mine", "file"):
        with pytest.raises(ExistsError, match="is not a pool"):
            save(example(), tmp_path / folder, replace=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    (tmp_path / "empty").mkdir()
    assert len(save(example(), tmp_path / "empty")) == 3


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    save(example(), tmp_path / "p")
    monkeypatch.setattr("heldout.data.testset.testset.write_json", fail)
    for value, name in (("bed", "p"), ("bed", "q")):
        with pytest.raises(KeyboardInterrupt):
            save(example(value=value), tmp_path / name, replace=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p"]
    assert verify(tmp_path / "p").ok and load(tmp_path / "p").content_hash == example().content_hash


def test_images_stay_where_they_are(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    pool = make_pool("p", images=image_table({"image_id": ["a"]}), images_root=photos)
    back = save(pool, tmp_path / "pools" / "p")
    assert back.images_root is not None and back.images_root.resolve() == photos.resolve()
    stated = json.loads((tmp_path / "pools" / "p" / "pool.json").read_text())["images_root"]
    assert stated == "../../photos"
    shutil.move(tmp_path / "pools", tmp_path / "other")
    moved = load(tmp_path / "other" / "p").images_root
    assert moved is not None and moved.resolve() == photos.resolve()


def test_a_file_that_never_was_an_image_is_no_damage_of_a_pool(tmp_path: Path) -> None:
    data = b"<html>404</html>"
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(data)
    images = image_table(
        {"image_id": ["a"], "path": ["a.jpg"], "sha256": [hashlib.sha256(data).hexdigest()]}
    )
    pool = make_pool("p", images=images, images_root=tmp_path / "photos")
    chosen = make_testset(
        Card(name="s", label_space="letters", images_root=str(tmp_path / "photos")),
        images=images,
        truths={"original": truth_table(["a"], ["a"])},
        label_space=SPACE,
    )
    severities = []
    for made in (pool, chosen):
        save(made, tmp_path / made.name)
        (found,) = verify(tmp_path / made.name).findings
        assert found.message.startswith("is unsupported")
        severities.append(found.severity)
    assert severities == ["warning", "error"]


def test_damage_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    save(example(), folder)
    rows = pq.read_table(folder / "memberships.parquet", partitioning=None)
    changed = membership_table([("1", "object", "bed"), ("3", "object", "cat")])
    pq.write_table(changed, folder / "memberships.parquet")
    with pytest.raises(BadFile, match=r"memberships.parquet: is damaged"):
        load(folder)
    for table in (changed, rows.slice(0, 1)):
        pq.write_table(table, folder / "memberships.parquet")
        (found,) = verify(folder).findings
        assert (found.file, found.severity) == ("memberships.parquet", "error")
    (folder / "memberships.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadFile, match="cannot be read as Parquet"):
        load(folder)
    (folder / "memberships.parquet").unlink()
    with pytest.raises(NotFound):
        load(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "upgrade heldout"),
        ({"schema_version": None}, "no schema_version"),
        ({"rows": {"images": "3"}}, "rows"),
        ({"tables": []}, "tables"),
        ({"name": 5}, "name"),
        ({"later": 5}, "unknown field 'later'"),
        ({"truths": ["../x"]}, "is not a name"),
    ],
)
def test_a_head_that_is_wrong(tmp_path: Path, change: dict[str, object], said: str) -> None:
    save(example(), tmp_path / "p")
    path = tmp_path / "p" / "pool.json"
    value = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps(value))
    with pytest.raises(BadFile, match="is not as it was written"):
        load(tmp_path / "p")
    del value["check"]
    path.write_text(json.dumps(value))
    with pytest.raises(BadFile, match=said):
        load(tmp_path / "p")


def test_pools_of_a_workspace(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    assert list_pools(place) == []
    with pytest.raises(NotFound, match="make one with heldout collect"):
        find_pool(place, "p")
    for name in ("q", "p"):
        save(example(name), place.pools / name)
    (place.pools / "notes").mkdir()
    assert [(e.card.name, e.card.counts["images"]) for e in list_pools(place)] == [
        ("p", 3),
        ("q", 3),
    ]
    assert find_pool(place, "q").name == "q"
    assert find_pool(place, str(place.pools / "p")).name == "p"
    with pytest.raises(NotFound, match="there is p, q"):
        find_pool(place, "r")
