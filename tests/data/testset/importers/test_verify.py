"""Tests of :mod:`heldout.data.testset.verify`."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.cli.app import invoke
from heldout.core.errors import BadFile, LabelError, MismatchError, NotFound, UserError
from heldout.core.files import sha256_file
from heldout.data.importing import (
    match_images,
    read_cifar,
    read_siscore,
    read_testset,
    write_images,
)
from heldout.data.labels import LabelSpace
from heldout.data.labels.siscore import released_names, released_sets, siscore_names
from heldout.data.published.cifar import png_bytes
from heldout.data.published.siscore import _rows_of_ids
from heldout.data.testset import TestSet, load, save
from heldout.data.testset.verify import verify
from tests.curate.compose import compose_examples as examples
from tests.data.testset.importers.small import lay

# CIFAR-10.1 arrays.


def arrays(folder: Path, n: int = 12, *, stem: str = "cifar10.1_v4") -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    data, labels = folder / f"{stem}_data.npy", folder / f"{stem}_labels.npy"
    np.save(data, rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8))
    np.save(labels, (np.arange(n) % 10).astype(np.int32))
    return data, labels


def test_ids_classes_and_sizes(tmp_path: Path) -> None:
    data, labels = arrays(tmp_path)
    testset = read_cifar(data)
    assert testset.name == "cifar10.1-v4" and testset.card.aliases == ("cifar10.1_v4",)
    assert testset.image_ids[0].as_py() == "cifar10.1_v4/00000"
    assert testset.label_space == LabelSpace.load("cifar-10")
    assert testset.truth()["class_id"].to_pylist()[:3] == ["airplane", "automobile", "bird"]
    assert testset.images["path"].null_count == len(testset) == 12
    assert set(testset.images["width"].to_pylist()) == {32}
    where = testset.card.truths["original"]
    assert (where["kind"], where["version"], where["sha256"]) == (
        "single",
        "v4",
        sha256_file(labels),
    )
    assert read_testset(data).card.content_hash == testset.card.content_hash


def test_written_images_are_the_pixels_and_verify(tmp_path: Path) -> None:
    data, _ = arrays(tmp_path)
    without = read_cifar(data)
    saved = save(read_cifar(data, images=True), tmp_path / "set")
    assert write_images(data, saved.images_folder()) == 12
    pixels = np.load(data)
    for row, path in enumerate(saved.images["path"].to_pylist()):
        with Image.open(saved.images_folder() / path) as image:
            assert image.mode == "RGB"
            assert np.array_equal(np.asarray(image), pixels[row])
    assert verify(tmp_path / "set").ok
    assert saved.card.images_hash == without.card.images_hash  # images or not, the same set


@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (300, 200)])
def test_png_bytes_are_a_png(shape: tuple[int, int], tmp_path: Path) -> None:
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    path = tmp_path / "x.png"
    path.write_bytes(png_bytes(image))
    with Image.open(path) as opened:
        opened.verify()
    with Image.open(path) as opened:
        assert np.array_equal(np.asarray(opened), image)


def test_png_bytes_never_change() -> None:
    image = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    digest = hashlib.sha256(png_bytes(image)).hexdigest()
    assert digest == "664fc93c785dc4c415cee8fde6f7e0ff2c0a5d5b706c8654bde19c935862dceb"


def test_hostile_arrays(tmp_path: Path) -> None:
    data, _ = arrays(tmp_path)
    with pytest.raises(NotFound):
        read_cifar(tmp_path / "no_data.npy")
    with pytest.raises(NotFound, match="call the files"):
        read_cifar(tmp_path / "unnamed.npy")
    cut = tmp_path / "cut_data.npy"
    cut.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(BadFile, match="cannot be read as NumPy"):
        read_cifar(cut)
    (tmp_path / "empty_data.npy").write_bytes(b"")
    with pytest.raises(BadFile):
        read_cifar(tmp_path / "empty_data.npy")
    np.save(tmp_path / "objects_data.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BadFile, match="Python objects"):
        read_cifar(tmp_path / "objects_data.npy")


@pytest.mark.parametrize(
    ("pixels", "pattern"),
    [
        (np.zeros((2, 3, 32, 32), np.uint8), "shape"),
        (np.zeros((2, 32, 32, 3), np.float32), "float32"),
        (np.zeros((2, 32, 32), np.uint8), "shape"),
        (np.zeros((0, 32, 32, 3), np.uint8), "shape"),
    ],
)
def test_wrong_pixels(tmp_path: Path, pixels: np.ndarray, pattern: str) -> None:
    np.save(tmp_path / "x_data.npy", pixels)
    np.save(tmp_path / "x_labels.npy", np.zeros(2, np.int64))
    with pytest.raises(BadFile, match=pattern):
        read_cifar(tmp_path / "x_data.npy")


@pytest.mark.parametrize(
    ("labels", "error", "pattern"),
    [
        (np.zeros(3, np.int64), MismatchError, "3 labels for the 2 images"),
        (np.zeros(2, np.float64), BadFile, "float64"),
        (np.array([np.nan, 1.0]), BadFile, "float64"),
        (np.array([0, 10]), BadFile, "outside 0..9, such as 10 in row 1"),
        (np.array([-1, 1]), BadFile, "such as -1 in row 0"),
        (np.zeros((2, 1), np.int64), BadFile, "shape"),
    ],
)
def test_wrong_labels(
    tmp_path: Path, labels: np.ndarray, error: type[Exception], pattern: str
) -> None:
    np.save(tmp_path / "x_data.npy", np.zeros((2, 4, 4, 3), np.uint8))
    np.save(tmp_path / "x_labels.npy", labels)
    with pytest.raises(error, match=pattern):
        read_cifar(tmp_path / "x_data.npy")


# SI-SCORE's layout comes in by number and by name: nothing is shifted, nothing counted by place.


HEADER = (
    "image_id,x_coord,y_coord,area,rotation,foreground_class,foreground_instance,background,"
    "bg_resolution_width,bg_resolution_height,pct_inside_image"
)
NAMES = ("bagel", "koala", "zebra")


def write_rows(folder: Path, rows: Sequence[str], *, names: Sequence[str] = NAMES) -> Path:
    """The four files of the layout, with rows as they stand in the published one."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, header: str, lines: Sequence[str]) -> None:
        (folder / name).write_bytes("".join(f"{line}\r\n" for line in (header, *lines)).encode())

    write("metadata.csv", HEADER, rows)
    write(
        "foreground_classes_metadata_indices.csv",
        "int,label",
        [f"{i},{name}" for i, name in enumerate(names)],
    )
    known = siscore_names()
    write("foreground_classes.csv", "int,label", [f"{known[n].index},{n}" for n in names])
    write("backgrounds.csv", "int,label", ["0,field.jpg", "1,sky.jpg"])
    return folder


