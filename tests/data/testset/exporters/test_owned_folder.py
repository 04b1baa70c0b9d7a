"""Tests of :mod:`heldout.data.testset.exporters.owned_folder`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.data.testset.exporters.owned_folder import (
    Mode,
    Placement,
    find_image_file,
    place_files,
    write_documents,
)

# documents


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_written_once_and_never_over_anything_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one, two = {"a.csv": "1\n", "b.csv": "2\n"}, {"a.csv": "3\n"}
    assert write_documents(out, one, kind="split", about={"rule": 1})
    assert not write_documents(out, one, kind="split", about={"rule": 1})
    with pytest.raises(ExistsError, match="holds another split"):
        write_documents(out, two, kind="split", about={"rule": 1})
    with pytest.raises(ExistsError, match="holds another split"):
        write_documents(out, one, kind="split", about={"rule": 2})
    assert write_documents(out, two, kind="split", about={}, replace=True)
    assert sorted(files(out)) == ["a.csv", "split.json"]
    assert files(out)["a.csv"] == "3\n"
    (out / "mine.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(ExistsError, match=r"mine\.txt is not as it was written"):
            write_documents(out, two, kind="split", about={}, replace=replace)
    assert files(out)["mine.txt"] == "mine"


def test_a_document_that_was_changed_is_written_again_only_if_asked(tmp_path: Path) -> None:
    out, one = tmp_path / "out", {"a.csv": "1\n", "b.csv": "2\n"}
    write_documents(out, one, kind="split", about={})
    (out / "b.csv").write_text("my own\n")
    with pytest.raises(ExistsError, match=r"b\.csv is not as it was written"):
        write_documents(out, one, kind="split", about={})
    assert files(out)["b.csv"] == "my own\n"
    write_documents(out, one, kind="split", about={}, replace=True)
    assert files(out)["b.csv"] == "2\n"


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("mine\n")
    for replace in (False, True):
        for place in (tmp_path, tmp_path / "groups.csv"):
            with pytest.raises(ExistsError, match="not the folder of an earlier split"):
                write_documents(place, {"a.csv": "1"}, kind="split", about={}, replace=replace)
    assert files(tmp_path) == {"groups.csv": "mine\n"}


# placed files


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.jpg").write_bytes(f"picture {name}".encode())
    return folder


def placements(images: Path, *names: str, folder: str = "cat(sofa)") -> list[Placement]:
    return [
        Placement(image_id=name, file=images / f"{name}.jpg", folders=("cat", folder))
        for name in names
    ]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "placed.json"
    }


@pytest.mark.parametrize("mode", get_args(Mode))
def test_files_are_placed_and_again_is_no_change(tmp_path: Path, images: Path, mode: Mode) -> None:
    out = tmp_path / "out"
    placed = place_files(out, placements(images, "a", "b"), mode=mode)
    assert (placed.made, placed.kept, placed.removed) == (2, 0, 0)
    assert tree(out) == {"cat/cat(sofa)/a.jpg": b"picture a", "cat/cat(sofa)/b.jpg": b"picture b"}
    link = out / "cat/cat(sofa)/a.jpg"
    assert link.is_symlink() == (mode == "link")
    assert link.samefile(images / "a.jpg") == (mode != "copy")
    again = place_files(out, placements(images, "b", "a"), mode=mode)
    assert (again.made, again.kept, again.removed) == (0, 2, 0)


def test_links_are_relative_and_move_with_the_images(tmp_path: Path, images: Path) -> None:
    place_files(tmp_path / "out", placements(images, "a"))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(tmp_path / "out", moved / "out")
    shutil.move(images, moved / "images")
    assert (moved / "out/cat/cat(sofa)/a.jpg").read_bytes() == b"picture a"


@pytest.mark.parametrize("mode", get_args(Mode))
def test_another_layout_replaces_only_what_was_placed(
    tmp_path: Path, images: Path, mode: Mode
) -> None:
    out = tmp_path / "out"
    place_files(out, placements(images, "a", "b", "c"), mode=mode)
    mine = out / "cat/cat(sofa)/notes.txt"
    mine.write_text("mine")
    (out / "own.txt").write_text("mine too")
    changed = out / "cat/cat(sofa)/c.jpg"
    changed.unlink()
    changed.write_bytes(b"what I drew")
    with pytest.raises(ExistsError, match="3 files that are not wanted now"):
        place_files(out, placements(images, "d", folder="cat(bed)"), mode=mode)
    assert len(tree(out)) == 5
    placed = place_files(out, placements(images, "d", folder="cat(bed)"), mode=mode, replace=True)
    assert (placed.made, placed.removed) == (1, 2)
    assert placed.notes == (
        "cat/cat(sofa)/c.jpg was changed since it was placed, and is left alone",
    )
    assert tree(out) == {
        "own.txt": b"mine too",
        "cat/cat(sofa)/notes.txt": b"mine",
        "cat/cat(sofa)/c.jpg": b"what I drew",
        "cat/cat(bed)/d.jpg": b"picture d",
    }
    assert {path.name for path in images.iterdir()} == {f"{n}.jpg" for n in "abcd"}


def test_folders_that_became_empty_go(tmp_path: Path, images: Path) -> None:
    out = tmp_path / "out"
    place_files(out, placements(images, "a"))
    place_files(out, placements(images, "b", folder="cat(bed)"), replace=True)
    assert sorted(p.name for p in (out / "cat").iterdir()) == ["cat(bed)"]


def test_a_file_in_the_way_is_refused_before_anything_is_done(tmp_path: Path, images: Path) -> None:
    out = tmp_path / "out"
    (out / "cat/cat(sofa)").mkdir(parents=True)
    (out / "cat/cat(sofa)/b.jpg").write_bytes(b"mine")
    for replace in (False, True):
        with pytest.raises(ExistsError, match=r"b\.jpg is there and was not placed by heldout"):
            place_files(out, placements(images, "a", "b"), replace=replace)
    assert tree(out) == {"cat/cat(sofa)/b.jpg": b"mine"}
    dangling = out / "cat/cat(sofa)/a.jpg"
    dangling.symlink_to("nowhere")
    with pytest.raises(ExistsError, match=r"a\.jpg"):
        place_files(out, placements(images, "a"))


def test_a_link_is_never_followed_when_removed(tmp_path: Path, images: Path) -> None:
    """A folder of links into a folder of links: only the outer links are ours."""
    out = tmp_path / "out"
    place_files(out, placements(images, "a"))
    place_files(out, [], replace=True)
    assert tree(out) == {} and (images / "a.jpg").read_bytes() == b"picture a"


def test_an_interrupted_run_goes_on(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    real = Path.symlink_to

    def fails(self: Path, target: str, target_is_directory: bool = False) -> None:
        if self.name == "b.jpg":
            raise KeyboardInterrupt
        real(self, target, target_is_directory)

    monkeypatch.setattr(Path, "symlink_to", fails)
    with pytest.raises(KeyboardInterrupt):
        place_files(out, placements(images, "a", "b", "c"))
    monkeypatch.undo()
    placed = place_files(out, placements(images, "a", "b", "c"))
    assert (placed.made, placed.kept) == (2, 1)


def test_a_full_disk_is_a_failure_of_that_image(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.copyfile

    def fails(source: Path, target: Path) -> object:
        if source.name == "b.jpg":
            raise OSError("no space left")
        return real(source, target)

    monkeypatch.setattr(shutil, "copyfile", fails)
    placed = place_files(tmp_path / "out", placements(images, "a", "b"), mode="copy")
    assert placed.made == 1
    assert [(f.image_id, f.reason) for f in placed.failures] == [("b", "no space left")]


def test_names_that_clash_or_lead_elsewhere(tmp_path: Path, images: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.jpg").write_bytes(b"another")
    out = tmp_path / "out"
    both = [*placements(images, "a"), *placements(other, "a")]
    with pytest.raises(UserError, match=r"two images would be placed at cat/cat\(sofa\)/a\.jpg"):
        place_files(out, both)
    cases = [*placements(images, "a"), *placements(images, "a", folder="Cat(sofa)")]
    with pytest.raises(UserError, match="differ only in case"):
        place_files(out, cases)
    escape = Placement(image_id="a", file=images / "a.jpg", folders=("..", "..", "x"))
    assert ".." not in escape.target.split("/")
    assert not out.exists()


def test_a_record_that_leads_elsewhere_is_refused(tmp_path: Path, images: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    record = {"schema_version": 1, "files": {"../images/a.jpg": {"copy": "x"}}}
    (out / "placed.json").write_text(json.dumps(record))
    with pytest.raises(BadFile, match="leads out of the folder"):
        place_files(out, [], replace=True)
    assert (images / "a.jpg").exists()


def test_image_files_are_found_by_path_id_or_ending(tmp_path: Path, images: Path) -> None:
    assert find_image_file(images, "a") == images / "a.jpg"
    assert find_image_file(images, "x", "b.jpg") == images / "b.jpg"
    with pytest.raises(NotFound, match="no file of image 'z'"):
        find_image_file(images, "z")
    with pytest.raises(UserError, match="would lie outside"):
        find_image_file(images, "../images/a.jpg")
