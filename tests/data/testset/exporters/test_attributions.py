from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

from heldout.data.testset import TestSet, image_table
from heldout.data.testset.exporters.formats import export


def test_page_and_table(tmp_path: Path, pets: TestSet) -> None:
    result = export(pets, tmp_path / "out", form="folders", copy_images=False)
    assert (result.rows, result.copied) == (6, 0)
    with (tmp_path / "out" / "attributions.csv").open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert [row["image_id"] for row in rows] == pets.image_ids.to_pylist()
    assert rows[3]["attribution"] == "Ann | Co"
    assert rows[4]["note"] == "name the author; no commercial use"
    page = (tmp_path / "out" / "ATTRIBUTIONS.md").read_text(encoding="utf-8")
    assert "| CC-BY-4.0 | 3 | yes | name the author |" in page
    assert "| i4 | Ann \\| Co | candidate | CC-BY-4.0 |" in page
    assert "Lee, Kim: A Set of Pets, CVPR 2024" in page


def test_hostile_text_stays_text(
    tmp_path: Path, make_pets: Callable[..., TestSet], pets: TestSet
) -> None:
    evil = ["<script>alert(1)</script>", "a\n| b | c |", "[x](javascript:1)", "`", "*b*", "\\|"]
    columns = {"image_id": pets.image_ids.to_pylist(), "attribution": evil, "licence": evil}
    export(
        make_pets(images=image_table(columns)), tmp_path / "out", form="folders", copy_images=False
    )
    page = (tmp_path / "out" / "ATTRIBUTIONS.md").read_text()
    assert "<script>" not in page
    assert "](" not in page.replace("\\]", "")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + 6 + 1 + 6
    bars = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines]
    assert bars == [5] * 14
