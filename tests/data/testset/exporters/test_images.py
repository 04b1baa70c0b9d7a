"""Tests of :mod:`heldout.data.testset.exporters.images`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.core.errors import UserError
from heldout.data.images import MemorySource
from heldout.data.labels import LabelSpace
from heldout.data.testset import TestSet
from heldout.data.testset.exporters.formats import export
from heldout.data.testset.exporters.images import (
    Export,
    FileNames,
    Row,
    export_rows,
    image_suffix,
    unique_names,
)
from heldout.data.testset.exporters.owned_folder import safe_name

# export rows


def row(image_id: str, path: str | None = None, class_id: str = "cat") -> Row:
    return Row(
        image_id=image_id,
        class_id=class_id,
        index=0,
        path=path,
        uri=None,
        sha256=None,
        source=None,
        licence=None,
        attribution=None,
    )


@settings(deadline=None)
@given(st.text(min_size=1, max_size=200))
def test_a_safe_name_is_one_name_below_its_folder(text: str) -> None:
    name = safe_name(text)
    assert "/" not in name and "\\" not in name and "\0" not in name
    assert name not in ("", ".", "..") and not name.startswith(".")
    assert PurePosixPath("x", name).parent == PurePosixPath("x")
    assert len(name.encode()) <= 140
    assert name.isprintable()


@settings(deadline=None)
@given(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=20, unique=True))
def test_file_names_never_collide_even_without_case(ids: list[str]) -> None:
    names = FileNames()
    given_names = [names.take("cat", row(image)) for image in ids]
    assert len({name.casefold() for name in given_names}) == len(ids)


def test_file_names_are_those_of_the_paths() -> None:
    names = FileNames()
    assert names.take("cat", row("i1", "deep/A.JPEG")) == "A.JPEG"
    assert names.take("cat", row("i2", "other/a.jpeg")).startswith("a-")
    assert names.take("dog", row("i2", "other/a.jpeg")) == "a.jpeg"
    assert names.take("cat", row("i3")) == "i3"
    assert names.take("cat", row("i4"), ".png") == "i4.png"
    assert names.take("cat", row("i4"), ".png").startswith("i4-")
    assert names.take("cat", row("i5", "x.jpg"), ".png") == "x.jpg"
    assert names.take("cat", row("i6", "x.v2"), ".png") == "x.v2.png"


def test_rows_follow_the_images_then_the_classes(pets: TestSet) -> None:
    rows, failures = export_rows(pets, None)
    assert [r.image_id for r in rows] == pets.image_ids.to_pylist()
    assert [r.index for r in rows] == [0, 0, 1, 1, 2, 3]
    assert failures == []


def test_names_are_unique_and_kept_where_they_can_be() -> None:
    space = LabelSpace.load("imagenet-1k")
    names = unique_names(space)
    assert len(set(names)) == 1000
    named = dict(zip(space.ids, names, strict=True))
    assert named["n02012849"] == "crane (wading bird)"
    assert named["n03126707"] == "crane (lifting device)"
    assert named["n03710721"] == "maillot (tank suit)"
    assert named["n02113186"] == "Cardigan" and named["n02963159"] == "cardigan"
    changed = [item.id for item, name in zip(space, names, strict=True) if item.name != name]
    assert changed == ["n02012849", "n03126707", "n03710637", "n03710721"]


def test_names_without_a_hierarchy() -> None:
    from heldout.data.labels import Class

    space = LabelSpace("x", (Class("a", ("dot",)), Class("b", ("dot",)), Class("c", ("dot (a)",))))
    assert len(set(unique_names(space))) == 3


@pytest.mark.parametrize(
    ("form", "suffix"),
    [("AVIF", ".avif"), ("JPEG2000", ".jp2"), ("WEBP", ".webp"), ("PNG", ".png")],
)
def test_an_image_without_an_ending_gets_that_of_its_bytes(form: str, suffix: str) -> None:
    data = io.BytesIO()
    Image.new("RGB", (16, 16)).save(data, form)
    assert image_suffix(data.getvalue()) == suffix
    names = FileNames()
    assert names.take("cat", row("i1"), suffix) == f"i1{suffix}"
    # The hash that tells two names apart goes before the ending.
    assert names.take("cat", row("i1"), suffix).endswith(suffix)


# huggingface


def export_huggingface(testset: TestSet, folder: Path, **options: Any) -> Export:
    return export(testset, folder, form="huggingface", **options)


def front_matter(text: str) -> dict[str, Any]:
    """The part of YAML that our card uses: block maps and lists, scalars plain or JSON-quoted."""
    lines = text.split("---\n")[1].splitlines()
    position = 0

    def scalar(word: str) -> Any:
        return json.loads(word) if word.startswith('"') else word.strip("'")

    def block(indent: int) -> Any:
        nonlocal position
        if lines[position].lstrip().startswith("- "):
            items = []
            while position < len(lines) and lines[position].startswith(" " * indent + "- "):
                body = lines[position][indent + 2 :]
                if (": " in body and not body.startswith('"')) or body.endswith(":"):
                    lines[position] = " " * (indent + 2) + body
                    items.append(block(indent + 2))
                else:
                    items.append(scalar(body))
                    position += 1
            return items
        found: dict[str, Any] = {}
        while position < len(lines):
            line = lines[position]
            depth = len(line) - len(line.lstrip())
            if depth != indent or line.lstrip().startswith("- "):
                break
            key, _, value = line.strip().partition(":")
            position += 1
            if value.strip():
                found[scalar(key)] = scalar(value.strip())
            else:
                inner = len(lines[position]) - len(lines[position].lstrip())
                found[scalar(key)] = block(inner)
        return found

    return block(0)  # type: ignore[no-any-return]


def lines_of(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "test" / "metadata.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_labels_are_explicit(tmp_path: Path, photos: TestSet) -> None:
    out = tmp_path / "out"
    result = export_huggingface(photos, out)
    assert (result.rows, result.copied, result.failures) == (8, 8, ())
    rows = lines_of(out)
    for row, image, label in zip(
        rows, photos.image_ids.to_pylist(), photos.truth()["class_id"].to_pylist(), strict=True
    ):
        assert row["image_id"] == image
        assert row["class_id"] == label
        assert row["label"] == photos.label_space.index(label)
        assert (out / "test" / row["file_name"]).is_file()
        assert label not in row["file_name"]
    assert [row["domain"] for row in rows] == ["in", "out"] * 4
    pictures = {p.relative_to(out / "test").as_posix() for p in (out / "test").rglob("*.*g")}
    assert pictures == {row["file_name"] for row in rows}


def test_card_names_the_classes_in_order(tmp_path: Path, photos: TestSet) -> None:
    export_huggingface(photos, tmp_path / "out")
    card = front_matter((tmp_path / "out" / "README.md").read_text(encoding="utf-8"))
    features = card["dataset_info"]["features"]
    assert [feature["name"] for feature in features] == [
        "image",
        "label",
        "class_id",
        "image_id",
        "domain",
    ]
    names = features[1]["dtype"]["class_label"]["names"]
    assert [names[str(n)] for n in range(4)] == list(unique_names(photos.label_space))
    assert list(names.values()) == ["cat", "dog", "crane (wading bird)", "crane (crane-lift)"]
    assert card["configs"][0]["data_files"] == [{"split": "test", "path": "test/**"}]
    assert card["configs"][0]["drop_labels"] == "true"


def test_columns_of_all_types_and_nulls(
    tmp_path: Path, pets: TestSet, make_picture: Callable[..., bytes]
) -> None:
    source = MemorySource({i: make_picture(n) for n, i in enumerate(pets.image_ids.to_pylist())})
    export_huggingface(pets, tmp_path / "out", images=source)
    rows = lines_of(tmp_path / "out")
    assert rows[3]["domain"] is None
    assert rows[4]["size"] is None
    assert [row["level"] for row in rows] == [1, 2, 3, 4, 5, 6]
    features = front_matter((tmp_path / "out" / "README.md").read_text())["dataset_info"][
        "features"
    ]
    assert {f["name"]: f["dtype"] for f in features[4:]} == {
        "domain": "string",
        "size": "float64",
        "level": "int64",
    }


def test_without_images(tmp_path: Path, pets: TestSet) -> None:
    result = export_huggingface(pets, tmp_path / "out", copy_images=False)
    assert result.copied == 0 and any("without the images" in note for note in result.notes)
    rows = lines_of(tmp_path / "out")
    assert [row["label"] for row in rows] == [0, 0, 1, 1, 2, 3]
    assert list(rows[0])[:4] == ["file_name", "label", "class_id", "image_id"]


def test_a_column_may_not_be_called_label(
    tmp_path: Path, pets: TestSet, make_pets: Callable[..., TestSet]
) -> None:
    made = make_pets(images=pets.images.append_column("label", [["x"] * 6]))
    with pytest.raises(UserError, match="'label'"):
        export_huggingface(made, tmp_path / "out", copy_images=False)


def test_metadata_is_json_and_what_it_cannot_hold_is_said(
    tmp_path: Path,
    pets: TestSet,
    make_pets: Callable[..., TestSet],
    make_picture: Callable[..., bytes],
) -> None:
    bad = [1.0, float("nan"), float("inf"), 0.0, 0.0, 0.0]
    made = make_pets(images=pets.images.append_column("bad", [bad]))
    source = MemorySource({i: make_picture(n) for n, i in enumerate(made.image_ids.to_pylist())})
    found = export_huggingface(made, tmp_path / "out", images=source)
    assert any(note.startswith("left out") and "context" in note for note in found.notes)
    text = (tmp_path / "out" / "test" / "metadata.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    rows = lines_of(tmp_path / "out")
    assert [row["bad"] for row in rows] == [1.0, None, None, 0.0, 0.0, 0.0]
    assert all(row["file_name"].endswith(".jpg") for row in rows)
