"""``heldout cutout``: every method from end to end, exit codes, one line for every fault."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.curate.cutouts.make import read_manifest
from tests.cli.conftest import Run
from tests.curate.cutouts.scenes import ellipse, encoded, iou, photos, scene, write
from tests.curate.cutouts.test_onnx_segmenter import graph


def masks_of(folder: Path) -> dict[str, np.ndarray]:
    """The mask of each cut-out in its whole photograph."""
    made = {}
    for cutout in read_manifest(folder).used:
        mask = np.zeros(cutout.photo_size[::-1], bool)
        left, top, width, height = cutout.box
        alpha = np.asarray(Image.open(folder / cutout.path))[..., 3]
        mask[top : top + height, left : left + width] = alpha >= 128
        made[cutout.file] = mask
    return made


def test_grabcut(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    cut = ("cutout", "grabcut", tmp_path / "photos", "-o", tmp_path / "out", "-w", tmp_path)
    ran = run(*cut)
    assert ran.code == 0 and "4 cut-outs of 2 classes" in ran.out
    assert all(iou(mask, ellipse()) > 0.9 for mask in masks_of(tmp_path / "out").values())
    again = run(*cut, "--json")
    assert again.code == 0 and [entry["file"] for entry in again.json] == [
        "cup/0.png", "cup/1.png", "dog/0.png", "dog/1.png",
    ]  # fmt: skip


def test_a_network(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "photos", each=1)
    model = graph(tmp_path / "u2.onnx")
    ran = run("cutout", "onnx", tmp_path / "photos", "-o", tmp_path / "out", "--network", model)
    assert ran.code == 0
    assert all(iou(mask, ellipse()) > 0.9 for mask in masks_of(tmp_path / "out").values())
    method = read_manifest(tmp_path / "out").method
    assert method["family"]["name"] == "u2net" and len(method["weights"]) == 64


@pytest.mark.shared
def test_own_alpha_gives_the_shared_cut_outs_back(
    run: Run,
    tmp_path: Path,
    shared_data: Path,
) -> None:
    samples = shared_data / "siscore/foreground_samples"
    ran = run("cutout", "masks", samples, "-o", tmp_path / "out")
    assert ran.code == 0
    for file in sorted(samples.glob("*/*.png")):
        made = Image.open(tmp_path / "out" / file.relative_to(samples))
        assert np.array_equal(np.asarray(made), np.asarray(Image.open(file)))


def test_masks_of_another_size_and_missing_ones(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "photos", each=3)
    (tmp_path / "photos/dog/2.png").rename(tmp_path / "photos/dog/alone.png")
    mask = (255 * ellipse()).astype(np.uint8)
    write(tmp_path / "masks/cup/0.png", mask)
    write(tmp_path / "masks/cup/1.png", (255 * ellipse(60, 45)).astype(np.uint8))
    write(tmp_path / "masks/cup/2.png", (255 * ellipse(50, 50)).astype(np.uint8))
    write(tmp_path / "masks/dog/0.png", np.zeros((90, 120), np.uint8))
    (tmp_path / "masks/dog/1.png").write_bytes(b"broken")
    ran = run(
        "cutout", "masks", tmp_path / "photos", "--masks", tmp_path / "masks", "-o", tmp_path / "out"
    )  # fmt: skip
    assert ran.code == 3 and "2 cut-outs" in ran.out
    assert "50 × 50 pixels, the photo 120 × 90" in ran.err and "cannot be read as a mask" in ran.err
    assert re.search(r"set aside\n.*\ndog/0.png +no object", ran.out) and "1 skipped" in ran.err
    made = masks_of(tmp_path / "out")
    assert np.array_equal(made["cup/0.png"], ellipse()) and iou(made["cup/1.png"], ellipse()) > 0.95


def test_coco_polygons_and_runs(run: Run, tmp_path: Path) -> None:
    mask = ellipse()
    write(tmp_path / "photos/1.png", scene(mask))
    flat = mask.T.ravel().astype(int)
    edges = np.flatnonzero(np.diff(np.r_[0, flat]))
    counts = np.diff(np.r_[0, edges, flat.size]).tolist()
    corners = [10, 10, 100, 10, 100, 80, 10, 80]
    value = {
        "images": [{"id": 1, "file_name": "1.png", "width": 120, "height": 90}],
        "categories": [{"id": 1, "name": "cup"}],
        "annotations": [
            {"id": i, "image_id": 1, "category_id": 1, "segmentation": stated}
            for i, stated in enumerate(
                (
                    [corners],
                    {"size": [90, 120], "counts": counts},
                    {"size": [90, 120], "counts": [7]},
                ),
                1,
            )
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(value))
    base = (tmp_path / "photos", "--annotations", tmp_path / "a.json", "-w", tmp_path)
    ran = run("cutout", "coco", *base, "-o", tmp_path / "out")
    assert ran.code == 3 and "run lengths of 7 pixels" in ran.err
    made = masks_of(tmp_path / "out")
    assert made["cup/1_1.png"].sum() == 90 * 70 and np.array_equal(made["cup/1_2.png"], mask)


def test_openimages(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "photos/abc.jpg", scene(ellipse(240, 180)), quality=95)
    write(tmp_path / "masks/abc_m0k_1.png", (255 * ellipse(120, 90)).astype(np.uint8))
    (tmp_path / "seg.csv").write_text("MaskPath,ImageID,LabelName\nabc_m0k_1.png,abc,/m/0k\n")
    (tmp_path / "names.csv").write_text("/m/0k,Coffee cup\n")
    ran = run(
        "cutout", "openimages", tmp_path / "photos", "-o", tmp_path / "out",
        "--masks", tmp_path / "masks",
        "--annotations", tmp_path / "seg.csv", "--class-names", tmp_path / "names.csv",
    )  # fmt: skip
    assert ran.code == 0
    made = masks_of(tmp_path / "out")["Coffee cup/abc_m0k_1.png"]
    assert iou(made, ellipse(240, 180)) > 0.97
    alpha = np.asarray(Image.open(tmp_path / "out/Coffee cup/abc_m0k_1.png"))[..., 3]
    assert set(np.unique(alpha)) == {0, 255}


def test_classes_credits_and_the_gate(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "photos", classes=("any",))
    (tmp_path / "t.csv").write_text("file,class,license\n0.png,cup,CC-BY-ND-2.0\n1.png,mug,\n")
    base = (
        "cutout", "grabcut", tmp_path / "photos", "-o", tmp_path / "out", "-w", tmp_path,
        "--table", tmp_path / "t.csv",
    )  # fmt: skip
    ran = run(*base)
    assert ran.code == 0 and "1 photos are under a licence that allows no changed copies" in ran.err
    manifest = read_manifest(tmp_path / "out")
    assert [(c.file, c.licence) for c in manifest.used] == [
        ("cup/0.png", "CC-BY-ND-2.0"), ("mug/1.png", ""),
    ]  # fmt: skip
    strict = run(*base, "--gate", "max_fraction=0.2", "--replace")
    assert strict.code == 0 and "2 set aside" in strict.out


def test_the_review_goes_back_in(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "photos", classes=("cup",))
    base = ("cutout", "grabcut", tmp_path / "photos", "-o", tmp_path / "out", "-w", tmp_path)
    assert run(*base).code == 0
    (tmp_path / "r.csv").write_text('file,verdict\n"cup/0.png",drop\n')
    ran = run(*base, "--review", tmp_path / "r.csv", "--replace")
    assert ran.code == 0 and re.search(r"cup/0.png +dropped in review", ran.out)
    assert not (tmp_path / "out/cup/0.png").exists() and (tmp_path / "out/cup/1.png").exists()


def test_an_archive_of_photos(run: Run, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("cup/0.png", encoded(scene(ellipse())))
    ran = run("cutout", "grabcut", tmp_path / "p.zip", "-o", tmp_path / "out")
    assert ran.code == 0 and (tmp_path / "out/cup/0.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["magic"], "no method 'magic': there is masks, coco, openimages, grabcut, onnx"),
        (["onnx"], "--network is missing"),
        (["coco"], "--annotations is missing"),
        (["openimages", "--annotations", "x.csv"], "--masks is missing"),
        (["grabcut", "--network", "x.onnx"], "No such option '--network'"),
        (["onnx", "--network", "none.onnx"], "no ONNX file"),
        (["masks", "--masks", "none"], "no folder of masks"),
        (["coco", "--annotations", "none.json"], "no file"),
        (["grabcut", "--gate", "borders=1"], "the name one of min_fraction"),
        (["grabcut", "--gate", "max_border=wide"], "--gate: Expected `float`"),
        (["grabcut", "--gate", "max_border=7"], "limit of the check"),
        (["grabcut", "--gate", "0.5"], "write name=value"),
        (["grabcut", "--workers", "0"], "--workers is '0': give a whole number >= 1"),
    ],
)
def test_faults_are_one_line(arguments: list[str], says: str, run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "photos", each=1)
    method, *more = arguments
    ran = run("cutout", method, tmp_path / "photos", "-o", tmp_path / "out", *more)
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert ran.code == 2 and len(errors) == 1 and says in errors[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("cv2", ["grabcut"], "heldout[compose]"),
        ("onnxruntime", ["onnx", "--network", "u2.onnx"], "heldout[onnx]"),
    ],
)
def test_a_missing_library_is_one_line(
    module: str,
    arguments: list[str],
    extra: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    photos(tmp_path / "photos", each=1)
    graph(tmp_path / "u2.onnx")
    monkeypatch.setitem(sys.modules, module, None)
    method, *more = arguments
    ran = run("cutout", method, tmp_path / "photos", "-o", tmp_path / "out", *more)
    assert ran.code == 2 and extra in ran.err and ran.err.count("error: ") == 1
    assert not (tmp_path / "out").exists()


def test_no_photos(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert run("cutout", "grabcut", tmp_path / "photos", "-o", tmp_path / "out").code == 2
    assert run("cutout", "grabcut", tmp_path / "none", "-o", tmp_path / "out").code == 2
    write(tmp_path / "photos/flat.png", scene(ellipse()))
    ran = run("cutout", "grabcut", tmp_path / "photos", "-o", tmp_path / "out")
    assert ran.code == 2 and "--table FILE.csv" in ran.err
