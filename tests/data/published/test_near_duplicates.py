"""ImageNetV2's files of near duplicates go into the table of judgements, and come out as equal JSON."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.cli.app import invoke
from heldout.data.judgements.judgement import WITHDRAWN, Judgement, pair_subject
from heldout.data.judgements.store import JudgementStore
from heldout.data.published.imagenetv2 import (
    WHO,
    duplicate_overrides,
    duplicate_reviews,
    near_duplicates,
    read_duplicate_overrides,
    read_duplicate_reviews,
    read_near_duplicates,
)

IMAGE = st.sampled_from(
    ["a", "b", "c", "d", "é/1.jpg", "n01440764_1", "ILSVRC2012_val_00000001.JPEG"]
)
LISTED = st.dictionaries(IMAGE, st.lists(IMAGE, max_size=5), max_size=6)
DATES = ["2018-08-26 18:51:00.765547", "2018-09-16T23:04:42+02:00", "2018-12-01"]
REVIEW = st.fixed_dictionaries(
    {
        "reviewer": st.sampled_from(["becca", "ludwig"]),
        "date": st.sampled_from(DATES),
        "references": st.lists(IMAGE, max_size=4),
    },
    optional={"threshold": st.sampled_from([0, 0.2205, 1e8, 10.0, 12345678, None])},
)
METRICS = st.dictionaries(st.sampled_from(["l2", "dssim", "fc7"]), REVIEW, min_size=1)


def judge(one: str, other: str, answer: str, **more: Any) -> Judgement:
    given = {"who": "ann", **more}
    return Judgement(question="duplicate", subject=pair_subject(one, other), answer=answer, **given)


@settings(max_examples=50)
@given(LISTED, st.lists(IMAGE, max_size=4), st.dictionaries(IMAGE, METRICS, max_size=4))
def test_all_three_files_come_back(listed: Any, kept: list[str], reviews: Any) -> None:
    """Order, direction, pairs of an image with itself, repeated and empty lists, whatever is written."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("near_duplicates.json", "kept.json", "seen.json")]
        for path, value in zip(paths, (listed, kept, reviews), strict=True):
            path.write_text(json.dumps(value), encoding="utf-8")
        with JudgementStore(Path(folder) / "judgements.db") as store:
            for _ in range(2):  # again: nothing is new
                store.add(read_near_duplicates(paths[0]))
                store.add(read_duplicate_overrides(paths[1]))
                store.add(read_duplicate_reviews(paths[2]))
            assert near_duplicates(store.stream()) == listed
            assert duplicate_overrides(store.stream()) == kept
            assert duplicate_reviews(store.stream()) == reviews


@pytest.mark.shared
def test_the_published_files_come_back(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "imagenetv2" / "metadata"
    files = {
        "near_duplicates": "near-duplicates",
        "nearest_neighbor_reviews_v2": "duplicate-reviews",
        "near_duplicate_resolution_override": "duplicate-overrides",
    }
    for name in files:
        assert invoke(["import", "judgements", str(folder / f"{name}.json"), "-w", "w"]) == 0
    for name, form in files.items():
        out = tmp_path / f"{name}.json"
        assert invoke(["export", "judgements", "-o", str(out), "--format", form, "-w", "w"]) == 0
        assert json.loads(out.read_text()) == json.loads((folder / f"{name}.json").read_text())


def test_what_is_said_here_is_in_the_files_too() -> None:
    seen = {"seen_from": "b", "metric": "l2", "date": "2026-01-02"}
    given = [
        judge("a", "b", "duplicate", when="2026-01-02T00:00:00Z", evidence=seen),
        judge("b", "c", "different", when="2026-01-02T00:00:00Z", evidence=seen),
        judge("c", "d", "duplicate", when="2026-01-02T00:00:00Z", evidence={"metric": "l2"}),
        judge(
            "d", "e", "duplicate", evidence={"seen_from": "d", "metric": "l2"}
        ),  # nobody knows when
        Judgement(question="duplicate", subject={"image_id": "c"}, answer="keep", who="ann"),
    ]
    assert near_duplicates(given) == {"a": ["b"], "c": ["d"], "d": ["e"]}
    assert duplicate_overrides(given) == ["c"]
    assert duplicate_reviews(given) == {
        "b": {"l2": {"reviewer": "ann", "date": "2026-01-02", "references": ["a", "c"]}}
    }


def test_what_people_say_later_changes_the_files(tmp_path: Path) -> None:
    path = tmp_path / "near_duplicates.json"
    path.write_text(json.dumps({"a": ["c", "b"], "d": ["a"], "e": ["f"]}))
    made = list(read_near_duplicates(path))
    assert near_duplicates([*made, judge("a", "e", "duplicate")]) == {
        "a": ["c", "b", "e"],
        "d": ["a"],
        "e": ["f"],
    }
    # Two against one, and what is taken back, are gone; so is an empty list.
    against = [judge("a", "b", "different", who=who) for who in ("ann", "bob")]
    back = judge("e", "f", WITHDRAWN, who=WHO, when="2026-01-01T00:00:00Z")
    assert near_duplicates([*made, *against, back]) == {"a": ["c"], "d": ["a"]}


def test_a_later_review_is_named_and_the_earlier_ones_references_stay(tmp_path: Path) -> None:
    listed = tmp_path / "near_duplicates.json"
    listed.write_text("{}")
    made: list[Judgement] = []
    for who, date, references in (
        ("ann", "2018-01-01", ["d", "b"]),
        ("bob", "2018-01-03", ["c", "b"]),
        ("cid", "2018-01-02", ["a"]),
    ):
        review = {"reviewer": who, "date": date, "references": references}
        path = tmp_path / f"{who}_neighbor_reviews.json"
        path.write_text(json.dumps({"x": {"l2": review}}))
        made += read_duplicate_reviews(path, listed)
    assert duplicate_reviews(made) == {
        "x": {"l2": {"reviewer": "bob", "date": "2018-01-03", "references": ["c", "b", "d", "a"]}}
    }
