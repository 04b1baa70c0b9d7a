"""Tests of :mod:`heldout.core.workspace`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heldout
from heldout.core.errors import UserError
from heldout.core.workspace import Workspace, check_slug, slug

# The names of the package's front: what completion shows is what there is.


def test_completion_shows_the_public_names_and_each_of_them_loads() -> None:
    assert dir(heldout) == sorted(heldout.__all__)
    for name in dir(heldout):
        assert getattr(heldout, name) is not None


# workspace


def test_where_the_workspace_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELDOUT_WORKSPACE", raising=False)
    monkeypatch.delenv("HELDOUT_JUDGEMENTS", raising=False)
    assert Workspace.find().root == Path()
    monkeypatch.setenv("HELDOUT_WORKSPACE", str(tmp_path))
    assert Workspace.find().root == tmp_path
    assert Workspace.find("here").root == Path("here")
    place = Workspace.find()
    assert place.judgements == tmp_path / "judgements.db"
    monkeypatch.setenv("HELDOUT_JUDGEMENTS", "postgresql://host/db")
    assert place.judgements == "postgresql://host/db"
    assert not any(tmp_path.iterdir())  # nothing is made before something is written


@given(st.text())
def test_a_slug_is_a_plain_name_and_stays_one(text: str) -> None:
    try:
        made = slug(text)
    except UserError:
        assert not any(char.isascii() and (char.isalnum() or char == "_") for char in text)
        return
    assert slug(made) == made
    assert not set(made) & set("/\\ \0") and not made.startswith(".")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "-x", "a\n"])
def test_names_that_could_be_something_else_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="use letters"):
        check_slug(name, "a test set")


def test_good_names_pass() -> None:
    for name in ("imagenetv2-b-33", "a", "X_1.2"):
        assert check_slug(name, "a test set") == name
