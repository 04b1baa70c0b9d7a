from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heldout.core.errors import NotFound
from heldout.data.testset import Card, TestSet, add_truth, image_table, load, save, truth_table
from heldout.data.testset.verify import verify


def found(folder: Path, **options: bool) -> list[tuple[str, str, str]]:
    return [(f.check, f.severity, f.file) for f in verify(folder, **options).findings]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def folder(photos: TestSet) -> Path:
    assert photos.folder is not None
    return photos.folder


def test_an_untouched_set_has_no_findings(folder: Path) -> None:
    result = verify(folder)
    assert result.findings == ()
    assert result.ok
    assert (result.name, result.tables, result.images) == ("photos-1", 2, 8)
    assert result.to_dict()["ok"] is True
    json.dumps(result.to_dict())


def test_a_set_without_images_is_verified_too(tmp_path: Path, pets: TestSet) -> None:
    save(pets, tmp_path / "pets-a-1")
    result = verify(tmp_path / "pets-a-1")
    assert (result.findings, result.tables, result.images) == ((), 4, 0)


def test_an_added_truth_verifies(tmp_path: Path, pets: TestSet) -> None:
    saved = save(pets, tmp_path / "pets-a-1")
    add_truth(saved, "panel", truth_table(["i1"], ["dog"]), provenance={})
    assert verify(tmp_path / "pets-a-1").findings == ()


def test_nothing_is_modified(folder: Path) -> None:
    (folder / "images" / "cat" / "0.jpg").write_bytes(b"x")
    (folder / ".tmp-1-card.json").write_text("{")
    before = snapshot(folder)
    assert not verify(folder).ok
    assert snapshot(folder) == before


def test_changed_rows(folder: Path) -> None:
    table = pq.read_table(folder / "images.parquet")
    position = table.column_names.index("domain")
    pq.write_table(
        table.set_column(position, "domain", pa.array(["in"] * 8)), folder / "images.parquet"
    )
    assert found(folder) == [("table", "error", "images.parquet")]


def test_other_row_order_or_compression_is_no_change(folder: Path) -> None:
    table = pq.read_table(folder / "images.parquet")
    pq.write_table(
        table.take(list(range(7, -1, -1))), folder / "images.parquet", compression="gzip"
    )
    assert found(folder) == []


def test_changed_ids_are_seen(folder: Path) -> None:
    table = pq.read_table(folder / "images.parquet")
    renamed = pa.array(["new", *table["image_id"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "image_id", renamed), folder / "images.parquet")
    assert found(folder) == [("rows", "error", "card.json")]


@pytest.mark.parametrize("name", ["images.parquet", "truth/original.parquet"])
def test_missing_and_broken_tables(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-20])
    assert ("table", "error", name) in found(folder)
    (folder / name).unlink()
    assert ("table", "error", name) in found(folder)


def test_unknown_classes_and_repeated_keys(folder: Path) -> None:
    ids = [f"p{n}" for n in range(8)]
    pq.write_table(truth_table(ids, ["cow"] * 8), folder / "truth" / "original.parquet")
    messages = [f.message for f in verify(folder).findings]
    assert any("'cow'" in message for message in messages)
    twice = pa.concat_tables([truth_table(["p0"], ["cat"])] * 2)
    pq.write_table(twice, folder / "truth" / "original.parquet")
    assert any("twice" in f.message for f in verify(folder).findings)


def test_card_that_lies(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps({**card, "counts": {"images": 9}}))
    assert found(folder) == [("card", "error", "card.json")]
    del card["check"]  # as in cards of before there was one
    (folder / "card.json").write_text(json.dumps({**card, "content_hash": "0" * 64}))
    assert found(folder) == [("card", "error", "card.json")]
    tables = {**card["tables"], "truth/ghost": "0" * 64}
    (folder / "card.json").write_text(json.dumps({**card, "tables": tables}))
    assert found(folder) == [
        ("table", "error", "truth/ghost.parquet"),
        ("card", "error", "card.json"),
    ]
    (folder / "card.json").write_text("{")
    assert found(folder) == [("card", "error", "card.json")]


def test_label_space_swapped_or_missing(folder: Path) -> None:
    (folder / "label_space.json").unlink()
    assert found(folder) == [("rows", "error", "card.json")]


