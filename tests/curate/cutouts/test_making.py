"""Folders of cut-outs: complete, resumable, in one step, nothing lost."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.core.engine import Executor, Threads
from heldout.core.errors import BadFile, ExistsError, UserError
from heldout.core.files import sha256_file
from heldout.curate.cutouts.make import Manifest, make_cutouts, read_manifest, read_review
from heldout.curate.cutouts.outlines import polygons, whole_photos
from heldout.curate.cutouts.photos import CutoutJob, CutoutJobs, PhotoFacts, Photographs
from heldout.curate.cutouts.quality_check import Cleaning, Limits
from heldout.curate.cutouts.segmenters import GrabCut
from heldout.data.images import FolderSource, MemorySource
from heldout.testing.compose import FakeSegmenter
from heldout.testing.executor import FakeExecutor
from tests.curate.cutouts.scenes import ellipse, encoded, iou, photos, scene, write

SEGMENTER = FakeSegmenter(95)


def make(root: Path, out: Path, *, subjects: CutoutJobs | None = None, **options: Any) -> Manifest:
    source = FolderSource(root)
    given: dict[str, Any] = {
        "runs": out.parent / "runs",
        "method": "fake",
        "cleaning": Cleaning(stray=0.1, holes=0.02),
        "limits": Limits(),
        "segmenter": SEGMENTER,
        **options,
    }
    return make_cutouts(source, subjects or whole_photos(Photographs(source.ids())), out, **given)


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder, hidden ones too, by the hash of its bytes."""
    return {
        (Path(base) / name).relative_to(folder).as_posix(): sha256_file(Path(base) / name)
        for base, _, files in os.walk(folder)
        for name in files
    }


def test_a_folder_of_cut_outs(tmp_path: Path) -> None:
    manifest = make(photos(tmp_path / "photos"), tmp_path / "out")
    assert [c.file for c in manifest.used] == ["cup/0.png", "cup/1.png", "dog/0.png", "dog/1.png"]
    assert set(tree(tmp_path / "out")) == {
        "cup/0.png", "cup/1.png", "dog/0.png", "dog/1.png",
        "attributions.csv", "manifest.json", "sheet-001.html",
    }  # fmt: skip
    assert read_manifest(tmp_path / "out") == manifest
    for cutout in manifest.cutouts:
        rgba = np.asarray(Image.open(tmp_path / "out" / cutout.path))
        left, top, width, height = cutout.box
        photo = np.asarray(Image.open(tmp_path / "photos" / cutout.photo))
        assert rgba.shape == (height, width, 4)
        # The photograph stays under alpha 0.
        assert np.array_equal(rgba[..., :3], photo[top : top + height, left : left + width])
        mask = np.zeros((90, 120), bool)
        mask[top : top + height, left : left + width] = rgba[..., 3] > 0
        assert iou(mask, ellipse()) > 0.95 and mask.sum() == cutout.mask_pixels
        assert cutout.sha256 == sha256_file(tmp_path / "out" / cutout.path)
        assert cutout.photo_sha256 == sha256_file(tmp_path / "photos" / cutout.photo)


