"""The default metrics: those of the truth, and of them what a model and a set have enough for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.testset import find_testset, save
from tests.cli.conftest import Ran, Run
from tests.cli.test_bad_input import refused
from tests.data.testset.importers.small import IMAGENET, plain_set, val
from tests.data.testset.importers.test_import_truths import write_csv


def scored(ran: Ran) -> dict[tuple[str, str], float]:
    """Scores by model and metric."""
    assert ran.code == 0, ran.err
    return {
        (r["model"], r["metric"]): r["value"]
        for r in ran.json
        if r["record"] == "score" and r.get("statistic", "value") == "value"
    }


def test_a_model_with_top_1_predictions_alone_stops_no_other(run: Run, tmp_path: Path) -> None:
    save(plain_set([val(n) for n in range(30)], range(30)), tmp_path / "testsets" / "val")
    best = np.arange(30)[:, None]
    np.save(tmp_path / "wide.npy", (best + np.arange(5)) % 1000)
    for name in ("first", "second"):
        np.save(tmp_path / f"{name}.npy", best)
    for name in ("first", "second", "wide"):
        assert run("import", "predictions", f"{name}.npy", "-t", "val").code == 0
    ran = run("score", "-t", "val", "--json")
    assert scored(ran) == {
        ("first", "top1"): 1.0,
        ("second", "top1"): 1.0,
        ("wide", "top1"): 1.0,
        ("wide", "top5"): 1.0,
    }
    assert "not scored: top5 needs 5 guesses, first keeps 1, and 1 models more" in ran.err
    assert run("score", "-t", "val").code == 0
    refused(run("score", "-t", "val", "--metric", "top5"), "first keeps 1")
    refused(run("eval", "-m", "all", "-t", "val", "--fail-under", "top5=0.5"), "first keeps 1")
    only = run("score", "-t", "val", "-m", "first", "--json")
    assert scored(only) == {("first", "top1"): 1.0}


@pytest.fixture
def listed(run: Run, tmp_path: Path) -> Path:
    """Twenty images with a multi-label truth, a model's outputs, and a list of three of them.

    Of these the model gets none right under the original labels, and two under the others.
    """
    ids = [val(n) for n in range(1, 21)]
    save(plain_set(ids, range(20)), tmp_path / "testsets" / "val")
    right = {2: "2, 40", 3: "3, 41", 4: "4"}
    rows = [[i, "M", n, right.get(n, str(n)), True, "", "", False] for n, i in enumerate(ids)]
    write_csv(tmp_path / "multilabel.csv", rows)
    truth = ("import", "truth", "multilabel.csv", "-t", "val", "--name", "multilabel")
    assert run(*truth).code == 0
    (tmp_path / "list.txt").write_text("\n".join(ids[n] for n in right))
    guesses = np.arange(20)
    guesses[[2, 3, 4]] = 40, 41, 42
    np.save(tmp_path / "m.npy", guesses[:, None])
    assert run("import", "predictions", "m.npy", "-t", "val").code == 0
    made = ("import", "testset", "list.txt", "--format", "imagenet-m", "--parent", "val")
    assert run(*made, "--name", "hard").code == 0
    return tmp_path


def test_a_published_list_has_counts_and_a_metric_of_its_own(run: Run, listed: Path) -> None:
    card = find_testset(Workspace(listed), "hard").card
    assert card.counts["images"] == 3
    assert {name: known.get("counts") for name, known in card.truths.items()} == {
        "multilabel": {"images": 3},
        "original": None,
    }
    np.save(listed / "own.npy", np.array([[40], [41], [42]]))
    assert run("import", "predictions", "own.npy", "-t", "hard").code == 0
    assert scored(run("score", "-t", "hard", "--json")) == {("own", "accepted"): 2 / 3}
    pooled = run("score", "-t", "hard", "--from", "val", "--json")
    assert scored(pooled) == {("m", "accepted"): 2 / 3}
    original = ("score", "-t", "hard", "--from", "val", "--truth", "original", "--json")
    assert scored(run(*original)) == {("m", "top1"): 0.0}


def test_classes_without_images_leave_metrics_out_that_average_over_them(
    run: Run, listed: Path
) -> None:
    ran = run("score", "-t", "val", "--truth", "multilabel", "--json")
    assert scored(ran) == {("m", "mla_micro"): 19 / 20}
    assert f"mla: {len(IMAGENET) - 20} of 1000 classes have no image" in ran.err
    named = ("score", "-t", "val", "--truth", "multilabel", "--metric", "mla")
    refused(run(*named), "--absent-classes skip")
