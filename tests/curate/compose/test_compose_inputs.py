"""Every odd input is a right result, or one line that names it before any work."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.compose.inputs import (
    Inputs,
    gather_backgrounds,
    gather_foregrounds,
    read_attributions,
)
from tests.curate.compose import compose_examples as examples


def read(folder: Path) -> Inputs:
    return examples.read_inputs(folder / "f", folder / "b")


def test_cutouts_come_by_class_and_by_name(folder: Path) -> None:
    inputs = read(folder)
    assert [(c.id, c.class_index, c.instance) for c in inputs.cutouts] == [
        ("bagel/b10.png", 0, 0),
        ("bagel/b2.png", 0, 1),
        ("lemon/large.png", 1, 0),
        ("vase/grey.png", 2, 0),
    ]
    assert [b.name for b in inputs.backgrounds] == ["a.jpg", "b.png", "c.jpeg"]
    assert (
        inputs.cutouts[1].mask_pixels == np.asarray(examples.cutout(70, 50, 1))[..., 3].sum() / 255
    )


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (Image.fromarray(examples.noise(20, 20, 3, 1)), "RGB"),
        (Image.fromarray(examples.noise(20, 20, 1, 1)[..., 0]), "L"),
        (Image.fromarray(examples.noise(20, 20, 3, 1)).quantize(8), "P"),
        (Image.fromarray(examples.noise(20, 20, 1, 1)[..., 0].astype(np.uint16) * 200), "I;16"),
    ],
)
def test_a_cutout_without_alpha_is_refused(image: Image.Image, what: str, folder: Path) -> None:
    path = examples.save(image, folder / "f" / "bagel" / "flat.png")
    with pytest.raises(
        BadFile, match=rf"flat.png: has no alpha \({what}\).*heldout cutout"
    ) as error:
        read(folder)
    assert error.value.path == path


def test_a_cutout_that_shows_nothing_is_refused(folder: Path) -> None:
    empty = examples.cutout(9, 9)
    empty.putalpha(0)
    examples.save(empty, folder / "f" / "bagel" / "empty.png")
    with pytest.raises(BadFile, match="transparent everywhere"):
        read(folder)


def test_strays_are_skipped_and_named(folder: Path) -> None:
    (folder / "f" / "notes.txt").write_text("x")
    (folder / "f" / "bagel" / "Thumbs.db").write_bytes(b"\0" * 64)
    (folder / "f" / "bagel" / ".DS_Store").write_bytes(b"\0")
    (folder / "f" / "empty").mkdir()
    (folder / "f" / "bagel" / "inner").mkdir()
    (folder / "b" / "readme").write_text("x")
    pool, notes = gather_foregrounds(folder / "f")
    assert len(pool) == 4
    text = "\n".join(notes)
    for name in ("notes.txt", "Thumbs.db", "empty", "inner"):
        assert name in text
    assert "DS_Store" not in text
    pool, notes = gather_backgrounds(folder / "b")
    assert len(pool) == 3 and "readme" in notes[0]


def test_a_file_without_ending_is_taken_if_it_is_an_image(folder: Path) -> None:
    (folder / "f" / "bagel" / "b2.png").rename(folder / "f" / "bagel" / "0a1b_12_3")
    assert "bagel/0a1b_12_3" in [c.id for c in read(folder).cutouts]


@pytest.mark.parametrize("content", [b"", b"<html></html>", b"\x89PNG\r\n\x1a\nrubbish"])
def test_a_broken_image_is_named(content: bytes, folder: Path) -> None:
    (folder / "f" / "bagel" / "bad.png").write_bytes(content)
    with pytest.raises(BadFile, match=r"bad\.png"):
        read(folder)


def test_a_truncated_image_is_named(folder: Path) -> None:
    path = folder / "b" / "a.jpg"
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(BadFile, match=r"a\.jpg.*truncated"):
        read(folder)


def test_folders_that_are_not_there_or_empty(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        gather_foregrounds(tmp_path / "none")
    (tmp_path / "f").mkdir()
    with pytest.raises(UserError, match="has no cut-outs"):
        gather_foregrounds(tmp_path / "f")
    with pytest.raises(UserError, match="has no images"):
        gather_backgrounds(tmp_path / "f")


@pytest.mark.parametrize("name", ["a:b", "what?", "tab\there"])
def test_class_names_that_cannot_be_folders_everywhere(name: str, folder: Path) -> None:
    (folder / "f" / "bagel").rename(folder / "f" / name)
    with pytest.raises(UserError, match="rename it"):
        gather_foregrounds(folder / "f", labels="folders")


def test_every_mode_of_background_is_rgb(tmp_path: Path) -> None:
    inputs = examples.read_inputs(
        examples.make_foregrounds(tmp_path / "f"), examples.make_odd_backgrounds(tmp_path / "b")
    )
    for place, background in enumerate(inputs.backgrounds):
        image = inputs.background_image(place, (40, 30))
        assert (image.mode, image.size) == ("RGB", (40, 30)), background.name
    turned = next(b for b in inputs.backgrounds if b.name == "turned.jpg")
    assert turned.size == (60, 120)


def test_exif_can_be_left_alone(tmp_path: Path) -> None:
    examples.make_odd_foregrounds(tmp_path / "f")
    examples.make_odd_backgrounds(tmp_path / "b")
    for exif, size in ((True, (30, 60)), (False, (60, 30))):
        cutouts = examples.read_inputs(tmp_path / "f", tmp_path / "b", exif=exif).cutouts
        assert [c.size for c in cutouts if c.name == "turned.png"] == [size]


def test_inputs_travel_without_their_pixels(folder: Path) -> None:
    inputs = read(folder)
    data = pickle.dumps(inputs)
    assert len(data) < 10_000
    again = pickle.loads(data)
    assert again.key == inputs.key
    for place in range(len(inputs.cutouts)):
        assert np.array_equal(again.cutout(place), inputs.cutout(place))
    assert np.array_equal(again.background(0, 33, 44), inputs.background(0, 33, 44))


def test_attributions_with_other_headings(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("file,License,Author\nx.jpg,MIT,Ann\ny,CC0-1.0,\n")
    assert read_attributions(path) == {
        "x.jpg": {"licence": "MIT", "attribution": "Ann", "source": None},
        "y": {"licence": "CC0-1.0", "attribution": None, "source": None},
    }


@pytest.mark.parametrize("text", ["licence\nMIT\n", "file\na\na\n"])
def test_attributions_that_name_nothing_or_one_twice(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadFile):
        read_attributions(tmp_path / "a.csv")


def test_a_cell_may_hold_line_breaks_of_any_kind(tmp_path: Path) -> None:
    text = 'file,licence,attribution\na.jpg,MIT,"Ann\nBo"\nb.jpg,CC0-1.0,Cleo\u2028Dora\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    found = read_attributions(tmp_path / "a.csv")
    assert (found["a.jpg"]["licence"], found["a.jpg"]["attribution"]) == ("MIT", "Ann Bo")
    assert (found["b.jpg"]["licence"], found["b.jpg"]["attribution"]) == ("CC0-1.0", "Cleo Dora")


def test_attributions_in_the_folder_are_found(folder: Path) -> None:
    (folder / "b" / "attributions.csv").write_text(examples.ATTRIBUTIONS + "gone.png,MIT,,\n")
    pool, notes = gather_backgrounds(folder / "b", licence="CC-BY-4.0")
    rows = {row["image_id"]: row for row in pool.images.to_pylist()}
    assert rows["a.jpg"]["licence"] == "CC-BY-2.0" and rows["a.jpg"]["attribution"] == "Ann"
    assert rows["b.png"]["licence"] == "CC0-1.0"
    assert rows["c.jpeg"]["licence"] == "CC-BY-4.0"
    assert any("gone.png" in note for note in notes)
