"""Wrong preprocessing is found and mended; right preprocessing is left alone."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest

from heldout.cli.app import invoke
from heldout.core.engine import Tick
from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.data.images import sha256_bytes
from heldout.data.images.preprocessing import Geometry, Preprocessing, pixels_of
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, make_testset, save, truth_table
from heldout.measure.doctor.findings import Finding
from heldout.measure.doctor.preprocessing import alternatives, check_preprocessing
from heldout.models.adapters import FunctionModel, Model, load_model
from heldout.models.adapters.model import model_input
from tests.models.predictions.running_case import ColourModel, make_set

SPACE = LabelSpace.from_ids("shades", [f"s{i}" for i in range(6)])
RIGHT = Preprocessing(
    geometry=Geometry(resize_height=10, resize_width=10, crop_height=8, crop_width=8),
    scale=255.0,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
)
TARGETS = np.array([[-0.7] * 3, [-0.2] * 3, [0.2] * 3, [0.7] * 3, [0.6, 0, -0.6], [-0.6, 0, 0.6]])
"""The mean input of each class: greys and colours, told apart by nearness alone."""


def nearest(values: np.ndarray) -> np.ndarray:
    """Logits of a model whose every answer hangs on mean, std and the order of colours."""
    means = values.mean(axis=(2, 3))
    return -((means[:, None, :] - TARGETS[None]) ** 2).sum(axis=2)


def model(preprocessing: Preprocessing = RIGHT) -> FunctionModel:
    return FunctionModel(
        nearest, name="nearest", label_space=SPACE, preprocessing=preprocessing, identity={"v": 1}
    )


def shades(root: Path, *, images: int = 200, noise: float = 0.15, broken: int = 0) -> TestSet:
    """Flat images near the classes' colours, so noisy that some nine in ten are told right."""
    rng = np.random.default_rng(5)
    folder = root / "files"
    folder.mkdir(parents=True)
    ids, labels, digests = [], [], []
    for i in range(images):
        label = int(rng.integers(len(TARGETS)))
        colour = (TARGETS[label] + rng.normal(0, noise, 3)) * 127.5 + 127.5
        pixels = np.clip(colour + rng.normal(0, 8, (14, 12, 3)), 0, 255).astype(np.uint8)
        handle = io.BytesIO()
        Image.fromarray(pixels).save(handle, "PNG")
        data = handle.getvalue()[: 50 if i < broken else None]
        (folder / f"{i:04d}.png").write_bytes(data)
        ids.append(f"{i:04d}.png")
        labels.append(SPACE.ids[label])
        digests.append(sha256_bytes(data))
    card = Card(
        name="shades",
        label_space=SPACE.name,
        truths={"original": {"kind": "single"}},
        images_root="../../files",
    )
    made = make_testset(
        card,
        images=image_table({"image_id": ids, "path": ids, "sha256": digests}),
        truths={"original": truth_table(ids, labels)},
        label_space=SPACE,
    )
    return save(made, Workspace(root).testsets / "shades")


def the_finding(found: list[Finding]) -> dict[str, Any]:
    (finding,) = found
    assert finding.code == "wrong-preprocessing" and finding.severity == "error"
    changed: dict[str, Any] = json.loads(str(finding.evidence["preprocessing"]))
    assert json.dumps(changed) in finding.fix
    return changed


def test_right_preprocessing_is_left_alone(tmp_path: Path) -> None:
    testset = shades(tmp_path)
    for seed in range(4):
        tried = check_preprocessing(model(), testset, seed=seed)
        assert tried.findings == [] and tried.better == () and tried.overall is None
        assert tried.n == 128 and 0.7 < tried.top1 < 1
        assert len(tried.trials) == len(alternatives(RIGHT))


def test_progress_counts_every_image_behind_every_preprocessing(tmp_path: Path) -> None:
    testset = shades(tmp_path)
    ticks: list[Tick] = []
    tried = check_preprocessing(model(), testset, sample=40, progress=ticks.append)
    done = [tick.done for tick in ticks]
    assert done == sorted(set(done))
    assert all(tick.total is not None and tick.done <= tick.total for tick in ticks)
    assert ticks[-1].done == ticks[-1].total >= 40 * (1 + len(tried.trials))


