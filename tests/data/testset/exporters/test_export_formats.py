from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heldout.core.errors import UserError
from heldout.data.testset import TestSet
from heldout.data.testset.exporters.formats import FORMATS, export


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_writes_all_rows_and_then_nothing(
    tmp_path: Path, photos: TestSet, form: str
) -> None:
    to = tmp_path / ("out.parquet" if form == "table" else "out")
    first = export(photos, to, form=form)
    assert (first.rows, first.failures, first.unchanged) == (8, (), False)
    again = export(photos, to, form=form)
    assert again.unchanged
    assert (again.rows, again.files) == (first.rows, first.files)


def test_unknown_format(tmp_path: Path, photos: TestSet) -> None:
    with pytest.raises(UserError, match="no format 'zip': use one of folders"):
        export(photos, tmp_path / "out", form="zip")


COPYING = ("folders", "index-folders", "huggingface", "webdataset")


@pytest.mark.parametrize("form", COPYING)
def test_a_licence_that_forbids_copies(
    tmp_path: Path, make_photos: Callable[..., TestSet], form: str
) -> None:
    made = make_photos(tmp_path / "sets", licence="All rights reserved")
    with pytest.raises(UserError, match=r"8 of 8 images .* All rights reserved \(8\)"):
        export(made, tmp_path / "out", form=form, copy_images=True)
    assert not (tmp_path / "out").exists()
    if form != "webdataset":  # it is nothing without its images
        assert export(made, tmp_path / "list", form=form, copy_images=False).rows == 8
    allowed = export(made, tmp_path / "out", form=form, copy_images=True, allow_licence=True)
    assert allowed.copied == 8


@pytest.mark.parametrize("form", COPYING)
def test_the_same_set_gives_the_same_bytes(
    tmp_path: Path, make_photos: Callable[..., TestSet], form: str
) -> None:
    found = []
    for name in ("one", "two"):
        out = tmp_path / name
        export(make_photos(tmp_path / f"sets-{name}"), out, form=form, copy_images=True)
        found.append({p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()})
    assert found[0] == found[1]
