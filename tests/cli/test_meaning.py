"""What numbers mean survives: column properties, synonyms, reviews; what was not compared is not 0."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.testset import find_testset
from heldout.data.testset.hashing import combine
from heldout.models.predictions import Predictions, PredictionStore, top_k
from tests.cli.conftest import Run, write, write_published
from tests.cli.test_bad_input import refused
from tests.golden.data import contexts as contexts_world


@pytest.fixture
def tables(run: Run, tmp_path: Path) -> Path:
    """A set in whose subsets an image of two classes counts for one of them, with predictions."""
    contexts_world(tmp_path)
    build = ["build", "contexts", "--source", "table", "tagged.jsonl", "--subject", "cat"]
    build += ["--subject", "dog", "--minimum", "10", "--more-than", "3", "--name", "tables"]
    assert run(*build).code == 0
    assert run("import", "predictions", "near.csv", "-t", "tables").code == 0
    return tmp_path / "testsets" / "tables"


def by_subset(run: Run, testset: str) -> dict[str, float]:
    ran = run(
        "score", "-t", testset, "--by", "subset", "--metric", "top1", "--no-mistakes", "--json"
    )
    rows = [row for row in ran.json if row["record"] == "score"]
    return {row["slice"]: row["value"] for row in rows if row["statistic"] == "value"}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_what_columns_mean_survives_a_table(
    run: Run, tmp_path: Path, tables: Path, suffix: str
) -> None:
    file = tmp_path / f"table.{suffix}"
    again = ["import", "testset", file, "--classes", tables / "label_space.json", "--several"]
    assert run("export", "testset", "tables", "-o", file, "--format", "table").code == 0
    assert run(*again, "--name", "back").code == 0
    (found,) = run("diff", "tables", "back", "--json").json
    assert found["same_content"] and found["a_hash"] == found["b_hash"]
    assert run("import", "predictions", "near.csv", "-t", "back").code == 0
    assert by_subset(run, "back") == by_subset(run, "tables")
    # Without what is said of the columns it is another set, and is called one.
    file.with_name(f"{file.name}.columns.json").unlink()
    separators = [f"--separator={name}=|" for name in ("subset", "community") if suffix == "csv"]
    assert run(*again, "--name", "bare", *separators).code == 0
    (found,) = run("diff", "tables", "bare", "--json").json
    assert not found["same_content"] and not found["changes"]
    assert "columns.subset.of_class" in {change["field"] for change in found["card"]}
    assert run("import", "predictions", "near.csv", "-t", "bare").code == 0
    assert by_subset(run, "bare") != by_subset(run, "tables")


def test_sets_written_before_open_and_a_changed_meaning_is_found(
    run: Run, tmp_path: Path, tables: Path
) -> None:
    build = ["build", "contexts", "--source", "table", "tagged.jsonl", "--subject", "cat"]
    build += ["--subject", "dog", "--minimum", "10", "--more-than", "3", "--name", "tables"]
    sealed = json.loads((tables / "card.json").read_text())
    scores = by_subset(run, "tables")
    # As it was written before what is declared of columns was hashed, and cards had checksums.
    old = {name: value for name, value in sealed.items() if name not in ("files", "check")}
    old["tables"] = {k: v for k, v in sealed["tables"].items() if k != "columns"}
    old["content_hash"] = combine(old["tables"])
    write(tables / "card.json", old)
    assert by_subset(run, "tables") == scores
    ran = run("verify", "tables", "--json")
    (note,) = ran.json[0]["findings"]
    assert (ran.code, note["severity"]) == (0, "warning") and "column types" in note["message"]
    assert run(*build).code == 0  # the same set: nothing is written
    assert json.loads((tables / "card.json").read_text()) == old
    plain = {"kind": "categorical", "multi": True}
    for field, value in (
        ("columns", {**sealed["columns"], "subset": plain}),
        ("clusters", "subset"),
        ("factors", ["subset"]),
    ):
        write(tables / "card.json", {**sealed, field: value})
        assert run("verify", "tables").code == 1, field
        refused(run("score", "-t", "tables"), "card.json")
        write(tables / "card.json", {**old, field: value})
        refused(run(*build), "holds another test set")


def test_what_an_audit_did_not_compare_is_not_zero(run: Run, tmp_path: Path) -> None:
    root = write_published(tmp_path / "published")
    lists = root / "datasets"
    for name in ("new-set-1", "imagenet-validation-original"):
        info = root / "metadata/class_info.json"
        assert run("import", "testset", lists / f"{name}.json", "--classes", info).code == 0
    said = run("verify", "new-set-1", "--audit")
    assert "foreign: not compared: needs --other" in said.out
    assert "blacklisted: not compared: needs --blacklist" in said.out
    counts = run("verify", "new-set-1", "--audit", "--json").json[1]["counts"]
    assert counts["foreign"] is None and counts["class_mismatches"] is None
    assert counts["short_classes"] == 0
    other = run("verify", "new-set-1", "--other", "imagenet-validation-original", "--json")
    assert other.json[1]["counts"]["foreign"] == 0


def test_ids_tell_what_was_varied_in_the_published_sets_alone(run: Run, tmp_path: Path) -> None:
    for number in range(30):
        place = tmp_path / "area" / "bagel" / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
    ran = run("import", "testset", "area", "--metadata", "size")
    refused(ran, "30 images", "92,884", "metadata.csv")
    assert run("ls").out == "" or "area" not in run("ls").out


def test_sets_are_imported_together_or_not_at_all(run: Run, tmp_path: Path) -> None:
    root = write_published(tmp_path / "published")
    first, second = sorted((root / "datasets").iterdir())
    write(root / f"reviews/{first.stem}_review.json", {})
    classes = root / "metadata/class_info.json"
    args = ["import", "testset", first, second, "--classes", classes, "--reviews", root / "reviews"]
    refused(run(*args), f"{second.stem}_review.json")
    assert not (tmp_path / "testsets").exists()


VOTE = {"question": "vote", "subject": {"image_id": "a", "class_id": "c"}, "who": "w"}


def test_votes_of_one_worker_on_two_grids_are_two_votes(run: Run, tmp_path: Path) -> None:
    def votes(name: str, *answers: tuple[str, str]) -> str:
        rows = [{**VOTE, "answer": said, "evidence": {"grid": grid}} for grid, said in answers]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return name

    both = votes("both.jsonl", ("g1", "selected"), ("g2", "not-selected"))
    assert "2 judgements added" in run("import", "judgements", both).out
    assert (
        "1 judgements added"
        in run("import", "judgements", votes("3.jsonl", ("g3", "selected"))).out
    )
    refused(run("import", "judgements", votes("2.jsonl", ("g2", "selected"))), "said not-selected")
    twice = votes("twice.jsonl", ("g4", "selected"), ("g4", "not-selected"))
    refused(run("import", "judgements", twice), "with selected and with not-selected")


def test_the_published_reviews_of_neighbours_are_imported(run: Run, tmp_path: Path) -> None:
    seen = {"reviewer": "r", "date": "2018-12-01 10:00:00", "references": ["b", "c"]}
    write(tmp_path / "nearest_neighbor_reviews_v2.json", {"a": {"dssim": seen}})
    refused(run("import", "judgements", "nearest_neighbor_reviews_v2.json"), "near_duplicates.json")
    write(tmp_path / "near_duplicates.json", {"a": ["b", "a"], "b": ["a"]})
    assert (
        "2 judgements added" in run("import", "judgements", "nearest_neighbor_reviews_v2.json").out
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = run("import", "judgements", "near_duplicates.json")
    assert (ran.code, ran.err) == (0, "") and "2 judgements added" in ran.out


def test_a_synonym_keeps_what_the_hierarchy_says(run: Run, tmp_path: Path) -> None:
    rows = [
        {"image_id": str(n), "tag": ["cat", ("couch", "sofa", "table")[n % 3]]} for n in range(30)
    ]
    (tmp_path / "rooms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build = ["build", "contexts", "--source", "table", "rooms.jsonl", "--minimum", "1"]
    build += ["--more-than", "0", "--subject", "cat", "--roll-up", "--plan", "--json"]
    build += ["--hierarchy", "sofa<furniture", "--hierarchy", "table<furniture"]

    def images(*more: str) -> int:
        ran = run(*build, "--context", "furniture", *more)
        return next(r["value"] for r in ran.json if r.get("name") == "images_kept")

    assert images() == 20
    assert images("--synonym", "couch=sofa") == 30
    assert images("--synonym", "sofa=couch") == 30
    assert images("--synonym", "sofa=couch", "--context", "@furniture") == 30


@pytest.fixture
def small(run: Run, tmp_path: Path) -> list[str]:
    """A set of 60 images of three classes; their ids."""
    ids = [f"i{n:02d}" for n in range(60)]
    rows = [f"{image},c{n % 3}" for n, image in enumerate(ids)]
    (tmp_path / "small.csv").write_text("\n".join(["image_id,class_id", *rows]) + "\n")
    assert run("import", "testset", "small.csv", "--classes", "table").code == 0
    return ids


def calibration(run: Run, model: str) -> dict[str, float]:
    ran = run("score", "-t", "small", "-m", model, "--metric", "ece", "--metric", "nll", "--json")
    return {row["metric"]: row["value"] for row in ran.json if row.get("metric") in ("ece", "nll")}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_probabilities_in_an_array_are_stored_as_logits(
    run: Run, tmp_path: Path, small: list[str], dtype: type
) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 3)) + 3 * np.eye(3)[np.arange(60) % 3]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.save(tmp_path / "asked.npy", logits.astype(np.float32))
    np.save(tmp_path / "shares.npy", shares.astype(dtype))
    assert "probabilities" not in run("import", "predictions", "asked.npy", "-t", "small").err
    said = run("import", "predictions", "shares.npy", "-t", "small")
    assert "shares.npy holds probabilities" in said.err
    assert calibration(run, "shares") == pytest.approx(calibration(run, "asked"), abs=5e-3)
    assert "probabilities" not in run("doctor", "-t", "small").out


def test_the_doctor_finds_probabilities_that_were_stored_as_logits(
    run: Run, tmp_path: Path, small: list[str]
) -> None:
    shares = np.tile(np.float16([0.7, 0.2, 0.1]), (60, 1))
    testset = find_testset(Workspace.find(), "small")
    made = Predictions(
        model="before",
        image_ids=testset.image_ids,
        topk=top_k(shares.astype(np.float32)),
        logits=shares,
        label_space=testset.label_space,
    )
    PredictionStore(tmp_path / "predictions").write(made, images_hash=testset.card.images_hash)
    codes = [row["code"] for row in run("doctor", "-t", "small", "--json").json]
    assert "probabilities" in codes


def test_images_without_a_prediction_are_said(run: Run, tmp_path: Path, small: list[str]) -> None:
    rows = [f"{image},{'' if n % 20 == 7 else 'c0'}" for n, image in enumerate(small)]
    (tmp_path / "gaps.csv").write_text("\n".join(["image_id,prediction", *rows]) + "\n")
    ran = run("import", "predictions", "gaps.csv", "-t", "small")
    assert "no prediction for 3 images, such as i07" in ran.err


def test_options_that_are_read_and_not_used_are_refused(
    run: Run, tmp_path: Path, small: list[str]
) -> None:
    rows = "\n".join(["image_id,prediction", *(f"{image},c0" for image in small)])
    (tmp_path / "said.csv").write_text(rows + "\n")
    np.save(tmp_path / "said.npy", np.zeros((60, 1), np.int16))
    np.savez(tmp_path / "v.npz", vectors=np.eye(60, dtype=np.float32), ids=np.array(small))
    write(tmp_path / "local.json", {})
    for command, word in (
        ("import predictions said.csv -t small --order name", "--order"),
        ("import predictions said.csv -t small --array x", "--array"),
        ("import predictions said.npy -t small --array x", "--array"),
        ("fetch x --local local.json --mirror http://127.0.0.1:9", "--mirror"),
        ("score -t small --no-curve --balance class", "--balance"),
        ("build compose --foregrounds a --backgrounds b --labels folders --classes x", "--classes"),
        ("build contexts --source metashift a.pkl --general place", "--general"),
        ("build contexts --source table said.csv --kind stated --object tag", "--object"),
        ("annotate v.npz -e conse --images here -o x.parquet --class-vectors v.npz", "--images"),
    ):
        refused(run(*command.split()), word)
