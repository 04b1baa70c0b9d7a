"""Predictions written in the published layout, read back, and compared with what is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import ExistsError, MismatchError
from heldout.core.workspace import Workspace
from heldout.data.labels import LabelSpace
from heldout.data.testset import find_testset
from heldout.models.predictions import PredictionStore
from heldout.models.predictions.import_arrays import differing_rows, write_published
from heldout.models.predictions.import_predictions import import_files, import_predictions
from tests.cli.conftest import Run, published, run

from .running_case import SPACE, make_set

__all__ = ["published", "run"]
ORIGINAL = "imagenet-validation-original"


@pytest.fixture
def imported(run: Run, published: Path) -> Path:
    classes = ("--classes", published / "metadata/class_info.json")
    for name in (ORIGINAL, "new-set-1"):
        assert run("import", "testset", published / f"datasets/{name}.json", *classes).code == 0
    assert run("import", "predictions", published / "predictions").code == 0
    return published / "predictions"


def test_what_was_published_is_written_again(run: Run, imported: Path, tmp_path: Path) -> None:
    sets = ("-t", ORIGINAL, "-t", "new-set-1")
    ran = run("predict", "-m", "all", *sets, "-o", "out", "--json")
    assert ran.code == 0 and len(ran.json) == 8, ran.err
    written = {p.relative_to(tmp_path / "out") for p in (tmp_path / "out").rglob("*.npy")}
    assert written == {p.relative_to(imported) for p in imported.rglob("*.npy")}
    for path in written:
        assert (tmp_path / "out" / path).read_bytes() == (imported / path).read_bytes()
    again = run("import", "predictions", "out", "--json")
    assert again.code == 0
    assert len(list((tmp_path / "predictions").glob("*/*@*"))) == 8, "nothing is stored twice"
    one = run("predict", "-m", "b", *sets[:2], "-o", "one")
    assert one.code == 0
    assert [p.name for p in (tmp_path / "one").rglob("*.npy")] == ["b.npy"]


def test_other_files_of_that_name_are_compared_and_stay(
    run: Run, imported: Path, tmp_path: Path
) -> None:
    asked = ("predict", "-m", "a", "-t", "new-set-1", "-o", "out")
    assert run(*asked).code == 0 and run(*asked).code == 0
    path = tmp_path / "out" / "new-set-1" / "a.npy"
    values = np.load(path)
    values[[3, 50, 51]] = np.roll(values[[3, 50, 51]], 1, axis=1)
    np.save(path, values)
    ran = run(*asked)
    assert ran.code == 2 and "3 of 200 rows differ from these predictions" in ran.err
    assert (np.load(path) == values).all()
    np.save(path, values[:10])
    assert "has shape (10, 5), these predictions (200, 5)" in run(*asked).err
    for options in (("--shard", "1/2"), ("--plan",)):
        assert "has no use with" in run(*asked, *options).err
    assert "no model is named" in run("predict", "-m", "all", "-t", "new-set-1").err


def test_an_import_says_how_many_rows_differ(run: Run, imported: Path, tmp_path: Path) -> None:
    values = np.load(imported / "new-set-1" / "a.npy")
    first, last = [3, 50, 51], [7, 9]
    values[np.ix_(first, [0, 1])] = values[np.ix_(first, [1, 0])]
    values[np.ix_(last, [3, 4])] = values[np.ix_(last, [4, 3])]
    np.save(tmp_path / "a.npy", values)
    before = sorted(path.name for path in (tmp_path / "predictions").glob("*/a@*"))
    ran = run("import", "predictions", "a.npy", "-t", "new-set-1")
    assert ran.code == 2
    said = "new-set-1 has other predictions of a ("
    how = "5 of 200 rows differ in the top 5, 3 in the first"
    assert said in ran.err and how in ran.err and "--replace" in ran.err
    assert sorted(path.name for path in (tmp_path / "predictions").glob("*/a@*")) == before
    ran = run("import", "predictions", "a.npy", "-t", "new-set-1", "--replace")
    assert ran.code == 0 and f"{how}: replaced" in ran.err
    # The same outputs in another file (as int64 here) are no change.
    np.save(tmp_path / "a.npy", values.astype(np.int64))
    ran = run("import", "predictions", "a.npy", "-t", "new-set-1")
    assert ran.code == 0 and "has these predictions of a: nothing changes" in ran.err
    assert len(list((tmp_path / "predictions").glob("*/a@*"))) == 2  # of two sets


def test_the_same_top_with_other_logits_is_not_taken_for_the_same(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=20, broken=())
    place = Workspace(tmp_path)
    values = np.random.default_rng(0).normal(size=(20, len(SPACE))).astype(np.float32)
    np.save(tmp_path / "m.npy", values)
    import_files([tmp_path / "m.npy"], workspace=place, testset=testset.name)
    np.save(tmp_path / "m.npy", values * 2)
    with pytest.raises(ExistsError, match="the top 4 are the same, what else is stored may differ"):
        import_files([tmp_path / "m.npy"], workspace=place, testset=testset.name)
    # Ranks alone add nothing to logits; more ranks than are stored do.
    np.save(tmp_path / "m.npy", np.argsort(-values, axis=1, kind="stable")[:, :2])
    found = import_files([tmp_path / "m.npy"], workspace=place, testset=testset.name)
    assert any("nothing changes" in note for note in found.notes)
    (stored,) = PredictionStore(place.predictions).runs(testset.card.images_hash)
    assert stored.run["keeps"] == "logits"


def test_rows_are_compared_by_image_and_in_the_ranks_that_both_have(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=30, broken=())
    rng = np.random.default_rng(1)
    tops = [np.stack([rng.permutation(4) for _ in range(30)]) for _ in range(2)]
    np.save(tmp_path / "a.npy", tops[0])
    np.save(tmp_path / "b.npy", tops[1][:, :3])
    a, b = (import_predictions(tmp_path / f"{name}.npy", testset) for name in "ab")
    order = rng.permutation(30)
    b = replace(b, image_ids=b.image_ids.take(order), topk=b.topk[order])
    first = sum(int(x[0] != y[0]) for x, y in zip(*tops, strict=True))
    rows = sum(list(x[:3]) != list(y[:3]) for x, y in zip(*tops, strict=True))
    assert differing_rows(a, b, testset="t") == differing_rows(b, a, testset="t") == (first, rows)


def test_images_without_an_output_and_other_classes(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=6, broken=())
    top = np.array([[0, 1, 2, 3]] * 6)
    top[4] = -1
    np.save(tmp_path / "m.npy", top)
    made = import_predictions(tmp_path / "m.npy", testset)
    path = write_published(made, testset, tmp_path / "out")
    values = np.load(path)
    assert values.dtype == np.int16 and (values == top).all()
    other = LabelSpace.from_ids("more", [*SPACE.ids, "pink"])
    with pytest.raises(MismatchError, match="answers in more, colours-1 has other classes"):
        write_published(replace(made, label_space=other), testset, tmp_path / "else")
    large = LabelSpace.from_ids("large", [str(n) for n in range(40_000)])
    wide = replace(testset, space=large)
    path = write_published(replace(made, label_space=large), wide, tmp_path / "large")
    assert np.load(path).dtype == np.int32


@pytest.mark.shared
def test_the_22_arrays_of_b_33_are_read_back_equal(
    run: Run, shared_data: Path, tmp_path: Path
) -> None:
    data = shared_data / "imagenetv2"
    name = "imagenetv2-b-33"
    assert run("import", "testset", data / f"datasets/{name}.json").code == 0
    assert run("import", "predictions", data / "predictions" / name).code == 0
    assert run("predict", "-m", "all", "-t", name, "-o", "out").code == 0
    paths = sorted((data / "predictions" / name).glob("*.npy"))
    assert len(paths) == 22
    for path in paths:
        written = tmp_path / "out" / name / path.name
        given = np.load(path)
        if path.stem == "fv_16k":  # published worst first, and stored best first here
            assert (np.load(written) == given[:, ::-1]).all()
        else:
            assert written.read_bytes() == path.read_bytes()
    place = Workspace(tmp_path)
    testset = find_testset(place, name)
    store = PredictionStore(place.predictions)
    runs = store.runs(testset.card.images_hash)
    assert len(runs) == 22
    for stored in runs:
        back = import_predictions(tmp_path / "out" / name / f"{stored.model}.npy", testset)
        assert (back.topk == store.read(stored).topk).all() and not back.run["notes"]
    before = sorted(stored.folder.name for stored in runs)
    again = run("import", "predictions", tmp_path / "out" / name)
    assert again.code == 0 and "these predictions of fv_16k: nothing changes" in again.err
    assert sorted(each.folder.name for each in store.runs(testset.card.images_hash)) == before
