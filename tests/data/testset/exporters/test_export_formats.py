from __future__ import annotations

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
