"""Tests of :mod:`heldout.curate.compose.build`."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.core import files
from heldout.core.engine import Processes
from heldout.core.errors import ExistsError, UserError
from heldout.core.request import make
from heldout.curate.build import run_recipe
from heldout.curate.compose.build import Composed, build_compose, estimate, gather, recipe
from heldout.curate.compose.requests import ComposeRequest
from heldout.data.labels.siscore import siscore_names
from heldout.data.testset.exporters.formats import export
from heldout.data.testset.verify import verify
from heldout.testing.executor import FakeExecutor
from heldout.testing.recipe_conformance import check_recipe
from tests.curate.compose import compose_examples as examples
from tests.curate.compose import oracle

# Whole builds: the same for any number of workers, after any kill, and never half of one.


SMALL = {"resolution": "64", "factors": {"size": [0.1, 0.4, 0.9], "rotation": [0, 30]}}


def asked(folder: Path, **values: Any) -> ComposeRequest:
    return make(
        ComposeRequest,
        {"foregrounds": folder / "f", "backgrounds": folder / "b", **SMALL, **values},
    )


def build(folder: Path, name: str = "set", *, replace: bool = False, **values: Any) -> Composed:
    made = asked(folder, replace=replace, **values)
    return build_compose(made, folder / name, runs=folder / "runs", workers=1)


def hashes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_recipe_conforms(tmp_path: Path) -> None:
    check_recipe(
        "heldout.curate.compose.build:recipe",
        "compose.compose_examples:make_sources",
        parameters={"resolution": ["32"], "size": [0.1, 0.5, 1.0], "x": [0.2, 0.5]},
        scratch=tmp_path / "builds",
        seed=3,
    )


def test_the_siscore_layout_conforms_where_it_can_be_killed(tmp_path: Path) -> None:
    check_recipe(
        "heldout.curate.compose.build:recipe",
        "compose.compose_examples:make_sources",
        parameters={"resolution": ["32"], "size": [0.1, 0.5], "layout": "siscore"},
        scratch=tmp_path / "builds",
        checks=["resume", "card", "licences"],
    )


def test_a_set_says_what_it_is(folder: Path) -> None:
    made = build(folder, seed=5)
    testset, card = made.testset, made.testset.card
    assert verify(folder / "set").findings == ()
    assert card.counts["candidates"] == 4 * 2 * 6 and card.counts["images"] == len(testset)
    assert card.factors == ("size", "rotation")
    assert (card.clusters, card.units) == ("object", ("object", "background"))
    assert card.columns["rotation"].period == 360 and card.columns["x"].grid == "location"
    assert card.recipe["seed"] == 5 and card.recipe["parameters"]["size"] == [0.1, 0.4, 0.9]
    row = next(r for r in testset.images.to_pylist() if r["image_id"].startswith("vase/"))
    assert row["object"] == "vase/grey.png"
    assert row["path"] == f"{row['image_id']}.jpg"
    assert 0 < row["mask_fraction"] < row["size"] and row["visible_fraction"] == 1.0
    assert testset.label_space.name == "imagenet-1k"
    truth = {r["image_id"]: r["class_id"] for r in testset.truth().to_pylist()}
    assert truth[row["image_id"]] == testset.label_space.ids[883]
    assert not (folder / "runs").exists() or not any((folder / "runs").iterdir())


def test_columns_join_with_what_people_write_and_metadata_do_not_round(folder: Path) -> None:
    made = build(
        folder, layout="siscore", preset="location", min_inside=0, resolution="32",
        factors={"size": [0.2]}, backgrounds_per_object=1,
    )  # fmt: skip
    assert 0.15 in made.testset.images["x"].to_pylist()
    text = (folder / "set" / "metadata.csv").read_bytes()
    assert b"0.15000000000000002" in text and b"\r\n" in text


def test_a_layout_beside_a_sets_own_files(folder: Path) -> None:
    build(folder, layout="siscore")
    assert verify(folder / "set").findings == ()
    assert (folder / "set" / "bagel").is_dir() and (folder / "set" / "card.json").is_file()
    (folder / "set" / "metadata.csv").write_text("changed")
    assert [f.check for f in verify(folder / "set").findings] == ["document"]
    (folder / "f" / "bagel").rename(folder / "f" / "truth")
    with pytest.raises(UserError, match="a class named 'truth'"):
        build(folder, "other", layout="siscore", labels="folders")


def test_layouts_hold_the_same_images(folder: Path) -> None:
    plain, siscore = build(folder, "plain"), build(folder, "siscore", layout="siscore")
    assert plain.testset.card.images_hash == siscore.testset.card.images_hash
    assert plain.testset.card.content_hash == siscore.testset.card.content_hash


def test_a_set_of_before_is_the_same_set(folder: Path) -> None:
    """Cards once held ``lossless`` beside the format."""
    build(folder)
    path = folder / "set" / "card.json"
    card = json.loads(path.read_text(encoding="utf-8"))
    del card["check"]  # as before there were any
    card["recipe"]["parameters"]["lossless"] = False
    path.write_text(json.dumps(card), encoding="utf-8")
    assert build(folder).unchanged
    with pytest.raises(ExistsError):
        build(folder, quality=90)


def test_the_same_request_again_changes_nothing(folder: Path) -> None:
    build(folder)
    before = {p: p.stat().st_mtime_ns for p in (folder / "set").rglob("*")}
    again = build(folder)
    assert again.unchanged
    assert {p: p.stat().st_mtime_ns for p in (folder / "set").rglob("*")} == before


def test_another_request_is_refused_and_leaves_no_stale_file(folder: Path) -> None:
    build(folder)
    with pytest.raises(ExistsError, match="holds another test set"):
        build(folder, seed=1)
    smaller = build(folder, replace=True, factors={"size": [0.1]})
    files = [p for p in (folder / "set" / "images").rglob("*") if p.is_file()]
    assert len(files) == len(smaller.testset) == 8
    assert [p.name for p in folder.iterdir() if p.name.startswith(".tmp")] == []


def test_a_folder_of_something_else_is_refused_before_any_work(folder: Path) -> None:
    (folder / "set").mkdir()
    (folder / "set" / "thesis.txt").write_text("x")
    with pytest.raises(ExistsError, match="is not a test set"):
        build(folder)
    assert not (folder / "runs").exists()


def test_an_error_in_the_inputs_leaves_nothing(folder: Path) -> None:
    (folder / "f" / "no such class").mkdir()
    examples.save(examples.cutout(9, 9), folder / "f" / "no such class" / "a.png")
    with pytest.raises(UserError, match="no such class"):
        build(folder, layout="siscore")
    assert not (folder / "set").exists() and not (folder / "runs").exists()


@pytest.mark.parametrize("layout", ["plain", "siscore"])
def test_workers_do_not_matter(layout: str, folder: Path) -> None:
    request = asked(folder, layout=layout)
    found = []
    for name, executor in (("one", None), ("two", Processes(2)), ("odd", FakeExecutor(seed=1))):
        sources, _ = gather(request)
        run_recipe(
            recipe,
            sources,
            folder=folder / name,
            runs=folder / f"runs-{name}",
            parameters=request,
            name="set",
            executor=executor,
        )
        found.append(hashes(folder / name))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("values", "kind", "ending"),
    [
        ({"format": "png"}, "PNG", ".png"),
        ({"format": "webp", "quality": 80}, "WEBP", ".webp"),
        ({"quality": 95}, "JPEG", ".jpg"),
    ],
)
def test_other_encodings(values: dict[str, Any], kind: str, ending: str, folder: Path) -> None:
    made = build(folder, **values)
    path = folder / "set" / "images" / made.testset.images["path"][0].as_py()
    assert path.suffix == ending
    with Image.open(path) as image:
        assert image.format == kind and image.mode == "RGB"


def test_jpeg_is_what_pillow_writes_by_default(folder: Path) -> None:
    build(folder, format="png")
    build(folder, "jpeg")
    for row in build(folder, "jpeg").testset.images.to_pylist()[:5]:
        plain = Image.open((folder / "set" / "images" / row["path"]).with_suffix(".png"))
        stream = io.BytesIO()
        plain.save(stream, "JPEG")
        assert (folder / "jpeg" / "images" / row["path"]).read_bytes() == stream.getvalue()


def test_an_outlook_counts_what_a_build_makes(folder: Path) -> None:
    found = estimate(asked(folder, min_inside=1))
    made = build(folder, min_inside=1).testset
    assert found.counts["images"] == len(made) < found.counts["candidates"] == 48
    assert sum(found.values["size"].values()) == sum(found.classes.values()) == len(made)
    assert found.bytes > 0 and found.seconds > 0


def test_a_doubtful_class_is_noted_once(folder: Path) -> None:
    (folder / "f" / "bagel").rename(folder / "f" / "kite")
    for found in (estimate(asked(folder)), build(folder), build(folder)):
        assert len([note for note in found.notes if "index 21" in note]) == 1


def test_licences_and_attributions_of_both_inputs(folder: Path) -> None:
    (folder / "b" / "attributions.csv").write_text(examples.ATTRIBUTIONS)
    made = build(folder, foregrounds_licence="CC-BY-4.0", backgrounds_per_object=3)
    rows = {row["background"]: row for row in made.testset.images.to_pylist()}
    assert rows["a.jpg"]["licence"] == "CC-BY-2.0 AND CC-BY-4.0"
    assert rows["a.jpg"]["attribution"] == "Ann"
    assert rows["a.jpg"]["source"] == "https://example.org/a"
    assert rows["b.png"]["licence"] == "CC-BY-4.0 AND CC0-1.0"
    assert rows["c.jpeg"]["licence"] == "CC-BY-4.0 AND unknown"


def test_tar_files_through_the_export(folder: Path) -> None:
    made = build(folder)
    export(made.testset, folder / "tar", form="webdataset", allow_licence=True)
    assert list((folder / "tar").rglob("*.tar"))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_and_started_again_it_gives_the_same_folder(folder: Path) -> None:
    command = [sys.executable, "-c", "from heldout.cli import main; main()", "build", "compose"]
    command += [
        "--foregrounds",
        "f",
        "--backgrounds",
        "b",
        "--preset",
        "rotation",
        "--layout",
        "siscore",
    ]
    command += ["-o", "set", "--workers", "1"]

    def run(kill_at: int | None = None) -> int:
        """Run the command, killed once so many units are done; its exit code."""
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
            while kill_at is not None and process.poll() is None:
                if len(list((folder / "runs").glob("compose-*/results/*/*"))) >= kill_at:
                    os.kill(process.pid, signal.SIGKILL)
                    break
                time.sleep(0.002)
        return process.returncode

    for wanted in (1, 3):
        assert run(wanted) == -signal.SIGKILL
        assert not (folder / "set").exists()
    # A file that the killed run left half written, and one that somebody changed.
    files = sorted((folder / "runs").glob("compose-*/files/*/*.jpg"))
    files[0].write_bytes(files[0].read_bytes()[:100])
    assert run() == 0
    inputs = {"foregrounds": folder / "f", "backgrounds": folder / "b"}
    request = make(ComposeRequest, {**inputs, "preset": "rotation", "layout": "siscore"})
    (folder / "other").mkdir()
    build_compose(request, folder / "other" / "set", runs=folder / "runs2", workers=1)
    assert hashes(folder / "set") == hashes(folder / "other" / "set")
    assert not list(folder.glob(".tmp*"))
    assert all(path.stat().st_size for path in (folder / "set").rglob("*.jpg"))


def test_backgrounds_by_class_serve_the_mixed_variants(folder: Path) -> None:
    for i, name in enumerate(("bagel", "lemon", "vase")):
        picture = Image.fromarray(examples.noise(80, 70, 3, 60 + i))
        examples.save(picture, folder / "b" / name / "photo.png")
    made = build(
        folder,
        resolution="48",
        backgrounds_per_object=1,
        factors={"size": [0.3], "variant": ["original", "mixed_same", "mixed_next", "only_fg"]},
    )
    rows = made.testset.images.to_pylist()
    order = ["bagel", "lemon", "vase"]
    for row in rows:
        mine, shown = row["image_id"].partition("/")[0], row["background_shown"]
        if row["variant"] == "original":
            assert shown == row["background"]
        elif row["variant"] == "mixed_same":
            assert shown == f"{mine}/photo.png"
        elif row["variant"] == "mixed_next":
            assert shown == f"{order[(order.index(mine) + 1) % 3]}/photo.png"
        else:
            assert shown is None
    assert {row["variant"] for row in rows} == {"original", "mixed_same", "mixed_next", "only_fg"}


def test_mixed_variants_ask_for_backgrounds_by_class(folder: Path) -> None:
    with pytest.raises(UserError, match="one folder per class"):
        build(folder, factors={"size": [0.3], "variant": ["mixed_same"]})


def test_what_cutting_out_leaves_beside_cutouts_is_no_class(folder: Path) -> None:
    for name in ("manifest.json", "sheet-001.html", "sheet-001.png", "review.csv"):
        (folder / "f" / name).write_text("{}")
    made = build(folder)
    assert not any("skipped" in note for note in made.notes)


def test_what_is_left_of_one_set_is_not_taken_for_anothers(folder: Path) -> None:
    left = folder / f".tmp-{files._machine()}{'0' * 24}-set"
    (left / "images").mkdir(parents=True)
    with files.atomic_folder(folder / "my-set") as others:
        build(folder, "set")
        assert not left.exists() and others.is_dir(), "another build is writing my-set"


# The exact renderer against the slow one: names, numbers, lists and bytes.


LABELS = {name: entry.index for name, entry in siscore_names().items()}


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of the original's layout, by path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".jpg", ".csv")
    }


def check_equal(ours: Path, theirs: Path) -> int:
    """Every file with its bytes; how many there are."""
    mine, other = files_of(ours), files_of(theirs)
    assert sorted(mine) == sorted(other)
    for name in other:
        if name.endswith(".csv"):
            assert mine[name] == other[name], name
    for name in other:
        if mine[name] != other[name]:
            pixels = [np.asarray(Image.open(io.BytesIO(d))) for d in (mine[name], other[name])]
            assert np.array_equal(*pixels), name
            raise AssertionError(f"{name}: pixels are equal and bytes are not")
    return len(other)


def both(
    tmp_path: Path, foregrounds: Path, backgrounds: Path, grid: oracle.Grid, **values: Any
) -> int:
    seed, per_object = values.get("seed", 0), values.get("backgrounds_per_object", 2)
    oracle.generate(
        foregrounds,
        backgrounds,
        tmp_path / "theirs",
        grid,
        seed=seed,
        per_object=per_object,
        labels=LABELS,
    )
    request = make(
        ComposeRequest,
        {
            "foregrounds": foregrounds,
            "backgrounds": backgrounds,
            "layout": "siscore",
            "renderer": "exact",
            **values,
        },
    )
    build_compose(request, tmp_path / "ours", runs=tmp_path / "runs", workers=1)
    return check_equal(tmp_path / "ours", tmp_path / "theirs")


@pytest.mark.parametrize("preset", ["size", "rotation", "location", "demo"])
def test_every_preset_is_the_originals_byte_for_byte(preset: str, tmp_path: Path) -> None:
    foregrounds = examples.make_foregrounds(tmp_path / "f")
    for path in [*(foregrounds / "vase").iterdir(), *(foregrounds / "lemon").iterdir()]:
        if preset != "demo":  # enough is as good: two objects of one class
            path.unlink()
            path.parent.rmdir()
    backgrounds = examples.make_backgrounds(tmp_path / "b")
    one = {"backgrounds_per_object": 1} if preset == "location" else {}
    count = both(tmp_path, foregrounds, backgrounds, oracle.preset(preset), preset=preset, **one)
    assert count > 30


def test_odd_cutouts_and_backgrounds(tmp_path: Path) -> None:
    centres = [(0.5, 0.5), (0.5, 0.9), (0.07, 0.5), (0.07, 0.9)]
    grid = oracle.Grid(centres, [0.0004, 0.05, 0.6, 1.3], [0, 33, 90], [(96, 96)], 0.3)
    count = both(
        tmp_path,
        examples.make_odd_foregrounds(tmp_path / "f"),
        examples.make_odd_backgrounds(tmp_path / "b"),
        grid,
        backgrounds_per_object=6,
        min_inside=0.3,
        resolution="96",
        factors={"x": [0.5, 0.07], "y": [0.5, 0.9], "size": grid.areas, "rotation": grid.rotations},
    )
    assert count > 500


def test_several_resolutions_and_images_that_are_not_square(tmp_path: Path) -> None:
    grid = oracle.Grid([(0.4, 0.6)], [0.1, 0.7], [0, 200], [(64, 64), (90, 50), (33, 71)], 0.5)
    both(
        tmp_path,
        examples.make_foregrounds(tmp_path / "f"),
        examples.make_backgrounds(tmp_path / "b"),
        grid,
        seed=7,
        backgrounds_per_object=3,
        min_inside=0.5,
        resolution=["64", "90x50", "33x71"],
        factors={"x": 0.4, "y": 0.6, "size": [0.1, 0.7], "rotation": [0, 200]},
    )


def test_a_cutout_used_at_its_own_size_is_not_premultiplied(tmp_path: Path) -> None:
    """Pillow copies an image that has the wanted size; soft edges show the difference."""
    examples.save(examples.cutout(32, 32, 3, soft=True), tmp_path / "f" / "bagel" / "a.png")
    grid = oracle.Grid([(0.5, 0.5)], [0.25], [0, 10], [(64, 64)])
    both(
        tmp_path,
        tmp_path / "f",
        examples.make_backgrounds(tmp_path / "b"),
        grid,
        resolution="64",
        factors={"size": [0.25], "rotation": [0, 10]},
    )


@pytest.mark.shared
@pytest.mark.parametrize("preset", ["demo", "rotation"])
def test_the_published_samples(preset: str, tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "siscore"
    grid = oracle.preset(preset)
    if preset == "rotation":
        grid.rotations, grid.areas = [21, 181], [0.2, 1.0]
    both(
        tmp_path,
        folder / "foreground_samples",
        folder / "background_samples",
        grid,
        preset=preset,
        factors={} if preset == "demo" else {"rotation": [21, 181], "size": [0.2, 1.0]},
    )
