from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from heldout.core.errors import ExistsError, NotFound, UserError
from heldout.core.records import to_dict
from heldout.data.images import MemorySource
from heldout.data.importing.folders import read_folders
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.data.testset.exporters.formats import export
from heldout.data.testset.subset import subset


def manifest(folder: Path) -> list[dict[str, str]]:
    with (folder / "manifest.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("form", ["folders", "index-folders"])
def test_files_manifest_and_hashes(tmp_path: Path, photos: TestSet, form: str) -> None:
    out = tmp_path / "out"
    result = export(photos, out, form=form)
    assert (result.rows, result.copied, result.failures) == (8, 8, ())
    rows = manifest(out)
    assert [row["image_id"] for row in rows] == photos.image_ids.to_pylist()
    for row, digest in zip(rows, photos.images["sha256"].to_pylist(), strict=True):
        data = (out / row["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"] == digest
        assert photos.label_space.ids[int(row["index"])] == row["class_id"]
        assert row["path"].split("/")[0] == row["class_id" if form == "folders" else "index"]
    record = json.loads((out / "export.json").read_text())
    assert record["files"] == {
        name: hashlib.sha256(data).hexdigest()
        for name, data in files(out).items()
        if name != "export.json"
    }
    assert any("sort as texts" in note for note in result.notes) == (form == "index-folders")
    json.dumps(to_dict(result))


def test_the_folder_imports_again(tmp_path: Path, photos: TestSet) -> None:
    for form in ("folders", "index-folders"):
        out = tmp_path / form
        export(photos, out, form=form)
        back = read_folders(out, name="back", label_space=photos.label_space)
        ours, theirs = (
            sorted(
                zip(
                    made.images["sha256"].to_pylist(),
                    made.truth()["class_id"].to_pylist(),
                    strict=True,
                )
            )
            for made in (photos, back)
        )
        assert ours == theirs


def test_the_same_export_again_writes_nothing(tmp_path: Path, photos: TestSet) -> None:
    out = tmp_path / "out"
    first = export(photos, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = export(photos, out)
    assert again.unchanged and not first.unchanged
    assert (again.rows, again.copied, again.files) == (first.rows, first.copied, first.files)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_something_different_is_refused(tmp_path: Path, photos: TestSet) -> None:
    out = tmp_path / "out"
    export(photos, out)
    before = files(out)
    with pytest.raises(ExistsError, match="another export"):
        export(photos, out, form="index-folders")
    (out / "cat" / "0.jpg").write_bytes(b"mine")
    with pytest.raises(ExistsError, match=r"cat/0\.jpg is not as it was written"):
        export(photos, out)
    export(photos, out, replace=True)
    assert files(out) == before
    (out / "new.txt").write_text("mine")
    with pytest.raises(ExistsError, match=r"new\.txt"):
        export(photos, out)


def test_what_is_no_export_is_never_replaced(tmp_path: Path, photos: TestSet) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(ExistsError, match="not the folder of an earlier export"):
            export(photos, out, replace=replace)
    (out / "export.json").write_text("{}")
    with pytest.raises(ExistsError, match="not the folder of an earlier export"):
        export(photos, out, replace=True)
    assert (out / "thesis.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "sets"]


def test_missing_and_changed_images_are_listed_and_can_be_mended(
    tmp_path: Path, photos: TestSet
) -> None:
    lost = photos.images_folder() / "cat" / "0.jpg"
    data = lost.read_bytes()
    lost.unlink()
    (photos.images_folder() / "dog" / "2.jpg").write_bytes(b"other")
    out = tmp_path / "out"
    result = export(photos, out)
    assert result.rows == 6
    assert [failure.image_id for failure in result.failures] == ["p0", "p2"]
    assert result.failures[0].reason == f"no image 'p0' in {photos.images_folder()}"
    assert "not those that were recorded" in result.failures[1].reason
    assert len(manifest(out)) == 6
    lost.write_bytes(data)
    assert export(photos, out).rows == 7


def test_no_image_at_all_leaves_nothing(tmp_path: Path, photos: TestSet) -> None:
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UserError, match="no image of photos-1 could be exported, such as p0"):
        export(photos, tmp_path / "out", images=tmp_path / "elsewhere")
    assert not (tmp_path / "out").exists()
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".tmp")] == []


def test_images_from_a_source(
    tmp_path: Path, pets: TestSet, make_picture: Callable[..., bytes]
) -> None:
    data = {image: make_picture(n) for n, image in enumerate(["i1", "i2", "i4", "i5", "i6"])}
    result = export(pets, tmp_path / "out", images=MemorySource(data))
    assert result.copied == 5
    assert [failure.image_id for failure in result.failures] == ["ü/3 «x»"]
    rows = manifest(tmp_path / "out")
    assert rows[0]["sha256"] == hashlib.sha256(data["i1"]).hexdigest()
    assert rows[0]["path"] == "cat/i1.jpg"  # a file without an ending is no image to any loader
    back = read_folders(tmp_path / "out", name="back", label_space=pets.label_space)
    assert len(back) == 5


def test_classes_without_an_image_are_counted(tmp_path: Path, photos: TestSet) -> None:
    assert not any("no image" in note for note in export(photos, tmp_path / "whole").notes)
    some = subset(photos, ["p0", "p2"], name="some", recipe={})  # a cat and a dog, of four classes
    notes = export(some, tmp_path / "some").notes
    assert any(note.startswith("2 classes have no image") for note in notes)


def test_manifest_alone(tmp_path: Path, pets: TestSet) -> None:
    with pytest.raises(NotFound, match="no images on disk"):
        export(pets, tmp_path / "out")
    result = export(pets, tmp_path / "out", copy_images=False)
    assert (result.rows, result.copied) == (6, 0)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.csv",
        "export.json",
        "attributions.csv",
    }


