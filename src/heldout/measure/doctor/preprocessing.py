"""Wrong preprocessing: a sample is run again under the likely alternatives, paired image by image.

A model behind the wrong mean, colours or crop still runs and still scores; it only scores less, and
nothing says so. Here every alternative sees the same images as the stated preprocessing. It is
called better if McNemar's exact test on first guesses says so after Holm's correction over all
alternatives, and if it wins by enough images to matter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import UserError
from heldout.data.images import ImageSource
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.testset import TestSet
from heldout.measure.doctor.alternatives import alternatives
from heldout.measure.doctor.evidence import better
from heldout.measure.doctor.finding import Finding, percent
from heldout.measure.doctor.rerunning import Rerun
from heldout.models.adapters import Model
from heldout.models.predictions.pixels import image_files
from heldout.stats import holm, paired_difference

SAMPLE = 128
"""Images that every alternative is run on."""
LEVEL = 0.01
"""The chance that a right preprocessing is called wrong, at most; twice that with confirmation."""
WORTH = 0.02
"""Least gain in top-1 that is called better: a larger crop alone can be worth a little."""
PROMISING = 0.1
"""Uncorrected p below which the best alternative is tried again on images of its own."""
CONFIRMING = 4
"""How many times the sample that may take."""
ROUNDS = 3
"""How many things may be wrong at once: from the best alternative on, the search begins again."""


@dataclass(frozen=True)
class Trial:
    """One preprocessing beside another, on the same ``n`` images.

    ``top1``, ``difference``, ``low``, ``high``  fractions; the interval is Tango's at 95 %
    ``p``            one-sided: could it be no better? Holm's over the alternatives of its round
    ``uncorrected``  the same without the correction
    """

    name: str
    preprocessing: Preprocessing
    n: int
    top1: float
    difference: float
    low: float
    high: float
    p: float
    uncorrected: float

    @property
    def is_better(self) -> bool:
        """Whether it is better beyond doubt, and by enough to matter."""
        return self.p < LEVEL and self.difference >= WORTH


@dataclass(frozen=True)
class Tried:
    """What trying alternatives showed.

    ``trials``   every alternative to the stated preprocessing, best first
    ``better``   names of the changes that fit better, one for each thing that was wrong
    ``overall``  all of them together beside the stated preprocessing; None where nothing is wrong
    ``as_good``  alternatives that hit exactly the same images as the first of them
    """

    testset: str
    model: str
    given: Preprocessing
    n: int
    top1: float
    trials: tuple[Trial, ...]
    better: tuple[str, ...] = ()
    overall: Trial | None = None
    as_good: tuple[str, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """The finding, if the stated preprocessing is wrong; else none."""
        if self.overall is None:
            return []
        right = self.overall
        stated, found = self.given.to_dict(), right.preprocessing.to_dict()
        changed = json.dumps({key: found[key] for key in found if found[key] != stated[key]})
        before = right.top1 - right.difference
        alike = f" ({' or '.join(self.as_good)} does as well)" if self.as_good else ""
        return [
            Finding(
                code="wrong-preprocessing",
                testset=self.testset,
                model=self.model,
                message=f"top-1 on {right.n:,} images is {percent(before)} with the stated "
                f"preprocessing and {percent(right.top1)} with {' and '.join(self.better)}{alike}",
                evidence={
                    "n": right.n,
                    "top1_as_given": before,
                    "top1_repaired": right.top1,
                    "difference": right.difference,
                    "low": right.low,
                    "high": right.high,
                    "p": right.p,
                    "alternatives": len(self.trials),
                    "changes": "; ".join(self.better),
                    "preprocessing": changed,
                },
                fix=f"state {changed} as its preprocessing",
            )
        ]


def check_preprocessing(
    model: Model,
    testset: TestSet,
    *,
    images: ImageSource | Path | str | None = None,
    sample: int = SAMPLE,
    truth: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Tried:
    """Run a model on a sample of a test set under its own and the likely other preprocessings.

    ``model``   any model whose preprocessing can be replaced: a method
                ``with_preprocessing(preprocessing) -> Model``, as all adapters have
    ``sample``  labelled images, chosen by ``seed``; where the best alternative is promising and
                not proven, up to four times as many others are used to confirm it
    ``truth``   single-label truth to judge by; the set's first by default
    """
    if sample < 1:
        raise UserError(f"a sample of {sample} images", fix="give a number from 1 on")
    files = image_files(testset, images)
    rerun = Rerun(model, testset, files, truth=truth, workers=workers, seed=seed, progress=progress)
    rows = rerun.order[:sample]
    given = model.preprocessing
    trials, top1, n = run_trials(rerun, given, rows)
    best = next((trial for trial in trials if trial.is_better), None)
    if best is None:
        rows = rerun.order[sample : (1 + CONFIRMING) * sample]
        best = _confirmed(rerun, given, trials, rows)
    tried = Tried(testset.name, model.name, given, n, top1, trials)
    if best is None:
        return tried
    names, p, alike = [best.name], best.p, _as_good(rerun, best, trials, rows)
    current = best.preprocessing
    for _ in range(ROUNDS - 1):
        more, _, _ = run_trials(rerun, current, rows)
        step = next((trial for trial in more if trial.is_better), None)
        if step is None:
            break
        names.append(step.name)
        current = step.preprocessing
    mine, theirs = rerun.hits([current, given], rows)
    overall = _trial(" and ".join(names), current, mine, theirs, p)
    return Tried(testset.name, model.name, given, n, top1, trials, tuple(names), overall, alike)


def run_trials(
    rerun: Rerun, current: Preprocessing, rows: np.ndarray
) -> tuple[tuple[Trial, ...], float, int]:
    """All alternatives to a preprocessing, best first; its own top-1; how many images counted."""
    tried = [item for item in alternatives(current) if rerun.takes(item.preprocessing)]
    given, *hits = rerun.hits([current, *(item.preprocessing for item in tried)], rows)
    raw = np.array([better(mine, given) for mine in hits])
    # An alternative that changes no hit cannot be called better, so it is no hypothesis.
    moved = np.array([bool((mine != given).any()) for mine in hits], dtype=bool)
    p = np.ones(len(raw))
    if moved.any():
        p[moved] = holm(raw[moved])
    made = [
        _trial(item.name, item.preprocessing, mine, given, float(value))
        for item, mine, value in zip(tried, hits, p, strict=True)
    ]
    return tuple(sorted(made, key=lambda t: -t.top1)), float(given.mean()), len(given)


def _confirmed(
    rerun: Rerun, current: Preprocessing, trials: Sequence[Trial], fresh: np.ndarray
) -> Trial | None:
    """The most promising alternative, if other images alone prove it: one test, no correction."""
    gains = [trial for trial in trials if trial.difference >= WORTH]
    best = min(gains, key=lambda trial: trial.uncorrected, default=None)
    if best is None or best.uncorrected >= PROMISING or not len(fresh):
        return None
    mine, given = rerun.hits([best.preprocessing, current], fresh)
    again = _trial(best.name, best.preprocessing, mine, given, better(mine, given))
    return again if again.is_better else None


def _as_good(
    rerun: Rerun, best: Trial, trials: Sequence[Trial], rows: np.ndarray
) -> tuple[str, ...]:
    others = [trial for trial in trials if trial.name != best.name and trial.top1 > 0]
    mine, *theirs = rerun.hits([best.preprocessing, *(t.preprocessing for t in others)], rows)
    return tuple(
        trial.name for trial, hits in zip(others, theirs, strict=True) if (hits == mine).all()
    )


def _trial(
    name: str, preprocessing: Preprocessing, mine: np.ndarray, given: np.ndarray, p: float
) -> Trial:
    n = len(given)
    only_mine, only_given = int((mine & ~given).sum()), int((given & ~mine).sum())
    interval = paired_difference(only_mine, only_given, n)
    return Trial(
        name=name,
        preprocessing=preprocessing,
        n=n,
        top1=float(mine.mean()),
        difference=(only_mine - only_given) / n,
        low=float(interval.low),
        high=float(interval.high),
        p=p,
        uncorrected=better(mine, given),
    )
