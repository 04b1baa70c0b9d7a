from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.cli.conftest import Run

PAINTS = {"red": (230, 10, 10), "green": (10, 230, 10), "blue": (10, 10, 230)}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of coloured images, a label space of colours, and nothing else."""
    for name, paint in PAINTS.items():
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (20, 20 + number), paint).save(folder / f"{number}.png")
    classes = [{"id": name, "names": [name]} for name in (*PAINTS, "white")]
    (tmp_path / "classes.json").write_text(
        json.dumps({"schema_version": 1, "name": "colours", "classes": classes})
    )
    return tmp_path


def counts(records: list[dict[str, object]]) -> dict[str, object]:
    return {str(record["name"]): record["value"] for record in records}


def test_a_folder_of_images_is_labelled(run: Run, place: Path) -> None:
    arguments = ("annotate", place / "images", "-e", "fake", "-w", place / "w")
    made = run(*arguments, "--classes", place / "classes.json", "--top", 2, "--json")
    assert made.code == 0, made.err
    assert counts(made.json) == {
        "images": 6,
        "images_without_vector": 0,
        "images_tied": 0,
        "classes": 4,
        "classes_assigned": 3,
        "shared_texts": 0,
        "classes_with_shared_texts": 0,
    }
    table = pq.read_table(place / "w" / "pools" / "images-zero-shot" / "images.parquet")
    for row in table.to_pylist():
        assert row["class_id"] == row["image_id"].split("/")[0]
        assert len(row["top_classes"]) == 2
    head = json.loads((place / "w" / "pools" / "images-zero-shot" / "pool.json").read_text())
    stated = head["facts"]["annotation"]
    assert stated["images"]["encoder"]["name"] == "fake"
    assert stated["classes"]["templates"] == "none"
    assert len(stated["classes"]["class_list_sha256"]) == 64


def test_the_new_pool_a_parquet_file_and_vectors_agree(run: Run, place: Path) -> None:
    common = ("--classes", place / "classes.json", "-w", place / "w", "--json")
    first = run("annotate", place / "images", "-e", "fake", *common)
    assert first.code == 0, first.err
    vectors = next(
        path.parent
        for path in (place / "w" / "embeddings").glob("*/*/embedding.json")
        if not path.parent.name.startswith("classes")
    )
    second = run("annotate", vectors, "-e", "fake", *common, "-o", place / "out.parquet")
    assert second.code == 0, second.err
    assert counts(second.json) == counts(first.json)
    table = pq.read_table(place / "out.parquet")
    pool = pq.read_table(place / "w" / "pools" / "images-zero-shot" / "images.parquet")
    for column in ("image_id", "class_id", "similarity_cosine", "margin"):
        assert table[column].to_pylist() == pool[column].to_pylist()


def test_vectors_of_images_and_classes_need_no_encoder(run: Run, place: Path) -> None:
    np.save(place / "i.npy", np.float32([[1, 0.1], [0, 2]]))
    (place / "i.ids.txt").write_text("a\nb\n")
    np.save(place / "c.npy", np.float32([[0, 1], [1, 0], [1, 1], [-1, 0]]))
    (place / "c.ids.txt").write_text("green\nred\nwhite\nblue\n")
    common = ("--classes", place / "classes.json", "-w", place / "w", "-o", place / "o.parquet")
    made = run(
        "annotate",
        f"embeddings:{place / 'i.npy'}",
        "--class-vectors",
        place / "c.npy",
        *common,
    )
    assert made.code == 0, made.err
    assert pq.read_table(place / "o.parquet")["class_id"].to_pylist() == ["red", "green"]
    alone = run("annotate", place / "i.npy", *common)
    assert alone.code == 2
    assert "--encoder" in alone.err


def test_a_broken_image_is_told_and_has_no_label(run: Run, place: Path) -> None:
    (place / "images" / "red" / "bad.png").write_bytes(b"no image")
    made = run(
        "annotate",
        place / "images",
        "-e",
        "fake",
        "--classes",
        place / "classes.json",
        "-w",
        place / "w",
        "-o",
        place / "out",
    )
    assert made.code == 3
    assert "red/bad.png" in made.err
    table = pq.read_table(place / "out" / "images.parquet")
    assert table["class_id"].null_count == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-e", "cons"), "conse"),
        (("-e", "fake", "--similarities", "cosin"), "softmax@T"),
        (("-e", "fake", "--top", "9"), "use 1 to 4"),
        (("-e", "fake", "--templates", "none.txt"), "none.txt"),
        (("-e", "fake", "--encoder-args", "colour=1"), "colour"),
        ((), "--encoder"),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Run, place: Path, arguments: tuple[str, ...], words: str
) -> None:
    made = run(
        "annotate",
        place / "images",
        "--classes",
        place / "classes.json",
        "-w",
        place / "w",
        *arguments,
    )
    assert made.code == 2
    assert words in made.err
    assert made.err.strip().splitlines()[-1].startswith("error: ")


def test_a_name_that_is_nothing_is_told(run: Run, place: Path) -> None:
    made = run("annotate", "nothing", "-e", "fake", "-w", place / "w")
    assert made.code == 2
    assert "no pool, test set, folder or vectors 'nothing'" in made.err


def test_shards_end_well_before_the_others_are_done(run: Run, place: Path) -> None:
    asked = ("annotate", place / "images", "-e", "fake", "-w", place / "w", "--json")
    asked += ("--classes", place / "classes.json")
    first = run(*asked, "--shard", "1/2")
    assert first.code == 0, first.err
    done = counts(first.json)
    if done["images_embedded"] != done["images"]:
        assert "run the other shards" in first.err
    second = run(*asked, "--shard", "2/2")
    assert second.code == 0, second.err
    assert run(*asked, "--replace").code == 0
    table = pq.read_table(place / "w" / "pools" / "images-zero-shot" / "images.parquet")
    assert len(table) == 6


def test_own_classes_are_those_of_the_set(run: Run, place: Path) -> None:
    read = ("import", "testset", place / "images", "--classes", "folders", "-w", place / "w")
    assert run(*read, "--name", "mine").code == 0
    asked = ("annotate", "mine", "-e", "fake", "-w", place / "w", "--json")
    made = run(*asked, "--classes", "own")
    assert made.code == 0, made.err
    assert counts(made.json)["classes"] == 3
    table = pq.read_table(place / "w" / "pools" / "mine-zero-shot" / "images.parquet")
    assert all(row["class_id"] == row["image_id"].split("/")[0] for row in table.to_pylist())
    none = run("annotate", place / "images", "-e", "fake", "--classes", "own")
    assert none.code == 2
    assert "has no classes of its own" in none.err