def test_hostile_class_ids_and_paths_stay_inside(
    tmp_path: Path, make_picture: Callable[..., bytes]
) -> None:
    space = LabelSpace.from_ids("x", ["..", "a/b", ".hidden", "plain"])
    ids = ["../../out.jpg", "/etc/x.jpg", "c", "d"]
    made = make_testset(
        Card(name="evil", label_space="x"),
        images=image_table({"image_id": ids, "licence": ["CC0"] * 4}),
        truths={"original": truth_table(ids, list(space.ids))},
        label_space=space,
    )

    class Anything:
        def ids(self) -> list[str]:
            return ids

        def open(self, image_id: str):  # type: ignore[no-untyped-def]
            import io

            return io.BytesIO(make_picture(len(image_id)))

    out = tmp_path / "deep" / "out"
    assert export(made, out, images=Anything()).copied == 4
    assert {p.name for p in tmp_path.iterdir()} == {"deep"}
    assert {p.name for p in out.parent.iterdir()} == {"out"}
    assert sum(name.count("/") == 1 for name in files(out)) == 4
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "c").write_bytes(make_picture(1))
    result = export(made, tmp_path / "out2", images=folder)
    assert [failure.image_id for failure in result.failures] == [*ids[:2], "d"]


def test_an_image_of_two_classes_is_in_both(
    tmp_path: Path, make_picture: Callable[..., bytes]
) -> None:
    space = LabelSpace.from_ids("x", ["b", "a"])
    made = make_testset(
        Card(name="two", label_space="x"),
        images=image_table({"image_id": ["i.jpg"], "licence": ["CC0"]}),
        truths={"original": truth_table(["i.jpg", "i.jpg"], ["a", "b"])},
        label_space=space,
    )
    source = MemorySource({"i.jpg": make_picture(1)})
    export(made, tmp_path / "out", images=source)
    assert [row["path"] for row in manifest(tmp_path / "out")] == ["b/i.jpg", "a/i.jpg"]


def test_a_failed_image_of_two_classes_is_listed_once(
    tmp_path: Path,
    pets: TestSet,
    make_pets: Callable[..., TestSet],
    make_picture: Callable[..., bytes],
) -> None:
    truth = truth_table(["i1", "i1", "i2"], ["cat", "dog", "dog"])
    made = make_pets(truths={"original": truth})
    source = MemorySource({"i2": make_picture(1)})
    result = export(made, tmp_path / "out", images=source)
    assert result.copied == 1
    assert [failure.image_id for failure in result.failures].count("i1") == 1


def test_classes_that_no_folder_may_be_called_import_again(
    tmp_path: Path, make_picture: Callable[..., bytes]
) -> None:
    names = [
        "a/b",
        "100%",
        ".hidden",
        "end.",
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
        "cafe\u0301",
    ]
    names += ["crane (bird)", "x, y", "007", "7", "Cat", "cat", "CON?"]
    space = LabelSpace.from_ids("odd", names)
    ids = [f"i{n}" for n in range(len(names))]
    data = {image: make_picture(n) for n, image in enumerate(ids)}
    testset = make_testset(
        Card(name="odd", label_space="odd"),
        images=image_table({"image_id": ids, "licence": ["CC0"] * len(ids)}),
        truths={"original": truth_table(ids, names)},
        label_space=space,
    )
    export(testset, tmp_path / "out", images=MemorySource(data))
    back = read_folders(tmp_path / "out", name="odd", label_space=space, names="id")
    found = dict(
        zip(
            (Path(image).stem for image in back.image_ids.to_pylist()),
            back.truth()["class_id"].to_pylist(),
            strict=True,
        )
    )
    assert found == dict(zip(ids, names, strict=True))
