from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from heldout.core.errors import BadFile, ExistsError, NotFound
from heldout.core.files import is_temporary
from heldout.core.workspace import Workspace
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import ColumnType, image_table, membership_table, truth_table
from heldout.data.testset.pool import (
    Pool,
    find_pool,
    list_pools,
    load_pool,
    make_pool,
    save_pool,
    verify_pool,
)

SPACE = LabelSpace.from_ids("letters", ["a", "b"])


def example(name: str = "p", *, value: str = "sofa", truths: bool = True) -> Pool:
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


@pytest.mark.parametrize("truths", [True, False])
def test_a_pool_goes_out_and_comes_back(tmp_path: Path, truths: bool) -> None:
    pool = example(truths=truths)
    back = save_pool(pool, tmp_path / "pools" / "p")
    assert back.images.equals(pool.images) and back.memberships.equals(pool.memberships)
    assert set(back.truths) == set(pool.truths) and back.columns == pool.columns
    assert (back.name, back.citation, back.facts) == (pool.name, pool.citation, pool.facts)
    assert back.content_hash == pool.content_hash and back.table_hashes == pool.table_hashes
    assert (back.space is None) == (pool.space is None)
    if truths:
        assert back.truth().equals(pool.truth()) and back.label_space.ids == SPACE.ids
    assert verify_pool(tmp_path / "pools" / "p").content_hash == pool.content_hash
    value = json.loads((tmp_path / "pools" / "p" / "pool.json").read_text())
    assert value["schema_version"] == 1 and value["content_hash"] == pool.content_hash


def test_a_pool_without_memberships(tmp_path: Path) -> None:
    bare = make_pool("bare", images=image_table({"image_id": ["a"]}))
    assert len(save_pool(bare, tmp_path / "bare").memberships) == 0
    assert verify_pool(tmp_path / "bare").content_hash == bare.content_hash


def test_pools_do_not_change(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    save_pool(example(), folder)
    before = (folder / "pool.json").stat().st_mtime_ns
    save_pool(example().reordered(1), folder)  # the same rows
    assert (folder / "pool.json").stat().st_mtime_ns == before
    with pytest.raises(ExistsError, match="holds another pool"):
        save_pool(example(value="bed"), folder)
    assert load_pool(folder).content_hash == example().content_hash
    told = replace(example(), facts={"source": "other"})
    with pytest.raises(ExistsError, match="another account"):
        save_pool(told, folder)
    assert save_pool(told, folder, replace=True).facts == {"source": "other"}
    save_pool(example(value="bed"), folder, replace=True)
    assert load_pool(folder).content_hash == example(value="bed").content_hash
    assert not [path for path in tmp_path.iterdir() if is_temporary(path)]


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("x")
    for folder in ("mine", "file"):
        with pytest.raises(ExistsError, match="is no pool"):
            save_pool(example(), tmp_path / folder, replace=True)
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"
    (tmp_path / "empty").mkdir()
    assert len(save_pool(example(), tmp_path / "empty")) == 3


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    save_pool(example(), tmp_path / "p")
    monkeypatch.setattr("heldout.data.testset.pool.write_json", fail)
    for value, name in (("bed", "p"), ("bed", "q")):
        with pytest.raises(KeyboardInterrupt):
            save_pool(example(value=value), tmp_path / name, replace=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p"]
    assert verify_pool(tmp_path / "p").content_hash == example().content_hash


def test_images_stay_where_they_are(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    pool = make_pool("p", images=image_table({"image_id": ["a"]}), images_root=photos)
    back = save_pool(pool, tmp_path / "pools" / "p")
    assert back.images_root is not None and back.images_root.resolve() == photos.resolve()
    stated = json.loads((tmp_path / "pools" / "p" / "pool.json").read_text())["images_root"]
    assert stated == "../../photos"
    shutil.move(tmp_path / "pools", tmp_path / "other")
    moved = load_pool(tmp_path / "other" / "p").images_root
    assert moved is not None and moved.resolve() == photos.resolve()


def test_damage_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    save_pool(example(), folder)
    rows = pq.read_table(folder / "memberships.parquet", partitioning=None)
    changed = membership_table([("1", "object", "bed"), ("3", "object", "cat")])
    pq.write_table(changed, folder / "memberships.parquet")
    assert len(load_pool(folder)) == 3  # reading does not hash
    with pytest.raises(BadFile, match=r"memberships\.parquet.*other rows"):
        verify_pool(folder)
    pq.write_table(rows.slice(0, 1), folder / "memberships.parquet")
    with pytest.raises(BadFile, match=r"has 1 rows, pool\.json says 2"):
        load_pool(folder)
    (folder / "memberships.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadFile, match="cannot be read as Parquet"):
        load_pool(folder)
    (folder / "memberships.parquet").unlink()
    with pytest.raises(NotFound):
        load_pool(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "upgrade heldout"),
        ({"schema_version": None}, "no schema_version"),
        ({"rows": {"images": 3}}, "lists other tables"),
        ({"rows": {"images": 3, "memberships": 2, "../../x": 1}}, "lists other tables"),
        ({"tables": []}, "no proper 'tables'"),
        ({"name": 5}, "no proper 'name'"),
        ({"truths": ["../x"], "rows": {"images": 3, "memberships": 2, "truth/../x": 1}}, "is not a name"),
    ],
)  # fmt: skip
def test_a_head_that_is_wrong(tmp_path: Path, change: dict[str, object], said: str) -> None:
    save_pool(example(), tmp_path / "p")
    path = tmp_path / "p" / "pool.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(Exception, match=said):
        load_pool(tmp_path / "p")


def test_pools_of_a_workspace(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    assert list_pools(place) == []
    with pytest.raises(NotFound, match="make one with heldout collect"):
        find_pool(place, "p")
    for name in ("q", "p"):
        save_pool(example(name), place.pools / name)
    (place.pools / "notes").mkdir()
    assert [(head.name, head.rows["images"]) for head in list_pools(place)] == [("p", 3), ("q", 3)]
    assert find_pool(place, "q").name == "q"
    assert find_pool(place, str(place.pools / "p")).name == "p"
    with pytest.raises(NotFound, match="there is p, q"):
        find_pool(place, "r")
