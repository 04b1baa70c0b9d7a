"""The demonstration's inputs: outlines that fit their photographs, backgrounds, configurations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.curate.compose.requests import load_request
from heldout.curate.cutouts.quality_check import Limits, measure
from heldout.data.labels import LabelSpace
from heldout.measure.evaluation.demonstration import (
    BACKDROPS,
    COMPOSED,
    Outlined,
    backdrop,
    mask_of,
    outlines,
    photo_folder,
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
