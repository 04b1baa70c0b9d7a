"""Damage: one flipped byte in a stored file is an error, is harmless, or is made again; never a number."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heldout.core.workspace import Workspace
from heldout.data.testset import load, save, subset
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.conftest import ROOT
from tests.measure.evaluation.eval_case import calls, model_file
from tests.models.predictions.running_case import make_set

FLIPS = 48


@pytest.fixture(scope="module")
def flips() -> Iterator[Any]:
    """The benchmark, which flips 1,000 bytes."""
    spec = importlib.util.spec_from_file_location("flips", ROOT / "benchmarks" / "flips.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flips"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["flips"]


@pytest.fixture(scope="module")
def built(flips: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with every kind of stored file."""
    folder: Path = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        flips.build(folder)
    return folder


@pytest.fixture
def world(built: Path, tmp_path: Path) -> Path:
    """A copy of that workspace: the current folder."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path


def flip(path: Path, at: int = -30) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_flipped_byte_never_gives_another_number(flips: Any, tmp_path: Path) -> None:
    found = list(flips.flips(tmp_path, count=FLIPS, seed=20))
    assert [flip for flip in found if flip.outcome not in ("same", "refused")] == []
    refusals = {flip.kind for flip in found if flip.outcome == "refused"}
    assert refusals >= {"test set", "pool", "predictions", "embeddings", "saved records"}


def test_verify_finds_nothing_in_what_was_just_written(world: Path, run: Run) -> None:
    ran = run("verify", "--json")
    assert ran.code == 0 and "checksums" not in ran.err
    assert {r["folder"]: (r["tables"], r["unchecked"]) for r in ran.json} == {
        "paints-1": (4, 0), "pool": (3, 0),
        "predictions": (2, 0), "embeddings": (2, 0), "judgements": (40, 0),
    }  # fmt: skip
    assert run("verify", "scores.json", "--json").json[0]["unchecked"] == 0


@pytest.mark.parametrize(
    ("pattern", "kind", "command", "again"),
    [
        (
            "predictions/*/one@*/part-*", "predictions",
            ["score", "-t", "paints-1", "-m", "one", "--json"],
            ["predict", "-m", "models.py:one", "-t", "paints-1"],
        ),
        (
            "predictions/*/outside@*/part-*", "predictions",
            ["score", "-t", "paints-1", "-m", "outside", "--json"],
            ["import", "predictions", "outside.npy", "-t", "paints-1"],
        ),
        (
            "predictions/*/one@*/run.json", "predictions",
            ["score", "-t", "paints-1", "-m", "one", "--json"],
            ["predict", "-m", "models.py:one", "-t", "paints-1"],
        ),
        (
            "embeddings/*/[!c]*/vectors.npy", "embeddings",
            ["annotate", "pool", "-e", "fake", "--classes", "classes.json", "-o", "o", "--json"],
            ["annotate", "pictures", "-e", "fake", "--classes", "classes.json", "--name", "p2"],
        ),
    ],
)  # fmt: skip
def test_repair_removes_what_can_be_made_again(
    world: Path, run: Run, pattern: str, kind: str, command: list[str], again: list[str]
) -> None:
    before = run(*command)
    shutil.rmtree("o", ignore_errors=True)
    (path,) = (p for p in world.glob(pattern))
    flip(path)
    refused(run(*command), str(path.relative_to(world)))
    seen = run("verify", "--no-files")
    assert seen.code == 1 and "verify --repair removes it" in seen.out and path.exists()
    mended = run("verify", "--no-files", "--repair", "--json")
    (record,) = (r for r in mended.json if r["folder"] == kind)
    assert mended.code == 1 and record["findings"][0]["fix"].startswith("removed: ")
    assert not path.parent.exists() and run("verify", "--no-files").code == 0
    assert run(*again).code == 0
    assert run(*command).out == before.out


def test_a_judgements_table_cut_to_nothing_is_no_empty_table(world: Path, run: Run) -> None:
    whole = (world / "judgements.db").read_bytes()
    (world / "judgements.db").write_bytes(b"")
    refused(run("export", "judgements", "-o", "j.jsonl"), "judgements.db", "is empty", "export")
    assert run("verify", "--no-files").code == 1
    (world / "judgements.db").write_bytes(whole[:12_288])
    refused(run("export", "judgements", "-o", "j.jsonl"), "judgements.db")
    (world / "judgements.db").unlink()
    assert run("export", "judgements", "-o", "j.jsonl").code == 0


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": {"name": "drawn", "parameters": {"cap": 7}, "seed": 4}},
        {"recipe": {"name": "drawn", "parameters": {"cap": 8}, "seed": 3}},
        {"parents": [{"name": "more-paints", "content_hash": "6" * 64}]},
        {"counts": {"images": 40, "parent": 91}},
        {"truths": {"original": {"kind": "multi"}, "second": {"kind": "single"}}},
    ],
)
def test_a_card_that_says_something_else_of_how_it_was_made(
    world: Path, run: Run, change: dict[str, object]
) -> None:
    card = world / "testsets" / "paints-1" / "card.json"
    edit(card, **change)
    assert "error: card.json" in run("verify", "paints-1").out
    refused(run("score", "-t", "paints-1"), "card.json", "is not as it was written")
    value = json.loads(card.read_text())
    del value["check"]  # as the message says
    card.write_text(json.dumps(value))
    assert run("score", "-t", "paints-1").code == 0


def test_a_label_space_with_other_names(world: Path, run: Run) -> None:
    path = world / "testsets" / "paints-1" / "label_space.json"
    value = json.loads(path.read_text())
    value["classes"][0]["names"] = ["scarlet"]
    path.write_text(json.dumps(value))
    assert run("verify", "paints-1").code == 1
    refused(run("score", "-t", "paints-1"), "label_space.json", "is damaged")


def test_a_set_made_again_from_another_source_is_another_set(run: Run, tmp_path: Path) -> None:
    source = make_set(tmp_path, images=12, broken=())
    place = Workspace(tmp_path).testsets / "few"
    chosen, how = source.image_ids.to_pylist()[:4], {"name": "first", "parameters": {}, "seed": 0}
    save(subset(source, chosen, name="few", recipe=how), place)
    save(subset(source, chosen, name="few", recipe=how), place)
    changed = subset(source, source.image_ids.to_pylist()[:9], name=source.name, recipe=how)
    again = subset(changed, chosen, name="few", recipe=how)
    assert again.content_hash == load(place).content_hash
    with pytest.raises(Exception, match=r"made from other sources.*--replace"):
        save(again, place)
    save(again, place, replace=True)
    assert load(place).card.parents[0]["content_hash"] == changed.content_hash


def without_checks(folder: Path) -> None:
    """Everything as it was before there were checksums."""
    for path in folder.rglob("*.json"):
        if path.parent.name == "ledger":
            continue
        value = json.loads(path.read_text())
        for item in value if isinstance(value, list) else [value]:
            item.pop("check", None)
            item.pop("files", None)
        path.write_text(json.dumps(value))


def test_what_was_written_before_is_read_and_covered_by_repair(world: Path, run: Run) -> None:
    score = ["score", "-t", "paints-1", "--by", "seen", "--json"]
    before = run(*score)
    without_checks(world)
    assert run(*score).out == before.out
    shown = run("verify", "--no-files", "--json")
    assert shown.code == 0 and "6 things were written before there were checksums" in shown.err
    assert run("verify", "--no-files", "--repair").code == 0
    assert {r["folder"]: r["unchecked"] for r in run("verify", "--no-files", "--json").json} == {
        "paints-1": 0, "pool": 0, "predictions": 0, "embeddings": 2, "judgements": 0,
    }  # fmt: skip
    assert run(*score).out == before.out
    assert run("report", "scores.json").code == 0
    (part,) = world.glob("predictions/*/one@*/part-*")
    without_checks(world)
    flip(part, part.read_bytes().index(b"001.png") + 2)  # what no Parquet reader sees
    found = run("verify", "--no-files", "--repair")
    assert found.code == 1 and "its outputs are not those of its hash" in found.out


def test_a_damaged_part_of_an_unfinished_job_is_made_again(run: Run, tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=64, broken=())
    predict = ["predict", "-m", f"{model_file(tmp_path).name}:a", "-t", testset.name]
    score = ["score", "-t", testset.name, "--json"]
    assert run(*predict, "--shard", "1/2").code == 0
    parts = sorted(tmp_path.glob("runs/predict-*/results/*/*"))
    made = len(calls(tmp_path))
    assert 2 <= len(parts) < 8
    for path, at in zip(parts, (40, 900), strict=False):
        flip(path, at)
    assert run(*predict).code == 0
    # Every unit is one call: those that were missing, and the two damaged ones.
    assert len(calls(tmp_path)) == made + (8 - len(parts)) + 2
    found = run(*score).out
    shutil.rmtree(tmp_path / "predictions")
    assert run(*predict).code == 0
    assert run(*score).out == found
    assert not list(tmp_path.glob("runs/predict-*"))
