from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heldout.core.errors import ExistsError, UserError
from heldout.data.importing.tabular import read_table
from heldout.data.testset import (
    Card,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    truth_table,
)
from heldout.data.testset.exporters.tables import export_tabular, joined_table

from ..conftest import SPACE

Maker = Callable[..., TestSet]
SEPARATED = {"context": "|"}


def one_truth(testset: TestSet) -> TestSet:
    return make_testset(
        Card(name="back", label_space="pets"),
        images=testset.images,
        truths={"original": testset.truth()},
        label_space=testset.label_space,
        memberships=testset.memberships,
    )


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_importing_gives_the_same_content_back(tmp_path: Path, pets: TestSet, suffix: str) -> None:
    path = tmp_path / f"pets{suffix}"
    result = export_tabular(pets, path)
    assert (result.rows, result.files) == (6, 1)
    separators = SEPARATED if suffix == ".csv" else None
    back = read_table(path, name="back", label_space=SPACE, separators=separators)
    assert back.card.tables == one_truth(pets).card.tables
    assert back.card.content_hash == one_truth(pets).card.content_hash


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=6
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(
    st.lists(
        st.tuples(
            TEXT,
            st.sampled_from(SPACE.ids),
            st.one_of(st.none(), TEXT),
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            st.one_of(st.none(), st.booleans()),
            st.lists(TEXT, max_size=3),
        ),
        min_size=1,
        max_size=6,
        unique_by=lambda row: row[0],
    )
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_any_content_survives(tmp_path: Path, suffix: str, rows: list[tuple[object, ...]]) -> None:
    ids, classes, texts, floats, flags, contexts = map(list, zip(*rows, strict=True))
    columns = {
        "image_id": ids,
        "note": pa.array(texts, pa.string()),
        "x": pa.array(floats, pa.float64()),
        "flag": pa.array(flags, pa.bool_()),
    }
    made = make_testset(
        Card(name="made", label_space="pets"),
        images=image_table(columns),
        truths={"original": truth_table(ids, classes)},  # type: ignore[arg-type]
        label_space=SPACE,
        memberships=membership_table(
            [(i, "context", v) for i, values in zip(ids, contexts, strict=True) for v in values]  # type: ignore[attr-defined, misc]
        ),
    )
    path = tmp_path / f"made{suffix}"
    export_tabular(made, path, replace=True)
    back = read_table(path, name="back", label_space=SPACE)
    assert back.card.tables == made.card.tables


def test_columns_and_their_order(tmp_path: Path, pets: TestSet) -> None:
    export_tabular(pets, tmp_path / "pets.csv")
    lines = (tmp_path / "pets.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "image_id,class_id,source,licence,attribution,domain,size,level,context"
    assert lines[1] == "i1,cat,candidate,CC-BY-4.0,Ann,a,0.1,1,grass|water"
    assert lines[4] == "i4,dog,candidate,CC-BY-4.0,Ann | Co,,3.0,4,grass"


def test_a_truth_with_lists_keeps_them(tmp_path: Path, pets: TestSet) -> None:
    export_tabular(pets, tmp_path / "pets.jsonl", truth="multi")
    rows = [json.loads(line) for line in (tmp_path / "pets.jsonl").read_text().splitlines()]
    assert rows[1]["correct"] == ["cat", "dog"]
    assert rows[3]["problematic"] is True
    assert list(rows[0])[:6] == [
        "image_id",
        "class_id",
        "correct",
        "unclear",
        "wrong",
        "problematic",
    ]


def test_one_row_for_each_image_and_class(make_pets: Maker) -> None:
    made = make_pets(truths={"original": truth_table(["i1", "i1", "i2"], ["dog", "cat", "cat"])})
    table = joined_table(made)
    assert table["image_id"].to_pylist() == ["i1", "i1", "i2", "ü/3 «x»", "i4", "i5", "i6"]
    assert table["class_id"].to_pylist() == ["cat", "dog", "cat", None, None, None, None]


def test_never_overwrites_something_else(tmp_path: Path, pets: TestSet, make_pets: Maker) -> None:
    for suffix in (".csv", ".jsonl", ".parquet"):
        path = tmp_path / f"pets{suffix}"
        assert not export_tabular(pets, path).unchanged
        assert export_tabular(pets, path).unchanged
        other = make_pets(memberships=None)
        before = path.read_bytes()
        with pytest.raises(ExistsError):
            export_tabular(other, path)
        assert path.read_bytes() == before
        assert export_tabular(other, path, replace=True).rows == 6
        assert path.read_bytes() != before
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".tmp")] == []