@pytest.mark.parametrize(
    ("stated", "mended"),
    [
        ({"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}, {"mean", "std"}),
        ({"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}, {"mean", "std"}),
        ({"scale": 1.0, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}, {"scale", "mean", "std"}),
        ({"colours": "BGR"}, {"colours"}),
        (
            {"colours": "BGR", "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)},
            {"colours", "mean", "std"},
        ),
    ],
)
def test_wrong_values_are_found_and_mended(
    tmp_path: Path, stated: dict[str, Any], mended: set[str]
) -> None:
    testset = shades(tmp_path, images=300)
    wrong = model(replace(RIGHT, **stated))
    tried = check_preprocessing(wrong, testset)
    changed = the_finding(tried.findings)
    assert tried.overall is not None
    repaired = tried.overall.preprocessing
    assert set(changed) <= mended | {"scale"}
    white = model_input(np.full((1, 8, 8, 3), 255, np.uint8), repaired)
    assert np.abs(white - 1).max() < 0.02 and repaired.colours == "RGB"
    again = check_preprocessing(wrong.with_preprocessing(repaired), testset)
    assert again.findings == []
    assert again.top1 == tried.overall.top1 or tried.overall.n != again.n
    numbers = tried.findings[0].evidence
    assert numbers["top1_repaired"] - numbers["top1_as_given"] == pytest.approx(  # type: ignore[operator]
        numbers["difference"]
    )
    assert numbers["low"] <= numbers["difference"] <= numbers["high"]  # type: ignore[operator]


def test_numbers_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    testset = shades(tmp_path, images=90)
    wrong = model(replace(RIGHT, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
    tried = check_preprocessing(wrong, testset, sample=1000)
    truth = {row["image_id"]: row["class_id"] for row in testset.truth().to_pylist()}

    def hits(preprocessing: Preprocessing) -> np.ndarray:
        found = []
        for name in testset.image_ids.to_pylist():
            data = (tmp_path / "files" / name).read_bytes()
            pixels = pixels_of(data, preprocessing.geometry)
            values = model_input(pixels[None], preprocessing)  # type: ignore[index]
            found.append(SPACE.ids[int(nearest(values).argmax())] == truth[name])
        return np.array(found)

    given = hits(wrong.preprocessing)
    assert tried.n == 90 and tried.top1 == given.mean()
    raw = []
    for trial in tried.trials:
        mine = hits(trial.preprocessing)
        wins, losses = int((mine & ~given).sum()), int((given & ~mine).sum())
        assert trial.top1 == mine.mean()
        assert trial.difference == pytest.approx(mine.mean() - given.mean())
        p = binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
        assert trial.uncorrected == pytest.approx(p, rel=1e-6)
        raw.append((p, wins + losses, trial))
    family = sorted(item for item in ((p, t.name, t) for p, n, t in raw if n))
    running = 0.0
    for place, (p, _, trial) in enumerate(family):
        running = max(running, min(1.0, p * (len(family) - place)))
        assert trial.p == pytest.approx(running, rel=1e-6)
    assert all(trial.p == 1 for _, n, trial in raw if n == 0)
    assert [t.top1 for t in tried.trials] == sorted((t.top1 for t in tried.trials), reverse=True)


def test_results_do_not_depend_on_workers_or_rows(tmp_path: Path) -> None:
    testset = shades(tmp_path, broken=9)
    wrong = model(replace(RIGHT, colours="BGR"))
    one = check_preprocessing(wrong, testset, workers=1)
    assert one == check_preprocessing(wrong, testset, workers=5)
    assert one.n < 128, "broken images are left out"


def test_threads_are_as_many_as_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container that may use 2 of 64 processors, two threads decode and run."""
    started = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int) -> None:
            started.append(workers)
            super().__init__(workers)

    monkeypatch.setattr("heldout.measure.doctor.preprocessing.ThreadPoolExecutor", Pool)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 4}, raising=False)
    check_preprocessing(model(), shades(tmp_path, images=20), sample=10)
    assert set(started) == {2}


def test_ten_images_prove_nothing(tmp_path: Path) -> None:
    testset = shades(tmp_path, images=300)
    tried = check_preprocessing(model(replace(RIGHT, colours="BGR")), testset, sample=10)
    best = tried.trials[0]
    assert best.name == "colours RGB" and not best.is_better
    assert tried.findings == []


def test_chance_is_called_wrong_at_most_as_often_as_stated(tmp_path: Path) -> None:
    """A model that knows nothing: every alternative is a coin toss against the stated one."""
    testset = shades(tmp_path, images=250)

    def blind(values: np.ndarray) -> np.ndarray:
        mixed = np.abs(np.sin(values.sum(axis=(1, 2, 3)) * 1e4))
        return -np.abs(np.arange(6)[None] - np.floor(6 * mixed)[:, None])

    knows_nothing = FunctionModel(
        blind, name="blind", label_space=SPACE, preprocessing=RIGHT, identity={}
    )
    called = [
        bool(check_preprocessing(knows_nothing, testset, sample=50, seed=seed).findings)
        for seed in range(20)
    ]
    assert sum(called) <= 1


def test_alternatives_are_distinct_and_change_one_thing() -> None:
    for given in (RIGHT, Preprocessing(), replace(Preprocessing(), colours="BGR", layout="NHWC")):
        found = alternatives(given)
        keys = [changed.key for changed in found.values()]
        assert len(set(keys)) == len(keys) and given.key not in keys
        for changed in found.values():
            assert changed.layout == given.layout
            assert changed.geometry == given.geometry or (
                changed.scale, changed.mean, changed.std, changed.colours
            ) == (given.scale, given.mean, given.std, given.colours)  # fmt: skip
            assert changed.geometry.crop_height == given.geometry.crop_height
    names = alternatives(Preprocessing())
    assert {"mean 0.5, std 0.5", "values from 0 to 1", "colours BGR", "bicubic resize"} <= set(
        names
    )
    assert "shorter side to 256, crop of 0.875" not in names, "that is what is given"


def test_models_that_cannot_be_tried(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=20, broken=())
    with pytest.raises(NotApplicable, match="with_preprocessing"):
        check_preprocessing(ColourModel(), testset)
    with pytest.raises(NotApplicable, match="no class of the images"):
        check_preprocessing(model(), testset)
    own = shades(tmp_path / "own", images=5, broken=5)
    with pytest.raises(NotApplicable, match="none of 5 images"):
        check_preprocessing(model(), own)
    with pytest.raises(UserError, match="sample of 0"):
        check_preprocessing(model(), own, sample=0)


MODEL_FILE = f"""
import numpy as np
from {__name__} import RIGHT, model
from dataclasses import replace

right = model()
wrong = model(replace(RIGHT, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
"""


def test_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shades(tmp_path)
    (tmp_path / "mine.py").write_text(MODEL_FILE)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = invoke(["doctor", "-t", "shades", "--run", *arguments])
        return (code, *capsys.readouterr())

    code, out, _ = run("mine.py:right")
    assert code == 0 and "shades: nothing found" in out
    assert "mean and std of ImageNet" in out, "what was tried is shown"
    code, out, _ = run("mine.py:wrong", "--limit", "100")
    assert code == 1 and "[wrong-preprocessing]" in out
    code, out, _ = run("mine.py:wrong", "--json")
    *trials, found = json.loads(out)
    assert {trial["record"] for trial in trials} == {"trial"} and trials[0]["p"] < 0.01
    assert found["code"] == "wrong-preprocessing" and found["evidence"]["p"] < 0.01
    code, _, err = run("nothing")
    assert code == 2 and "no model 'nothing'" in err
    code, _, err = run("mine.py:right", "--file", "outputs.npy")
    assert code == 2 and "--run and --file exclude each other" in err
    code = invoke(["doctor", "-t", "shades", "--limit", "5"])
    assert code == 2 and "--limit needs --run" in capsys.readouterr().err


def photos(shared_data: Path, root: Path) -> TestSet:
    space = LabelSpace.load("imagenet-1k")
    names = sorted(path.name for path in (shared_data / "photos").glob("*.JPEG"))
    card = Card(
        name="photos",
        label_space=space.name,
        truths={"original": {"kind": "single"}},
        images_root=str(shared_data / "photos"),
    )
    return make_testset(
        card,
        images=image_table({"image_id": names, "path": names}),
        truths={"original": truth_table(names, [name.partition("_")[0] for name in names])},
        label_space=space,
    )


@pytest.mark.shared
def test_lite0_behind_the_mean_and_std_of_imagenet(shared_data: Path, tmp_path: Path) -> None:
    lite0 = load_model("lite0")
    usual = Preprocessing()
    wrong = lite0.with_preprocessing(  # type: ignore[union-attr]
        replace(lite0.preprocessing, scale=usual.scale, mean=usual.mean, std=usual.std)  # type: ignore[union-attr]
    )
    tried = check_preprocessing(wrong, photos(shared_data, tmp_path))
    assert set(the_finding(tried.findings)) <= {"scale", "mean", "std"}
    assert tried.overall is not None
    assert tried.overall.difference > 0.08 and tried.overall.top1 > 0.88
    assert tried.better == ("mean 0.5, std 0.5",)
    black = model_input(np.zeros((1, 224, 224, 3), np.uint8), tried.overall.preprocessing)
    assert abs(black.mean() + 1) < 0.01


@pytest.mark.shared
@pytest.mark.parametrize(("name", "sample"), [("lite0", 128), ("lite1", 64), ("lite2", 48)])
def test_built_in_models_are_not_called_wrong(
    shared_data: Path, tmp_path: Path, name: str, sample: int
) -> None:
    built_in = load_model(name)
    assert isinstance(built_in, Model)
    tried = check_preprocessing(built_in, photos(shared_data, tmp_path), sample=sample)
    assert tried.findings == [] and tried.top1 > 0.85
    assert len(tried.trials) >= 8
