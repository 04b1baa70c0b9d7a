from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.engine import Shard, Unit, unit_key
from heldout.core.errors import UserError

KEYS = st.lists(st.integers(0, 2**128 - 1).map(lambda n: f"{n:032x}"), max_size=60)


@pytest.mark.parametrize(
    "key", ["", "abc", "G" * 32, "A" * 32, "a" * 31, "a" * 129, "../" + "a" * 32, "a" * 32 + "\n"]
)
def test_a_key_is_hex_and_nothing_else(key: str) -> None:
    with pytest.raises(ValueError, match="unit key"):
        Unit(key, None)


def test_a_key_depends_on_work_and_every_part_but_not_on_their_order() -> None:
    base = unit_key("resize-1", image="a", size=2)
    assert base == unit_key("resize-1", size=2, image="a")
    others = [
        unit_key("resize-2", image="a", size=2),
        unit_key("resize-1", image="b", size=2),
        unit_key("resize-1", image="a", size="2"),
        unit_key("resize-1", image="a", size=2, extra=None),
        unit_key("resize-1", image="a"),
    ]
    assert len({base, *others}) == 6


def test_a_key_refuses_what_is_no_plain_value() -> None:
    with pytest.raises(ValueError):
        unit_key("w", x=float("nan"))
    with pytest.raises(TypeError):
        unit_key("w", x=b"bytes")


@pytest.mark.parametrize(
    "text", ["", "1", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/4/2", "1 /4", "٣/٤"]
)
def test_bad_shards_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(UserError, match="i/n"):
        Shard.parse(text)


@given(KEYS, st.integers(1, 9))
def test_shards_part_the_units(keys: list[str], count: int) -> None:
    taken = [[key for key in keys if Shard(i, count).takes(key)] for i in range(1, count + 1)]
    assert sorted(key for share in taken for key in share) == sorted(keys)


def test_shards_are_even_even_for_keys_with_a_common_start() -> None:
    sizes = [sum(Shard(i, 8).takes(f"{n:064x}") for n in range(8000)) for i in range(1, 9)]
    assert sum(sizes) == 8000
    assert min(sizes) > 850 and max(sizes) < 1150
