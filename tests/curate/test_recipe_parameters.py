"""Parameters of recipes: read from TOML and JSON, refused in one line, written into the card."""

from __future__ import annotations

import json
import tomllib
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.core.request import Name, Out, Request, option
from heldout.curate.recipe import Recipe
from heldout.testing.recipe_conformance import check_kind
from heldout.testing.sample_recipe import SampleParameters
from heldout.testing.sample_recipe import recipe as sample


class Many(Request, frozen=True, kw_only=True):
    count: int = 3
    share: float = 0.5
    name: str = "x"
    seeded: bool = False
    mode: Annotated[Literal["top", "matched"], option("How to draw.")] = "top"
    limit: int | None = None
    areas: tuple[float, ...] = (0.1, 0.2)
    words: tuple[str, ...] = ()


class BuildMany(Many, frozen=True, kw_only=True):
    out: Out | None = None
    title: Name | None = None


class ManyRecipe(Recipe):
    name = "many"
    version = "1"
    parameters = Many


recipe = ManyRecipe()
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
MANY = {
    "count": st.integers(-(2**63), 2**63),
    "share": NUMBERS,
    "name": st.text(),
    "seeded": st.booleans(),
    "mode": st.sampled_from(["top", "matched"]),
    "limit": st.none() | st.integers(-(2**63), 2**63),
    "areas": st.lists(NUMBERS).map(tuple),
    "words": st.lists(st.text()).map(tuple),
}


@given(st.builds(Many, **MANY))
def test_writing_and_reading_gives_the_same(parameters: Many) -> None:
    values = json.loads(json.dumps(recipe.recorded(parameters)))
    assert recipe.read(values) == parameters


@given(st.builds(BuildMany, **MANY))
def test_the_card_has_the_parameters_of_a_request_alone(asked: BuildMany) -> None:
    assert list(recipe.recorded(asked)) == list(MANY)
    assert all(not isinstance(value, tuple) for value in recipe.recorded(asked).values())


def test_from_toml() -> None:
    text = 'count = 5\nshare = 1\nmode = "matched"\nareas = [1, 2.5]\n'
    made = recipe.read(tomllib.loads(text))
    assert made == Many(count=5, share=1.0, mode="matched", areas=(1.0, 2.5))
    assert isinstance(made.share, float)
    assert recipe.read({"areas": 0.1}).areas == (0.1,), "one value of many"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuont": 1}, "no option 'cuont': did you mean count"),
        ({"count": "x"}, "count is 'x': give a whole number"),
        ({"count": True}, "give a whole number"),
        ({"count": 1.5}, "give a whole number"),
        ({"share": float("nan")}, "give a finite number"),
        ({"share": "half"}, "give a number"),
        ({"mode": "best"}, "give one of top, matched"),
        ({"areas": ["a"]}, "give a number"),
        ({"limit": "x"}, "give a whole number"),
        ({"seeded": 2}, "give true or false"),
        ({"max-images": 1}, "no option 'max-images'"),
    ],
)
def test_bad_values_are_named_with_the_fix(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        recipe.read(values)


def test_given_twice() -> None:
    with pytest.raises(UserError, match="twice"):
        sample.read({"per_class": 1, "per-class": 2})


def test_rules_of_the_recipe_itself() -> None:
    with pytest.raises(UserError, match="per_class is 0: give a whole number >= 1"):
        sample.read({"per_class": 0})


def test_check_kind() -> None:
    assert check_kind(Many) == []
    assert check_kind(SampleParameters) == []
    assert check_kind(int) == ["is not a Request"]
