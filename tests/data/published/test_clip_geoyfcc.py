"""Released lists: classes recovered from the order of positions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.data.labels.wordnet import load_built_in
from heldout.data.published.clip_geoyfcc import (
    read_class_list,
    read_released,
    recover_sizes,
    released_testset,
)
from heldout.data.published.clip_geoyfcc_exclusions import EXCLUDED_45


def concatenated(sizes: list[int], cap: int, *, seed: int, rows: int | None = None) -> np.ndarray:
    """Positions of classes in turn: capped ones as drawn, others rising."""
    rng = np.random.default_rng(seed)
    frame = rng.permutation(rows or 3 * sum(sizes))[: sum(sizes)]
    parts, at = [], 0
    for size in sizes:
        part = frame[at : at + size]
        parts.append(part if size == cap else np.sort(part))
        at += size
    return np.concatenate(parts)


@given(sizes=st.lists(st.integers(30, 80), min_size=1, max_size=25), seed=st.integers(0, 10_000))
@settings(max_examples=100)
def test_sizes_are_recovered(sizes: list[int], seed: int) -> None:
    cap = 80
    sizes = sorted(sizes, reverse=True)
    positions = concatenated(sizes, cap, seed=seed)
    falls = np.flatnonzero(np.diff(positions) < 0) + 1
    # Where a rise goes on by chance, the lists cannot tell.
    if set(np.cumsum([size for size in sizes if size < cap])[:-1] + cap * sizes.count(cap)) <= {
        *falls.tolist()
    }:
        assert recover_sizes(positions, len(sizes), cap=cap) == tuple(sizes)


def test_a_capped_class_that_goes_on_rising() -> None:
    drawn = np.concatenate([[70, 75], np.random.default_rng(0).permutation(58) + 100])
    assert recover_sizes(np.concatenate([np.arange(60), drawn]), 2, cap=60) == (60, 60)


def test_what_cannot_be_cut_is_refused() -> None:
    positions = concatenated([40, 30, 30], 80, seed=0)
    assert recover_sizes(positions, 2, cap=80) is None
    assert recover_sizes(positions, 4, cap=80) is None
    assert recover_sizes(positions, 3, cap=30) is None


def files(tmp_path: Path, positions: np.ndarray, wnids: list[str]) -> tuple[Path, Path]:
    np.save(tmp_path / "i.npy", positions)
    (tmp_path / "c.csv").write_text("wnid\n" + "\n".join(wnids) + "\n")
    return tmp_path / "i.npy", tmp_path / "c.csv"


WNIDS = ["n04334599", "n04157320", "n09718811"]


def test_a_list_becomes_a_test_set(tmp_path: Path) -> None:
    positions = concatenated([60, 40, 30], 60, seed=1, rows=200)
    released = read_released(*files(tmp_path, positions, WNIDS), cap=60)
    assert released.sizes == (60, 40, 30)
    assert released.counts["at_cap"] == 1
    assert released.counts["rows_below_cap"] == 70
    plain = released_testset(released, name="plain")
    assert plain.image_ids.to_pylist() == [str(p) for p in positions]
    frame = pa.table({"image_id": [f"key-{i}" for i in range(200)], "land": ["x", "y"] * 100})
    joined = released_testset(released, name="joined", frame=frame, columns=["land"])
    assert joined.image_ids.to_pylist() == [f"key-{p}" for p in positions]
    assert joined.images["land"].to_pylist() == ["xy"[p % 2] for p in positions]
    assert joined.truth()["class_id"].to_pylist() == [
        wnid for wnid, size in zip(WNIDS, (60, 40, 30), strict=True) for _ in range(size)
    ]
    with pytest.raises(UserError, match="of a frame of 10 rows"):
        released_testset(released, name="short", frame=frame.slice(0, 10))


def test_broken_files_are_refused(tmp_path: Path) -> None:
    positions = concatenated([60, 40, 30], 60, seed=1)
    indices, _ = files(tmp_path, positions, WNIDS)
    with pytest.raises(BadFile, match="cannot be cut into 2 classes"):
        read_released(*files(tmp_path, positions, WNIDS[:2]), cap=60)
    with pytest.raises(BadFile, match="positions twice"):
        read_released(*files(tmp_path, np.append(positions, positions[0]), WNIDS), cap=60)
    with pytest.raises(BadFile, match="list of positions"):
        read_released(*files(tmp_path, positions.astype(float), WNIDS), cap=60)
    with pytest.raises(BadFile, match="list of positions"):
        read_released(*files(tmp_path, positions - positions.max(), WNIDS), cap=60)
    with pytest.raises(BadFile, match="'n00000000', which ImageNet-21k does not"):
        read_released(*files(tmp_path, positions, [*WNIDS[:2], "n00000000"]), cap=60)
    with pytest.raises(BadFile, match="names a class twice"):
        read_released(*files(tmp_path, positions, [*WNIDS[:2], WNIDS[0]]), cap=60)
    with pytest.raises(NotFound, match="no file"):
        read_released(indices, tmp_path / "nowhere.csv", cap=60)


def test_a_class_list_may_have_further_columns(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    rows = "".join(f'{wnid},"a name\nof two\u2028lines"\n' for wnid in WNIDS)
    path.write_text(f"wnid,name\n{rows}", encoding="utf-8")
    assert read_class_list(path) == tuple(WNIDS)
    path.write_text("\n".join(WNIDS))
    with pytest.raises(BadFile, match="no column 'wnid'"):
        read_class_list(path)


@pytest.mark.shared
def test_the_released_350_classes(shared_data: Path) -> None:
    folder = shared_data / "geoyfcc"
    released = read_released(
        folder / "350_sample_indices.npy", folder / "350_label_wnids.csv", cap=2000
    )
    assert released.counts == {
        "rows": 338_730,
        "classes": 350,
        "at_cap": 37,
        "smallest_class": 476,
        "largest_class_below_cap": 1966,
        "rows_below_cap": 264_730,
        "lowest_position": 0,
        "highest_position": 1_146_762,
        "largest_without_exclusions": 45,
    }
    assert released.sizes[:37] == (2000,) * 37
    assert released.sizes[37:43] == (1966, 1944, 1904, 1841, 1829, 1816)
    assert released.sizes[-3:] == (477, 477, 476)
    assert list(released.sizes) == sorted(released.sizes, reverse=True)
    assert set(EXCLUDED_45) <= set(released.classes[:56])
    space = load_built_in("imagenet-21k")
    left = [space.get(c).name for c in released.classes[:56] if c not in EXCLUDED_45]
    assert len(left) == 45
    assert {"crab-eating opossum", "Aegean island", "mastaba", "gig"} <= set(left)
