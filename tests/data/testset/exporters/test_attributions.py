from __future__ import annotations

import csv
from pathlib import Path

from heldout.data.testset import TestSet
from heldout.data.testset.exporters.formats import export


def test_one_row_for_each_image(tmp_path: Path, pets: TestSet) -> None:
    result = export(pets, tmp_path / "out", form="folders", copy_images=False)
    assert (result.rows, result.copied) == (6, 0)
    with (tmp_path / "out" / "attributions.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["image_id"] for row in rows] == pets.image_ids.to_pylist()
    assert rows[3]["attribution"] == "Ann | Co"
    assert rows[4]["note"] == "name the author; no commercial use"
