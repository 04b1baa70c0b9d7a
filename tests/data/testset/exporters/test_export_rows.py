from __future__ import annotations

import io
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.data.labels import LabelSpace
from heldout.data.testset import TestSet
from heldout.data.testset.exporters.images import (
    FileNames,
    Row,
    export_rows,
    image_suffix,
    safe_name,
    unique_names,
)


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
