from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.data.testset.columns import ColumnType, guess_type

TYPES = [
    ColumnType(kind="categorical"),
    ColumnType(kind="categorical", multi=True),
    ColumnType(kind="ordered", unit="cm", order=(1.0, 2.0)),
    ColumnType(kind="circular", unit="degrees", period=360),
    ColumnType(kind="grid", grid="place", axis="x"),
    ColumnType(kind="text"),
]


@pytest.mark.parametrize("kind", TYPES)
def test_round_trip(kind: ColumnType) -> None:
    plain = msgspec.to_builtins(kind)
    assert msgspec.convert(plain, ColumnType) == kind and None not in plain.values()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "nominal"}, "nominal"),
        ({"kind": "circular"}, "period"),
        ({"kind": "circular", "period": 0}, "period"),
        ({"kind": "grid", "grid": "g"}, "axis"),
        ({"kind": "grid", "axis": "x"}, "grid"),
    ],
)
def test_half_given_types_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        ColumnType(**fields)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1))
def test_numbers_are_ordered(values: list[float | None]) -> None:
    wanted = "ordered" if any(v is not None for v in values) else "categorical"
    assert guess_type(pa.array(values)).kind == wanted
    whole = [None if v is None else n for n, v in enumerate(values)]
    assert guess_type(pa.array(whole)).kind == wanted


def test_texts_are_categorical_until_nearly_all_differ() -> None:
    assert guess_type(pa.array(["a", "b", None, "a"])).kind == "categorical"
    assert guess_type(pa.array([str(n) + "x" for n in range(50)])).kind == "categorical"
    assert guess_type(pa.array([str(n) + "x" for n in range(51)])).kind == "text"
    assert guess_type(pa.array([str(n % 51) + "x" for n in range(200)])).kind == "categorical"


def test_truth_values_are_no_numbers() -> None:
    assert guess_type(pa.array([True, False, None])).kind == "categorical"
