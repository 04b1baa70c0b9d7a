"""The ledger of file states: what changed is read again, what did not is not."""

from __future__ import annotations

import hashlib
import os
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from heldout.core.errors import MismatchError
from heldout.core.workspace import Workspace
from heldout.data.images import FolderSource, MemorySource, TarSource, ZipSource
from heldout.models.predictions import PredictionStore
from heldout.models.predictions.ledger import RACY_NS, Ledger
from heldout.models.predictions.pixels import ImageFiles, image_files
from heldout.models.predictions.run_models import plan_predictions, predict

from .running_case import ColourModel, make_set


class Counting(FolderSource):
    """A folder that remembers which files were opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open(self, image_id: str):  # type: ignore[no-untyped-def]
        self.opened.append(image_id)
        return super().open(image_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files."""
    root = tmp_path / "files"
    root.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        (root / name).write_bytes(name.encode())
    return root


def now(root: Path, place: Workspace) -> tuple[list[str | None], list[str]]:
    """Digests of the files, and which were opened for them."""
    source = Counting(root)
    names = ["a.png", "b.png", "c.png"]
    return Ledger(ImageFiles(source, names, [None] * 3), place).digests(), sorted(source.opened)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the ledger goes a minute ahead of that of the files."""
    true = time.time_ns
    monkeypatch.setattr("heldout.models.predictions.ledger.time_ns", lambda: true() + 30 * RACY_NS)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_only_what_changed_is_read(folder: Path, tmp_path: Path, later: None) -> None:
    place = Workspace(tmp_path)
    expected = [sha(b"a.png"), sha(b"b.png"), sha(b"c.png")]
    assert now(folder, place) == (expected, ["a.png", "b.png", "c.png"])
    assert now(folder, place) == (expected, [])
    (folder / "b.png").write_bytes(b"other")
    assert now(folder, place) == ([expected[0], sha(b"other"), expected[2]], ["b.png"])
    kept = (folder / "c.png").stat()
    (folder / "c.png").write_bytes(b"c.gif")  # the same length, and then the same time of change
    os.utime(folder / "c.png", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert now(folder, place) == ([expected[0], sha(b"other"), sha(b"c.gif")], ["c.png"])
    (folder / "a.png").unlink()
    assert now(folder, place) == ([None, sha(b"other"), sha(b"c.gif")], [])


def test_files_of_this_moment_are_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workspace(tmp_path)
    written = max((folder / name).stat().st_ctime_ns for name in ("a.png", "b.png", "c.png"))
    every = ["a.png", "b.png", "c.png"]
    monkeypatch.setattr("heldout.models.predictions.ledger.time_ns", lambda: written + RACY_NS // 2)
    assert now(folder, place)[1] == every and now(folder, place)[1] == every
    monkeypatch.setattr("heldout.models.predictions.ledger.time_ns", lambda: written + 2 * RACY_NS)
    assert now(folder, place)[1] == every and now(folder, place)[1] == []


@pytest.mark.parametrize("damage", ["lost", "empty", "cut", "flipped", "other"])
def test_a_damaged_ledger_only_costs_reading(
    folder: Path, tmp_path: Path, later: None, damage: str
) -> None:
    place = Workspace(tmp_path)
    expected = now(folder, place)[0]
    (file,) = (tmp_path / "ledger").iterdir()
    data = file.read_bytes()
    if damage == "lost":
        file.unlink()
    elif damage == "other":
        other = b'{"a.png": 1}'
        file.write_bytes(sha(other).encode() + b"\n" + other)
    elif damage == "flipped":
        at = data.index(sha(b"b.png").encode())
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    else:
        file.write_bytes(data[: len(data) // 2 if damage == "cut" else 0])
    assert now(folder, place) == (expected, ["a.png", "b.png", "c.png"])
    assert now(folder, place) == (expected, [])


def test_a_ledger_that_cannot_be_written_is_done_without(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("in the way")
    assert now(folder, Workspace(tmp_path))[0] == [sha(b"a.png"), sha(b"b.png"), sha(b"c.png")]


def test_archives_count_as_one_file(folder: Path, tmp_path: Path, later: None) -> None:
    place = Workspace(tmp_path)
    tar, packed = tmp_path / "x.tar", tmp_path / "x.zip"

    def write(data: bytes) -> None:
        (folder / "b.png").write_bytes(data)
        with tarfile.open(tar, "w") as archive:
            archive.add(folder, ".")
        with zipfile.ZipFile(packed, "w") as compressed:
            for path in sorted(folder.iterdir()):
                compressed.write(path, path.name)

    for data in (b"one", b"two"):
        write(data)
        for source in (TarSource(tar), ZipSource(packed)):
            files = ImageFiles(source, ["b.png", "a.png"], [None, None])
            assert Ledger(files, place).digests() == [sha(data), sha(b"a.png")]
    memory = ImageFiles(MemorySource({"b.png": b"x"}), ["b.png"], [None])
    assert Ledger(memory, place).digests() == [None], "nothing on disk: not checked"


def test_a_run_tells_the_ledger_what_it_read(tmp_path: Path, later: None) -> None:
    testset = make_set(tmp_path, images=20, broken=(7,))
    place = Workspace(tmp_path)
    (run,) = predict(testset, [ColourModel()], workspace=place)
    source = Counting(tmp_path / "files")
    names = testset.images["path"].to_pylist()
    data = [(tmp_path / "files" / name).read_bytes() for name in names]
    assert Ledger(ImageFiles(source, names, [None] * 20), place).digests() == [*map(sha, data)]
    assert source.opened == [], "images are read once, by the run"
    digests = PredictionStore(place.predictions).read(run).digests
    assert digests == [None if row == 7 else sha(one) for row, one in enumerate(data)]


def test_images_that_change_while_a_model_runs(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=20, broken=(), hashed=False)
    place = Workspace(tmp_path)

    class Meddling(ColourModel):
        def __call__(self, pixels):  # type: ignore[no-untyped-def]
            (tmp_path / "files" / "0000.img").write_bytes(
                (tmp_path / "files" / "0001.img").read_bytes()
            )
            return super().__call__(pixels)

    with pytest.raises(MismatchError, match="1 images of colours-1 changed while"):
        predict(testset, [Meddling()], workspace=place, workers=1)
    model = ColourModel()
    predict(testset, [model], workspace=place)
    assert model.calls, "it is run again on the images as they are now"
    assert not plan_predictions(testset, [model], workspace=place).pending


def test_an_interrupted_run_does_not_take_up_parts_of_other_images(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=40, broken=(), hashed=False)
    place = Workspace(tmp_path)

    class Interrupted(ColourModel):
        def __call__(self, pixels):  # type: ignore[no-untyped-def]
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().__call__(pixels)

    with pytest.raises(KeyboardInterrupt):
        predict(testset, [Interrupted()], workspace=place, workers=1)
    files = image_files(testset)
    (tmp_path / "files" / files.names[0]).write_bytes(files.read(1))
    with pytest.raises(MismatchError, match="1 images"):
        predict(testset, [ColourModel()], workspace=place)
    (run,) = predict(testset, [ColourModel()], workspace=place)
    made = PredictionStore(place.predictions).read(run)
    assert made.topk[0].tolist() == made.topk[1].tolist()
