from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.data.testset import Card, TestSet, find_testset, list_testsets, save


@pytest.fixture
def workspace(tmp_path: Path, make_pets: Callable[..., TestSet]) -> Workspace:
    space = Workspace(tmp_path / "work")
    for name, aliases in (("pets-b-2", ("pets", "both")), ("pets-a-1", ("both",))):
        card = Card(name=name, label_space="pets", aliases=aliases)
        save(make_pets(card=card), space.testsets / name)
    (space.testsets / ".tmp-123-pets-c").mkdir()
    (space.testsets / ".tmp-123-pets-c" / "card.json").write_text("{")
    (space.testsets / "notes").mkdir()
    return space


def test_listed_by_name_without_leftovers(workspace: Workspace) -> None:
    assert [entry.card.name for entry in list_testsets(workspace)] == ["pets-a-1", "pets-b-2"]
    assert list_testsets(Workspace(workspace.root / "none")) == []


def test_found_by_name_alias_and_path(workspace: Workspace) -> None:
    assert find_testset(workspace, "pets-a-1").name == "pets-a-1"
    assert find_testset(workspace, "pets").name == "pets-b-2"
    path = str(workspace.testsets / "pets-a-1")
    assert find_testset(Workspace(Path("elsewhere")), path).name == "pets-a-1"


def test_what_cannot_be_found_says_what_there_is(workspace: Workspace) -> None:
    with pytest.raises(NotFound, match="there is pets-a-1, pets-b-2"):
        find_testset(workspace, "dogs")
    with pytest.raises(NotFound, match="import"):
        find_testset(Workspace(workspace.root / "none"), "dogs")
    with pytest.raises(UserError, match="alias of pets-a-1, pets-b-2"):
        find_testset(workspace, "both")


def test_a_broken_card_is_named(workspace: Workspace) -> None:
    (workspace.testsets / "pets-a-1" / "card.json").write_text("{")
    with pytest.raises(BadFile, match="pets-a-1"):
        list_testsets(workspace)
