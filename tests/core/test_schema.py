from __future__ import annotations

import json
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, NotFound
from heldout.core.schema import Document, read, write


class Inner(Document, kw_only=True):
    width: int
    names: tuple[str, ...] = ()


class Outer(Document, kw_only=True):
    schema_version: int = 2
    title: str
    inner: Inner
    scale: float | None = None


GOOD = {"schema_version": 2, "title": "a", "inner": {"width": 3}}


def put(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_a_document_comes_back_as_it_was_written(tmp_path: Path) -> None:
    document = Outer(title="näme", inner=Inner(width=3, names=("a", "b")), scale=0.1)
    write(tmp_path / "a.json", document)
    assert read(tmp_path / "a.json", Outer) == document
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "schema_version": 2,
        "title": "näme",
        "inner": {"width": 3, "names": ["a", "b"]},
        "scale": 0.1,
    }


def test_toml_is_read_by_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('schema_version = 1\ntitle = "a"\n[inner]\nwidth = 3\n')
    assert read(path, Outer).inner.width == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({**GOOD, "titel": "b"}, "has an unknown field 'titel'; did you mean 'title'?"),
        ({**GOOD, "inner": {"width": 3, "hight": 1}}, "has an unknown field 'hight' in inner"),
        ({**GOOD, "inner": {"width": "3"}}, "inner.width: Expected int, got str"),
        ({"schema_version": 2, "title": "a"}, "Object missing required field inner"),
        ({**GOOD, "schema_version": 3}, "has schema_version 3, this heldout reads up to 2"),
        ({"title": "a"}, "has no schema_version"),
        ({**GOOD, "schema_version": "2"}, "has no schema_version"),
        ([1], "has no schema_version"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_file_and_field(
    tmp_path: Path, value: object, reason: str
) -> None:
    path = put(tmp_path / "a.json", value)
    with pytest.raises(BadFile) as error:
        read(path, Outer, fix="write it again")
    assert str(error.value).startswith(f"{path}: {reason}")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\x00"])
def test_what_is_not_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadFile):
        read(tmp_path / "a.json", Outer)
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(BadFile):
        read(tmp_path / "a.toml", Outer)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read(tmp_path / "none.json", Outer)