ROWS = (
    "0,0.15000000000000002,0.5,0.2,0,0,0,1,7,5,1.0",
    "3,0.15000000000000002,0.55,0.2,0,1,0,0,7,5,0.9865",
    "10,0.30000000000000004,0.5,0.2,0,2,1,0,7,5,0.5",
)
IMAGES = ("bagel/0.jpg", "koala/3.jpg", "zebra/10.jpg")


def rows_of(testset: TestSet) -> dict[str, dict[str, Any]]:
    return {row["image_id"]: row for row in testset.images.to_pylist()}


def test_a_folder_is_known_by_its_metadata_and_keys_are_rounded(tmp_path: Path) -> None:
    folder = lay(write_rows(tmp_path / "loc", ROWS), IMAGES)
    made = read_testset(folder)
    assert made.name == "loc" and made.card.recipe["name"] == "import/siscore"
    rows = rows_of(made)
    assert [rows[i]["x"] for i in ("bagel/0", "koala/3", "zebra/10")] == [0.15, 0.15, 0.3]
    assert rows["koala/3"] | {"sha256": None} == {
        "image_id": "koala/3", "path": "koala/3.jpg", "uri": None, "sha256": None, "width": 7,
        "height": 5, "source": None, "licence": None, "attribution": None, "weight": None,
        "x": 0.15, "y": 0.55, "size": 0.2, "rotation": 0.0, "object": "koala/0",
        "background": "field.jpg", "inside": 0.9865,
    }  # fmt: skip
    assert all(len(row["sha256"]) == 64 for row in rows.values())
    truth = {row["image_id"]: row["class_id"] for row in made.truth().to_pylist()}
    ids = LabelSpace.load("imagenet-1k").ids
    assert truth == {"bagel/0": ids[931], "koala/3": ids[105], "zebra/10": ids[340]}
    assert made.card.factors == ("x&y",) and made.card.clusters == "object"
    assert made.card.columns["rotation"].period == 360
    assert made.card.columns["y"].axis == "y"
    assert made.card.notes == ()


