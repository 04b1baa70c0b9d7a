from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.data.labels import LabelSpace
from heldout.models.predictions import Predictions, PredictionStore
from heldout.models.predictions import store as store_module

SPACE = LabelSpace.from_ids("small", [f"c{i}" for i in range(20)])
HASH = "ab" * 32


def predictions(
    model: str = "m", *, n: int = 50, seed: int = 0, logits: bool = True, version: str = "1"
) -> Predictions:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, len(SPACE))).astype(np.float16)
    return Predictions(
        model=model,
        image_ids=pa.array([f"image {i} é" for i in range(n)]),
        topk=np.argsort(-values, axis=1)[:, :5].astype(np.int32),
        logits=values if logits else None,
        label_space=SPACE,
        failures={4: "truncated"},
        identity={"version": version},
    )


@pytest.mark.parametrize("part_rows", [7, 50, 1000])
def test_what_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_rows: int
) -> None:
    monkeypatch.setattr(store_module, "PART_ROWS", part_rows)
    store = PredictionStore(tmp_path)
    written = predictions()
    run = store.write(written, images_hash=HASH)
    assert len(list(run.folder.glob("part-*.parquet"))) == -(-50 // part_rows)
    (listed,) = store.runs(HASH)
    back = store.read(listed)
    assert back.hash == written.hash
    assert back.logits is not None and back.logits.dtype == np.float16
    assert (back.logits == written.logits).all()
    assert dict(back.failures) == {4: "truncated"}
    assert back.label_space == SPACE


def test_a_run_is_read_without_its_wide_columns(tmp_path: Path) -> None:
    """Its label space and its guesses do not need the logits: damaged ones go unseen."""
    store = PredictionStore(tmp_path)
    run = store.write(predictions(), images_hash=HASH)
    assert run.label_space == SPACE
    (part,) = run.folder.glob("part-*.parquet")
    data = bytearray(part.read_bytes())
    logits = predictions().logits
    assert logits is not None
    data[data.index(logits.tobytes()) + 5] ^= 1
    part.write_bytes(data)
    found = store.read(run, values=False)
    assert found.logits is None
    np.testing.assert_array_equal(found.topk, predictions().topk)
    assert found.hash == predictions().hash and found.failures == {4: "truncated"}
    with pytest.raises(BadFile, match=r"is damaged.*verify --repair"):
        store.read(run)


def test_the_same_again_is_no_change_and_another_is_refused(tmp_path: Path) -> None:
    store = PredictionStore(tmp_path)
    run = store.write(predictions(), images_hash=HASH)
    before = {p: p.stat().st_mtime_ns for p in run.folder.iterdir()}
    store.write(predictions(), images_hash=HASH)
    assert before == {p: p.stat().st_mtime_ns for p in run.folder.iterdir()}
    with pytest.raises(ExistsError, match="--replace"):
        store.write(predictions(seed=1), images_hash=HASH)
    store.write(predictions(seed=1), images_hash=HASH, replace=True)
    assert store.read(store.runs(HASH)[0]).hash == predictions(seed=1).hash


def test_models_are_selected_by_name_glob_and_key(tmp_path: Path) -> None:
    store = PredictionStore(tmp_path)
    for model in ("resnet50", "resnet18", "vgg16"):
        store.write(predictions(model), images_hash=HASH)

    def names(*patterns: str, exclude: tuple[str, ...] = ()) -> list[str]:
        return [r.model for r in store.select(HASH, patterns, testset="t", exclude=exclude)]

    assert names() == names("all") == ["resnet18", "resnet50", "vgg16"]
    assert names("resnet*") == ["resnet18", "resnet50"]
    assert names("all", exclude=("res*",)) == ["vgg16"]
    with pytest.raises(NotFound, match="zzz"):
        names("zzz")
    with pytest.raises(NotFound, match="no predictions for t"):
        store.select("cd" * 32, [], testset="t")


def test_two_checkpoints_of_one_name_are_never_mixed(tmp_path: Path) -> None:
    store = PredictionStore(tmp_path)
    first = store.write(predictions(version="1"), images_hash=HASH)
    store.write(predictions(version="2", seed=9), images_hash=HASH)
    with pytest.raises(UserError, match="several stored runs"):
        store.select(HASH, ["m"], testset="t")
    (chosen,) = store.select(HASH, [first.folder.name], testset="t")
    assert store.read(chosen).hash == predictions(version="1").hash


@pytest.mark.parametrize("damage", ["truncate", "remove part", "remove all"])
def test_damage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr(store_module, "PART_ROWS", 20)
    store = PredictionStore(tmp_path)
    run = store.write(predictions(), images_hash=HASH)
    parts = sorted(run.folder.glob("part-*"))
    if damage == "truncate":
        parts[0].write_bytes(parts[0].read_bytes()[:100])
    else:
        for part in parts if damage == "remove all" else parts[1:2]:
            part.unlink()
    with pytest.raises(BadFile, match="again"):
        store.read(run)


def test_what_an_interrupted_removal_left_is_written_over(tmp_path: Path) -> None:
    store = PredictionStore(tmp_path)
    run = store.write(predictions(), images_hash=HASH)
    (run.folder / "run.json").unlink()
    (run.folder / "part-00007.parquet").write_bytes(b"of old")
    assert store.runs(HASH) == [] and not store.has(HASH, "m", predictions().key)
    again = store.write(predictions(), images_hash=HASH)
    assert store.read(again).hash == predictions().hash and store.has(HASH, "m", predictions().key)
    assert sorted(path.name for path in again.folder.parent.iterdir()) == [again.folder.name]


def test_killed_while_writing_leaves_the_whole_or_nothing(tmp_path: Path) -> None:
    script = tmp_path / "writer.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from pathlib import Path
            sys.path.insert(0, sys.argv[2])
            from test_store import HASH, predictions
            from heldout.models.predictions import PredictionStore
            print("ready", flush=True)
            for i in range(10_000):
                PredictionStore(Path(sys.argv[1])).write(predictions(f"m{i}", n=3000), images_hash=HASH)
            """
        )
    )
    root = tmp_path / "store"
    for delay in (0.02, 0.05, 0.11, 0.2):
        child = subprocess.Popen(
            [sys.executable, str(script), str(root), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
        )
        if child.stdout is None:
            raise RuntimeError("no pipe")
        child.stdout.readline()
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        store = PredictionStore(root)
        for run in store.runs(HASH):
            assert store.read(run).hash == predictions(run.model, n=3000).hash
    PredictionStore(root).write(predictions("m0", n=3000), images_hash=HASH)
