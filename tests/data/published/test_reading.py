from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotFound, UserError
from heldout.core.request import make
from heldout.data.importing.pools import SOURCES, collect, read_metadata, report_of
from heldout.data.published.annotations import clean_name
from heldout.data.published.pool_builder import PoolBuilder, Problems, id_text, pixels
from heldout.data.published.requests import CollectRequest
from heldout.data.testset import image_table
from heldout.data.testset.testset import make_pool

Written = Callable[..., Path]
ROOT = Path(__file__).parents[3]
SCENES = {"1": {"objects": {"a": {"name": "cat", "attributes": ["black"]}}}, "2": {}}


def test_sources_are_named(written: Written) -> None:
    with pytest.raises(UserError, match=r"no source 'gpa': did you mean gqa"):
        read_metadata("gpa", written(SCENES))
    with pytest.raises(UserError, match="paths is"):
        read_metadata("gqa", [])
    path = written(SCENES)
    for source in SOURCES:
        with pytest.raises(NotFound):
            read_metadata(source, path.parent / "no.json" if source != "table" else Path("no.csv"))


def test_an_option_of_another_source_is_refused(written: Written) -> None:
    path = written(SCENES)
    for options, name, source in (
        ({"vocabulary": path}, "vocabulary", "coco-captions"),
        ({"id_column": "x"}, "id_column", "table"),
    ):
        with pytest.raises(UserError, match=f"'{name}' is for source {source}"):
            read_metadata("gqa", path, **options)


def test_a_pool_says_what_it_was_read_from(written: Written) -> None:
    pool = read_metadata("gqa", written(SCENES, "Train graphs.json"), min_box_area=0.0)
    assert pool.name == "gqa-train-graphs"
    assert pool.card.facts["source"] == "gqa" and pool.card.facts["options"] == {}
    [file] = pool.card.facts["files"]
    assert file["name"] == "Train graphs.json" and len(file["sha256"]) == 64
    assert "GQA" in pool.card.citation
    json.dumps(pool.card.facts)  # all of it can be written
    ontology = written({"color": ["black"]}, "o.json")
    options = read_metadata("gqa", written(SCENES), ontology=ontology, min_box_area=0.1).card.facts
    assert options["options"] == {"ontology": "o.json", "min_box_area": 0.1}


def test_reports_go_out_and_come_back(written: Written) -> None:
    found = collect(make(CollectRequest, {"source": "gqa", "paths": written({**SCENES, "3": 5})}))
    assert report_of(found).problems[0].line == "1 × image that is no object, left out, such as 3"
    with pytest.raises(UserError, match="not read by heldout collect"):
        report_of(make_pool("bare", images=image_table({"image_id": ["a"]})))


def test_examples_are_few_and_counts_are_whole() -> None:
    problems = Problems()
    for number in range(1000):
        problems.add("odd", str(number))
    problems.add("lost", "x", image_lost=True, times=3)
    lost, odd = problems.found()
    assert (odd.count, len(odd.examples), lost.count, lost.images) == (1000, 5, 3, True)


def test_names_are_cleaned() -> None:
    assert [clean_name(value) for value in (" a \t b\n", "", " ", None, 5, [], "\ud800", "a\0b")] == [
        "a b", "", "", "", "", "", "", "a\0b",
    ]  # fmt: skip
    assert clean_name("CAT") == "CAT"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (7, "7"),
        (7.0, "7"),
        (7.5, ""),
        (True, ""),
        (None, ""),
        (float("nan"), ""),
        ([], ""),
        (10**400, ""),
        (1e300, ""),
        (2**63, str(2**63)),
    ],
)
def test_ids(value: Any, text: str) -> None:
    assert id_text(value) == text
    assert id_text(10**5000) == ""  # more digits than Python writes out


@pytest.mark.parametrize(
    ("value", "size"),
    [(7, 7), (7.0, 7), (0, None), (-1, None), (7.5, None), (float("inf"), None), (True, None),
     ("7", None), (2**31, None), (2**31 - 1, 2**31 - 1), (10**400, None)],
)  # fmt: skip
def test_sizes(value: Any, size: int | None) -> None:
    assert pixels(value) == size


pairs = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")))


@given(pairs)
def test_gathering_is_a_set_of_pairs(rows: list[tuple[str, str]]) -> None:
    builder = PoolBuilder(Problems())
    for image, value in rows:
        place = builder.image(image, "")
        builder.add("c", place, [value, value])
    found = [(row["image_id"], row["value"]) for row in builder.memberships()[0].to_pylist()]
    assert sorted(found) == sorted(set(rows))


def gqa_like() -> Any:
    """The generator of the benchmarks."""
    name = "gqa_like"
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def test_the_generated_file_is_of_the_published_shape(tmp_path: Path) -> None:
    module = gqa_like()
    shape = module.Shape(images=2500, names=60, attributes=20)
    paths = [tmp_path / name for name in ("a.json", "b.json.gz", "c.zip", "d.json")]
    for path in paths:
        module.write_gqa_like(path, shape, seed=1)
    assert paths[0].read_bytes() == paths[3].read_bytes()
    pools = [read_metadata("gqa", path) for path in paths]
    assert len({pool.content_hash for pool in pools}) == 1
    counts = report_of(pools[0]).counts
    assert counts["images"] == 2500 and counts["object_values"] == 60
    assert report_of(pools[0]).problems == ()
    values = pools[0].memberships["value"].to_pylist()
    columns = pools[0].memberships["column"].to_pylist()
    shown: dict[str, int] = {}
    for column, value in zip(columns, values, strict=True):
        if column == "object":
            shown[value] = shown.get(value, 0) + 1
    falling = sorted(shown.values(), reverse=True)
    assert falling[0] > 3 * falling[30]
    assert 0 < pools[0].images["weather"].null_count < 2500
