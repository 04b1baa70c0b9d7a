"""Searches: against comparing everything anew, whatever the blocks, and after sets have grown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.curate.dedupe import search as search_module
from heldout.curate.dedupe.search import encoder_of, search
from heldout.data.judgements.neighbours import Neighbours, saved_searches, search_folder
from heldout.data.testset.testset import TestSet
from heldout.models.embeddings import embed
from tests.curate.dedupe.conftest import MakeSet

OURS = {f"c{n % 3}/{n:02}.png": n for n in range(12)}
THEIRS = {f"t{n:02}.png": n + 6 for n in range(15)}  # six of ours are there, under other names


def found(
    ours: TestSet, theirs: TestSet, workspace: Workspace, *, measure: Any = "l2", **options: Any
) -> Neighbours:
    encoder = encoder_of(measure, "lite0")
    mine, other = (embed(each, encoder, workspace=workspace) for each in (ours, theirs))
    return search(
        ours, theirs, measure, vectors=mine, reference_vectors=other, workspace=workspace, **options
    )


def oracle(ours: TestSet, theirs: TestSet, workspace: Workspace, keep: int) -> dict[str, list[Any]]:
    """Every pair, one by one."""
    encoder = encoder_of("l2", "lite0")
    sides = []
    for each in (ours, theirs):
        vectors = embed(each, encoder, workspace=workspace)
        sides.append(dict(zip(vectors.ids, vectors.vectors.astype(np.int64), strict=True)))
    within = ours.name == theirs.name
    return {
        name: sorted(
            (float(((vector - other) ** 2).sum()), other_name)
            for other_name, other in sides[1].items()
            if not (within and other_name == name)
        )[:keep]
        for name, vector in sides[0].items()
    }


def listed(neighbours: Neighbours) -> dict[str, list[Any]]:
    return {
        name: [(pair.distance, pair.other_id) for pair in neighbours.of(name)]
        for name in neighbours.candidates.ids
    }


@pytest.mark.parametrize("memory", [2**30, 2_000_000])
@pytest.mark.parametrize("itself", [False, True])
def test_every_pair_whatever_the_blocks(
    make_set: MakeSet, workspace: Workspace, memory: int, itself: bool
) -> None:
    ours = make_set("ours", OURS | {"c1/copy.png": 3})
    theirs = ours if itself else make_set("theirs", THEIRS)
    neighbours = found(ours, theirs, workspace, measure="l2", keep=5, memory=memory)
    assert listed(neighbours) == oracle(ours, theirs, workspace, 5)
    assert neighbours.within is itself
    copies = [pair[:2] for pair in neighbours.found(at_most=0)]
    if itself:
        assert copies == [("c0/03.png", "c1/copy.png")]  # once, although each finds the other
    else:
        same = {(f"c{n % 3}/{n:02}.png", f"t{n - 6:02}.png") for n in range(6, 12)}
        assert len(copies) == 6 and set(copies) == same


def test_growth_costs_only_itself(
    make_set: MakeSet, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = make_set("ours", OURS), make_set("theirs", THEIRS)
    found(ours, theirs, workspace, measure="l2", keep=5)
    compared: list[tuple[int, int]] = []
    original = search_module.SearchWork.__call__

    def counting(self: Any, payload: tuple[np.ndarray, ...]) -> bytes:
        compared.append((len(payload[0]), len(payload[1])))
        return original(self, payload)

    monkeypatch.setattr(search_module.SearchWork, "__call__", counting)
    found(ours, theirs, workspace, measure="l2", keep=5)
    assert compared == []  # nothing is new
    found(ours, theirs, workspace, measure="l2", keep=5, threshold=3.0, threshold_from="me")
    assert compared == []
    more = make_set("ours", OURS | {"c0/99.png": 99, "c0/00a.png": 8})
    other = make_set("theirs", THEIRS | {"a.png": 2})
    neighbours = found(more, other, workspace, measure="l2", keep=5)
    assert sorted(compared) == [(2, 16), (12, 1)]
    assert listed(neighbours) == oracle(more, other, workspace, 5)
    assert neighbours.search["threshold"] is None


def test_a_changed_or_lost_image_is_compared_again(make_set: MakeSet, workspace: Workspace) -> None:
    found(make_set("ours", OURS), make_set("theirs", THEIRS), workspace, measure="l2", keep=5)
    fewer = dict(list(THEIRS.items())[2:])
    theirs = make_set("fewer", fewer | {"t03.png": 40})
    theirs = replace(theirs, card=theirs.card.updated(name="theirs"))
    ours = make_set("ours", OURS)
    neighbours = found(ours, theirs, workspace, measure="l2", keep=5)
    assert listed(neighbours) == oracle(ours, theirs, workspace, 5)


def test_another_measure_or_keep_is_another_search(make_set: MakeSet, workspace: Workspace) -> None:
    ours, theirs = make_set("ours", OURS), make_set("theirs", THEIRS)
    found(ours, theirs, workspace, measure="l2", keep=5)
    assert found(ours, theirs, workspace, measure="l2", keep=7).rows.shape == (12, 7)
    found(ours, theirs, workspace, measure="hash", keep=5)
    kept = {item.search["measure"]: item for item in saved_searches(workspace, "ours")}
    assert sorted(kept) == ["hash", "l2"]
    assert kept["l2"].search["encoder"]["name"] == "pixels"


def test_damage_is_seen(make_set: MakeSet, workspace: Workspace) -> None:
    ours, theirs = make_set("ours", OURS), make_set("theirs", THEIRS)
    neighbours = found(ours, theirs, workspace, measure="l2", keep=5)
    folder = search_folder(workspace, neighbours.search)
    for name in ("rows.npy", "distances.npy", "candidates.parquet", "search.json"):
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(before[:-9] + bytes([before[-9] ^ 1]) + before[-8:])
        with pytest.raises(Exception, match=r"damaged|not as it was written|not JSON"):
            saved_searches(workspace, "ours")
        path.write_bytes(before)
    assert len(saved_searches(workspace, "ours")) == 1


def test_what_a_killed_writer_left_of_vectors_is_not_read(
    make_set: MakeSet, workspace: Workspace
) -> None:
    ours, encoder = make_set("ours", OURS), encoder_of("l2", "lite0")
    embed(ours, encoder, workspace=workspace)
    (digests,) = (workspace.root / "embeddings").glob("*/*/sha256.txt")
    folder = digests.parent
    left = folder.parent / ".tmp-0123456789abcdef0123456789abcdef-0123456789ab"
    left.mkdir()
    (left / "sha256.txt").write_text((folder / "sha256.txt").read_text())
    embed(make_set("theirs", THEIRS), encoder, workspace=workspace)
