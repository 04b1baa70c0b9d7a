from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.core.workspace import Workspace
from heldout.curate.pool_images import find_candidates
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.measure.evaluation.eval_case import calls, model_file

DOMAINS, CLASSES = ("photo", "sketch"), ("cat", "dog", "owl")


@pytest.fixture
def place(tmp_path: Path, run: Run) -> Path:
    """A test set of tiny images in domain/class folders, and vectors for them."""
    rng = np.random.default_rng(0)
    ids, vectors = [], []
    centres = rng.normal(size=(3, 8)) * 2
    for d, domain in enumerate(DOMAINS):
        for c, label in enumerate(CLASSES):
            folder = tmp_path / "images" / domain / label
            folder.mkdir(parents=True)
            for number in range(20):
                paint = tuple(rng.integers(0, 255, size=3).tolist())
                Image.new("RGB", (8, 8), paint).save(folder / f"{number}.png")
                ids.append(f"{domain}/{label}/{number}.png")
                vectors.append(centres[c] + rng.normal(size=8) * (1 + 2 * d))
    np.savez(tmp_path / "vectors.npz", vectors=np.array(vectors, np.float32), ids=np.array(ids))
    made = run(
        "import",
        "testset",
        tmp_path / "images",
        "--name",
        "small",
        "--classes",
        "folders",
        "-w",
        tmp_path,
    )
    assert made.code == 0, made.err
    return tmp_path


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def arguments(place: Path) -> tuple[object, ...]:
    return ("small", "--features", place / "vectors.npz", "-d", "folder:1", "-w", place)


def test_strategies_are_tried_and_reported(run: Run, place: Path) -> None:
    options = (
        "-s",
        "random,margin+error",
        "--initial",
        12,
        "--budget",
        6,
        "--rounds",
        3,
        "--seeds",
        2,
    )
    first = run("active", "run", *arguments(place), *options, "--json", "--save", place / "r.json")
    assert first.code == 0, first.err
    assert "small: 120 images (60 train, 24 validation, 36 test), 2 domains" in first.err
    learning = [r for r in first.json if r["record"] == "learning"]
    assert {r["strategy"] for r in learning} == {"random", "margin+error"}
    assert {r["labels"] for r in learning if r["metric"] == "worst_cell"} == {12, 18, 24, 30, None}
    assert {r["slice"] for r in learning} == {"all", "folder=photo", "folder=sketch"}
    again = run("active", "run", *arguments(place), *options, "--json", "--workers", 1)
    assert again.json == first.json and "4 were done before" in again.err
    shown = run("active", "run", *arguments(place), *options)
    assert "mean of the curve minus that of random" in shown.out
    drawn = run("report", place / "r.json", "-o", place / "r.html", "-w", place)
    assert drawn.code == 0, drawn.err
    page = (place / "r.html").read_text()
    assert "Spending labels" in page and "margin+error" in page


def test_transfer_between_domains_predicts_efficiency(run: Run, place: Path) -> None:
    ask = ("active", "run", *arguments(place), "--initial", 6, "-n", 4, "--seeds", 2)
    strategies = ("--strategy", "random,margin,entropy,margin+uniform,random+worst,badge")
    saved = place / "learning.json"
    made = run(*ask, *strategies, "--rounds", 5, "--transfer", 6, "--json", "--save", saved)
    assert made.code == 0, made.err
    cells = [record for record in made.json if record["record"] == "transfer"]
    assert {(c["trained_on"], c["tested_on"]) for c in cells} == {
        (one, other) for one in DOMAINS for other in DOMAINS
    }
    predicted = [record for record in made.json if record["record"] == "efficiency predictors"]
    assert [p["strategy"] for p in predicted] == strategies[1].split(",")
    assert predicted[0]["efficiency"] is None  # the one that others are compared with
    known = sum(p["efficiency"] is not None for p in predicted)
    correlated = [record for record in made.json if record["record"] == "predictor correlation"]
    assert all(c["n"] == known for c in correlated)
    assert bool(correlated) == (known > 3)
    drawn = run("report", saved, "-o", place / "report.html", "-w", place)
    assert drawn.code == 0, drawn.err
    assert "small: accuracy after 6 labels of one domain" in (place / "report.html").read_text()
    refused(run(*ask, "--transfer", 6, "--rounds", 0), "--transfer needs rounds that select")
    refused(run(*ask, "--transfer", 40), "photo has 30 candidates")


