"""Choosing rows: equal to the plain oracle, whatever the order, files, batches and threads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.engine import Tick
from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.domains import parquet_scan as rows_module
from heldout.curate.domains import selection
from heldout.curate.domains.parquet_scan import Rows, open_rows
from heldout.curate.domains.recipe import read_columns
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.domains.selection import (
    Selection,
    plan,
    select,
    similarity_keys,
)
from tests.curate.domains.domains_examples import Row, as_table, make_rows, slow_select, write_rows

FULL: dict[str, Any] = {
    "similarity": "similarity",
    "top": 300,
    "min_domain_share": 0.05,
    "min_class": 5,
    "classes": 6,
    "cap": 20,
}


def run(rows: Any, parameters: DomainsParameters, *, seed: int = 0) -> Selection:
    return select(read_columns(rows, parameters, where="rows"), parameters, seed=seed)


def ids(found: Selection) -> list[str]:
    return sorted(found.rows["image_id"].to_pylist())


def steps(found: Selection) -> list[tuple[str, int, int]]:
    return [(step.name, step.rows_in, step.rows_out) for step in found.plan.steps]


parameter_sets = st.builds(
    lambda **values: DomainsParameters(similarity="similarity", **values),
    top=st.one_of(st.none(), st.integers(1, 120)),
    min_domain_share=st.sampled_from([0.0, 0.04, 0.1]),
    min_domain=st.sampled_from([1, 3]),
    domain_cap=st.one_of(st.none(), st.integers(1, 40)),
    exclude=st.sampled_from([(), ("class-0=too common", "class-99=not there")]),
    min_class_domains=st.sampled_from([1, 2]),
    min_class=st.sampled_from([1, 2, 4]),
    classes=st.one_of(st.none(), st.integers(1, 8)),
    cap=st.one_of(st.none(), st.integers(1, 15)),
)


@given(
    rows=st.builds(
        make_rows,
        st.integers(0, 10_000),
        st.integers(130, 220),
        missing=st.sampled_from([0.0, 0.05]),
        levels=st.sampled_from([1, 3, 200]),
        numbers=st.booleans(),
    ),
    parameters=parameter_sets,
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=150)
def test_it_equals_the_plain_oracle(
    rows: list[Row], parameters: DomainsParameters, seed: int
) -> None:
    expected, expected_steps = slow_select(rows, parameters, seed=seed)
    try:
        found = run(Rows(as_table(rows)), parameters, seed=seed)
    except UserError:
        # Too strict a request leaves nothing, or asks for more rows than there are.
        too_many = parameters.top is not None and parameters.top > expected_steps[0][2]
        assert not expected or too_many
        return
    assert ids(found) == expected
    assert steps(found) == expected_steps


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("extra", [{}, {"domain_cap": 60}])
def test_order_files_batches_and_threads_do_not_matter(
    numbers: bool, extra: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows(5, 600, missing=0.01, numbers=numbers)
    parameters = DomainsParameters(**FULL, **extra)
    expected, expected_steps = slow_select(rows, parameters, seed=3)
    whole = run(Rows(as_table(rows)), parameters, seed=3)
    assert ids(whole) == expected
    digests = {whole.digest}
    for number, (files, group, batch, workers) in enumerate(
        [(1, 1000, 1 << 18, 1), (1, 7, 3, 4), (5, 50, 16, 2), (13, 600, 1 << 18, 8)]
    ):
        random.Random(number).shuffle(rows)
        monkeypatch.setattr(rows_module, "BATCH", batch)
        path = write_rows(rows, tmp_path / f"{number}" / "p.parquet", files=files, group=group)
        opened = open_rows(path, coded=("class_id", "domain"), workers=workers)
        found = run(opened, parameters, seed=3)
        assert ids(found) == expected
        assert steps(found) == expected_steps
        digests.add(found.digest)
    assert len(digests) == 1


def test_progress_counts_the_rows_of_all_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows(5, 600, missing=0.01)
    parameters = DomainsParameters(**FULL, domain_cap=60)
    monkeypatch.setattr(rows_module, "BATCH", 16)
    path = write_rows(rows, tmp_path / "p", files=3, group=50)
    ticks: list[Tick] = []
    found = select(
        read_columns(open_rows(path, coded=("class_id",)), parameters, where="p"),
        parameters,
        seed=3,
        progress=ticks.append,
    )
    assert ids(found) == slow_select(rows, parameters, seed=3)[0]
    assert found.digest == run(Rows(as_table(rows)), parameters, seed=3).digest
    assert [tick.done for tick in ticks] == sorted(tick.done for tick in ticks)
    assert ticks[-1].done == 6 * len(rows)


def test_another_row_gives_another_digest() -> None:
    rows = make_rows(5, 200)
    parameters = DomainsParameters(similarity="similarity", cap=10)
    digests = {run(Rows(as_table(rows)), parameters).digest}
    for column, value in (
        ("class_id", "class-7"),
        ("domain", "Elsewhere"),
        ("similarity", 7.0),
        ("image_id", "photo-x"),
    ):
        changed = [{**rows[0], column: value}, *rows[1:]]
        digests.add(run(Rows(as_table(changed)), parameters).digest)
    digests.add(run(Rows(as_table(rows[1:])), parameters).digest)
    assert len(digests) == 6


@given(seed=st.integers(0, 50), small=st.integers(1, 10), more=st.integers(0, 10))
@settings(max_examples=30)
def test_a_smaller_cap_and_fewer_classes_give_subsets(seed: int, small: int, more: int) -> None:
    table = Rows(as_table(make_rows(seed, 300)))
    large = run(table, DomainsParameters(**{**FULL, "top": 250, "cap": small + more}))
    less = run(table, DomainsParameters(**{**FULL, "top": 250, "cap": small}))
    fewer = run(table, DomainsParameters(**{**FULL, "top": 250, "cap": small, "classes": 2}))
    assert set(ids(less)) <= set(ids(large))
    assert set(ids(fewer)) <= set(ids(less))
    kept = set(fewer.rows["class_id"].to_pylist())
    assert ids(fewer) == sorted(
        row["image_id"] for row in less.rows.to_pylist() if row["class_id"] in kept
    )


def test_an_exclusion_changes_nothing_in_other_classes() -> None:
    table = Rows(as_table(make_rows(2, 400)))
    all_classes = run(table, DomainsParameters(cap=15))
    without = run(table, DomainsParameters(cap=15, exclude=("class-0=why not",)))
    assert ids(without) == sorted(
        row["image_id"] for row in all_classes.rows.to_pylist() if row["class_id"] != "class-0"
    )


def test_another_seed_draws_other_rows() -> None:
    table = Rows(as_table(make_rows(2, 400)))
    drawn = [ids(run(table, DomainsParameters(cap=10), seed=seed)) for seed in (0, 1)]
    assert drawn[0] != drawn[1]
    assert len(drawn[0]) == len(drawn[1])


def test_whole_numbers_and_texts_are_drawn_alike() -> None:
    rows = make_rows(4, 300, numbers=True)
    texts = [{**row, "image_id": str(row["image_id"])} for row in rows]
    parameters = DomainsParameters(cap=12)
    assert ids(run(Rows(as_table(rows)), parameters)) == ids(run(Rows(as_table(texts)), parameters))


def test_a_thinned_domain_is_not_preferred_by_the_cap_of_classes() -> None:
    """Both draws by one hash would fill classes with rows of the thinned domain."""
    rows = [
        {**row, "domain": "large" if number % 10 else "small", "class_id": "one"}
        for number, row in enumerate(make_rows(0, 4000))
    ]
    parameters = DomainsParameters(domain_cap=400, cap=200)
    found = run(Rows(as_table(rows)), parameters).rows["domain"].to_pylist()
    assert 70 <= found.count("small") <= 130  # 400 of each are left: 100 are expected, deviation 6


@pytest.mark.parametrize("spare", [-(10**6), 0.0])
def test_a_pass_that_looks_too_near_is_made_again(
    spare: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows(6, 500)
    parameters = DomainsParameters(cap=30, domain_cap=90)
    monkeypatch.setattr(rows_module, "BATCH", 7)
    monkeypatch.setattr(selection, "SPARE", spare)
    found = run(Rows(as_table(rows)), parameters)
    assert ids(found) == slow_select(rows, parameters, seed=0)[0]
    monkeypatch.undo()
    assert found.digest == run(Rows(as_table(rows)), parameters).digest


@pytest.mark.parametrize("numbers", [False, True])
def test_ties_are_cut_by_id(numbers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "FEW", 3)
    rows = make_rows(8, 300, numbers=numbers, levels=1)
    if not numbers:  # long common beginnings, some ends of others
        rows = [{**row, "image_id": "a-long-beginning/" * 3 + row["image_id"][6:]} for row in rows]
        rows += [{**rows[0], "image_id": "a-long-beginning/"}, {**rows[0], "image_id": "ä"}]
    else:
        rows = [{**row, "image_id": row["image_id"] - 150} for row in rows]
    for top in (1, 40, 151, 299):
        parameters = DomainsParameters(similarity="similarity", top=top)
        expected, _ = slow_select(rows, parameters, seed=0)
        found = run(Rows(as_table(rows)), parameters)
        assert ids(found) == expected
        assert found.plan.threshold is not None


def test_the_threshold_and_its_ties_are_told() -> None:
    rows = make_rows(1, 200, levels=2)
    parameters = DomainsParameters(similarity="similarity", top=77)
    best = run(Rows(as_table(rows)), parameters).plan.threshold
    ranked = sorted((row["similarity"] for row in rows), reverse=True)
    assert best is not None
    assert best.threshold == ranked[76]
    assert best.tied == ranked.count(ranked[76])
    assert best.kept_tied == ranked[:77].count(ranked[76])


@given(
    st.lists(
        st.one_of(
            st.floats(allow_nan=False, width=32), st.sampled_from([0.0, -0.0, np.inf, -np.inf])
        ),
        min_size=1,
    ),
    st.sampled_from([np.float32, np.float64]),
)
def test_keys_keep_the_order_of_similarities(values: list[float], kind: Any) -> None:
    numbers = np.array(values, dtype=kind)
    keys = similarity_keys(numbers)
    for a in range(len(values)):
        assert ((keys < keys[a]) == (numbers > numbers[a])).all()
        assert ((keys == keys[a]) == (numbers == numbers[a])).all()


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint64, np.uint8])
def test_whole_numbers_are_similarities_too(kind: Any) -> None:
    info = np.iinfo(kind)
    numbers = np.array([info.min, 0, 1, 5, info.max], dtype=kind)
    keys = similarity_keys(numbers)
    assert (np.argsort(keys, kind="stable")[::-1] == np.argsort(numbers, kind="stable")).all() or (
        numbers[np.argsort(keys)] == np.sort(numbers)[::-1]
    ).all()


def test_asking_for_more_rows_than_there_are_is_refused() -> None:
    table = Rows(as_table(make_rows(0, 50)))
    with pytest.raises(UserError, match="--top 51 of 50 rows"):
        run(table, DomainsParameters(similarity="similarity", top=51))


def test_nothing_left_is_refused() -> None:
    table = Rows(as_table(make_rows(0, 50)))
    with pytest.raises(UserError, match="no domain has"):
        run(table, DomainsParameters(min_domain=51))
    with pytest.raises(UserError, match="no class is left"):
        run(table, DomainsParameters(min_class=51))
    empty = [{**row, "domain": None} for row in make_rows(0, 50)]
    with pytest.raises(UserError, match="none of 50 rows"):
        run(Rows(as_table(empty)), DomainsParameters())


def test_columns_that_are_missing_or_cannot_serve_are_refused(tmp_path: Path) -> None:
    table = Rows(as_table(make_rows(0, 50)))
    with pytest.raises(
        NotFound, match=r"no column 'score'.*--similarity-column takes one of image_id"
    ):
        run(table, DomainsParameters(similarity="score", top=5))
    with pytest.raises(UserError, match="similarities are numbers"):
        run(table, DomainsParameters(similarity="uid"))
    with pytest.raises(UserError, match="one column serves twice"):
        run(table, DomainsParameters(domain="class_id"))
    lists = pa.table({"image_id": ["a"], "class_id": [["x", "y"]], "domain": ["d"]})
    with pytest.raises(UserError, match="'class_id' is list"):
        run(Rows(lists), DomainsParameters())
    with pytest.raises(NotFound, match=r"no column of ids"):
        run(Rows(lists.drop_columns(["image_id"])), DomainsParameters())


def test_repeated_ids_at_a_cut_are_refused() -> None:
    rows = [{**row, "image_id": "same", "similarity": 1.0} for row in make_rows(0, 20)]
    with pytest.raises(UserError, match="two rows have the id 'same'"):
        run(Rows(as_table(rows)), DomainsParameters(similarity="similarity", top=5))
    rows = [{**row, "class_id": "one"} for row in rows]
    with pytest.raises(UserError, match="two rows have the same id"):
        run(Rows(as_table(rows)), DomainsParameters(cap=5))


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no Parquet file below"):
        open_rows(tmp_path)
    pq.write_table(pa.table({"image_id": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image_id": [1]}), tmp_path / "b.parquet")
    with pytest.raises(BadFile, match=r"b\.parquet: has other columns than a\.parquet"):
        open_rows(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(BadFile, match="cannot be read as Parquet"):
        open_rows(tmp_path)


def test_too_many_domains_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from heldout.curate.domains import selection as counting

    monkeypatch.setattr(counting, "MOST_CELLS", 20)
    with pytest.raises(UserError, match="too many to count"):
        run(Rows(as_table(make_rows(0, 50))), DomainsParameters(domain="uid"))


def test_a_plan_counts_what_a_selection_takes() -> None:
    table = Rows(as_table(make_rows(7, 500)))
    parameters = DomainsParameters(**FULL)
    reader = read_columns(table, parameters, where="rows")
    made = plan(reader, parameters, seed=0)
    assert made.steps[-1].rows_out == len(run(table, parameters).rows)


def test_a_share_is_the_decimal_that_was_written() -> None:
    """29 of 100 rows are 0.29 of them, though 0.29 * 100 is not 29 in floating point."""
    places = [name for name, n in (("a", 29), ("b", 29), ("c", 29), ("d", 13)) for _ in range(n)]
    table = pa.table(
        {
            "image_id": [f"{row:03d}" for row in range(100)],
            "class_id": ["one"] * 100,
            "domain": places,
        }
    )
    found = run(Rows(table), DomainsParameters(min_domain_share=0.29))
    assert len(found.rows) == 87
    with pytest.raises(UserError, match="no domain has 30 of 100 rows"):
        run(Rows(table), DomainsParameters(min_domain_share=0.291))


def test_rows_without_any_similarity_are_said_to_lack_it() -> None:
    table = as_table(make_rows(0, 20)).drop_columns(["similarity"])
    table = table.append_column("similarity", pa.array([np.nan] * 20))
    for more in ({}, {"top": 5}):
        with pytest.raises(UserError, match="similarity") as caught:
            run(Rows(table), DomainsParameters(similarity="similarity", **more))
        assert caught.value.fix == "check the names of the columns"
