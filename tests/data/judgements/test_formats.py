from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.data.judgements.files import read_judgements, write_judgements
from heldout.data.judgements.judgement import FIELDS, Judgement
from heldout.data.judgements.store import JudgementStore

from .strategies import any_judgement, vote

ENDINGS = ("jsonl", "csv", "parquet")


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=60, deadline=None)
@given(judgements=st.lists(any_judgement(), max_size=8))
def test_a_file_gives_back_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, ending: str, judgements: list[Judgement]
) -> None:
    path = tmp_path_factory.mktemp("files") / f"judgements.{ending}"
    assert write_judgements(path, iter(judgements)) == len(judgements)
    assert list(read_judgements(path)) == judgements


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=15, deadline=None)
@given(
    judgements=st.lists(any_judgement(), max_size=8, unique_by=lambda j: j.judgement_id),
    chance=st.randoms(use_true_random=False),
)
def test_export_then_import_is_the_same_table_and_the_same_bytes_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    ending: str,
    judgements: list[Judgement],
    chance: random.Random,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    with JudgementStore(folder / "one.db") as one, JudgementStore(folder / "two.db") as two:
        one.add(judgements)
        assert one.export(folder / f"one.{ending}") == len(judgements)
        shuffled = list(judgements)
        chance.shuffle(shuffled)
        two.add(shuffled[: len(shuffled) // 2])
        two.import_file(folder / f"one.{ending}")
        assert list(two.stream()) == list(one.stream())
        two.export(folder / f"two.{ending}")
    assert (folder / f"two.{ending}").read_bytes() == (folder / f"one.{ending}").read_bytes()


def test_a_spreadsheet_runs_nothing_that_somebody_answered(tmp_path: Path) -> None:
    given = [vote("=1+1", "@b"), vote("b", "-2+3+cmd", source="+1")]
    write_judgements(tmp_path / "j.csv", given)
    with (tmp_path / "j.csv").open(newline="") as handle:
        cells = [cell for row in csv.reader(handle) for cell in row]
    assert "'@b" in cells and not any(cell[:1] in ("=", "+", "-", "@") for cell in cells)
    assert list(read_judgements(tmp_path / "j.csv")) == given


def test_export_takes_the_filters_of_a_stream(tmp_path: Path) -> None:
    with JudgementStore(tmp_path / "j.db") as store:
        store.add([vote("a", "w"), vote("b", "v")])
        assert store.export(tmp_path / "w.csv", who="w") == 1
    assert list(read_judgements(tmp_path / "w.csv")) == [vote("a", "w")]


def test_a_table_made_by_hand_needs_only_what_was_asked(tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_text("\ufeffimage_id,class_id,who,answer\na,c,w,selected\nb,c,w,not-selected\n\n")
    made = list(read_judgements(path, question="vote"))
    assert made == [
        vote("a", "w", source="votes.csv"),
        vote("b", "w", "not-selected", source="votes.csv"),
    ]
    lines = tmp_path / "votes.jsonl"
    lines.write_text(
        '{"question":"vote","image_id":"a","class_id":"c","who":"w","answer":"selected"}\n\n'
    )
    assert list(read_judgements(lines)) == [vote("a", "w", source="votes.jsonl")]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.jsonl", '{"question": 1', "line 1 is not a JSON object"),
        ("x.jsonl", "\n[1]\n", "line 2 is not a JSON object"),
        ("x.jsonl", '{"question":"vote","who":"w","answer":"selected"}', "line 1.*subject"),
        (
            "x.jsonl",
            '{"question":"vote","image_id":7,"who":"w","answer":"x"}',
            "write numbers as text",
        ),
        ("x.jsonl", '{"question":"vote","subject":[1],"who":"w","answer":"x"}', "line 1.*subject"),
        ("x.jsonl", '{"question":"vote","image_id":"a","who":"w","answer":3}', "answer is 3"),
        ("x.jsonl", '{"schema_version":9,"question":"vote"}', "upgrade heldout"),
        ("x.csv", "", "is empty"),
        ("x.csv", "who,who\n", "twice"),
        ("x.csv", "who,answer\na,b,c\n", "line 2 has 3 cells"),
        ("x.csv", 'who,answer\n"a"b,c\n', "not valid CSV"),
        ("x.csv", "question,subject,answer,who\nvote,nope,selected,w\n", "line 2.*JSON object"),
        (
            "x.csv",
            "question,image_id,class_id,answer,who,when\nvote,a,c,selected,w,1 May\n",
            "line 2.*not a time",
        ),
        (
            "x.csv",
            "question,image_id,class_id,answer,who\nvote,a,c,selected,w\nvote,a,d,selectd,w\n",
            "line 3: 'selectd' does not answer vote",
        ),
        ("x.parquet", "PAR1 this is not Parquet", "cannot be read as Parquet"),
    ],
)
def test_a_bad_file_is_named_with_the_line_and_the_fix(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadFile, match=says) as caught:
        list(read_judgements(path))
    assert caught.value.line.startswith(f"{path}: ")
    assert caught.value.fix
    with JudgementStore(tmp_path / "j.db") as store:
        with pytest.raises(BadFile):
            store.import_file(path)
        assert store.count() == 0


def test_two_images_of_a_pair_may_stand_in_either_order(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("question,image_id,other_id,answer,who\nduplicate,b,a,different,w\n")
    (made,) = read_judgements(path)
    assert made.subject == {"image_id": "a", "other_id": "b"}
    path.write_text("question,image_id,other_id,answer,who\nduplicate,a,a,different,w\n")
    with pytest.raises(BadFile, match="line 2: image 'a' is paired with itself"):
        list(read_judgements(path))


def test_files_that_are_not_there_or_not_of_a_known_kind(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"x\.csv"):
        list(read_judgements(tmp_path / "x.csv"))
    with pytest.raises(UserError, match=r"\.jsonl, \.csv, \.parquet"):
        write_judgements(tmp_path / "x.xlsx", [])
    (tmp_path / "x.csv").write_bytes(b"who\n\xff\xfe\n")
    with pytest.raises(BadFile, match="CSV"):
        list(read_judgements(tmp_path / "x.csv"))


def test_a_bad_row_of_parquet_is_counted_from_one(tmp_path: Path) -> None:
    good = {"question": "vote", "image_id": "a", "class_id": "c", "answer": "selected", "who": "w"}
    for row in range(3):
        rows = [{**good, "image_id": f"i{n}", "who": "" if n == row else "w"} for n in range(3)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
        with pytest.raises(BadFile, match=f"row {row + 1}: .*who"):
            list(read_judgements(tmp_path / "x.parquet"))


def test_a_newer_parquet_file_is_refused(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field(name, pa.string()) for name in FIELDS], metadata={"heldout_schema_version": "2"}
    )
    pq.write_table(schema.empty_table(), tmp_path / "x.parquet")
    with pytest.raises(BadFile, match="upgrade heldout"):
        list(read_judgements(tmp_path / "x.parquet"))


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    write_judgements(path, [vote("a", "w")])
    before = path.read_bytes()

    def broken() -> Iterator[Judgement]:
        yield vote("b", "w")
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_judgements(path, broken())
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]
    write_judgements(tmp_path / "x.jsonl", [vote("a", "w", evidence={"note": "x" * 200_000})])
    (back,) = read_judgements(tmp_path / "x.jsonl")
    assert len(back.evidence["note"]) == 200_000
