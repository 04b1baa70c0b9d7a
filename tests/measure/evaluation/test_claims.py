"""What a report may state: nothing where there is nothing, and planted effects.

The worlds are those of ``benchmarks/honest_reports.py``, which counts hundreds of each.
"""

from __future__ import annotations

import importlib.util
import sys
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from heldout.measure.score.records import Claim

ROOT = Path(__file__).parents[3]


def benchmark() -> ModuleType:
    path = ROOT / "benchmarks" / "honest_reports.py"
    spec = importlib.util.spec_from_file_location("honest_reports", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


HONEST = benchmark()
SEEDS = 20
MOST = int(stats.binom.ppf(0.99, SEEDS, 0.05))
"""Reports of 20 that may state something where there is nothing: 4 are within chance of 5 %."""


@pytest.mark.parametrize("name", HONEST.NULLS)
def test_reports_of_nothing_state_nothing(name: str) -> None:
    place = list(HONEST.NULLS).index(name)
    found = [HONEST.states(*one) for one in HONEST.reports(HONEST.NULLS[name], SEEDS, place)]
    assert sum(map(bool, found)) <= MOST, found


@pytest.mark.parametrize("name", HONEST.PLANTED)
def test_reports_of_planted_effects_state_them(name: str) -> None:
    draw, wanted = HONEST.PLANTED[name]
    place = 100 + list(HONEST.PLANTED).index(name)
    stated = sum(any(map(wanted, claims)) for claims, _ in HONEST.reports(draw, SEEDS, place))
    # Of draws in which 80 % state it, 20 give 12 or fewer in one of a hundred.
    assert stated > stats.binom.ppf(0.01, SEEDS, 0.8)


def claims_of(world: Any, folder: Path, **asked: Any) -> list[Claim]:
    found = HONEST.evaluated(HONEST.World(world.sets, {**world.asked, **asked}), folder)
    return list(found.of(Claim))


def test_one_budget_is_shared_by_all_kinds(tmp_path: Path) -> None:
    """The same comparison needs a smaller p where slices are looked at too; limits are wider."""
    rng = np.random.default_rng(3)
    world = HONEST.planted_slice(rng)
    alone = claims_of(HONEST.World(world.sets), tmp_path / "a")
    beside = claims_of(world, tmp_path / "b")
    assert [claim.kind for claim in alone] == ["difference"]
    (once,), (twice,) = alone, [claim for claim in beside if claim.kind == "difference"]
    assert once.p is not None and twice.p == pytest.approx(min(2 * once.p, 1.0))
    hard = [claim for claim in beside if claim.kind == "slice"]
    assert {claim.model for claim in hard} == {"m00", "m01"} and hard[0].family == 40
    for claim in hard:
        assert claim.slice == "class=c007" and claim.where == "class = class 7" and claim.told == 1
        assert claim.low is not None and claim.high is not None and claim.difference is not None
        assert claim.low < claim.difference < claim.high < 0 and claim.p is not None
        assert claim.p < 0.05


def test_what_fell_is_stated_with_limits_and_ranks_only_where_intervals_prove_them(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(4)
    world = HONEST.two_sets(rng)
    where, hits = world.sets["new"]
    hits = hits.copy()
    hits[:, 3] &= rng.random(len(hits)) < 0.6
    fell = HONEST.World({**world.sets, "new": (where, hits)}, world.asked)
    found = claims_of(fell, tmp_path / "a")
    (change,) = [claim for claim in found if claim.kind == "change" and claim.stated]
    assert (change.model, change.other, change.family) == ("m03", "old", 6)
    assert change.difference is not None and change.low is not None and change.high is not None
    assert change.low < change.difference < change.high < -0.15
    # All others are alike, so rank 6 of 6 on the new set was possible on the old one, too.
    (ranks,) = [claim for claim in found if claim.kind == "rank"]
    assert not ranks.stated and ranks.model is None
    # Where it was the best by far, its rank has certainly changed, and those of others may not have.
    old, before = world.sets["old"]
    best = before.copy()
    best[:, 3] |= rng.random(len(best)) < 0.7
    sets = {"old": (old, best), "new": (where, hits)}
    found = claims_of(HONEST.World(sets, world.asked), tmp_path / "b")
    (moved,) = [claim for claim in found if claim.kind == "rank"]
    assert (moved.model, moved.stated, moved.difference) == ("m03", True, -5.0)


def test_page_and_terminal_and_json_say_the_same(tmp_path: Path) -> None:
    world = HONEST.planted_slice(np.random.default_rng(5))
    found = HONEST.evaluated(world, tmp_path)
    page = HONEST.page_of(found, world, tmp_path)
    told = [line for line in found.lines if "class = class 7" in line]
    assert len(told) == 1 and found.to_json().count('"record": "claim"') == len(found.of(Claim))
    number, text = told[0].split(" points: ")
    assert f"<dt>{number} <span>points</span></dt><dd>{escape(text, quote=False)}</dd>" in page