def test_metadata_alone_is_a_set_without_images(tmp_path: Path) -> None:
    folder = write_rows(tmp_path / "loc", ROWS)
    made = read_testset(folder / "metadata.csv")
    assert made.card.images_root is None and made.card.counts["without_image"] == 3
    assert set(made.images["path"].to_pylist()) == {None}
    assert made.images["width"].to_pylist() == [7, 7, 7]
    assert made.card.notes == ("no images: predictions are joined by image id",)
    # ids as TensorFlow Datasets and robustness_metrics have them: numbers, in any order
    match = match_images(made, ["10", "0", "99", "3"], source="theirs")
    assert match.image_ids == ("zebra/10", "bagel/0", None, "koala/3")
    assert match.missing == 1


def test_what_is_missing_is_reported_and_nothing_moves(tmp_path: Path) -> None:
    folder = lay(write_rows(tmp_path / "loc", ROWS), ("bagel/0.jpg", "zebra/10.jpg", "koala/8.jpg"))
    (folder / "koala" / "notes.txt").write_text("x")
    made = read_siscore(folder)
    rows = rows_of(made)
    assert list(rows) == ["bagel/0", "koala/3", "zebra/10"]
    assert rows["koala/3"]["path"] is None and rows["koala/3"]["y"] == 0.55
    assert rows["zebra/10"]["path"] == "zebra/10.jpg" and rows["zebra/10"]["x"] == 0.3
    counts = made.card.counts
    assert (counts["without_image"], counts["without_row"], counts["other_files"]) == (1, 1, 1)
    assert "1 rows have no image, such as 3: they stay, without a path" in made.card.notes
    assert any("left out, such as koala/8.jpg" in note for note in made.card.notes)


def test_broken_images_are_named(tmp_path: Path) -> None:
    rows = [row.replace(",7,5,", ",512,512,") for row in ROWS]
    folder = lay(write_rows(tmp_path / "loc", rows), IMAGES)
    (folder / "bagel" / "0.jpg").write_bytes(b"")
    made = read_siscore(folder)
    assert made.card.counts["broken"] == 1
    assert rows_of(made)["bagel/0"]["width"] is None
    assert "1 images cannot be read, such as 0" in made.card.notes


def test_the_originals_fault_with_objects_outside_is_mended(tmp_path: Path) -> None:
    rows = ["0,2.0,2.0,0.2,0,0,0,1,7,5,2.9714", "1,0.5,0.5,0.2,0,0,0,1,7,5,1.0"]
    made = read_siscore(write_rows(tmp_path / "s", rows))
    assert made.images["inside"].to_pylist() == [0.0, 1.0]


