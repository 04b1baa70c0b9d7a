"""``heldout eval`` from end to end: real files, models in a user's file, and what is said and written."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heldout.cli.app import invoke
from heldout.core.workspace import Workspace
from tests.cli.conftest import Ran, Run
from tests.cli.test_bad_input import refused
from tests.measure.evaluation.eval_case import (
    SETS,
    calls,
    logits_file,
    model_file,
    snapshot,
    three_sets,
)
from tests.models.predictions.running_case import make_set

ROOT = Path(__file__).parents[2]


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """Three test sets in the current folder, and arguments that name three models."""
    three_sets(tmp_path)
    file = model_file(tmp_path)
    return [part for name in "abc" for part in ("-m", f"{file.name}:{name}")]


def on(*names: str) -> list[str]:
    return [part for name in names for part in ("-t", name)]


def files(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def test_three_models_on_three_sets_twice(run: Run, models: list[str], tmp_path: Path) -> None:
    first = run("eval", *models, *on(*SETS), "--json")
    assert first.code == 0
    for place, name in enumerate(SETS):
        n = 40 + 10 * place
        assert f"{name}: 0 models stored, 3 to run (a, b, c) on {n} images" in first.err
        assert f"{name} × 3: {n} images in " in first.err, "a line a set where there is no terminal"
    assert len(first.json) == len([r for r in first.json if r["record"]])
    tops = {(r["model"], r["testset"]) for r in first.json if r.get("metric") == "top1"}
    assert tops >= {(m, t) for m in "abc" for t in SETS}
    pairs = {(r["model"], r["other"]) for r in first.json if r["record"] == "comparison"}
    assert pairs == {("a", "b"), ("a", "c"), ("b", "c")}
    made = len(calls(tmp_path))
    assert set(calls(tmp_path)) == set("abc")
    before = snapshot(Workspace(tmp_path))
    again = run("eval", *models, *on(*SETS), "--json")
    assert len(calls(tmp_path)) == made, "nothing is predicted again"
    assert snapshot(Workspace(tmp_path)) == before
    assert again.out == first.out and again.err.count("everything is stored (3 models)") == 3
    assert not list(Path("runs").glob("predict-*"))


def test_another_checkpoint_in_the_same_file_runs(
    run: Run, models: list[str], tmp_path: Path
) -> None:
    first = run("eval", *models, *on(SETS[0]), "--json").json
    made = len(calls(tmp_path))
    file = tmp_path / "models.py"
    file.write_text(file.read_text().replace('Counted("a")', 'Counted("a", version=5)'))
    second = run("eval", *models, *on(SETS[0]), "--json")
    assert "2 models stored, 1 to run (a)" in second.err
    assert set(calls(tmp_path)[made:]) == {"a"}
    hashes = [
        {r["model"]: r["predictions_hash"] for r in records if "predictions_hash" in r}
        for records in (first, second.json)
    ]
    assert {m for m in "abc" if hashes[0][m] != hashes[1][m]} == {"a"}


def test_standard_output_is_json_alone(models: list[str], tmp_path: Path) -> None:
    """In a process of its own, as a pipe sees it."""
    for extra in ([], ["--plan"]):
        ran = _heldout("eval", *models, *on(*SETS[:2]), "--json", *extra)
        assert ran.code == 0
        assert isinstance(ran.json, list) and ran.json
        assert ran.out == ran.out.strip() + "\n"


def test_the_plan_runs_nothing(run: Run, models: list[str], tmp_path: Path) -> None:
    ran = run("eval", *models, *on(*SETS), "--plan")
    assert ran.code == 0 and ran.out == "" and ran.err.count("to run (a, b, c)") == 3
    assert calls(tmp_path) == [] and files(tmp_path / "runs") == []
    run("eval", *models[:2], *on(SETS[0]))
    plans = run("eval", *models, *on(*SETS), "--plan", "--json").json
    assert [plan["testset"] for plan in plans] == list(SETS)
    assert plans[0]["stored"] == ["a"] and plans[0]["to_run"] == ["b", "c"]
    assert plans[2]["images"] == 60 and plans[2]["bytes"] == 3 * 60 * 4 * 2


def test_gates(run: Run, models: list[str]) -> None:
    met = run("eval", *models, *on(*SETS), "--fail-under", "top1=0.1")
    assert met.code == 0 and "gate" not in met.err
    two = ("--fail-under", "top1=1", "--fail-under", "mean_per_class=0.1")
    metrics = ("--metric", "top1", "--metric", "mean_per_class")
    missed = run("eval", *models, *on(*SETS), *metrics, *two)
    assert missed.code == 4
    lines = [line for line in missed.err.splitlines() if line.startswith("gate not met: ")]
    assert lines and all(" is under 1 (interval 0." in line for line in lines)
    assert Path("runs/eval/report.html").exists(), "a report is wanted above all when a gate fails"
    refused(run("eval", *models, *on(SETS[0]), "--fail-under", "nll=0.5"), "nll", "--metric nll")
    refused(run("eval", *models, *on(SETS[0]), "--fail-under", "top1=0.7.5"), "0.7.5")
    refused(run("eval", *models, *on(SETS[0]), "--fail-under", "top1=75"), "fractions")


def test_failed_images_are_listed_and_exit_3(run: Run, tmp_path: Path) -> None:
    make_set(tmp_path, images=40, broken=(3, 7))
    model = f"{model_file(tmp_path).name}:a"
    ran = run("eval", "-m", model, *on("colours-1"), "--json")
    assert ran.code == 3
    assert ran.err.count("failed: colours-1 000") == 2 and "0007.img" in ran.err
    (count,) = [r for r in ran.json if r["record"] == "count" and r["name"] == "n_failed"]
    assert count["value"] == 2
    top1 = next(r for r in ran.json if r.get("metric") == "top1")
    assert top1["n"] == 40
    rows = list(csv.reader(Path("runs/eval/report-failed.csv").read_text().splitlines()))
    assert rows[0] == ["testset", "image_id", "reason", "models"]
    assert [row[1] for row in rows[1:]] == ["0003.img", "0007.img"]
    dropped = run("eval", "-m", model, *on("colours-1"), "--on-error", "drop", "--json")
    assert dropped.code == 3
    assert next(r for r in dropped.json if r.get("metric") == "top1")["n"] == 38
    assert run("eval", "-m", model, *on("colours-1"), "--fail-under", "top1=1").code == 4


def test_many_failed_images_fill_a_file_and_not_the_screen(run: Run, tmp_path: Path) -> None:
    make_set(tmp_path, images=60, broken=tuple(range(30)))
    ran = run("eval", "-m", f"{model_file(tmp_path).name}:a", *on("colours-1"))
    assert ran.code == 3 and ran.err.count("failed: ") == 10 and "20 more in " in ran.err
    assert len(Path("runs/eval/report-failed.csv").read_text().splitlines()) == 31


def test_a_sample_and_its_report(run: Run, models: list[str], tmp_path: Path) -> None:
    small = run("eval", *models, *on(SETS[2]), "--limit", 10, "--json")
    large = run("eval", *models, *on(SETS[2]), "--limit", 30, "--by", "class", "--json")
    assert {r["n"] for r in small.json if r.get("metric") == "top1" and r["slice"] == "all"} == {10}
    assert {r["testset"] for r in large.json} == {f"{SETS[2]}-limit-30"}
    page = Path("runs/eval/report.html").read_text(encoding="utf-8")
    assert "not in this workspace" not in page and f"{SETS[2]}-limit-30" in page
    assert [r["testset"] for r in run("ls", "--json").json] == list(SETS), "no set is left behind"
    refused(run("eval", *models, *on(SETS[2]), "--limit", 0), "--limit is '0'")


def test_outputs_of_another_program(run: Run, models: list[str], tmp_path: Path) -> None:
    from heldout.data.testset import find_testset

    testset = find_testset(Workspace(tmp_path), SETS[0])
    for seed in (1, 2):
        logits_file(tmp_path / f"theirs-{seed}.npy", testset, seed=seed)
    ran = run("eval", "-m", "predictions:theirs-*.npy", *models[:2], *on(SETS[0]), "--json")
    assert ran.code == 0
    names = {r["model"] for r in ran.json if r.get("metric") == "top1"}
    assert names == {"a", "theirs-1", "theirs-2"}
    alone = run("eval", "-m", "predictions:theirs-1.npy", *on(SETS[0]), "--json")
    assert alone.code == 0 and {r["model"] for r in alone.json} == {"theirs-1"}
    other = run("eval", "-m", "predictions:theirs-1.npy", *on(SETS[1]))
    refused(other, "theirs-1.npy", "40 rows")


def test_patterns(run: Run, models: list[str]) -> None:
    assert run("eval", "-m", "lite*", *on(SETS[0]), "--plan").code == 2, "label spaces differ"


@pytest.fixture
def composed(run: Run, tmp_path: Path) -> list[str]:
    """Two small sets of the demonstration's photographs; their names."""
    from heldout.measure.evaluation.demonstration import write_inputs

    inputs = write_inputs(tmp_path / "inputs")
    options = ["--masks", inputs / "masks", "--gate", "max_border=1", "-o", inputs / "cutouts"]
    assert run("cutout", "masks", inputs / "photos", *options).code == 0
    build = ("build", "compose", "--backgrounds-per-object", 1)
    place = ("-f", "x=0.05,0.5", "-f", "y=0.05,0.5")
    size = ("-f", "size=0.02,0.4")
    assert run(*build, inputs / "demo-size-1.toml", *size, "-o", "testsets/sizes").code == 0
    assert run(*build, inputs / "demo-location-1.toml", *place, "-o", "testsets/places").code == 0
    return ["sizes", "places"]


