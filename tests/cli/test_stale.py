"""Predictions belong to the bytes that they were made from: what happens when images change."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from heldout.core.workspace import Workspace
from heldout.data.labels import LabelSpace
from heldout.data.testset import (
    TestSet,
    add_truth,
    find_testset,
    image_table,
    load,
    make_testset,
    save,
    truth_table,
)
from tests.cli.conftest import Ran, Run
from tests.cli.test_bad_input import refused
from tests.measure.evaluation.eval_case import calls, model_file
from tests.models.predictions.running_case import SPACE, make_set


def write_table(root: Path, name: str, *, images: int = 30) -> Path:
    """A table of image ids and classes without hashes; the ids are those of :func:`make_set`."""
    rows = [f"{i:04d}.img,{SPACE.ids[i % 4]}" for i in range(images)]
    path = root / f"{name}.csv"
    path.write_text("\n".join(["image_id,class_id", *rows]) + "\n")
    return path


def recolour(folder: Path, names: list[str] | None = None) -> None:
    """Exchange images: each gets the bytes of the one after it, which is of another class."""
    paths = sorted(folder.iterdir())
    held = [path.read_bytes() for path in paths]
    for path, data in zip(paths, held[1:] + held[:1], strict=True):
        if names is None or path.name in names:
            path.write_bytes(data)


def top1(ran: Ran) -> float:
    return next(r["value"] for r in ran.json if r.get("metric") == "top1")


@pytest.fixture
def unhashed(run: Run, tmp_path: Path) -> Callable[..., Ran]:
    """A set imported from a table, without hashes, and an evaluation of model a on it."""
    make_set(tmp_path, images=30, broken=())
    model_file(tmp_path)
    write_table(tmp_path, "mine")
    (tmp_path / "colours.json").write_text(json.dumps(SPACE.to_dict()))
    assert run("import", "testset", "mine.csv", "--classes", "colours.json").code == 0

    def evaluate(*options: object, images: str = "files") -> Ran:
        return run(
            "eval", "-m", "models.py:a", "-t", "mine", "--images", images, "--json", *options
        )

    return evaluate


def test_changed_images_are_run_again(
    unhashed: Callable[..., Ran], run: Run, tmp_path: Path
) -> None:
    first = unhashed()
    assert top1(first) > 0.9
    made = len(calls(tmp_path))
    assert "everything is stored" in unhashed().err and len(calls(tmp_path)) == made
    recolour(tmp_path / "files")
    assert "30 of 30 images have changed since a ran on them" in unhashed("--plan").err
    assert len(calls(tmp_path)) == made, "a plan runs nothing"
    second = unhashed()
    assert top1(second) < 0.2 and len(calls(tmp_path)) > made
    assert "everything is stored" in unhashed().err
    assert run("score", "-t", "mine", "--json").code == 0


def test_another_folder_of_images_is_another_run(
    unhashed: Callable[..., Ran], tmp_path: Path
) -> None:
    right = top1(unhashed())
    make_set(tmp_path / "other", images=30, broken=())
    recolour(tmp_path / "other/files", ["0003.img", "0004.img"])
    other = unhashed(images="other/files")
    assert "2 of 30 images have changed" in other.err and top1(other) < right
    assert "everything is stored" in unhashed(images="other/files").err
    back = unhashed()
    assert "2 of 30 images have changed" in back.err and top1(back) == right
    refused(unhashed(images="nowhere"), "nowhere")


def test_an_edit_that_keeps_size_and_time_is_seen(
    unhashed: Callable[..., Ran], tmp_path: Path
) -> None:
    from PIL import Image

    path = tmp_path / "files" / "0005.img"
    Image.new("RGB", (12, 12), (200, 60, 60)).save(path, "BMP")
    os.utime(path, ns=(1_600_000_000 * 10**9, 1_600_000_000 * 10**9))
    unhashed()
    before = path.stat()
    Image.new("RGB", (12, 12), (60, 60, 200)).save(path, "BMP")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert "1 of 30 images have changed" in unhashed().err


def test_imported_again_over_other_images(
    unhashed: Callable[..., Ran], run: Run, tmp_path: Path
) -> None:
    assert top1(unhashed()) > 0.9
    recolour(tmp_path / "files")
    again = run("import", "testset", "mine.csv", "--classes", "colours.json", "--replace")
    assert again.code == 0
    assert top1(unhashed()) < 0.2


def test_images_that_are_not_those_of_the_set_stop_everything(run: Run, tmp_path: Path) -> None:
    make_set(tmp_path, images=30, broken=())
    make_set(tmp_path, images=8, name="few", broken=())
    evaluate = ["eval", "-m", f"{model_file(tmp_path).name}:a", "-t", "colours-1"]
    assert run(*evaluate, "-m", "models.py:b", "-t", "few").code == 0
    kept = (tmp_path / "files/0008.img").read_bytes()
    recolour(tmp_path / "files", ["0008.img"])
    said = ("1 images of colours-1", "restore", "--replace", "heldout verify")
    refused(run(*evaluate), *said)
    refused(run(*evaluate, "--plan"), *said)
    refused(run("score", "-t", "colours-1"), *said)
    refused(run("compare", "a", "b", "-t", "colours-1"), *said)
    refused(run("fit", "-t", "few", "-t", "colours-1", "--baseline", "few"), *said)
    # Nor does a model run on them that is not stored yet; what it left is not taken up later.
    c = [*evaluate[:2], "models.py:c", *evaluate[3:]]
    refused(run(*c), "0008.img", "restore", "--replace", "heldout verify")
    (tmp_path / "files/0008.img").write_bytes(kept)
    assert "everything is stored" in run(*evaluate).err
    assert run(*c).code == 0


def test_scores_stop_when_images_changed_and_go_on_when_they_are_gone(
    run: Run, tmp_path: Path
) -> None:
    testset = make_set(tmp_path, images=30, broken=(), hashed=False)
    evaluate = ["eval", "-m", f"{model_file(tmp_path).name}:a", "-t", testset.name]
    assert run(*evaluate).code == 0
    scored = run("score", "-t", testset.name, "--json")
    recolour(tmp_path / "files", ["0001.img", "0002.img"])
    refused(run("score", "-t", testset.name), "2 of 30 images", "heldout eval", "restore")
    (tmp_path / "files").rename(tmp_path / "away")
    assert run("score", "-t", testset.name, "--json").out == scored.out
    assert "everything is stored" in run(*evaluate).err


def test_tables_with_equal_ids_do_not_share_predictions(
    unhashed: Callable[..., Ran], run: Run, tmp_path: Path
) -> None:
    assert unhashed().code == 0
    write_table(tmp_path, "theirs")
    assert run("import", "testset", "theirs.csv", "--classes", "colours.json").code == 0
    refused(run("score", "-t", "theirs"), "no predictions for theirs")
    mine, theirs = (find_testset(Workspace(tmp_path), name) for name in ("mine", "theirs"))
    assert mine.card.content_hash == theirs.card.content_hash
    assert mine.card.images_hash != theirs.card.images_hash
    assert run("verify", "mine", "theirs").code == 0
    assert run("diff", "mine", "theirs").code == 0


def test_published_lists_share_predictions_whatever_their_name(run: Run, published: Path) -> None:
    file = published / "datasets" / "new-set-1.json"
    classes = ["--classes", published / "metadata/class_info.json"]
    for name in ("first", "second"):
        assert run("import", "testset", file, "--name", name, *classes).code == 0
    guesses = published / "predictions" / "new-set-1"
    assert run("import", "predictions", guesses, "-t", "first").code == 0
    scored = [run("score", "-t", name, "-m", "a", "--json") for name in ("first", "second")]
    assert [ran.code for ran in scored] == [0, 0] and top1(scored[0]) == top1(scored[1])


def test_imported_predictions_are_taken_at_their_word(run: Run, tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=30, broken=())
    np.save(tmp_path / "outside.npy", np.eye(4, dtype=np.float32)[np.arange(30) % 4])
    assert run("import", "predictions", "outside.npy", "-t", testset.name).code == 0
    recolour(tmp_path / "files")
    assert run("score", "-t", testset.name).code == 0
    assert not (tmp_path / "ledger").exists(), "nothing is hashed for them"


@pytest.fixture
def reimported(run: Run, tmp_path: Path) -> Run:
    """Two files of outputs under one model name: all right, and a quarter wrong; the first imported."""
    make_set(tmp_path, images=40, broken=())
    values = np.eye(4, dtype=np.float32)[np.arange(40) % 4] * 9
    for place, wrong in (("first", 0), ("second", 10)):
        (tmp_path / place).mkdir()
        outputs = np.concatenate([np.roll(values[:wrong], 1, axis=1), values[wrong:]])
        np.save(tmp_path / place / "m.npy", outputs)
    assert run("import", "predictions", "first/m.npy", "-t", "colours-1").code == 0
    return run


def test_a_changed_file_of_outputs_replaces_the_one_before(reimported: Run, tmp_path: Path) -> None:
    run, again = reimported, ["import", "predictions", "second/m.npy", "-t", "colours-1"]
    refused(run(*again), "other predictions of m", "--replace", "--name")
    assert top1(run("score", "-t", "colours-1", "--json")) == 1.0
    assert run(*again, "--replace").code == 0
    for name in ("m", "all"):
        assert top1(run("score", "-t", "colours-1", "-m", name, "--json")) == 0.75
    assert len(list((tmp_path / "predictions").glob("*/m@*"))) == 1
    assert run(*again).code == 0, "the same file again is no change"


def test_a_full_run_name_means_that_run(reimported: Run, tmp_path: Path) -> None:
    run = reimported
    (first,) = (tmp_path / "predictions").glob("*/m@*")
    shutil.copytree(first, tmp_path / "kept")
    again = ["import", "predictions", "second/m.npy", "-t", "colours-1", "--replace"]
    assert run(*again).code == 0
    (second,) = (tmp_path / "predictions").glob("*/m@*")
    shutil.copytree(tmp_path / "kept", first)  # as workspaces of before have two of them
    refused(run("score", "-t", "colours-1"), "several stored runs", second.name, "prune")
    for named, value in ((first.name, 1.0), (second.name, 0.75)):
        assert top1(run("score", "-t", "colours-1", "-m", named, "--json")) == value
    compared = run("compare", second.name, first.name, "-t", "colours-1", "--json")
    (difference,) = (r for r in compared.json if r["record"] == "comparison")
    assert (difference["other"], difference["model"]) == (second.name, first.name)
    assert difference["difference"] == 0.25
    excluded = run("score", "-t", "colours-1", "--exclude", first.name, "--json")
    assert top1(excluded) == 0.75
    assert run("prune", "-m", first.name, "--delete").code == 0
    assert not first.exists() and second.exists()
    assert top1(run("score", "-t", "colours-1", "--json")) == 0.75


def evaluated(run: Run, *options: object) -> Ran:
    return run("eval", "-m", "models.py:a", "-t", "colours-1", "--json", *options)


@pytest.fixture
def hashed(run: Run, tmp_path: Path) -> TestSet:
    """A set with the hashes of its images, and an evaluation of model a on it."""
    testset = make_set(tmp_path, images=30, broken=())
    model_file(tmp_path)
    assert top1(evaluated(run)) > 0.9
    return testset


@pytest.mark.parametrize("change", ['Counted("a", size=6)', 'Counted("a", version=2)'])
def test_other_preprocessing_or_weights_are_another_run(
    hashed: TestSet, run: Run, tmp_path: Path, change: str
) -> None:
    made, path = len(calls(tmp_path)), tmp_path / "models.py"
    path.write_text(path.read_text().replace('Counted("a")', change))
    ran = evaluated(run)
    assert "1 to run (a)" in ran.err and len(calls(tmp_path)) > made
    refused(run("score", "-t", "colours-1", "-m", "a"), "several stored runs")


def test_another_truth_or_order_of_rows_is_scored_without_a_run(
    hashed: TestSet, run: Run, tmp_path: Path
) -> None:
    made, folder = len(calls(tmp_path)), tmp_path / "testsets" / "colours-1"
    ids = hashed.image_ids.to_pylist()
    wrong = truth_table(ids, [SPACE.ids[(i + (i < 15)) % 4] for i in range(30)])
    add_truth(hashed, "half", wrong, provenance={"kind": "single"})
    right, half = evaluated(run), evaluated(run, "--truth", "half")
    assert top1(half) == pytest.approx(top1(right) - 0.5)
    save(load(folder).reordered(3), folder, replace=True)
    assert load(folder).image_ids.to_pylist() != ids
    ran = evaluated(run, "--truth", "half")
    assert "everything is stored" in ran.err and top1(ran) == top1(half)
    # Nor do other bytes of a table count, where its rows are the same.
    path = folder / "truth" / "half.parquet"
    pq.write_table(pq.read_table(path).take(list(range(29, -1, -1))), path, compression="gzip")
    assert top1(evaluated(run, "--truth", "half")) == top1(half)
    assert len(calls(tmp_path)) == made


def test_other_ids_or_images_have_no_predictions(hashed: TestSet, run: Run, tmp_path: Path) -> None:
    made, names = len(calls(tmp_path)), hashed.image_ids.to_pylist()
    columns = {name: hashed.images[name].to_pylist() for name in hashed.images.column_names}
    new = [f"new-{name}" for name in names]
    labels = hashed.truth()["class_id"].to_pylist()
    renamed = make_testset(
        hashed.card,
        images=image_table({**columns, "image_id": new}),
        truths={"original": truth_table(new, labels)},
        label_space=SPACE,
    )
    save(renamed, tmp_path / "testsets" / "colours-1", replace=True)
    refused(run("score", "-t", "colours-1"), "no predictions for colours-1")
    assert top1(evaluated(run)) > 0.9 and len(calls(tmp_path)) > made


def test_another_label_space_is_mapped_by_id_or_refused(
    hashed: TestSet, run: Run, tmp_path: Path
) -> None:
    right, made = top1(evaluated(run)), len(calls(tmp_path))
    names, labels = hashed.image_ids.to_pylist(), hashed.truth()["class_id"].to_pylist()

    def with_classes(space: LabelSpace, classes: list[str]) -> None:
        truth = truth_table(names, classes)
        card = hashed.card.updated(counts={})
        changed = make_testset(
            card, images=hashed.images, truths={"original": truth}, label_space=space
        )
        save(changed, tmp_path / "testsets" / "colours-1", replace=True)

    with_classes(LabelSpace.from_ids("turned", SPACE.ids[::-1]), labels)
    ran = evaluated(run)
    assert ran.code == 2 and "--label-map" in ran.err, ran.err
    mapped = evaluated(run, "--label-map", "subset:full")
    assert mapped.code == 0, mapped.err
    assert top1(mapped) == right
    with_classes(LabelSpace.from_ids("german", ["rot", "gruen"]), ["rot"] * 30)
    ran = evaluated(run)
    assert ran.code == 2 and "--label-map" in ran.err
    assert len(calls(tmp_path)) == made


def test_another_library_version_is_noted_and_runs_again_if_asked_to(
    hashed: TestSet, run: Run, tmp_path: Path
) -> None:
    made = len(calls(tmp_path))
    (path,) = tmp_path.glob("predictions/*/*/run.json")
    record = json.loads(path.read_text())
    del record["check"]  # as a run of before has none
    record["versions"] = {**record["versions"], "pillow": "9.9", "heldout": "0.0"}
    path.write_text(json.dumps(record))
    ran = evaluated(run)
    said = "a ran with pillow 9.9 ("
    assert said in ran.err and "--rerun" in ran.err and "heldout 0.0" not in ran.err
    assert "everything is stored" in ran.err and len(calls(tmp_path)) == made
    again = evaluated(run, "--rerun")
    assert again.out == ran.out and len(calls(tmp_path)) == 2 * made
    assert said not in evaluated(run).err and len(calls(tmp_path)) == 2 * made
    refused(run("eval", "-m", "a", "-t", "colours-1", "--rerun"), "no model is named that can run")
    assert run("predict", "-m", "models.py:a", "-t", "colours-1", "--rerun").code == 0
    assert len(calls(tmp_path)) == 3 * made