def test_a_class_is_its_name_and_never_a_place(tmp_path: Path) -> None:
    """Folder positions compared with ImageNet ids are how the set is misread elsewhere."""
    folder = write_rows(tmp_path / "loc", ROWS)
    (folder / "foreground_classes.csv").write_text("int,label\r\n0,bagel\r\n1,koala\r\n2,zebra\r\n")
    with pytest.raises(LabelError, match="index 0 for 'bagel', which is 931"):
        read_siscore(folder)
    (folder / "foreground_classes.csv").unlink()
    ids = LabelSpace.load("imagenet-1k").ids
    assert read_siscore(folder).truth()["class_id"].to_pylist() == [ids[931], ids[105], ids[340]]


def test_classes_without_lists(tmp_path: Path) -> None:
    folder = lay(write_rows(tmp_path / "loc", ROWS), IMAGES)
    (folder / "foreground_classes_metadata_indices.csv").unlink()
    made = read_siscore(folder)
    assert [i.partition("/")[0] for i in made.images["image_id"].to_pylist()] == list(NAMES)
    assert "class names are those of the image folders" in made.card.notes
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "metadata.csv").write_text((folder / "metadata.csv").read_text())
    with pytest.raises(BadFile, match="class 0, which has no name"):
        read_siscore(bare)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,0.5,0.5,0.2,0,0,0,1,7,5,1.0", "has 0 twice"),
        ("11,nan,0.5,0.2,0,0,0,1,7,5,1.0", "line 5 has 'nan' as x_coord"),
        ("1.5,0.5,0.5,0.2,0,0,0,1,7,5,1.0", "line 5 has '1.5' as image_id"),
        ("11,0.5,0.5,,0,0,0,1,7,5,1.0", "line 5 has None as area"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        read_siscore(write_rows(tmp_path / "loc", (*ROWS, row)))


def test_images_and_rows_that_contradict(tmp_path: Path) -> None:
    folder = lay(write_rows(tmp_path / "loc", ROWS), ("koala/0.jpg", "koala/3.jpg"))
    with pytest.raises(BadFile, match=r"image 0 is of 'bagel', and lies in koala/0\.jpg"):
        read_siscore(folder)
    lay(folder, ("zebra/3.png",))
    with pytest.raises(BadFile, match=r"has image 3 as koala/3\.jpg and as zebra/3\.png"):
        read_siscore(folder)
    with pytest.raises(UserError, match="metadata has no use with format folders"):
        read_testset(folder, format="folders", metadata="size")


@pytest.mark.parametrize(
    ("published", "number", "expected"),
    [  # ids that a published unit test quotes with their values
        ("size", 101022, {"size": 0.83}),
        ("location", 10036, {"x": 0.0, "y": 0.4}),
        ("rotation", 10018, {"rotation": 161.0}),
        ("rotation", 10942, {"rotation": 161.0}),
    ],
)
def test_published_ids_tell_what_was_varied(
    tmp_path: Path, published: str, number: int, expected: dict[str, float]
) -> None:
    known = released_sets()[published]
    ids = [number, *(n for n in range(known.images) if n != number)][: known.images]
    row = next(row for row in _rows_of_ids(published, ids, tmp_path) if row.number == number)
    assert {key: getattr(row, key) for key in expected} == expected
    with pytest.raises(BadFile, match="ids of the published set"):
        _rows_of_ids(published, [*ids[1:], known.candidates], tmp_path)
    with pytest.raises(BadFile, match=f"the published set {published} has {known.images:,}"):
        _rows_of_ids(published, ids[1:], tmp_path)


def test_published_counts_are_known(tmp_path: Path) -> None:
    """614 objects on two backgrounds each: all counts are multiples of the grids' cells or less."""
    known = released_sets()
    assert known["location"].images == known["location"].candidates == 541_548
    assert known["size"].images == 92_884 < known["size"].candidates
    assert known["rotation"].images == 39_540 < known["rotation"].candidates
    rows = [
        f"{k * 2 + i},0.5,0.5,{area},0,{k},0,1,512,512,1.0"
        for k in range(61)
        for i, area in enumerate((0.1, 0.2))
    ]
    made = read_siscore(write_rows(tmp_path / "area", rows, names=released_names()))
    assert any(note.startswith("class kite (2 images) is doubtful") for note in made.card.notes)


@pytest.mark.parametrize("preset", ["demo", "rotation", "location"])
def test_what_compose_writes_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    monkeypatch.chdir(tmp_path)
    examples.make_foregrounds(tmp_path / "f")
    examples.make_backgrounds(tmp_path / "b")
    build = ["build", "compose", "--foregrounds", "f", "--backgrounds", "b", "--preset", preset]
    build += [
        "--resolution",
        "40",
        "--backgrounds-per-object",
        "1",
        "--layout",
        "siscore",
        "-o",
        "made",
        "-w",
        "w",
    ]
    assert invoke(build) == 0
    assert invoke(["import", "testset", "made", "--name", "back", "-w", "w"]) == 0
    made, back = load(Path("made")), load(Path("w/testsets/back"))
    ours, theirs = rows_of(made), rows_of(back)
    assert ours.keys() == theirs.keys() and len(ours) > 30
    same = ("path", "sha256", "width", "height", "x", "y", "size", "rotation", "background")
    for image, row in ours.items():
        assert {key: row[key] for key in same} == {key: theirs[image][key] for key in same}
        assert theirs[image]["inside"] == round(row["inside"], 4)
    objects = {(row["object"], theirs[image]["object"]) for image, row in ours.items()}
    assert len(objects) == len({a for a, _ in objects}) == len({b for _, b in objects}) == 4
    assert set(made.truth().to_pylist()[0]) == set(back.truth().to_pylist()[0])
    labels = [
        {row["image_id"]: row["class_id"] for row in each.truth().to_pylist()}
        for each in (made, back)
    ]
    assert labels[0] == labels[1]
    assert made.card.images_hash == back.card.images_hash
    assert (back.card.factors, back.card.units) == (made.card.factors, made.card.units)
    for key in ("x", "y", "size", "rotation", "object", "background", "inside"):
        assert back.card.columns[key] == made.card.columns[key], key
    assert verify(Path("w/testsets/back")).findings == ()
    with (tmp_path / "made/metadata.csv").open(newline="") as handle:
        assert len(list(csv.reader(handle))) == len(back) + 1


def test_predictions_by_bare_number_find_their_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In any order, without folders, and one too many; one too few is refused, and named."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "loc", ROWS)
    assert invoke(["import", "testset", "loc"]) == 0
    known = siscore_names()
    right = {0: known["bagel"].index, 3: known["zebra"].index, 10: known["zebra"].index}
    lines = [f"{number},{label}" for number, label in reversed(right.items())]
    Path("theirs.csv").write_text("\n".join(["image_id,prediction", *lines, "99,1"]))
    assert invoke(["import", "predictions", "theirs.csv", "-t", "loc"]) == 0
    said = capsys.readouterr().err
    assert "3 images were matched by file name" in said
    assert "1 images of the file are not in the test set: left out" in said
    score = ["score", "-t", "loc", "--metric", "top1", "--by", "x", "--by", "y", "--json"]
    assert invoke(score) == 0
    records = json.loads(capsys.readouterr().out)
    found = {r["slice"]: (r["n"], r["value"]) for r in records if r["record"] == "score"}
    assert found["x=0.15"] == (2, 0.5) and found["x=0.3"] == (1, 1.0)
    assert found["y=0.55"] == (1, 0.0), "the wrong one is the one at its own place"
    Path("few.csv").write_text("\n".join(["image_id,prediction", *lines[:2]]))
    assert invoke(["import", "predictions", "few.csv", "-t", "loc"]) == 2
    assert "lack 1 of the 3 images of loc, such as 'bagel/0'" in capsys.readouterr().err
