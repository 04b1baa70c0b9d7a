"""Files of proposals, what a test set knows by itself, and judged pairs as mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest

from heldout.core.errors import BadFile, UserError
from heldout.data.testset import Card, TestSet, image_table, make_testset
from heldout.data.testset.tables import truth_table
from heldout.measure.mistakes.categories import (
    COLUMNS,
    Proposal,
    lessons_from,
    propose,
    read_proposals,
    write_proposals,
)
from heldout.measure.mistakes.evidence import (
    gather_knowledge,
    read_prototypes,
)
from heldout.measure.mistakes.verdicts import mistakes_at
from tests.measure.mistakes.evidence_case import PETS, evidence, knowledge, planted


def _set(**columns: list[object]) -> TestSet:
    images = ["a", "b", "c", "d"]
    labels = [["pug"], ["pug", "sofa"], ["tabby", "sofa"], []]
    return make_testset(
        Card(name="pets-1", label_space="pets", truths={"panel": {"kind": "multilabel"}}),
        images=image_table({"image_id": images, **columns}),
        truths={
            "panel": truth_table(
                images,
                ["pug", "sofa", "tabby", "pug"],
                correct=labels,
                unclear=[[], [], ["manx"], []],
                wrong=[["leash"], [], [], []],
            )
        },
        label_space=PETS,
    )


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    mistakes, verdicts = planted(60, 0)
    table = evidence(mistakes, knowledge())
    for proposals in (propose(table), propose(table, lessons_from(table, verdicts))):
        path = tmp_path / "p.jsonl"
        write_proposals(path, proposals, mistakes=mistakes, label_space=PETS)
        assert read_proposals(path) == proposals
        write_proposals(tmp_path / "p.csv", proposals, mistakes=mistakes, label_space=PETS)
        with (tmp_path / "p.csv").open(newline="") as handle:
            rows = list(csv.DictReader(handle))
        assert tuple(rows[0]) == COLUMNS and len(rows) == len(proposals)
        assert [row["category"] for row in rows] == [p.category for p in proposals]
    strange = Proposal("a\u2028b\x85.jpg", "pug", "Other")
    path.write_text(
        json.dumps({"schema_version": 1, **msgspec.to_builtins(strange)}, ensure_ascii=False)
    )
    assert [proposal.image_id for proposal in read_proposals(path)] == ["a\u2028b\x85.jpg"]
    path.write_bytes(b'{"schema_version": 1, "image_id": "\xff"}\n')
    with pytest.raises(BadFile, match="line 1 is not a proposal"):
        read_proposals(path)
    with pytest.raises(UserError, match="neither"):
        write_proposals(tmp_path / "p.txt", (), mistakes=(), label_space=PETS)


@pytest.mark.parametrize("line", ["{}", "nothing", "[1]", '{"schema_version": 99}'])
def test_other_files_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(line + "\n")
    with pytest.raises(BadFile):
        read_proposals(tmp_path / "p.jsonl")


def test_judged_pairs_as_mistakes() -> None:
    pairs = [
        ("b", "tabby"),
        ("a", "boxer"),
        ("a", "boxer"),
        ("c", "manx"),
        ("z", "pug"),
        ("a", "wolf"),
    ]
    found, unknown, right = mistakes_at(_set(), pairs, truth="panel")
    assert [(m.image_id, m.prediction, m.acceptable, m.original) for m in found] == [
        ("a", "boxer", ("pug",), "pug"),
        ("b", "tabby", ("sofa", "pug"), "sofa"),
    ]
    assert (unknown, right) == (2, 1)


def test_what_a_test_set_knows_by_itself() -> None:
    found = gather_knowledge(_set(), truth="panel")
    assert found.cooccurrence is not None and found.cooccurrence.count("sofa", "tabby") == 1
    assert found.hierarchy is not None and "dog" in found.hierarchy  # the classes' own parents
    assert found.peers is None and found.affinity is None
    assert gather_knowledge(_set(), truth="panel", seen_together="none").cooccurrence is None


def test_prototypes_from_a_column_or_a_file(tmp_path: Path) -> None:
    testset = _set(selection_frequency=[0.1, None, 0.9, 0.5], source=["x", "y", "z", "w"])
    assert read_prototypes(testset, "selection_frequency") == {"a": 0.1, "c": 0.9, "d": 0.5}
    odd = _set(selection_frequency=[0.1, float("nan"), float("inf"), 0.5])
    assert read_prototypes(odd, "selection_frequency") == {"a": 0.1, "d": 0.5}
    with pytest.raises(UserError, match="not one of numbers"):
        read_prototypes(testset, "source")
    with pytest.raises(UserError, match="no column"):
        read_prototypes(testset, "beauty")
    path = tmp_path / "t.csv"
    path.write_text("image_id,typicality\na,0.25\nq,3\n")
    assert read_prototypes(testset, path) == {"a": 0.25, "q": 3.0}
    for text, match in (
        ("image_id,x\na,1\n", "lacks a column"),
        ("image_id,typicality\na,nan\n", "not a number"),
        ("image_id,typicality\nq,1\n", "no image"),
        ("image_id,typicality\n\udcff,1\n", "not valid CSV"),
    ):
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        with pytest.raises(BadFile, match=match):
            read_prototypes(testset, path)
