from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.parameters import from_dict, to_dict
from heldout.testing.recipe_conformance import check_kind
from heldout.testing.sample_recipe import SampleParameters


@dataclass(frozen=True, kw_only=True)
class Many:
    count: int = 3
    share: float = 0.5
    name: str = "x"
    seeded: bool = False
    mode: Literal["top", "matched"] = field(default="top", metadata={"help": "how to draw"})
    limit: int | None = None
    areas: tuple[float, ...] = (0.1, 0.2)
    words: tuple[str, ...] = field(default_factory=tuple)


MANY = st.builds(
    Many,
    count=st.integers(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    name=st.text(),
    seeded=st.booleans(),
    mode=st.sampled_from(["top", "matched"]),
    limit=st.none() | st.integers(),
    areas=st.lists(st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
    words=st.lists(st.text()).map(tuple),
)


@given(MANY)
def test_writing_and_reading_gives_the_same(parameters: Many) -> None:
    import json

    values = json.loads(json.dumps(to_dict(parameters)))
    assert from_dict(Many, values) == parameters


def test_from_toml() -> None:
    text = 'count = 5\nshare = 1\nmode = "matched"\nareas = [1, 2.5]\n'
    made = from_dict(Many, tomllib.loads(text))
    assert made == Many(count=5, share=1.0, mode="matched", areas=(1.0, 2.5))
    assert isinstance(made.share, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuont": 1}, "no parameter 'cuont': did you mean count"),
        ({"count": "3"}, "'count' is '3': give a whole number"),
        ({"count": True}, "give a whole number"),
        ({"count": 1.5}, "give a whole number"),
        ({"share": float("nan")}, "give a number"),
        ({"share": "half"}, "give a number"),
        ({"mode": "best"}, "give one of top, matched"),
        ({"areas": 0.1}, "give a list of a number"),
        ({"areas": ["a"]}, "give a list of a number"),
        ({"limit": "x"}, "give a whole number or nothing"),
        ({"seeded": 1}, "give true or false"),
        ({"max-images": 1}, "no parameter 'max-images'"),
    ],
)
def test_bad_values_are_named_with_the_fix(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        from_dict(Many, values, where="recipe x")
    assert caught.value.line.startswith("recipe x: ")


def test_given_twice() -> None:
    with pytest.raises(UserError, match="twice"):
        from_dict(SampleParameters, {"per_class": 1, "per-class": 2})


def test_rules_of_the_recipe_itself() -> None:
    with pytest.raises(UserError, match="give 1 or more"):
        from_dict(SampleParameters, {"per_class": 0})


def test_check_kind() -> None:
    assert check_kind(Many) == []
    assert check_kind(SampleParameters) == []
    assert check_kind(int) == ["is not a dataclass"]

    @dataclass(frozen=True)
    class Odd:
        either: dict[str, int] = field(default_factory=dict)

    assert "either" in check_kind(Odd)[0]
