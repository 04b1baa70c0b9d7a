from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound
from heldout.data.testset import Card, ColumnType, TestSet
from heldout.data.testset.card import same_tables

FULL = Card(
    name="pets-1",
    label_space="pets",
    aliases=("pets",),
    recipe={"name": "made", "parameters": {"k": [1, 2]}, "seed": 3},
    parents=({"name": "pool", "hash": "00"},),
    counts={"pool": 10, "images": 4},
    columns={"angle": ColumnType(kind="circular", period=360, unit="degrees")},
    truths={"original": {"kind": "single"}, "real": {}},
    licences={"CC0": 4},
    citation="Ünal: Pets, 2024",
    notes=("one",),
    images_root="images",
    factors=("angle", "x&y"),
    clusters="object",
    units=("object", "background"),
    tables={"images": "aa"},
    images_hash="bb",
    content_hash="cc",
    history=({"content_hash": "dd", "then": "added truth real"},),
)


def test_round_trip(tmp_path: Path) -> None:
    FULL.write(tmp_path)
    assert Card.read(tmp_path / "card.json") == FULL
    assert json.loads((tmp_path / "card.json").read_text())["schema_version"] == 1


def test_smallest_card_and_unknown_fields(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text('{"schema_version": 1, "name": "a", "label_space": "b", "later": 1}')
    assert Card.read(path) == Card(name="a", label_space="b")


def test_a_card_that_says_nothing_of_factors_is_written_as_before() -> None:
    assert not {"factors", "clusters", "units"} & Card(name="a", label_space="b").to_dict().keys()


def test_a_set_of_before_declarations_were_hashed_is_compared_by_what_it_declares(
    make_pets: Callable[..., TestSet],
) -> None:
    def card(**said: Any) -> Card:
        return make_pets(card=Card(name="pets-a-1", label_space="pets", **said)).card

    feet, metres = (card(columns={"size": ColumnType(kind="ordered", unit=u)}) for u in "fm")
    before = feet.updated(tables={k: v for k, v in feet.tables.items() if k != "columns"})
    assert before.tables.keys() < feet.tables.keys()
    assert same_tables(before, feet) and same_tables(feet, before)
    assert not same_tables(before, metres) and not same_tables(metres, before)
    assert not same_tables(before, card(columns=feet.columns, factors=("size",)))


def test_the_first_truth_is_the_default() -> None:
    assert FULL.default_truth == "original"
    assert Card(name="a", label_space="b").default_truth == "original"
    assert Card(name="a", label_space="b", truths={"real": {}}).default_truth == "real"


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"name": 3}, "name"),
    ({"name": "../evil"}, "evil"),
    ({"name": ""}, "name"),
    ({"label_space": None}, "label_space"),
    ({"aliases": "pets"}, "aliases"),
    ({"aliases": [1]}, "aliases"),
    ({"columns": []}, "columns"),
    ({"factors": "angle"}, "factors"),
    ({"units": [1]}, "units"),
    ({"clusters": ["object"]}, "clusters"),
    ({"columns": {"x": "ordered"}}, "columns"),
    ({"columns": {"x": {"kind": "nominal"}}}, "nominal"),
    ({"columns": {"x": {"kind": "text", "colour": 1}}}, "colour"),
    ({"columns": {"x": {}}}, "kind"),
    ({"truths": {"../../etc": {}}}, "etc"),
    ({"truths": ["original"]}, "truths"),
    ({"tables": {"images": 1}}, "tables"),
    ({"counts": {"images": "many"}}, "counts"),
    ({"recipe": "replicate"}, "recipe"),
    ({"parents": ["pool"]}, "parents"),
    ({"images_root": "/etc"}, "images_root"),
    ({"images_root": 1}, "images_root"),
    ({"history": {}}, "history"),
]


@pytest.mark.parametrize(("changes", "said"), HOSTILE)
def test_a_hostile_card_is_one_line_with_the_file(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "card.json"
    path.write_text(json.dumps({**FULL.to_dict(), **changes}))
    with pytest.raises(BadFile, match=said) as caught:
        Card.read(path)
    assert str(path) in caught.value.line
    assert "\n" not in caught.value.line


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"name": "a"}', '{"schema_version": "1"}']
)
def test_files_that_are_no_card(tmp_path: Path, text: str) -> None:
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"card\.json"):
        Card.read(path)


def test_missing_and_newer_cards(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Card.read(tmp_path / "card.json")
    (tmp_path / "card.json").write_text(json.dumps({**FULL.to_dict(), "schema_version": 2}))
    with pytest.raises(BadFile, match="upgrade"):
        Card.read(tmp_path / "card.json")


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(FULL.to_dict())), JSON)
def test_any_value_in_any_field_is_a_card_or_a_users_error(field: str, value: Any) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "card.json"
        path.write_text(json.dumps({**FULL.to_dict(), field: value}))
        with suppress(BadFile):
            assert isinstance(Card.read(path), Card)