def test_workers_and_interruptions_change_nothing(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", each=4)
    make(root, tmp_path / "one/out")
    executors: list[Executor] = [Threads(3), FakeExecutor(seed=5)]
    for place, executor in enumerate(executors):
        make(root, tmp_path / f"other{place}/out", executor=executor)
        assert tree(tmp_path / f"other{place}/out") == tree(tmp_path / "one/out")
    with pytest.raises(KeyboardInterrupt):
        make(root, tmp_path / "cut/out", executor=FakeExecutor(stop_after=3, in_flight=2))
    assert not (tmp_path / "cut/out").exists()
    ticks: list[Any] = []
    make(root, tmp_path / "cut/out", progress=ticks.append)
    assert ticks[-1].found >= 3
    assert tree(tmp_path / "cut/out") == tree(tmp_path / "one/out")


def test_grabcut_in_threads_draws_the_same_numbers(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", each=3)
    for executor, name in ((None, "one"), (Threads(3), "many")):
        make(root, tmp_path / name / "out", segmenter=GrabCut(), executor=executor)
    assert tree(tmp_path / "one/out") == tree(tmp_path / "many/out")


def test_the_same_again_is_no_change_and_another_is_refused(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    make(root, tmp_path / "out")
    before = tree(tmp_path / "out")
    make(root, tmp_path / "out")
    with pytest.raises(ExistsError, match="--replace"):
        make(root, tmp_path / "out", cleaning=Cleaning(soft=True))
    assert tree(tmp_path / "out") == before
    make(root, tmp_path / "out", segmenter=FakeSegmenter(97), replace=True)
    changed = tree(tmp_path / "out")
    assert changed != before and set(changed) == set(before)


def test_a_damaged_folder_is_not_taken_for_whole(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    make(root, tmp_path / "out")
    before = tree(tmp_path / "out")
    (tmp_path / "out/cup/0.png").write_bytes(b"damaged")
    with pytest.raises(ExistsError):
        make(root, tmp_path / "out")
    make(root, tmp_path / "out", replace=True)
    assert tree(tmp_path / "out") == before


def test_stale_cut_outs_never_stay(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    make(root, tmp_path / "out")
    (root / "dog/1.png").unlink()
    make(root, tmp_path / "out", replace=True)
    assert "dog/1.png" not in tree(tmp_path / "out")


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/letter.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(ExistsError, match="no cut-outs of ours"):
            make(root, tmp_path / "out", replace=replace)
    assert tree(tmp_path / "out").keys() == {"letter.txt"}
    with pytest.raises(ExistsError):
        make(root, tmp_path / "out/letter.txt")
    (tmp_path / "empty").mkdir()
    assert make(root, tmp_path / "empty").used


def test_bad_photos_are_listed_and_the_rest_is_made(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    (root / "cup/broken.jpg").write_bytes(encoded(scene(ellipse()), "JPEG")[:500])
    (root / "cup/empty.png").write_bytes(b"")
    (root / "cup/page.jpg").write_text("<html>")
    manifest = make(root, tmp_path / "out")
    assert len(manifest.used) == 4
    assert [p.photo for p in manifest.failures] == [
        "cup/broken.jpg",
        "cup/empty.png",
        "cup/page.jpg",
    ]
    assert all(p.reason and "\n" not in p.reason for p in manifest.failures)
    assert read_manifest(tmp_path / "out").failures == manifest.failures
    write(root / "cup/empty.png", scene(ellipse(), seed=9))  # replaced
    again = make(root, tmp_path / "out", replace=True)
    assert len(again.used) == 5 and len(again.failures) == 2


def test_photos_that_vanish_are_listed(tmp_path: Path) -> None:
    source = MemorySource({"a/1.png": encoded(scene(ellipse()))})
    subjects = whole_photos(Photographs(["a/1.png", "a/2.png"]))
    manifest = make_cutouts(
        source, subjects, tmp_path / "out", runs=tmp_path / "runs", method="fake",
        cleaning=Cleaning(), limits=Limits(), segmenter=SEGMENTER,
    )  # fmt: skip
    assert [p.photo for p in manifest.failures] == ["a/2.png"] and len(manifest.used) == 1


def test_two_copies_of_a_photo_are_both_cut_out(tmp_path: Path) -> None:
    for name in ("cup/a", "mug/a"):
        write(tmp_path / f"photos/{name}.png", scene(ellipse()))
    manifest = make(tmp_path / "photos", tmp_path / "out")
    assert [c.file for c in manifest.used] == ["cup/a.png", "mug/a.png"]
    assert len({c.sha256 for c in manifest.used}) == 1


def test_flagged_cut_outs_are_set_aside_and_can_be_kept(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", classes=("cup",))
    write(root / "cup/none.png", np.zeros((90, 120, 3), np.uint8))
    write(root / "cup/white.png", np.full((90, 120, 3), 255, np.uint8))
    manifest = make(root, tmp_path / "out")
    assert {c.file: c.verdict for c in manifest.cutouts} == {
        "cup/0.png": "good", "cup/1.png": "good", "cup/none.png": "flagged", "cup/white.png": "flagged",
    }  # fmt: skip
    files = tree(tmp_path / "out")
    assert ".flagged/cup/white.png" in files and "cup/white.png" not in files
    assert not any("none" in name for name in files)  # nothing could be cut out of it
    review = {"cup/white.png": "keep", "cup/0.png": "drop", "cup/none.png": "keep"}
    seen = make(root, tmp_path / "out", review=review, replace=True)
    assert [(c.file, c.verdict) for c in seen.used] == [
        ("cup/1.png", "good"),
        ("cup/white.png", "kept"),
    ]
    assert set(tree(tmp_path / "out")) >= {".flagged/cup/0.png", "cup/white.png"}
    assert (tmp_path / "out/attributions.csv").read_text().splitlines()[1:] == [
        "cup/1.png,,,", "cup/white.png,,,",
    ]  # fmt: skip


def test_limits_judge_without_cutting_again(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    make(root, tmp_path / "out")
    ticks: list[Any] = []
    manifest = make(
        root, tmp_path / "strict", limits=Limits(max_fraction=0.1), progress=ticks.append
    )
    assert ticks[-1].found == 4 and len(manifest.flagged) == 4


def test_several_objects_of_one_photo(tmp_path: Path) -> None:
    both = np.zeros((90, 240), bool)
    both[:, :120] = both[:, 120:] = ellipse()
    write(tmp_path / "photos/a.png", scene(both))
    size = {"width": 240, "height": 90}
    corners = {"left": (0, 0, 120, 0, 120, 90, 0, 90), "right": (120, 0, 240, 0, 240, 90, 120, 90)}
    subjects = CutoutJobs(
        [
            CutoutJob(photo="a.png", class_name="cup", name=name, outline=polygons([part], **size))
            for name, part in corners.items()
        ]
    )
    subjects.fail("b.png", "annotation 7", "the photo is not there")
    manifest = make(tmp_path / "photos", tmp_path / "out", subjects=subjects)
    assert [c.box for c in manifest.cutouts] == [(0, 0, 120, 90), (120, 0, 120, 90)]
    assert list(manifest.failures) == subjects.failures


def test_credits_are_kept(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", classes=("cup",), each=1)
    facts = {"cup/0.png": PhotoFacts(licence="CC-BY-2.0", attribution='Ann "A", Bo')}
    photographs = Photographs(["cup/0.png"], facts)
    make(root, tmp_path / "out", subjects=whole_photos(photographs))
    with (tmp_path / "out/attributions.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert rows == [
        {"file": "cup/0.png", "licence": "CC-BY-2.0", "attribution": 'Ann "A", Bo', "source": ""}
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file\na.png\n", "no columns"),
        ("file,verdict\na.png,maybe\n", "'maybe'"),
        ("file,verdict\na.png\n", "cannot be read as CSV"),
    ],
)
def test_reviews_that_cannot_be_used(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(BadFile, match=says):
        read_review(tmp_path / "r.csv")


def test_a_review_of_other_cut_outs_is_refused(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    with pytest.raises(UserError, match="cat/7"):
        make(root, tmp_path / "out", review={"cat/7.png": "keep"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text", ["{}", '{"schema_version": 9}', '{"schema_version": 1}', "nonsense"]
)
def test_manifests_that_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(BadFile, match=r"manifest\.json"):
        read_manifest(tmp_path)