def test_what_the_text_formats_cannot_hold(tmp_path: Path, pets: TestSet, make_pets: Maker) -> None:
    for value in ("a|b", " a", ""):
        made = make_pets(memberships=membership_table([("i1", "context", value)]))
        with pytest.raises(UserError, match=r"\.jsonl or \.parquet"):
            export_tabular(made, tmp_path / "pets.csv")
        export_tabular(made, tmp_path / "pets.jsonl", replace=True)
    assert not (tmp_path / "pets.csv").exists()
    odd = pets.images.append_column("code", [["007", "1", "2", "3", "4", "5"]])
    odd = odd.append_column("blank", [["", "a", "b", "c", "d", "e"]])
    odd = odd.append_column("bad", [[1.0, float("nan"), float("inf"), 0.0, 0.0, 0.0]])
    made = make_pets(images=odd)
    for ending in ("csv", "jsonl", "parquet"):
        export_tabular(made, tmp_path / f"odd.{ending}")
    lines = (tmp_path / "odd.jsonl").read_text().splitlines()
    assert [json.loads(line)["bad"] for line in lines] == [1.0, None, None, 0.0, 0.0, 0.0]
    assert pq.read_table(tmp_path / "odd.parquet")["bad"].to_pylist()[2] == float("inf")


def test_names_that_clash_and_unknown_formats(
    tmp_path: Path, pets: TestSet, make_pets: Maker
) -> None:
    made = make_pets(images=pets.images.append_column("correct", [["x"] * 6]))
    with pytest.raises(UserError, match="'correct'"):
        joined_table(made)
    members = membership_table([("i1", "class_id", "x")])
    with pytest.raises(UserError, match="'class_id'"):
        joined_table(make_pets(memberships=members))
    with pytest.raises(UserError, match="xlsx"):
        export_tabular(pets, tmp_path / "pets.xlsx")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(ExistsError, match="folder"):
        export_tabular(pets, tmp_path / "d.csv")


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "a\nb", "\r", 'q"\r'])
def test_ends_of_lines_inside_a_text_survive_csv(
    tmp_path: Path, pets: TestSet, make_pets: Maker, text: str
) -> None:
    made = make_pets(images=pets.images.append_column("said", [[text, "b", "c", "d", "e", "f"]]))
    export_tabular(made, tmp_path / "pets.csv")
    back = read_table(tmp_path / "pets.csv", name="back", label_space=SPACE, separators=SEPARATED)
    assert back.card.tables == one_truth(made).card.tables


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_texts_that_look_like_formulas_come_back(
    tmp_path: Path, pets: TestSet, make_pets: Maker, suffix: str
) -> None:
    said = ["=1+1", "+1", "-cmd|'/C calc'!A0", "@a", "'=1", "'tis"]
    images = pets.images.append_column("=said", [said])
    made = make_pets(images=images.append_column("delta", [[-0.5, -1.0, -1e-7, 0.0, 2.0, 1e9]]))
    export_tabular(made, tmp_path / f"pets{suffix}")
    separators = SEPARATED if suffix == ".csv" else None
    path = tmp_path / f"pets{suffix}"
    back = read_table(path, name="back", label_space=SPACE, separators=separators)
    assert back.card.content_hash == one_truth(made).card.content_hash
    assert back.images["delta"].type == pa.float64()
