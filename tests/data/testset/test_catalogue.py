"""Tests of :mod:`heldout.data.testset.catalogue`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.records import to_dict
from heldout.core.workspace import Workspace
from heldout.data.testset import Card, TestSet, find_testset, list_testsets, save
from heldout.data.testset.catalogue import bibtex, cite, cite_card, escape

# catalogue


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
    with pytest.raises(NotFound, match="no file lists/dogs.json"):
        find_testset(workspace, "lists/dogs.json")
    with pytest.raises(UserError, match="alias of pets-a-1, pets-b-2"):
        find_testset(workspace, "both")


def test_a_broken_card_is_named(workspace: Workspace) -> None:
    (workspace.testsets / "pets-a-1" / "card.json").write_text("{")
    with pytest.raises(BadFile, match="pets-a-1"):
        list_testsets(workspace)


# cite


def test_authors_year_and_revision() -> None:
    card = Card(
        name="imagenetv2-b-33",
        label_space="imagenet-1k",
        citation="Recht, Roelofs, Schmidt: Do Classifiers Generalize? ICML 2019",
        content_hash="0123456789abcdef",
    )
    found = cite_card(card)
    assert found.text == (
        "Recht, Roelofs, Schmidt: Do Classifiers Generalize? ICML 2019 "
        "(test set imagenetv2-b-33, content hash 0123456789ab)."
    )
    assert found.bibtex == (
        "@misc{imagenetv2-b-33,\n"
        "  author = {Recht and Roelofs and Schmidt},\n"
        "  title = {Do Classifiers Generalize? ICML 2019},\n"
        "  year = {2019},\n"
        "  note = {Test set imagenetv2-b-33, content hash 0123456789ab},\n"
        "}"
    )


def test_without_a_citation() -> None:
    card = Card(name="pets_1", label_space="pets")
    assert cite_card(card).text == "Test set pets_1."
    assert bibtex(card) == "@misc{pets_1,\n  title = {pets\\_1},\n  note = {Test set pets\\_1},\n}"


def test_a_colon_does_not_make_authors() -> None:
    card = Card(name="a", label_space="b", citation="Version 2 of our set: 100% {new} images")
    assert "author" not in bibtex(card)
    assert r"title = {Version 2 of our set: 100\% \{new\} images}" in bibtex(card)


@pytest.mark.parametrize(
    "authors", ["ImageNet, version 2", "Lee, 2001", "One Of The Best Sets, Kim"]
)
def test_what_is_no_list_of_names_is_part_of_the_title(authors: str) -> None:
    card = Card(name="a", label_space="b", citation=f"{authors}: Images")
    assert "author" not in bibtex(card) and f"title = {{{authors}: Images}}" in bibtex(card)


def test_a_bibtex_citation_is_kept() -> None:
    entry = "@inproceedings{x,\n  title = {A {Great} Set},\n  year = 2020\n}"
    card = Card(name="a", label_space="b", citation=entry)
    assert bibtex(card) == entry
    assert cite_card(card).text.endswith("(test set a).")
    assert "@inproceedings" not in cite_card(card).text


def test_no_character_breaks_out_of_a_field() -> None:
    for character in "\\{}&%$#_~^":
        escaped = escape(character)
        assert escaped != character
        depth = 0
        for position, found in enumerate(escaped):
            if position and escaped[position - 1] == "\\":
                continue
            depth += (found == "{") - (found == "}")
        assert depth == 0


def test_parents_are_cited_once_and_missing_ones_named(
    tmp_path: Path, make_pets: Callable[..., TestSet]
) -> None:
    workspace = Workspace(tmp_path)
    cards = [
        Card(name="base", label_space="pets", aliases=("first",), citation="Lee: Base, 2001"),
        Card(name="middle", label_space="pets", parents=({"name": "first"}, {"name": "gone"})),
        Card(
            name="top",
            label_space="pets",
            parents=({"name": "middle"}, {"name": "base"}, {"file": "x.json"}),
        ),
    ]
    for card in cards:
        save(make_pets(card=card), workspace.testsets / card.name)
    found = cite(workspace, "top")
    assert [entry.testset for entry in found.entries] == ["top", "middle", "base"]
    assert found.absent == ("gone",)
    assert found.text.count("\n") == 3
    assert found.bibtex.count("@misc{") == 3
    json.dumps(to_dict(found))


@pytest.mark.shared
def test_imagenetv2(tmp_path: Path, shared_data: Path) -> None:
    from heldout.data.published.imagenetv2 import read_imagenetv2

    workspace = Workspace(tmp_path)
    for n in (11, 12):
        made = read_imagenetv2(shared_data / "imagenetv2" / "datasets" / f"imagenetv2-c-{n}.json")
        save(made, workspace.testsets / made.name)
    found = cite(workspace, "imagenetv2-top-images")
    assert [entry.testset for entry in found.entries] == ["imagenetv2-c-12", "imagenetv2-c-11"]
    assert "author = {Recht and Roelofs and Schmidt and Shankar}" in found.bibtex
    assert found.absent == ("imagenetv2-c-10",)