def test_columns_and_saved_records(run: Run, composed: list[str]) -> None:
    arguments = ["eval", "-m", "lite0", *on(*composed), "--by", "size", "--by", "x&y"]
    ran = run(*arguments, "--save", "records.json", "--json", "--replicates", 50)
    assert ran.code == 0
    saved = json.loads(Path("records.json").read_text())
    assert all(record.pop("check") for record in saved) and saved == ran.json
    slices = {r["slice"] for r in ran.json if r["record"] == "score"}
    assert {"size=0.02", "size=0.4", "x=0.05&y=0.05", "x=0.5&y=0.05"} <= slices
    notes = [line for line in ran.err.splitlines() if "subset-of-classes" in line]
    assert len(notes) == 2, "one a test set"
    assert notes[1].endswith("[subset-of-classes]"), "advice is given once"


def test_models_that_show_the_same_share_a_note(run: Run, composed: list[str]) -> None:
    ran = run("eval", "-m", "lite0", "-m", "lite1", *on(composed[0]))
    (note,) = [line for line in ran.err.splitlines() if "subset-of-classes" in line]
    assert note.startswith("note: lite0, lite1 on sizes: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "zzz", "-t", SETS[0]], ["no model 'zzz'", "lite0"]),
        (["-m", "lite9", "-t", SETS[0]], ["did you mean", "lite0"]),
        (["-m", "model.onnx", "-t", SETS[0]], ["onnx:model.onnx"]),
        (["-m", "onnx:nowhere.onnx", "-t", SETS[0]], ["nowhere.onnx"]),
        (["-m", "models.py", "-t", SETS[0]], ["models.py:predict"]),
        (["-m", "models.py:zzz", "-t", SETS[0]], ["zzz", "a, b, c"]),
        (["-m", "predictions:nowhere.npy", "-t", SETS[0]], ["nowhere.npy"]),
        (["-m", "models.py:a", "-t", "zzz"], ["no test set 'zzz'", SETS[0]]),
        (["-m", "models.py:a", "-m", "./models.py:a", "-t", SETS[0]], ["two models are named 'a'"]),
        (["-m", "models.py:a", "-t", SETS[0], "--by", "zzz"], ["'zzz'", "ls --columns"]),
        (["-m", "models.py:a", "-t", SETS[0], "--metric", "zzz"], ["zzz"]),
        (
            ["-m", "models.py:a", "-t", SETS[0], "--keep", "zzz"],
            ["--keep is 'zzz'", "logits, topk"],
        ),
        (
            ["-m", "models.py:a", "-t", SETS[0], "--images", "nowhere"],
            ["no folder of images at nowhere"],
        ),
        (["-m", "lite0", "-t", SETS[0]], ["imagenet-1k", "--label-map"]),
        (["-m", "models.py:a", "-t", SETS[0], "--model-args", "x"], ["name=value"]),
        (["-m", "models.py:a", "-t", SETS[0], "--workers", "0"], ["--workers is '0'"]),
    ],
)
def test_mistakes_are_one_line(
    run: Run, models: list[str], tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    refused(run("eval", *arguments), *words)
    assert calls(tmp_path) == [] and files(tmp_path / "predictions") == []


def test_stopping_and_going_on(tmp_path: Path, run: Run) -> None:
    make_set(tmp_path, images=600, broken=())
    model_file(tmp_path, pause=0.02)
    arguments = ["eval", "-m", "models.py:slow", "-t", "colours-1", "--workers", "1", "--json"]
    child = subprocess.Popen(
        [sys.executable, "-c", _START, *arguments],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the suite was started with SIGINT ignored, children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    results = tmp_path / "runs"
    while child.poll() is None and len(list(results.glob("predict-*/results/*/*"))) < 2:
        pass
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert child.returncode == 1 and out == ""
    assert err.rstrip().endswith("stopped; the same command again goes on from here")
    assert "Traceback" not in err
    done = len(calls(tmp_path))
    model_file(tmp_path)  # the same model, no longer slow
    ran = run(*arguments)
    assert ran.code == 0
    assert "were done before, going on from there" in ran.err
    resumed = len(calls(tmp_path))
    whole = tmp_path / "whole"
    make_set(whole, images=600, broken=())
    fresh = run(*arguments, "-w", whole)
    assert fresh.out == ran.out
    assert resumed - done < len(calls(tmp_path)) - resumed, "what was done is not done again"


def test_gates_count_in_a_run_file(run: Run, models: list[str]) -> None:
    step = '[[step]]\nverb = "eval"\nmodel = ["models.py:c"]\ntestset = ["colours-1"]\n'
    head = 'schema_version = 1\nname = "nightly"\n'
    after = '[[step]]\nverb = "ls"\n'
    Path("nightly.toml").write_text(f'{head}{step}fail_under = ["top1=1"]\n{after}')
    ran = run("run", "nightly.toml")
    assert ran.code == 4 and "gate not met" in ran.err
    assert "· heldout ls" in ran.err, "the steps after it run all the same"
    Path("nightly.toml").write_text(f"{head}{step}{after}")
    assert run("run", "nightly.toml").code == 0


@pytest.mark.browser
def test_the_report_opens(run: Run, models: list[str], browser: Any) -> None:
    assert run("eval", *models, *on(*SETS), "--baseline", SETS[0], "-o", "page.html").code == 0
    page = browser.new_page()
    errors: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("request", lambda request: requests.append(request.url))
    page.goto(Path("page.html").resolve().as_uri())
    page.wait_for_load_state("networkidle")
    text = page.inner_text("body")
    assert all(name in text for name in (*SETS, "Evaluation"))
    assert page.locator("svg, canvas").count() > 0, "figures are drawn"
    assert (
        errors == [] and [url for url in requests if not url.startswith(("file:", "data:"))] == []
    )
    page.close()


_START = "import sys; from heldout.cli.app import invoke; sys.exit(invoke(sys.argv[1:]))"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def _heldout(*arguments: object) -> Ran:
    ran = subprocess.run(
        [sys.executable, "-c", _START, *map(str, arguments)],
        env=_environment(),
        capture_output=True,
        text=True,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_help_names_the_kinds_of_models(run: Run) -> None:
    ran = run("eval", "--help")
    assert ran.code == 0
    for word in ("lite0", "onnx:FILE", "file.py:object", "--fail-under", "--plan"):
        assert word in ran.out


def test_invoke_is_what_the_command_runs() -> None:
    assert invoke(["eval"]) == 2


def test_a_sample_is_compared_with_a_sample_of_the_baseline(run: Run, models: list[str]) -> None:
    ran = run("eval", *models, *on(*SETS), "--baseline", SETS[0], "--limit", "20", "--json")
    assert ran.code == 0, ran.err
    fits = {(r["testset"], r["baseline"]) for r in ran.json if r["record"] == "fit"}
    assert fits == {(f"{name}-limit-20", f"{SETS[0]}-limit-20") for name in SETS[1:]}
    assert Path("runs/eval/report.html").is_file()


def test_a_place_that_nothing_can_be_written_to_is_refused_before_the_work(
    run: Run, models: list[str], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    base = ["eval", *models, *on(SETS[0])]
    refused(run(*base, "-o", "folder"), "folder is a folder: name a file")
    refused(run(*base, "--save", "folder"), "folder is a folder: name a file")
    refused(run(*base, "-o", "models.py/report.html"), "models.py is a file")
    assert calls(tmp_path) == []
    (tmp_path / "predictions").write_text("")  # found out only when it is written to
    refused(run(*base), "predictions/", "Not a directory: check the path")


@pytest.mark.parametrize("flags", [["--seed", "-1"], ["--replicates", "1"]])
def test_numbers_that_nothing_can_be_drawn_by(
    flags: list[str], run: Run, models: list[str], tmp_path: Path
) -> None:
    ran = run("eval", *models, *on(SETS[0]), *flags)
    assert ran.code == 2 and flags[0] in ran.err and "Traceback" not in ran.err
    assert calls(tmp_path) == []


FUNCTIONS = """
import numpy as np

from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters import classifier
from tests.models.predictions.running_case import ColourModel

like = ColourModel("like")
stated = {
    "label_space": like.label_space,
    "preprocessing": Preprocessing(geometry=Geometry(crop_height=8, crop_width=8)),
    "files": [],
}


@classifier(**stated)
def short(images):
    return np.zeros((len(images), 2))


@classifier(**stated)
def empty(images):
    return np.full((len(images), len(like.label_space)), np.nan)


@classifier(**stated)
def sure(images):
    return np.eye(len(like.label_space))[np.zeros(len(images), int)]


@classifier(**stated)
def plain(images):
    return 3.0 * np.eye(len(like.label_space))[np.zeros(len(images), int)]
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "short gives 2 outputs per image, its label space has"),
        ("empty", "empty gives NaN or infinity"),
        ("sure", "probabilities, not logits"),
    ],
)
def test_a_function_that_cannot_work_is_said_on_one_line_before_it_runs(
    name: str, message: str, run: Run, models: list[str], tmp_path: Path
) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    for verb in ("predict", "eval"):
        for more in ([], ["--plan"]):
            ran = run(verb, "-m", f"functions.py:{name}", *on(SETS[0]), *more)
            refused(ran, message)
    assert not (tmp_path / "predictions").exists() and not (tmp_path / "runs").exists()
    assert run("predict", "-m", "functions.py:plain", *on(SETS[0])).code == 0
