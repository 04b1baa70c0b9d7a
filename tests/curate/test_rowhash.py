"""The row hash: frozen values, a slow reference, and what drawing by it promises."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.data.testset.hashing import first_in_groups, row_hash, uniform

MASK = (1 << 64) - 1
G = 0x9E3779B97F4A7C15


def slow_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def slow_hash(text: str, seed: int) -> int:
    data = text.encode()
    h = slow_mix((seed + G) & MASK)
    for start in range(0, len(data), 8):
        h = slow_mix(((h + G) & MASK) ^ int.from_bytes(data[start : start + 8], "little"))
    return slow_mix(((h + G) & MASK) ^ len(data))


GOLDEN = {
    ("", 0): 0xA706DD2F4D197E6F,
    ("a", 0): 0x57C53C319E2A2819,
    ("b", 0): 0x5ED0EBF8D6F86A0F,
    ("ILSVRC2012_val_00000293.JPEG", 0): 0xC8A4194592113132,
    ("ILSVRC2012_val_00000293.JPEG", 1): 0x160C6DB4ABE37AC3,
    ("Zürich/Ω", 2**64 - 1): 0x788AF65D38374808,
}


@pytest.mark.parametrize(("text", "seed"), GOLDEN)
def test_values_are_frozen(text: str, seed: int) -> None:
    """A change of these changes which images every recipe draws: it needs new recipe versions."""
    assert int(row_hash([text], seed=seed)[0]) == GOLDEN[text, seed]


@given(st.lists(st.text(max_size=40)), st.integers(0, MASK))
def test_equals_the_slow_reference(texts: list[str], seed: int) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    assert row_hash(texts, seed=seed).tolist() == [slow_hash(text, seed) for text in texts]


def test_any_arrow_layout_gives_the_same() -> None:
    texts = [f"image {i}" * (i % 5) for i in range(50)]
    plain = row_hash(texts, seed=3)
    whole = pa.array(["before", *texts, "after"])
    for column in (
        whole.slice(1, 50),
        pa.chunked_array([texts[:7], [], texts[7:]], pa.string()),
        pa.array(texts, pa.large_string()).slice(0),
    ):
        np.testing.assert_array_equal(row_hash(column, seed=3), plain)
    dictionary = pa.array(texts).dictionary_encode()
    np.testing.assert_array_equal(row_hash(dictionary, seed=3), plain)
    assert len(row_hash([], seed=0)) == 0


def test_it_is_even_and_seeds_are_unrelated() -> None:
    ids = [str(i) for i in range(20_000)]
    hashes = row_hash(ids, seed=0)
    assert len(set(hashes.tolist())) == len(ids)
    counts = np.bincount((hashes >> np.uint64(56)).astype(int), minlength=256)
    expected = len(ids) / 256
    assert ((counts - expected) ** 2 / expected).sum() < 255 + 5 * np.sqrt(2 * 255)
    low = np.bincount((hashes & np.uint64(255)).astype(int), minlength=256)
    assert ((low - expected) ** 2 / expected).sum() < 255 + 5 * np.sqrt(2 * 255)
    other = uniform(row_hash(ids, seed=1))
    assert abs(np.corrcoef(uniform(hashes), other)[0, 1]) < 5 / np.sqrt(len(ids))
    assert uniform(hashes).min() >= 0.0 and uniform(hashes).max() < 1.0


def test_bad_input() -> None:
    for seed in (-1, 2**64):
        with pytest.raises(UserError, match="out of range"):
            row_hash(["a"], seed=seed)
    with pytest.raises(UserError, match="no id"):
        row_hash(pa.array(["a", None]), seed=0)
    with pytest.raises(UserError, match="cannot draw"):
        first_in_groups(["a"], np.array([0]), count=-1, seed=0)


@settings(max_examples=50)
@given(
    st.lists(st.integers(-1, 3), max_size=40),
    st.integers(0, 5),
    st.integers(0, 1000),
    st.randoms(use_true_random=False),
)
def test_drawing_is_nested_and_knows_no_order(
    groups: list[int], count: int, seed: int, random: object
) -> None:
    ids = [f"i{n}" for n in range(len(groups))]
    array = np.array(groups, dtype=np.int64)
    rows = first_in_groups(ids, array, count=count, seed=seed)
    drawn = {ids[row] for row in rows}
    for group in set(groups) - {-1}:
        members = [i for i, g in zip(ids, groups, strict=True) if g == group]
        wanted = sorted(members, key=lambda i: (slow_hash(i, seed), i))[:count]
        assert drawn & set(members) == set(wanted)
    assert not drawn & {i for i, g in zip(ids, groups, strict=True) if g < 0}
    more = {ids[row] for row in first_in_groups(ids, array, count=count + 1, seed=seed)}
    assert drawn <= more
    order = list(range(len(ids)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = [ids[i] for i in order]
    again = first_in_groups(shuffled, array[order], count=count, seed=seed)
    assert {shuffled[row] for row in again} == drawn
    assert rows.tolist() == sorted(rows.tolist())