def test_the_next_images_to_label(run: Run, place: Path) -> None:
    asked = ("active", "next", *arguments(place), "-n", 10, "-o", place / "next.csv")
    cold = run(*asked, "-s", "k-centre+uniform", "--json")
    assert cold.code == 0, cold.err
    assert {r["domain"]: r["chosen"] for r in cold.json} == {"photo": 5, "sketch": 5}
    rows = read_csv(place / "next.csv")
    assert len(rows) == 10 and all((place / "images" / row["path"]).is_file() for row in rows)
    answered = [{"image_id": r["image_id"], "class_id": r["image_id"].split("/")[1]} for r in rows]
    (place / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answered))
    warm = run(*asked, "-s", "margin+error", "--labelled", place / "labels.jsonl", "--folds", 3)
    assert warm.code == 0, warm.err
    more = read_csv(place / "next.csv")
    assert not {r["image_id"] for r in more} & {r["image_id"] for r in rows}
    assert {r["predicted"] for r in more} <= set(
        CLASSES
    ) and "next labels by margin+error" in warm.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("-s", "best"), "no selector 'best'"),
        (("-s", "margin+best"), "no allocator 'best'"),
        (("-d", "country"), "small has no column 'country'"),
        (("--rounds", 9), "240 labels are asked for, small has 60 candidates"),
        (("--trainer", "forest"), "no trainer 'forest'"),
        (("--seeds", 0), "--seeds is '0': give a whole number >= 1"),
        (("--features", "nothing.npy"), "nothing.npy"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    run: Run, place: Path, more: tuple[object, ...], said: str
) -> None:
    plan = ("-s", "random", "--initial", 60, "--budget", 20, "--rounds", 0)
    done = run("active", "run", *arguments(place), *plan, *more)
    assert done.code == 2 and said in done.err, done.err
    assert len(done.err.splitlines()) <= 3


def test_a_budget_larger_than_the_pool(run: Run, place: Path) -> None:
    done = run(
        "active", "next", *arguments(place), "-s", "random", "-n", 121, "-o", place / "n.csv"
    )
    assert done.code == 2 and "121 images are asked for, small has 120" in done.err
    assert not (place / "n.csv").exists()


def test_a_shard_that_is_done_is_no_error(run: Run, place: Path) -> None:
    options = ("-s", "random,margin", "--initial", 12, "--budget", 6, "--rounds", 1, "--seeds", 3)
    whole = ("active", "run", *arguments(place), *options)
    first = run(*whole, "--shard", "1/2", "--json")
    assert first.code == 0, first.err
    assert "shard 1/2 is done" in first.err
    counts = {record["name"]: record["value"] for record in first.json}
    assert counts["runs"] == 6 and 0 < counts["runs_done"] < 6
    last = run(*whole, "--shard", "2/2", "--json")
    assert last.code == 0 and "active: 0 runs" not in last.err
    joined = run(*whole, "--json")
    assert joined.json == last.json, "the last shard has it all"


def test_a_set_comes_before_the_folder_that_it_was_made_from(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder above the images, ``small`` is the test set and ``small/`` the folder."""
    monkeypatch.chdir(place)
    (place / "images").rename(place / "small")
    found = find_candidates(Workspace(place), "small").pool
    assert found is not None and found.truths
    bare = find_candidates(Workspace(place), "small/").pool
    assert bare is not None and not bare.truths and len(bare) == len(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "images", "-d", "folder:1"), "has no truth"),
        (("run", "small", "-d", "zzz"), "no column 'zzz'"),
        (("run", "small", "-d", "folder:1", "--truth", "zzz"), "no truth 'zzz'"),
        (("run", "small", "-d", "folder:1", "--rounds", 99), "labels are asked for"),
        (
            ("next", "images", "-d", "folder:1", "-n", 999, "-o", "n.csv"),
            "999 images are asked for",
        ),
        (("next", "images", "-d", "folder:1", "-n", 9, "-o", "n.csv"), "needs labels"),
        (("next", "images", "-d", "folder:1", "-n", 9, "-o", "vectors.npz/n.csv"), "is a file"),
    ],
)
def test_what_cannot_work_is_refused_before_features_are_made(
    run: Run, place: Path, arguments: tuple[object, ...], said: str
) -> None:
    model_file(place)
    refused(run("active", *arguments, "--features", "models.py:a"), said)
    assert not calls(place)


def test_vectors_have_no_use_for_images(run: Run, place: Path) -> None:
    refused(
        run(
            "active",
            "next",
            *arguments(place),
            "-n",
            1,
            "-o",
            "n.csv",
            "-s",
            "random",
            "--images",
            "x",
        ),
        "--images",
    )