def test_image_files(folder: Path, make_picture: Callable[..., bytes]) -> None:
    images = folder / "images"
    (images / "cat" / "0.jpg").unlink()
    (images / "cat" / "1.jpg").write_bytes(make_picture(99))
    (images / "extra.jpg").write_bytes(make_picture(98))
    result = verify(folder)
    assert [(f.check, f.file, f.message) for f in result.findings] == [
        ("image", "images/cat/0.jpg", "is missing"),
        ("image", "images/cat/1.jpg", "its bytes are not those that were recorded"),
        ("extra", "images/extra.jpg", "not an image of the set"),
    ]
    assert not result.ok
    assert found(folder, images=False) == []


@pytest.fixture
def unhashed(tmp_path: Path, make_pets: Callable[..., TestSet]) -> Callable[..., Path]:
    """A set with one file whose hash was not recorded, only its size."""

    def build(path: str, data: bytes, width: int = 8, height: int = 6) -> Path:
        images = image_table(
            {"image_id": ["i1"], "path": [path], "width": [width], "height": [height]}
        )
        made = make_pets(
            card=Card(name="one", label_space="pets", images_root="images"),
            images=images,
            truths={"original": truth_table(["i1"], ["cat"])},
            memberships=None,
        )
        save(made, tmp_path / "one", replace=True)
        (tmp_path / "one" / "images").mkdir(exist_ok=True)
        if "/" not in path:
            (tmp_path / "one" / "images" / path).write_bytes(data)
        return tmp_path / "one"

    return build


def test_wrong_size_and_broken_images(
    unhashed: Callable[..., Path], make_picture: Callable[..., bytes]
) -> None:
    whole = make_picture(1, size=(64, 48))
    assert verify(unhashed("a.jpg", whole, 64, 48)).findings == ()
    (wrong,) = verify(unhashed("a.jpg", whole, 64, 49)).findings
    assert wrong.message == "is 64x48 pixels, recorded as 64x49"
    (cut,) = verify(unhashed("a.jpg", whole[: len(whole) // 2], 64, 48)).findings
    assert cut.message.startswith("is truncated")
    (no_image,) = verify(unhashed("a.jpg", b"<html>404</html>")).findings
    assert no_image.message.startswith("is unsupported")
    (empty,) = verify(unhashed("a.jpg", b"")).findings
    assert empty.message.startswith("is empty")


@pytest.mark.parametrize("path", ["../../secret.jpg", "/etc/passwd", "a/../../b.jpg", "..\\b.jpg"])
def test_paths_that_lead_out_are_not_opened(unhashed: Callable[..., Path], path: str) -> None:
    folder = unhashed(path, b"")
    (finding,) = verify(folder).findings
    assert finding.message == "its path leads out of the images folder"


def test_extra_files_and_leftovers(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    pq.write_table(truth_table(["p0"], ["dog"]), folder / "truth" / "half.parquet")
    (folder / "truth" / ".tmp-77-real.parquet").write_bytes(b"half")
    (folder.parent / ".tmp-88888888888888888888888888888888-old-photos-1").mkdir()
    (folder.parent / ".tmp-77777777777777777777777777777777-photos-1").mkdir()
    (folder.parent / ".tmp-99-other").mkdir()
    result = verify(folder)
    assert [(f.check, f.severity, f.file) for f in result.findings] == [
        ("extra", "warning", "notes.txt"),
        ("extra", "warning", "truth/half.parquet"),
        ("leftover", "warning", "truth/.tmp-77-real.parquet"),
        ("leftover", "warning", "../.tmp-77777777777777777777777777777777-photos-1"),
        ("leftover", "warning", "../.tmp-88888888888888888888888888888888-old-photos-1"),
    ]
    assert result.ok


def test_memberships_that_the_card_does_not_know(folder: Path, pets: TestSet) -> None:
    pq.write_table(pets.memberships, folder / "memberships.parquet")
    assert found(folder) == [("extra", "warning", "memberships.parquet")]
    assert len(load(folder).memberships) == 0


def test_renamed_folder(folder: Path) -> None:
    folder.rename(folder.parent / "holiday")
    assert found(folder.parent / "holiday") == [("card", "warning", "card.json")]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        verify(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert found(tmp_path / "empty") == [("card", "error", "card.json")]


def test_images_elsewhere_are_not_searched_for_extra_files(
    tmp_path: Path, photos: TestSet, make_picture: Callable[..., bytes]
) -> None:
    copy = save(photos, tmp_path / "photos-1")
    (copy.images_folder() / "other.jpg").write_bytes(make_picture(3))
    assert verify(tmp_path / "photos-1").findings == ()
    assert load(tmp_path / "photos-1").card.images_root == "../sets/photos-1/images"
