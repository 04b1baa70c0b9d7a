"""Commands that look at test sets, outputs and label spaces: what they say is what is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.importing import read_classes
from heldout.data.labels import LabelSpace
from heldout.data.testset import TestSet, make_testset, save
from heldout.data.testset import fetch as registry
from heldout.data.testset.catalogue import lineage
from heldout.data.testset.fetch import Fetched, FetchedFile
from heldout.data.verbs import next_step
from heldout.testing.example import example_testset

from .conftest import Run


@pytest.fixture
def example(tmp_path: Path) -> TestSet:
    """A set of 100 images of 10 classes in a workspace of its own."""
    return save(example_testset("small", images=100), tmp_path / "testsets" / "small")


def test_similar_classes_of_a_small_label_space(run: Run) -> None:
    asked = ("labels", "find", "cat", "--classes", "cifar-10", "--json", "--similar")
    found = run(*asked, 10)
    assert (found.code, len(found.json), found.json[0]["id"]) == (0, 10, "cat")
    assert len(run(*asked, 3).json) == 4
    for arguments in (("--similar", 0), ("--top", -1), ("--top", 2, "--similar", 2)):
        assert run("labels", "find", "cat", *arguments).code == 2


def test_the_doctor_misses_a_model_that_is_not_there(run: Run, example: TestSet) -> None:
    place = ("--workspace", example.folder.parent.parent)  # type: ignore[union-attr]
    assert run("doctor", "-t", "small", *place).out.strip() == "small: nothing found"
    found = run("doctor", "-t", "small", "-m", "resnet50", *place)
    assert found.code == 2 and found.out == ""


def test_the_doctor_reads_logits(run: Run, tmp_path: Path, example: TestSet) -> None:
    place = {class_id: n for n, class_id in enumerate(example.label_space.ids)}
    labels = np.array([place[c] for c in example.truth()["class_id"].to_pylist()])
    logits = np.random.default_rng(0).normal(size=(100, len(place)))
    logits[np.arange(100), labels] += 2
    np.save(tmp_path / "good.npy", logits)
    arguments = ("doctor", "-t", "small", "--workspace", tmp_path, "--json", "--file")
    assert run(*arguments, tmp_path / "good.npy").json == []
    np.save(tmp_path / "narrow.npy", logits[:, :4])
    assert "4 columns" in run(*arguments, tmp_path / "narrow.npy").err


def test_two_lists_of_one_name_are_both_looked_at(
    run: Run, tmp_path: Path, example: TestSet
) -> None:
    for folder, image in (("train", "0"), ("val", "1")):
        (tmp_path / folder).mkdir()
        ids = example.image_ids.to_pylist()
        (tmp_path / folder / "ids.txt").write_text(f"{ids[int(image)]}\n")
    lists = [part for f in ("train", "val") for part in ("--other", tmp_path / f / "ids.txt")]
    found = run("verify", "small", *lists, "--json", "--workspace", tmp_path)
    assert found.json[1]["counts"]["foreign"] == 2


def test_a_diff_of_equal_rows_shows_how_the_cards_differ(
    run: Run, tmp_path: Path, example: TestSet
) -> None:
    space = LabelSpace.from_ids("turned", example.label_space.ids[::-1])
    other = make_testset(
        example.card.updated(name="other"),
        images=example.images,
        truths=example.truths,
        label_space=space,
        memberships=example.memberships,
    )
    save(other, tmp_path / "testsets" / "other")
    found = run("diff", "small", "other", "--workspace", tmp_path)
    assert "the content is the same" in found.out
    assert "label_space" in found.out and "turned" in found.out


def test_what_to_do_with_fetched_files_can_be_done() -> None:
    told = {}
    for entry in registry.load():
        files = tuple(
            FetchedFile(path=Path(f.name), bytes=1, sha256="", trust="registry", source="there")
            for f in entry.files
        )
        told[entry.name] = next_step(Fetched(entry=entry, files=files))
        classes = told[entry.name].split("--classes ")[1].split()[0]
        assert classes == "folders" or len(read_classes(classes))
    assert "testset cifar10.1_v6_data.npy --classes cifar-10" in told["cifar-10.1-v6"]
    assert told["siscore-size-1"].endswith("--metadata size-metadata.csv")
    assert "testset imagenet-a --classes imagenet-a" in told["imagenet-a"]
    assert "LIST.csv" in told["imagenet-validation-original"]


def test_the_folder_that_a_set_was_read_from_is_named(tmp_path: Path, example: TestSet) -> None:
    made = make_testset(
        example.card.updated(name="read", parents=({"folder": "photos", "sha256": "0" * 64},)),
        images=example.images,
        truths=example.truths,
        label_space=example.label_space,
    )
    save(made, tmp_path / "testsets" / "read")
    (parent,) = lineage(Workspace(tmp_path), "read").ancestors
    assert (parent.state, parent.name) == ("file", "photos")
