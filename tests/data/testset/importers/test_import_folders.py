"""Folders of images: every way to name a class, and every way to get it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import sha256_file
from heldout.data.importing import label_space_of_folders, read_folders, read_testset
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import TestSet, load, save
from heldout.data.testset.exporters.formats import export
from tests.data.testset.importers.small import IMAGENET, lay, picture

PETS = LabelSpace(
    "pets",
    (
        Class("c0", ("cat", "house cat"), "n02121620"),
        Class("c1", ("dog",), "n02084071"),
        Class("c2", ("crane", "wading bird"), "n02012849"),
        Class("c3", ("crane",), "n03126707"),
    ),
)


def labels(testset: TestSet) -> dict[str, str]:
    table = testset.truth()
    return dict(zip(table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True))


def test_index_folders_are_numbers_and_never_sorted_as_text(tmp_path: Path) -> None:
    folders = [str(index) for index in (0, 1, 2, 10, 100, 999)]
    root = lay(tmp_path / "v2", [f"{folder}/{k}.jpeg" for folder in folders for k in range(2)])
    found = labels(read_folders(root, name="v2", label_space=IMAGENET))
    assert found == {f"{f}/{k}.jpeg": IMAGENET.ids[int(f)] for f in folders for k in range(2)}
    as_text = {folder: IMAGENET.ids[rank] for rank, folder in enumerate(sorted(folders))}
    assert found["10/0.jpeg"] != as_text["10"]  # what a loader that sorts folder names would say


@pytest.mark.parametrize("names", ["auto", "wnid"])
def test_wordnet_folders_with_hashed_names(tmp_path: Path, names: str) -> None:
    wnids = [IMAGENET.ids[index] for index in (3, 700)]
    root = lay(tmp_path / "v2", [f"{wnid}/{'ab' * 20}.jpeg" for wnid in wnids])
    testset = read_folders(root, name="v2", label_space=IMAGENET, names=names)  # type: ignore[arg-type]
    assert labels(testset) == {f"{wnid}/{'ab' * 20}.jpeg": wnid for wnid in wnids}
    assert testset.card.recipe["parameters"]["names"] == "wnid"
    assert "WordNet id" in testset.card.notes[0]


def test_rows_carry_path_hash_and_size(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for path, size in {"cat/a.jpg": (9, 4), "dog/deep/er/b.png": (3, 8)}.items():
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(picture(1, size=size))
    testset = read_folders(root, name="s", label_space=PETS)
    rows = testset.images.to_pylist()
    assert [(r["image_id"], r["path"], r["width"], r["height"]) for r in rows] == [
        ("cat/a.jpg", "cat/a.jpg", 9, 4),
        ("dog/deep/er/b.png", "dog/deep/er/b.png", 3, 8),
    ]
    assert [r["sha256"] for r in rows] == [sha256_file(root / r["path"]) for r in rows]


def test_names_with_underscores_and_a_wrapper_folder(tmp_path: Path) -> None:
    root = lay(tmp_path / "set", ["val/house_cat/x.jpg", "train/dog/x.jpg", "val/DOG/y.jpg"])
    assert labels(read_folders(root, name="s", label_space=PETS)) == {
        "val/house_cat/x.jpg": "c0",
        "train/dog/x.jpg": "c1",
        "val/DOG/y.jpg": "c1",
    }


def test_import_does_not_depend_on_creation_order(tmp_path: Path) -> None:
    paths = ["10/b.jpg", "2/a.jpg", "2/c.jpg", "0/z.jpg"]
    images = {path: picture(seed) for seed, path in enumerate(paths)}
    made = []
    for which, order in enumerate((paths, paths[::-1])):
        root = tmp_path / str(which) / "set"
        for path in order:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(images[path])
        made.append(read_folders(root, name="s", label_space=IMAGENET))
    assert made[0].card.content_hash == made[1].card.content_hash
    assert made[0].images.equals(made[1].images)


def test_saved_set_finds_its_images(tmp_path: Path) -> None:
    root = lay(tmp_path / "pictures", ["cat/a.jpg"])
    saved = save(read_folders(root, name="s", label_space=PETS), tmp_path / "testsets" / "s")
    assert load(tmp_path / "testsets" / "s").card.images_root == "../../pictures"
    assert (saved.images_folder() / "cat/a.jpg").is_file()


def test_broken_images_stay_and_are_listed(tmp_path: Path) -> None:
    root = lay(tmp_path / "set", ["cat/good.jpg"])
    (root / "cat/empty.jpg").write_bytes(b"")
    (root / "cat/text.png").write_text("not an image")
    (root / "cat/cut.jpg").write_bytes(picture(3)[:20])
    (root / "cat/notes.txt").write_text("x")
    (root / "cat/.hidden.jpg").write_bytes(picture(4))
    (root / "dog").mkdir()
    testset = read_folders(root, name="s", label_space=PETS)
    counts = testset.card.counts
    assert len(testset) == 4
    assert (counts["broken"], counts["other_files"], counts["empty_folders"]) == (3, 1, 1)
    broken = [note for note in testset.card.notes if note.startswith("broken image")]
    assert [note.split(":")[0] for note in broken] == [
        f"broken image cat/{name}" for name in ("cut.jpg", "empty.jpg", "text.png")
    ]
    sizes = {row["image_id"]: row["width"] for row in testset.images.to_pylist()}
    assert sizes["cat/empty.jpg"] is None and sizes["cat/good.jpg"] == 7


def test_linked_folders_are_reported(tmp_path: Path) -> None:
    root = lay(tmp_path / "set", ["cat/good.jpg"])
    lay(tmp_path / "elsewhere", ["a.jpg"])
    (root / "dog").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    testset = read_folders(root, name="s", label_space=PETS)
    assert testset.card.counts["linked_folders"] == 1
    assert any("linked folders were not read: dog" in note for note in testset.card.notes)


def test_ambiguous_name_is_refused_with_its_candidates(tmp_path: Path) -> None:
    root = lay(tmp_path / "set", ["crane/a.jpg", "dog/b.jpg", "cat/c.jpg"])
    with pytest.raises(BadFile) as caught:
        read_folders(root, name="s", label_space=PETS)
    assert "c2" in caught.value.line and "c3" in caught.value.line and "crane" in caught.value.line
    assert "\n" not in caught.value.line


def test_numbers_that_are_ids_and_indices_in_disagreement_are_refused(tmp_path: Path) -> None:
    root = lay(
        tmp_path / "set", ["0/a.jpg", "1/a.jpg", "10/a.jpg"] + [f"{i}/a.jpg" for i in range(2, 10)]
    )
    sorted_as_text = LabelSpace.from_ids("digits", sorted(str(i) for i in range(11)))
    with pytest.raises(BadFile, match=r"by class id and .* by class index"):
        read_folders(root, name="s", label_space=sorted_as_text)
    told = read_folders(root, name="s", label_space=sorted_as_text, names="id")
    assert labels(told)["10/a.jpg"] == "10"
    by_index = read_folders(root, name="s", label_space=sorted_as_text, names="index")
    assert labels(by_index)["10/a.jpg"] == sorted_as_text.ids[10] == "9"


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (["n01440764/a.jpg", "5/b.jpg"], "n01440764.*read by class index|5.*read by WordNet id"),
        (["n01440764/a.jpg", "n99999999/b.jpg"], "n99999999"),
        (["1/a.jpg", "1000/a.jpg"], "class index 1000 is outside 0..999"),
        (["unheard-of/a.jpg"], "unheard-of"),
        (["a.jpg", "n01440764/a.jpg"], "1 images outside any class folder, such as a.jpg"),
        (["3/4/a.jpg"], "two parts that name a class: 3 and 4"),
    ],
)
def test_hostile_folders(tmp_path: Path, paths: list[str], pattern: str) -> None:
    root = lay(tmp_path / "set", paths)
    with pytest.raises(BadFile, match=pattern) as caught:
        read_folders(root, name="s", label_space=IMAGENET)
    assert "\n" not in caught.value.line and str(root) in caught.value.line and caught.value.fix


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder of images"):
        read_folders(tmp_path / "nowhere", name="s", label_space=PETS)
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    (tmp_path / "empty" / "readme.txt").write_text("x")
    with pytest.raises(BadFile, match="has no images, only 1 other files"):
        read_folders(tmp_path / "empty", name="s", label_space=PETS)


def test_the_folders_own_names_as_label_space(tmp_path: Path) -> None:
    root = lay(tmp_path / "digits", [f"{index}/a.jpg" for index in (10, 9, 2, 0)])
    assert label_space_of_folders(root, name="d").ids == ("0", "2", "9", "10")
    made = read_testset(root, classes="folders")
    assert made.name == "digits" and labels(made)["10/a.jpg"] == "10"
    words = lay(tmp_path / "words", ["photo/horse/a.jpg", "sketch/horse/a.jpg", "sketch/dog/b.jpg"])
    assert label_space_of_folders(words, name="w").ids == ("dog", "horse")
    assert labels(read_testset(words, classes="folders"))["sketch/horse/a.jpg"] == "horse"
    with pytest.raises(BadFile, match="no class folders"):
        label_space_of_folders(lay(tmp_path / "flat", ["a.jpg"]), name="x")


@pytest.mark.shared
def test_pacs_by_class_names(shared_data: Path) -> None:
    space = label_space_of_folders(shared_data / "pacs", name="pacs")
    testset = read_folders(shared_data / "pacs", name="pacs", label_space=space)
    assert testset.card.counts["classes"] == 7 and testset.card.counts["broken"] == 0
    assert len(testset) == 4 * 7 * 40


def test_other_folders_become_columns(tmp_path: Path) -> None:
    paths = ["sketch/dog/1.jpg", "photo/dog/2.jpg", "photo/cat/3.jpg"]
    root = lay(tmp_path / "set", paths)
    testset = read_folders(root, name="s", label_space=PETS, columns=["domain"])
    rows = {row["image_id"]: row["domain"] for row in testset.images.to_pylist()}
    assert rows == {path: path.split("/")[0] for path in paths}
    assert testset.card.columns["domain"].kind == "categorical"
    assert labels(testset)["sketch/dog/1.jpg"] == "c1"
    with pytest.raises(BadFile, match="1 parts beside the class, 2 columns"):
        read_folders(root, name="s", label_space=PETS, columns=["domain", "split"])
    for names in (["path"], ["a", "a"]):
        with pytest.raises(UserError, match="new name of its own"):
            read_folders(root, name="s", label_space=PETS, columns=names)
    lay(root, ["dog/4.jpg"])
    with pytest.raises(BadFile, match="'dog' has 0 parts beside the class"):
        read_folders(root, name="s", label_space=PETS, columns=["domain"])
    with pytest.raises(UserError, match="folder_columns has no use with format table"):
        read_testset(tmp_path / "x.csv", format="table", folder_columns=["domain"])


@pytest.mark.parametrize("metadata", ["jsonl", "csv"])
def test_labels_in_a_metadata_table_are_not_taken_from_folder_names(
    tmp_path: Path, metadata: str
) -> None:
    root = lay(tmp_path / "set", ["c0/a.png", "c1/b.png", "c2/c.png"])
    out = tmp_path / "hub"
    testset = read_folders(root, name="s", label_space=PETS)
    export(testset, out, form="huggingface", allow_licence=True)
    if metadata == "csv":  # as others write it
        (out / "test" / "metadata.jsonl").unlink()
        (out / "test" / "metadata.csv").write_text("file_name,label\n0000/a.png,0\n")
    message = rf"labels in test/metadata\.{metadata}, not in folder names"
    with pytest.raises(BadFile, match=message):
        read_folders(out, name="s", label_space=PETS)
    # A table that describes images without labelling them does not matter.
    (root / "metadata.csv").write_text("file_name,text\nc0/a.png,a cat\n")
    assert labels(read_folders(root, name="s", label_space=PETS)) == labels(testset)
