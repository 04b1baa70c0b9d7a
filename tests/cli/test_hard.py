"""From predictions to a set of hard images, at the command line; and what bad input is told."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from heldout.cli.app import invoke
from heldout.core.files import sha256_file
from heldout.data.published.truths import read_multilabel
from heldout.data.testset import add_truth, load, make_testset, save
from heldout.measure.mistakes.categories import PROPOSABLE
from tests.cli.conftest import Ran, Run, write
from tests.cli.test_bad_input import refused
from tests.measure.evaluation.eval_case import model_file
from tests.models.predictions.running_case import make_set

MODELS = [part for name in "abc" for part in ("-m", f"models.py:{name}")]
Row = dict[str, str]


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    """A test set of 80 image files with their real hashes, and three models in models.py."""
    made = make_set(tmp_path, images=80, broken=())
    files = [tmp_path / "files" / path for path in made.images["path"].to_pylist()]
    column = made.images.column_names.index("sha256")
    hashes = pa.array([sha256_file(path) for path in files])
    testset = make_testset(
        made.card,
        images=made.images.set_column(column, "sha256", hashes),
        truths=made.truths,
        label_space=made.label_space,
    )
    save(testset, tmp_path / "testsets" / made.name, replace=True)
    model_file(tmp_path)
    return tmp_path


def fill(path: Path, to: Path, answer: Callable[[int, Row], Row]) -> Path:
    """A queue filled in by a simulated reviewer."""
    with path.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    with to.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, **answer(place, row)} for place, row in enumerate(rows))
    return to


def counts(ran: Ran) -> dict[str, int]:
    return {r["name"]: r["value"] for r in ran.json if r["record"] == "count"}


def ann(place: int, row: Row) -> Row:
    if place % 6 == 5:
        return {"answer": "correct", "who": "ann"}
    severity = "Major" if place % 3 else "Minor"
    return {"category": "fine grained error", "severity": severity, "who": "ann", "answer": "wrong"}


def bob(place: int, row: Row) -> Row:
    if place % 7 == 6:
        return {}  # left for later
    return {**ann(place, row), "who": "bob"} | (
        {"severity": "Borderline"} if place % 9 == 1 else {}
    )


def test_from_predictions_to_a_set_that_eval_scores(run: Run, colours: Path) -> None:
    assert run("predict", *MODELS, "-t", "colours-1").code == 0
    hard = ["-t", "colours-1", "--aim", "hard", "--wrong", 2]
    asked = run("mistakes", "queue", "-o", "q.csv", *hard, "--json")
    assert asked.code == 0 and counts(asked)["n_queue"] >= 12
    with Path("q.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert {row["proposed_category"] for row in rows} <= set(PROPOSABLE)
    assert not any(row["evidence"] for row in rows), "colours stand in no hierarchy"
    said = run("import", "judgements", fill(Path("q.csv"), Path("ann.csv"), ann), "--json")
    assert said.code == 0 and counts(said)["n_empty"] == 0
    said = run("import", "judgements", fill(Path("q.csv"), Path("bob.csv"), bob), "--json")
    empty = sum(place % 7 == 6 for place in range(len(rows)))
    assert counts(said)["n_empty"] == empty

    panel = run("mistakes", "panel", "-t", "colours-1", "--people", 2, "--json")
    assert panel.code == 0 and counts(panel)["n_rulings"] == len(rows) - empty
    alpha = {r["columns"]: r for r in panel.json if r.get("name") == "krippendorff_alpha"}
    assert alpha["answer"]["value"] == 1.0 and alpha["severity"]["value"] < 1.0

    plan = run("build", "hard", "-t", "colours-1", "--wrong", 2, "--people", 2, "--plan", "--json")
    built = run("build", "hard", "-t", "colours-1", "--wrong", 2, "--people", 2, "--json")
    assert built.code == 0, built.err
    assert 0 < counts(built)["images"] == counts(plan)["images"]
    assert counts(plan)["waiting"] > 0 and "further images wait for review" in built.err
    assert "at least 2 of 3 models wrong (a, b, c)" in built.err
    verified = run("verify", "colours-1-hard")
    assert verified.code == 0, verified.out + verified.err

    n = counts(built)["images"]
    scored = run("eval", *MODELS, "-t", "colours-1-hard", "--json")
    assert scored.code == 0, scored.err
    accepted = {
        r["model"]: r
        for r in scored.json
        if (r.get("metric"), r.get("statistic")) == ("accepted", "value")
    }
    assert {r["n"] for r in accepted.values()} == {n}
    right = {r["model"]: r["value"] for r in scored.json if r.get("name") == "n_accepted"}
    assert set(right) == set("abc")
    for model, record in accepted.items():
        assert record["value"] == pytest.approx(right[model] / n)
        assert record["low"] <= record["value"] <= record["high"]
    assert right["b"] == right["c"] == 0, "they make these mistakes, by construction of the set"

    gate = run("eval", *MODELS, "-t", "colours-1-hard", "--fail-under", "accepted=0.5")
    assert gate.code == 4 and "accepted 0.0000 is under 0.5" in gate.err
    again = run("build", "hard", "-t", "colours-1", "--wrong", 2, "--people", 2, "--json")
    assert counts(again) == counts(built)

    left = run(
        "mistakes",
        "queue",
        "-t",
        "colours-1",
        "--aim",
        "hard",
        "--wrong",
        2,
        "--people",
        2,
        "--json",
    )
    assert counts(left) == {"n_queue": empty, "n_judged": len(rows) - empty}


def test_an_answered_queue_gives_an_estimate_and_a_revision(run: Run, colours: Path) -> None:
    run("predict", *MODELS, "-t", "colours-1")
    before = run("mistakes", "accuracy", "-t", "colours-1", "--json")
    assert before.code == 0 and "no answer to the head of the queue" in before.err
    bounds = {r["metric"] for r in before.json if r["record"] == "score" and r["model"] == "b"}
    assert bounds == {"reviewed_lower", "reviewed_upper"}
    run("mistakes", "queue", "-o", "q.jsonl", "-t", "colours-1", "--top", 10)
    rows = [json.loads(line) for line in Path("q.jsonl").read_text().splitlines()]
    assert len(rows) == 10
    for place, row in enumerate(rows):
        row["answer"] = "correct" if place % 2 else "wrong"
    Path("q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("import", "judgements", "q.jsonl", "--who", "ann").code == 0
    after = run("mistakes", "accuracy", "-t", "colours-1", "--json")
    by = {(r["model"], r["metric"]): r for r in after.json if r["record"] == "score"}
    low, high = by["b", "reviewed_lower"]["value"], by["b", "reviewed_upper"]["value"]
    review, estimate = by["b", "reviewed_review"], by["b", "reviewed_estimate"]
    assert low <= review["low"] <= review["value"] <= review["high"] <= high
    assert estimate["low"] <= review["low"] and review["high"] <= estimate["high"]
    assert "prediction-powered" in estimate["interval"]
    more = run("mistakes", "queue", "-t", "colours-1", "--json")
    assert counts(more)["n_judged"] == 10
    table = run("mistakes", "accuracy", "-t", "colours-1")
    assert "at least" in table.out and "once all is reviewed" in table.out

    revised = run("mistakes", "panel", "-t", "colours-1", "--add-truth")
    assert revised.code == 0 and "truth original-2 revises original" in revised.err
    testset = load(colours / "testsets" / "colours-1")
    where = testset.card.truths["original-2"]
    assert where["kind"] == "multilabel" and where["counts"]["ruled"] == 10
    assert testset.card.history and testset.card.default_truth == "original"
    assert run("verify", "colours-1").code == 0
    scored = run(
        "score", "-t", "colours-1", "--truth", "original-2", "--metric", "mla_micro", "--json"
    )
    mla = {r["model"]: r["value"] for r in scored.json if r.get("statistic") == "value"}
    assert mla["b"] == pytest.approx(low), "what is revised is what the lower bound counts"


def test_mistakes_come_back_from_the_published_form(run: Run, colours: Path) -> None:
    run("predict", *MODELS, "-t", "colours-1")
    run("mistakes", "queue", "-o", "q.csv", "-t", "colours-1", "-m", "b", "--aim", "hard")
    run("import", "judgements", fill(Path("q.csv"), Path("ann.csv"), ann))
    out = run("mistakes", "panel", "-t", "colours-1", "-o", "b_mistakes.json", "-m", "b")
    assert out.code == 0
    rows = json.loads(Path("b_mistakes.json").read_text())
    assert rows and {tuple(row) for row in rows.values()} == {
        ("top_prediction", "failure category", "failure severity")
    }


@pytest.fixture
def queue(run: Run, colours: Path) -> Path:
    run("predict", *MODELS, "-t", "colours-1")
    run("mistakes", "queue", "-o", "q.csv", "-t", "colours-1")
    return Path("q.csv")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image_id": "nowhere.img"}, "image 'nowhere.img' is not in test set colours-1"),
        ({"prediction": "mauve"}, "class 'mauve' is not in label space colours"),
        ({"prediction": ""}, "an answer without a class"),
        ({"answer": "perhaps"}, "'perhaps' is no answer"),
        ({"testset": "elsewhere-1"}, "elsewhere-1"),
    ],
)
def test_a_bad_row_is_named(run: Run, queue: Path, change: Row, words: str) -> None:
    bad = fill(
        queue,
        Path("bad.csv"),
        lambda place, row: (
            {"answer": "wrong", "who": "ann"}
            | (change if place == 1 or "testset" in change else {})
        ),
    )
    ran = run("import", "judgements", bad)
    refused(ran, words)
    if "testset" not in change:
        assert "bad.csv: line 3:" in ran.err
    assert (
        not Path("judgements.db").exists()
        or not counts(run("mistakes", "queue", "-t", "colours-1", "--json"))["n_judged"]
    )


def test_one_reviewer_who_contradicts_themselves(run: Run, queue: Path) -> None:
    lines = queue.read_text().splitlines()
    queue.write_text("\r\n".join([lines[0], lines[1], lines[1]]) + "\r\n")
    two = fill(
        queue,
        Path("two.csv"),
        lambda place, row: {"answer": ("wrong", "correct")[place], "who": "ann"},
    )
    refused(run("import", "judgements", two), "line 3: ann says correct of", "wrong in line 2")
    good = fill(queue, Path("good.csv"), lambda place, row: {"answer": "wrong", "who": "ann"})
    assert run("import", "judgements", good).code == 0
    other = fill(queue, Path("other.csv"), lambda place, row: {"answer": "unclear", "who": "ann"})
    refused(run("import", "judgements", other), "--revise")
    changed = run("import", "judgements", other, "--revise")
    assert changed.code == 0 and "1 earlier answers replaced" in changed.out


def test_nobody_has_judged(run: Run, queue: Path) -> None:
    refused(run("mistakes", "panel", "-t", "colours-1"), "nobody has judged")
    refused(run("build", "hard", "-t", "colours-1"), "nobody has judged a mistake")
    refused(run("build", "hard"), "--testset is missing")
    refused(run("mistakes", "queue", "-t", "colours-1", "--aim", "all"), "one of accuracy, hard")
    refused(
        run("mistakes", "queue", "-t", "colours-1", "--wrong", 2),
        "--wrong has no use with --aim accuracy",
    )
    refused(run("mistakes", "panel", "-t", "colours-1", "--rule", "score"), "--rule is 'score'")


@pytest.fixture
def listed(run: Run, tmp_path: Path) -> Path:
    """A set of four classes, one of them empty, with lists in which a label is correct and wrong."""
    wnids = [f"n{10_000_000 + i:08d}" for i in range(4)]
    info = [
        {"cid": i, "wnid": w, "synset": [f"thing {i}"], "gloss": ""} for i, w in enumerate(wnids)
    ]
    classes = write(tmp_path / "class_info.json", info)
    rows = [[f"x{i:03d}", wnids[i % 3]] for i in range(30)]
    write(tmp_path / "things.json", {"image_filenames": rows, "seed": 1})
    lines = [
        "id,original_label,correct_multi_labels,unclear_multi_labels,wrong_multi_labels,is_problematic"
    ]
    for i in range(30):
        both = f'"{i % 3},3"' if i < 6 else str(i % 3)
        wrong = "3" if i < 6 else ""
        lines.append(f"x{i:03d},{i % 3},{both},,{wrong},False")
    Path("lists.csv").write_text("\n".join(lines) + "\n")
    top = np.array([[3, i % 3] if i % 2 else [i % 3, 3] for i in range(30)])
    np.save("m.npy", top)
    assert run("import", "testset", tmp_path / "things.json", "--classes", classes).code == 0
    assert run("import", "predictions", "m.npy", "-t", "things", "--classes", classes).code == 0
    return tmp_path


def test_a_label_both_correct_and_wrong_is_a_hit_and_is_told(run: Run, listed: Path) -> None:
    testset = load(listed / "testsets" / "things")
    found = read_multilabel(Path("lists.csv"), testset=testset)
    add_truth(testset, "multilabel", found.table, provenance=found.provenance)
    assert any("6 images have a label both correct and wrong" in text for text in found.notes)
    ran = run("mistakes", "accuracy", "-t", "things", "--average", "images", "--json")
    by = {r["metric"]: r["value"] for r in ran.json if r["record"] == "score"}
    assert by["mla_micro_lower"] == pytest.approx((15 + 3) / 30), (
        "three of six such labels are hits"
    )
    assert "1 classes have no image" in run("mistakes", "accuracy", "-t", "things").err


@pytest.mark.shared
def test_published_numbers(tmp_path: Path, run: Run, shared_data: Path) -> None:
    data: Any = shared_data
    order = data / "imagenetv2/datasets/imagenet-validation-original.json"
    run("import", "testset", order, "--name", "val")
    told = run("import", "truth", data / "mistakes/multilabel.csv", "-t", "val")
    assert "358 images have a label both correct and wrong: the hit wins" in told.err
    folder = data / "imagenetv2/predictions/imagenet-validation-original"
    files = [folder / f"{name}.npy" for name in ("resnet152", "alexnet", "fv_64k")]
    run("import", "predictions", *files, "-t", "val", "--order", order)
    ran = run("mistakes", "accuracy", "-t", "val", "--json")
    by = {(r["model"], r["metric"]): r["value"] for r in ran.json if r["record"] == "score"}
    open_ = {r["model"]: r["value"] for r in ran.json if r.get("name") == "n_open"}
    assert open_ == {"resnet152": 48, "alexnet": 71, "fv_64k": 7685}
    assert [round(100 * by[m, "mla_lower"], 3) for m in ("resnet152", "alexnet", "fv_64k")] == [
        87.560,
        64.280,
        39.877,
    ]
    assert round(100 * by["fv_64k", "mla_upper"], 1) == 81.6
    mistakes = data / "mistakes"
    for name, added in (("vit3b", 378), ("greedy_soups", 249)):
        said = run(
            "import", "judgements", mistakes / f"{name}_mistakes.json", "-t", "val", "--json"
        )
        assert sum(counts(said)[n] for n in ("n_added", "n_known")) == added
    out = run("mistakes", "panel", "-t", "val", "--no-fold", "--json")
    found = counts(out)
    assert found["n_rulings"] == 378 + 249 - 143, "verdicts belong to (image, prediction)"
    files = [
        json.loads((mistakes / f"{n}_mistakes.json").read_text()) for n in ("vit3b", "greedy_soups")
    ]
    major = {
        (image, row["top_prediction"])
        for file in files
        for image, row in file.items()
        if row["failure severity"] == "Major"
    }
    assert found["n_severity_major"] == len(major)


def test_the_commands_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["mistakes", "queue"],
        ["mistakes", "panel"],
        ["mistakes", "accuracy"],
        ["build", "hard"],
    ):
        assert invoke([*words, "--help"]) == 0
        assert "--json" in capsys.readouterr().out
