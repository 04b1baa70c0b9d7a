"""A cap that would cut between ids of one hash is refused; such ids are made from the hash."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from heldout.core.errors import UserError
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.parquet_scan import Rows
from heldout.curate.domains.recipe import read_columns
from heldout.curate.domains.selection import select
from heldout.data.testset.hashing import derived_seed, row_hash
from tests.curate.domains.domains_sql import sql_select

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
