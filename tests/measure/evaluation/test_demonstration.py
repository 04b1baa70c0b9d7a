"""The demonstration's inputs: outlines that fit their photographs, backgrounds, configurations."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.curate.compose.requests import load_request
from heldout.curate.cutouts.quality_check import Limits, measure
from heldout.data.labels import LabelSpace
from heldout.measure.evaluation.demonstration import (
    BACKDROPS,
    CANDIDATES,
    COMPOSED,
    ORIGINALS,
    Outlined,
    backdrop,
    mask_of,
    outlines,
    photo_folder,
    write_crops,
    write_inputs,
)

OUTLINES = outlines()


@pytest.mark.parametrize("entry", OUTLINES, ids=lambda entry: entry.name)
def test_an_outline_lies_in_its_photograph(entry: Outlined) -> None:
    with Image.open(photo_folder() / entry.photo) as photo:
        size = photo.size
    for polygon in (*entry.parts, *entry.holes):
        assert len(polygon) >= 4
        assert all(0 <= x <= size[0] and 0 <= y <= size[1] for x, y in polygon)
    mask = mask_of(entry, size)
    assert mask.size == size
    values = np.asarray(mask)
    assert ((values > 0) & (values < 255)).any(), "edges are smooth"
    found = measure(values.astype(np.float32) / 255, short_side=min(size))
    assert found.parts <= Limits().max_parts
    assert all(name in LabelSpace.load("imagenet-1k") for name in entry.classes)


def test_holes_are_taken_away() -> None:
    entry = next(entry for entry in OUTLINES if entry.holes)
    size = (512, 512)
    filled = Outlined(**{**vars_of(entry), "holes": ()})
    with_holes, without = (np.asarray(mask_of(each, size)) for each in (entry, filled))
    assert (with_holes <= without).all() and with_holes.sum() < without.sum()


def vars_of(entry: Outlined) -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


def test_backgrounds_are_calm_and_the_same_each_time() -> None:
    for ground in BACKDROPS:
        first, second = (np.asarray(backdrop(ground, photo_folder())) for _ in range(2))
        assert first.shape == (512, 512, 3) and (first == second).all()
        blocks = first.reshape(8, 64, 8, 64, 3).mean(axis=(1, 3))
        local = np.abs(np.diff(blocks, axis=0)).max()
        assert local < 40, f"{ground.name} has something large in it"


def test_inputs_are_written_once_and_complete(tmp_path: Path) -> None:
    folder = write_inputs(tmp_path / "inputs")

    def look() -> dict[str, tuple[int, bytes]]:
        return {
            path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    before = look()
    write_inputs(folder)
    assert look() == before, "a second time changes nothing"
    for entry in OUTLINES:
        stem = Path(entry.photo).stem
        assert {f"photos/{entry.name}/{stem}.png", f"masks/{entry.name}/{stem}.png"} <= set(before)
    for name in COMPOSED:
        request = load_request(folder / f"{name}.toml")
        assert request.title == name and request.renderer == "exact"
        assert len(BACKDROPS) >= request.backgrounds_per_object


def test_crops_for_a_replication(tmp_path: Path) -> None:
    """Equal seeds give equal files; originals show their object, of the candidates some do not."""
    one, two = (write_crops(tmp_path / name, seed=3) for name in ("one", "two"))
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert len(files) == 4 * (ORIGINALS + CANDIDATES) + 1
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in files)
    rows = list(csv.DictReader((one / "frequency.csv").read_text().splitlines()))
    shares: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        original = "/val-" in row["image_id"]
        folder = "originals" if original else "candidates"
        assert (one / folder / row["image_id"]).is_file()
        shares[original].append(float(row["frequency"]))
    assert min(shares[True]) > 0.79 and len(shares[True]) == 4 * ORIGINALS
    assert sum(share < 0.1 for share in shares[False]) >= 4 * (CANDIDATES // 6)
    assert max(map(float, shares[False])) <= 0.98
