"""Tests of :mod:`heldout.curate.domains.parquet_scan`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.domains.parquet_scan import Rows, open_rows
from heldout.curate.domains.recipe import read_columns
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.domains.selection import select
from heldout.data.testset.hashing import derived_seed, row_hash
from tests.curate.domains.domains_examples import as_table, make_rows, write_rows
from tests.curate.domains.domains_sql import connect, sql_select

# A cap that would cut between ids of one hash is refused; such ids are made from the hash.


G = np.uint64(0x9E3779B97F4A7C15)


def mix(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def colliding(seed: int, count: int) -> list[str]:
    """So many ids of 16 letters and signs that have one hash under a seed.

    After eight bytes an id has some state; the next eight can be chosen so that the state is that
    of another id. Of many first halves, few have a second half that is plain text.
    """
    with np.errstate(over="ignore"):
        start = mix(np.array([seed], dtype=np.uint64) + G)[0]
        wanted = mix((start + G) ^ np.frombuffer(b"aaaaaaaa", dtype="<u8")) + G
        goal = wanted ^ np.frombuffer(b"bbbbbbbb", dtype="<u8")
        found: list[str] = ["aaaaaaaabbbbbbbb"]
        for block in range(200):
            numbers = np.arange(block * 100_000, (block + 1) * 100_000)
            texts = [f"{number:08d}" for number in numbers.tolist()]
            first = np.frombuffer("".join(texts).encode(), dtype="<u8")
            second = (mix((start + G) ^ first) + G) ^ goal
            letters = second.astype("<u8").view(np.uint8).reshape(-1, 8)
            plain = ((letters > 32) & (letters < 127)).all(axis=1)
            found += [texts[row] + letters[row].tobytes().decode() for row in np.flatnonzero(plain)]
            if len(found) >= count:
                return found[:count]
    raise AssertionError("no colliding ids")


def table_of(ids: list[str]) -> pa.Table:
    n = len(ids)
    return pa.table(
        {
            "image_id": ids,
            "class_id": ["dog", "cat"] * (n // 2),
            "domain": ["here"] * n,
            "similarity": np.linspace(0, 1, n),
        }
    )


def chosen(table: pa.Table, asked: DomainsParameters, seed: int) -> list[str]:
    found = select(read_columns(Rows(table), asked, where="table"), asked, seed=seed)
    ids: list[str] = sorted(found.rows["image_id"].to_pylist())
    return ids


@pytest.mark.parametrize("purpose", ["domain cap", "class cap"])
def test_a_cap_that_cuts_rows_of_one_hash_is_refused(purpose: str) -> None:
    seed = 5
    own = derived_seed("domain cap", seed) if purpose == "domain cap" else seed
    same = colliding(own, 12)
    assert len(set(row_hash(same, seed=own).tolist())) == 1
    others = [f"photo-{number}" for number in range(28)]
    below = int((row_hash(others, seed=own) < row_hash(same[:1], seed=own)[0]).sum())
    table = table_of([*others, *same]).set_column(1, "class_id", [["dog"] * 40])

    def asked(cap: int) -> DomainsParameters:
        given = {"domain_cap": cap} if purpose == "domain cap" else {"cap": cap}
        return DomainsParameters(similarity="similarity", **given)

    for cap in (below + 1, below + 11):
        with pytest.raises(UserError, match="ids of the same hash") as caught:
            chosen(table, asked(cap), seed)
        assert "--seed" in caught.value.line
    for cap in (below, below + 12):
        found = chosen(table, asked(cap), seed)
        assert len(found) == cap and found == sql_select(table, asked(cap), seed=seed)[0]


def test_an_id_that_comes_twice_at_the_cut_of_a_domain_is_refused() -> None:
    asked = DomainsParameters(similarity="similarity", domain_cap=3)
    with pytest.raises(UserError, match="two rows have the same id"):
        chosen(table_of(["twice"] * 8), asked, 0)


# The recipe against the same recipe in SQL: the same rows, and the same counts of every rule.


@given(texts=st.lists(st.text(max_size=40), max_size=8), seed=st.integers(0, 2**64 - 1))
@settings(max_examples=40, deadline=None)
def test_the_hash_in_sql_is_the_hash(texts: list[str], seed: int) -> None:
    texts = [*(text.replace("\x00", "0") for text in texts), "12345678", "123456789", ""]
    database = connect()
    database.register("texts", pa.table({"id": pa.array(texts, pa.string())}))
    found = database.execute(f"SELECT row_hash(id, {seed}::UBIGINT) FROM texts").fetchall()
    assert [row[0] for row in found] == row_hash(texts, seed=seed).tolist()


@st.composite
def requests(draw: st.DrawFn) -> DomainsParameters:
    """Any mixture of rules, few of which leave nothing."""
    few = st.none() | st.integers(1, 60)
    return DomainsParameters(
        similarity="similarity",
        top=draw(st.none() | st.integers(20, 250)),
        min_domain_share=draw(st.sampled_from([0.0, 0.04, 0.1, 0.25])),
        min_domain=draw(st.integers(1, 20)),
        domain_cap=draw(few),
        exclude=draw(st.sampled_from([(), ("class-0=too many",), ("class-3=a 'name'",)])),
        min_class_domains=draw(st.integers(1, 3)),
        min_class=draw(st.integers(1, 12)),
        classes=draw(st.none() | st.integers(1, 9)),
        cap=draw(few),
    )


@given(
    asked=requests(),
    seed=st.integers(0, 2**32),
    numbers=st.booleans(),
    missing=st.sampled_from([0.0, 0.05]),
)
@settings(max_examples=60, deadline=None)
def test_sql_chooses_the_same_rows(
    asked: DomainsParameters, seed: int, numbers: bool, missing: float
) -> None:
    table = as_table(make_rows(seed, 300, numbers=numbers, missing=missing))
    ids, steps = sql_select(table, asked, seed=seed)
    rows = read_columns(Rows(table), asked, where="table")
    if not ids or len(table.drop_null()) < (asked.top or 0):
        with pytest.raises(UserError):
            select(rows, asked, seed=seed)
        return
    found = select(rows, asked, seed=seed)
    assert sorted(found.rows["image_id"].to_pylist()) == ids
    assert [(s.name, s.rows_in, s.rows_out) for s in found.plan.steps] == steps


def test_sql_chooses_the_same_rows_of_many_in_files(tmp_path: Path) -> None:
    rows = make_rows(5, 20_000, classes=60, levels=400)
    order = np.random.default_rng(1).permutation(len(rows))
    folder = write_rows([rows[place] for place in order], tmp_path / "cut", files=5, group=999)
    asked = DomainsParameters(
        similarity="similarity",
        top=17_000,
        min_domain_share=0.04,
        domain_cap=5_000,
        exclude=("class-2=a synonym",),
        min_class_domains=3,
        min_class=45,
        classes=30,
        cap=200,
    )
    reader = read_columns(open_rows(folder, coded=("class_id", "domain")), asked, where="cut")
    found = select(reader, asked, seed=11)
    ids, steps = sql_select(as_table(rows), asked, seed=11)
    assert sorted(found.rows["image_id"].to_pylist()) == ids
    assert [(s.name, s.rows_in, s.rows_out) for s in found.plan.steps] == steps
    assert steps[-1][2] > 3_000
