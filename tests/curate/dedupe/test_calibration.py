"""Calibration: thresholds against oracles written pair by pair, and where thresholds come from."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.core.context import Context, Result
from heldout.core.errors import BadFile, NotApplicable, UserError
from heldout.core.request import make
from heldout.core.workspace import Workspace
from heldout.curate.dedupe.calibration import (
    DistanceThreshold,
    Photos,
    calibrate,
    calibration_of,
    copy_distances,
    distances,
    false_alarm_rate,
    false_alarms_allowed,
    largest_threshold,
    photos_needed,
    recalls,
)
from heldout.curate.dedupe.copies import COPIES, copies_of
from heldout.curate.dedupe.requests import CalibrateRequest
from heldout.curate.dedupe.search import encoder_of
from heldout.data.images.decode import decode
from heldout.data.images.preprocessing import apply_geometry
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.data.testset.testset import TestSet
from heldout.models.descriptors import FC7_IDENTITY, PixelEncoder, image_encoder, raw_pixels
from heldout.models.embeddings import encoder_key
from heldout.models.predictions.pixels import image_files
from heldout.stats.intervals import wilson
from tests.curate.dedupe.conftest import MakeSet

ROOT = Path(__file__).parents[3]

PHOTOS = {f"{n:02}.png": n for n in range(40)}


def calibrated(pool: TestSet, workspace: Workspace, **asked: Any) -> tuple[Result, Context]:
    context = Context(workspace)
    values = {"testset": context.bind(pool), "measures": ["hash"], "false_alarms": 0.02, **asked}
    return calibrate(make(CalibrateRequest, values), context), context


def symmetric(values: list[float]) -> np.ndarray:
    """Distances of pairs, in their order, as a matrix."""
    n = next(n for n in itertools.count(2) if n * (n - 1) // 2 >= len(values))
    made = np.zeros((n, n))
    rows, columns = np.triu_indices(n, 1)
    padded = values + [1e9] * (len(rows) - len(values))
    made[rows, columns] = made[columns, rows] = padded
    return made


WHOLE = st.integers(1, 300).map(float)
ANY = st.floats(1e-6, 1e9)


@given(values=st.lists(WHOLE, min_size=3, max_size=40) | st.lists(ANY, min_size=3, max_size=40),
       data=st.data())  # fmt: skip
def test_the_threshold_is_the_largest_that_lets_so_many_pass(
    values: list[float], data: st.DataObject
) -> None:
    allowed = data.draw(st.integers(0, len(values) - 1))
    between = symmetric(values)
    threshold = largest_threshold(between, allowed)
    pairs = [float(between[i, j]) for i, j in itertools.combinations(range(len(between)), 2)]
    assert sum(pair <= threshold for pair in pairs) <= allowed
    step = 10.0 ** (math.floor(math.log10(sorted(pairs)[allowed])) - 3)
    if all(pair == int(pair) for pair in pairs):
        step = max(step, 1.0)
        assert threshold == int(threshold)
    assert sum(pair <= threshold + 1.001 * step for pair in pairs) > allowed
    assert threshold == 0 or threshold == float(f"{threshold:.4g}")


def test_copies_among_the_photos_cannot_be_calibrated_on() -> None:
    with pytest.raises(NotApplicable, match=r"more than 1 pairs .* distance 0: leave copies out"):
        largest_threshold(symmetric([0.0, 0.0, 5.0]), 1)
    assert largest_threshold(symmetric([0.0, 3.0, 5.0]), 1) == 2.0


@given(rate=st.floats(1e-6, 0.5), wanted=st.integers(1, 20))
def test_photos_needed(rate: float, wanted: int) -> None:
    photos = photos_needed(rate, wanted)
    enough = wanted / rate
    assert photos * (photos - 1) / 2 >= enough * (1 - 1e-9)
    assert (photos - 1) * (photos - 2) / 2 < enough * (1 + 1e-9)


def test_too_few_photos_are_refused() -> None:
    assert false_alarms_allowed(142, 1e-4) == 1
    with pytest.raises(NotApplicable) as caught:
        false_alarms_allowed(141, 1e-4)
    assert caught.value.line == (
        "the 141 photos that set the threshold have 9,870 pairs, which cannot show 0.0001 false alarms: "
        "give 283 photos or more (the other half judges), or ask for more false alarms"
    )


@given(n=st.integers(3, 12), seed=st.integers(0, 50), threshold=st.floats(0, 1))
def test_the_rate_and_its_error_are_those_of_leaving_out_photos(
    n: int, seed: int, threshold: float
) -> None:
    between = symmetric(np.random.default_rng(seed).random(n * (n - 1) // 2).tolist())

    def share(photos: list[int]) -> float:
        pairs = list(itertools.combinations(photos, 2))
        return sum(bool(between[pair] <= threshold) for pair in pairs) / len(pairs)

    found = false_alarm_rate(between, threshold)
    value = share(list(range(n)))
    assert found.value == pytest.approx(value)
    assert 0 <= found.low <= found.value <= found.high <= 1
    without = np.array([share([i for i in range(n) if i != out]) for out in range(n)])
    variance = (n - 1) / n * ((without - without.mean()) ** 2).sum()
    if 0 < value < 1 and variance > 1e-12:
        # Wilson's interval with the number of draws that has this error.
        limits = wilson(value * (draws := value * (1 - value) / variance), draws)
        assert (found.low, found.high) == pytest.approx((limits.low, limits.high))
    elif value == 0:
        assert found.high == pytest.approx(1 - 0.025 ** (4 / (n * (n - 1))))


@pytest.mark.parametrize("measure", ["l2", "hash", "features", "dssim"])
def test_distances_are_those_of_every_pair(measure: Any) -> None:
    drawn = np.random.default_rng(0)
    if measure == "features":
        ours, theirs = drawn.random((3, 7), np.float32), drawn.random((5, 7), np.float32)
    else:
        width = 256 if measure == "hash" else PixelEncoder.dimension
        ours, theirs = (drawn.integers(0, 2, (n, width), np.uint8) for n in (2, 3))
        ours, theirs = (side * (1 if measure == "hash" else 200) for side in (ours, theirs))
    found = distances(measure, ours, theirs)
    if measure == "dssim":
        from skimage.metrics import structural_similarity

        how: dict[str, Any] = {"win_size": 35, "channel_axis": 2, "data_range": 255}
        images = [side.reshape(-1, 256, 256, 3) for side in (ours, theirs)]
        expected = [
            [(1 - structural_similarity(a, b, **how)) / 2 for b in images[1]]  # type: ignore[no-untyped-call]
            for a in images[0]
        ]
    else:
        expected = [[((a.astype(float) - b) ** 2).sum() for b in theirs] for a in ours]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("photos", [5, 6])
def test_as_many_photos_as_the_refusal_asks_for(
    make_set: MakeSet, workspace: Workspace, photos: int
) -> None:
    pool = make_set(f"few-{photos}", dict(list(PHOTOS.items())[:photos]))
    if photos == 6:
        assert calibrated(pool, workspace, false_alarms=0.4)[0].records[0].pairs == 3  # type: ignore[union-attr]
    else:
        with pytest.raises(NotApplicable, match="give 6 photos or more"):
            calibrated(pool, workspace, false_alarms=0.9)


@pytest.mark.parametrize("measure", ["hash", "l2"])
def test_a_calibration_is_what_an_oracle_finds(
    make_set: MakeSet, workspace: Workspace, measure: Any
) -> None:
    pool = make_set("photos", PHOTOS)
    result, context = calibrated(pool, workspace, measures=[measure], seed=3)
    (made,) = result.records
    encoder = encoder_of(measure, "lite0")

    def vector(image: Image.Image) -> np.ndarray:
        pixels = apply_geometry(image, encoder.preprocessing.geometry)
        return np.asarray(encoder.encode_images(pixels[None])[0], np.int64)

    files = {name: (pool.images_folder() / name).read_bytes() for name in PHOTOS}
    photos: dict[str, Image.Image] = {name: decode(data) for name, data in files.items()}  # type: ignore[misc]
    hashes = row_hash(sorted(photos), seed=derived_seed("calibration", 3)).tolist()
    order = [name for _, name in sorted(zip(hashes, sorted(photos), strict=True))]
    halves = [sorted(order[:20]), sorted(order[20:])]
    near = [
        sorted(
            int(((vector(photos[a]) - vector(photos[b])) ** 2).sum())
            for a, b in itertools.combinations(half, 2)
        )
        for half in halves
    ]
    allowed = int(0.02 * len(near[0]))
    assert made.photos == len(halves[0]) and made.pairs == len(near[1])
    assert near[0][allowed - 1] <= made.threshold < near[0][allowed]
    assert made.false_alarms == sum(d <= made.threshold for d in near[1]) / len(near[1])
    assert [recall.copy for recall in made.recalls] == list(COPIES)
    hits = dict.fromkeys(COPIES, 0)
    for name in halves[1]:
        for kind, image in copies_of(photos[name], name, seed=3):
            hits[kind] += ((vector(image) - vector(photos[name])) ** 2).sum() <= made.threshold
    for recall in made.recalls:
        assert (recall.n, recall.value) == (len(halves[1]), hits[recall.copy] / len(halves[1]))
        assert recall.low <= recall.value <= recall.high
    by_kind = {recall.copy: recall.value for recall in made.recalls}
    assert by_kind["jpeg-90"] == 1.0 and by_kind["flip"] < 0.5
    # It holds in this workspace from now on, and in no other.
    assert calibration_of(workspace, measure, encoder_key(encoder)) == made
    assert made.source.startswith("calibrated on 40 images of photos; finds ")
    few, nearest = context.notes
    assert f"lets {allowed} of {len(near[0]):,} pairs pass, which is few; 66 photos" in few
    assert f"({near[0][0]:.4g})" in nearest and f"({near[0][2]:.4g})" in nearest
    shown = result.to_markdown()
    assert f"{made.threshold:g}" in shown and "crop-90-corner" in shown
    assert json.loads(result.to_json())[0]["record"] == "calibration"


def test_a_copy_without_a_vector_is_not_found(make_set: MakeSet) -> None:
    pool = make_set("photos", {"a.png": 1, "b.png": 2})
    ids = pool.image_ids.to_pylist()

    class Blind(PixelEncoder):
        """Gives the mean of an image, and nothing for a dark one."""

        dimension = 1

        def encode_images(self, pixels: np.ndarray) -> np.ndarray:
            means = pixels.mean(axis=(1, 2, 3), dtype=np.float32)[:, None]
            return np.where(means < 0.9 * means[0], np.float32(np.nan), means)

    photos = Photos(image_files(pool), ids, np.arange(2), np.zeros((2, 1), np.float32))
    found = copy_distances("features", Blind(), photos, seed=0)
    assert found.shape == (2, len(COPIES))
    blind = [kind for kind, column in zip(COPIES, found.T, strict=True) if np.isinf(column).all()]
    assert "darker-20" in blind and "jpeg-90" not in blind
    assert np.isfinite(found[:, list(COPIES).index("flip")]).all()
    assert recalls("features", found, 1e9)[list(COPIES).index("darker-20")].value == 0


def test_workers_and_what_is_there_already_change_nothing(
    make_set: MakeSet, tmp_path: Path, workspace: Workspace
) -> None:
    pool = make_set("photos", PHOTOS)
    first = calibrated(pool, workspace, workers=1)[0].records
    assert calibrated(pool, workspace, workers=3)[0].records == first
    assert calibrated(pool, Workspace(tmp_path / "other"), workers=2)[0].records == first
    assert calibrated(pool, workspace, seed=1)[0].records != first


def test_files_that_are_the_same_or_broken_are_left_out(
    make_set: MakeSet, workspace: Workspace
) -> None:
    pool = make_set("photos", PHOTOS)
    expected = calibrated(pool, workspace)[0].records[0]
    (pool.images_folder() / "zz-broken.png").write_bytes(b"not an image")
    odd = make_set("photos", {**PHOTOS, "zz-again.png": 3, "zz-once more.png": 3})
    result, context = calibrated(odd, workspace)
    assert result.records[0] == expected
    assert any(note.startswith("zz-broken.png: unsupported: ") for note in context.notes)
    assert "2 images have the bytes of others, and are left out" in context.notes


def test_what_cannot_be_calibrated_is_refused(
    make_set: MakeSet, workspace: Workspace, tmp_path: Path
) -> None:
    pool = make_set("photos", PHOTOS)
    with pytest.raises(NotApplicable, match=r"cannot show 0\.0001 false alarms"):
        calibrated(pool, workspace, false_alarms=1e-4)
    with pytest.raises(NotApplicable, match=r"cannot show 0\.02 false alarms"):
        calibrated(pool, workspace, limit=9)
    assert not (workspace.root / "calibrations").exists()
    with pytest.raises(UserError, match="features has no use with measures without features"):
        make(CalibrateRequest, {"testset": "x", "measures": ["l2"], "features": "lite1"})
    np.savez(tmp_path / "v.npz", vectors=np.zeros((2, 3), np.float32), ids=np.array(["a", "b"]))
    with pytest.raises(UserError, match="holds vectors, not images: name a test set, pool or fold"):
        calibrated(pool, workspace, testset=str(tmp_path / "v.npz"))


def test_a_damaged_calibration_is_refused(make_set: MakeSet, workspace: Workspace) -> None:
    made = calibrated(make_set("photos", PHOTOS), workspace)[0].records[0]
    (path,) = (workspace.root / "calibrations").iterdir()
    assert path.name == f"hash@{made.encoder_key[:12]}.json"
    path.write_text(path.read_text().replace('"threshold": ', '"threshold": 1'))
    with pytest.raises(
        BadFile, match="is not as it was written: remove it, and run heldout calibrate"
    ):
        calibration_of(workspace, "hash", made.encoder_key)


def test_thresholds_without_a_calibration_of_ones_own(workspace: Workspace) -> None:
    """Published thresholds belong to what they were published for, shipped ones to what installs."""

    def known(measure: str, encoder: Any) -> DistanceThreshold | None:
        return calibration_of(workspace, measure, encoder_key(encoder))

    pixels: dict[str, DistanceThreshold | None] = {
        m: known(m, PixelEncoder()) for m in ("l2", "dssim")
    }
    for measure, threshold in {"l2": 1.2e8, "dssim": 0.2205}.items():
        found = pixels[measure]
        assert found is not None and found.threshold == threshold
        assert found.asked is None and found.source.startswith("published; finds ")
    fc7 = known(
        "features", SimpleNamespace(identity=FC7_IDENTITY, preprocessing=raw_pixels(224, 224))
    )
    assert fc7 is not None and fc7.threshold == 1.32e4 and fc7.source == "published"
    for measure, encoder in {
        "features": image_encoder("lite0", unit=True), "hash": image_encoder("hash")
    }.items():  # fmt: skip
        shipped = known(measure, encoder)
        assert shipped is not None and shipped.asked == 1e-4 and shipped.encoder == encoder.name
        assert [recall.copy for recall in shipped.recalls] == list(COPIES)
        assert shipped.low is not None and shipped.high is not None
        assert shipped.low <= 1e-4 <= shipped.high
    assert known("features", image_encoder("lite1", unit=True)) is None
    assert known("features", image_encoder("lite0")) is None
    assert known("features", PixelEncoder()) is None and known("l2", image_encoder("hash")) is None


def test_what_is_compared_by_default_is_calibrated(workspace: Workspace) -> None:
    for measure in ("l2", "features", "dssim", "hash"):
        key = encoder_key(encoder_of(measure, "lite0"))
        assert calibration_of(workspace, measure, key) is not None, measure


def test_the_table_in_the_docs_is_what_ships() -> None:
    text = (ROOT / "docs/dedupe.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    table = {cells[0]: cells[1:] for cells in lines if len(cells) == 5}
    shipped = {
        each["measure"]: each
        for each in json.loads((ROOT / "src/heldout/curate/dedupe/calibrations.json").read_bytes())
        if each["recalls"]
    }
    known = [shipped[measure] for measure in table.pop("copy")]
    rates = [
        [f"{1e4 * each[part]:.1f}" for part in ("false_alarms", "low", "high")] for each in known
    ]
    assert table.pop("**false alarms** in 10,000 pairs") == [
        f"{value} [{low}, {high}]" for value, low, high in rates
    ]
    found = [
        {kind["copy"]: f"{100 * kind['value']:.1f}" for kind in each["recalls"]} for each in known
    ]
    assert table == {copy: [each[copy] for each in found] for copy in COPIES}
