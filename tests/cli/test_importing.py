"""``heldout import testset`` of tables: classes of their own, several or none an image, lists in cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, load, make_testset, truth_table
from heldout.data.testset.exporters.tables import export_tabular
from tests.cli.conftest import Run


def of_two_classes() -> TestSet:
    ids = ["1", "1", "2", "3"]
    return make_testset(
        Card(name="pets-1", label_space="pets"),
        images=image_table({"image_id": ["1", "2", "3"], "place": ["x", "y", "z"]}),
        truths={"original": truth_table(ids, ["cat", "dog", "dog", "owl"])},
        label_space=LabelSpace.from_ids("pets", ["cat", "dog", "owl"]),
    )


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_of_images_with_several_classes_comes_back(
    run: Run, tmp_path: Path, suffix: str
) -> None:
    made = of_two_classes()
    path = tmp_path / f"pets{suffix}"
    export_tabular(made, path)
    asked = ("import", "testset", path, "--classes", "table", "-w", tmp_path / "w")
    refused = run(*asked)
    assert refused.code == 2
    assert "--several" in refused.err
    done = run(*asked, "--several")
    assert done.code == 0, done.err
    back = load(tmp_path / "w" / "testsets" / "pets")
    assert back.card.tables == made.card.tables
    assert back.label_space.ids == ("cat", "dog", "owl")


def test_images_without_a_class_and_lists_in_cells(run: Run, tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("image_id,class_id,seen with\na,7,x=y;z\nb,10,\nc,,z\n")
    asked = ("import", "testset", tmp_path / "n.csv", "--classes", "table", "-w", tmp_path / "w")
    refused = run(*asked)
    assert refused.code == 2
    assert "--several" in refused.err
    done = run(*asked, "--several", "--separator", "seen with=;")
    assert done.code == 0, done.err
    back = load(tmp_path / "w" / "testsets" / "n")
    assert back.label_space.ids == ("10", "7")
    assert len(back) == 3
    assert len(back.truth()) == 2
    assert back.memberships is not None
    assert back.memberships["value"].to_pylist() == ["x=y", "z", "z"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--separator", "context"), "write name=value"),
        (("--separator", "=;"), "write name=value"),
        (("--separator", "nothing=;"), "nothing"),
        (("--several", "--format", "folders"), "--several has no use with --format folders"),
        (
            ("--separator", "a=;", "--format", "folders"),
            "--separator has no use with --format folders",
        ),
        (("--class-column", "empty"), "names no class"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    run: Run, tmp_path: Path, more: tuple[str, ...], told: str
) -> None:
    (tmp_path / "t.csv").write_text("image_id,class_id,empty\na,cat,\nb,dog,\n")
    found = run("import", "testset", tmp_path / "t.csv", "--classes", "table", *more)
    assert found.code == 2
    assert told in found.err
    assert found.err.count("\n") == 1
