from __future__ import annotations

from pathlib import Path

import pytest

from heldout.core.errors import ExistsError
from heldout.data.testset.exporters.owned_folder import write_documents


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_written_once_and_never_over_anything_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one, two = {"a.csv": "1\n", "b.csv": "2\n"}, {"a.csv": "3\n"}
    assert write_documents(out, one, kind="split", about={"rule": 1})
    assert not write_documents(out, one, kind="split", about={"rule": 1})
    with pytest.raises(ExistsError, match="holds another split"):
        write_documents(out, two, kind="split", about={"rule": 1})
    with pytest.raises(ExistsError, match="holds another split"):
        write_documents(out, one, kind="split", about={"rule": 2})
    (out / "mine.txt").write_text("mine")
    assert write_documents(out, two, kind="split", about={}, replace=True)
    assert sorted(files(out)) == ["a.csv", "mine.txt", "split.json"]
    assert files(out)["a.csv"] == "3\n"


def test_a_document_that_was_changed_is_not_deleted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_documents(out, {"a.csv": "1\n", "b.csv": "2\n"}, kind="split", about={})
    (out / "b.csv").write_text("my own\n")
    with pytest.raises(ExistsError, match="holds another split"):
        write_documents(out, {"a.csv": "1\n", "b.csv": "2\n"}, kind="split", about={})
    write_documents(out, {"a.csv": "3\n"}, kind="split", about={}, replace=True)
    assert files(out)["b.csv"] == "my own\n"


def test_other_files_stay_and_one_of_the_same_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("mine\n")
    assert write_documents(tmp_path, {"a.csv": "1\n"}, kind="split", about={})
    assert files(tmp_path)["groups.csv"] == "mine\n"
    for replace in (False, True):
        with pytest.raises(ExistsError, match=r"groups\.csv is there and was not written"):
            write_documents(tmp_path, {"groups.csv": "x"}, kind="groups", about={}, replace=replace)
    assert files(tmp_path)["groups.csv"] == "mine\n"
    with pytest.raises(ExistsError, match="is a file"):
        write_documents(tmp_path / "groups.csv", {}, kind="split", about={})


def test_a_record_that_leads_elsewhere_is_not_believed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "victim").write_text("kept")
    (out / "split.json").write_text(
        '{"schema_version": 1, "kind": "split", "files": {"../victim": "x"}}'
    )
    with pytest.raises(ExistsError, match=r"split\.json is there and was not written"):
        write_documents(out, {"a.csv": "1"}, kind="split", about={}, replace=True)
    assert (tmp_path / "victim").read_text() == "kept"
