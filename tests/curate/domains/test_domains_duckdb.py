"""The recipe against the same recipe in SQL: the same rows, and the same counts of every rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.parquet_scan import Rows, open_rows
from heldout.curate.domains.recipe import read_columns
from heldout.curate.domains.selection import select
from heldout.data.testset.hashing import row_hash
from tests.curate.domains.domains_examples import as_table, make_rows, write_rows
from tests.curate.domains.domains_sql import connect, sql_select


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
        max_class_share=draw(st.sampled_from([1.0, 0.9, 0.6])),
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
