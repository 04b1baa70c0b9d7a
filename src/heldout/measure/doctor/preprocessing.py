"""A model run again under other preprocessings: does one of them fit it better than the stated one?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from heldout.core.engine import Progress, Tick, no_progress
from heldout.core.engine.executors import worker_count
from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.core.records import Table
from heldout.data.images import ImageSource
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.testset import TestSet
from heldout.data.testset.hashing import row_hash
from heldout.measure.doctor.alignment import shared_reading, single_labels
from heldout.measure.doctor.findings import Finding, percent
from heldout.measure.doctor.significance import p_better
from heldout.models.adapters import Model
from heldout.models.predictions.pixels import ImageFiles, good_pixels, image_files, load_pixels
from heldout.stats.multiple import holm
from heldout.stats.paired import paired_difference

Triple = tuple[float, float, float]

VALUES: dict[str, tuple[float, Triple, Triple]] = {
    "mean and std of ImageNet": (255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mean 0.5, std 0.5": (255.0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "(x - 127) / 128": (1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)),
    "values from 0 to 1": (255.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "values from 0 to 255": (1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "mean and std of CLIP": (
        255.0,
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
}
"""Scale, mean and standard deviation in use, the commonest first; all in the order RGB."""

CAFFE: tuple[float, Triple, Triple] = (1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0))
"""Means of networks converted from Caffe, in the order BGR."""

CROPS = (0.875, 0.95, 1.0)
"""Side of the crop as a share of the resized shorter side."""
RESIZE_STEP = 1.1
"""Factor by which the size before the crop is varied."""
_EQUAL = 2e-3
"""Values that differ by less than this, on a range of about 2, are one preprocessing."""


@dataclass(frozen=True)
class Alternative:
    """A preprocessing with one thing changed, and what that is in words."""

    name: str
    preprocessing: Preprocessing


def alternatives(given: Preprocessing) -> list[Alternative]:
    """Likely preprocessings that differ from ``given`` in one thing, each once.

    Scale with mean and std; order of colours; interpolation; crop; size before the crop; squashing
    in place of cropping; EXIF orientation. The input size stays, as a model's graph may fix it.
    """
    found: dict[str, Alternative] = {}
    for name, preprocessing in (*_values(given), *_geometries(given)):
        if not _same(preprocessing, given):
            found.setdefault(preprocessing.key, Alternative(name, preprocessing))
    return list(found.values())


def _values(given: Preprocessing) -> Iterator[tuple[str, Preprocessing]]:
    for name, (scale, mean, std) in VALUES.items():
        if given.colours == "BGR":
            mean, std = mean[::-1], std[::-1]
        yield name, replace(given, scale=scale, mean=mean, std=std)
    other: Literal["RGB", "BGR"] = "RGB" if given.colours == "BGR" else "BGR"
    turned = replace(given, colours=other, mean=given.mean[::-1], std=given.std[::-1])
    yield f"colours {other}", turned
    scale, mean, std = CAFFE
    yield (
        "BGR less the means of Caffe",
        replace(given, scale=scale, mean=mean, std=std, colours="BGR"),
    )


def _geometries(given: Preprocessing) -> Iterator[tuple[str, Preprocessing]]:
    here = given.geometry
    for filter_ in ("bilinear", "bicubic"):
        if here.interpolation != filter_ and here.resize != "none":
            yield f"{filter_} resize", _with(given, interpolation=filter_)
    side = min(here.crop_height, here.crop_width)
    for share in CROPS:
        size = round(side / share)
        yield (
            f"shorter side to {size}, crop of {share:g}",
            _with(given, resize="shorter", resize_height=size, resize_width=size),
        )
    squashed = {"resize_height": here.crop_height, "resize_width": here.crop_width}
    yield "squashed to the input size", _with(given, resize="exact", **squashed)
    if here.resize == "shorter":
        for factor in (RESIZE_STEP, 1 / RESIZE_STEP):
            size = round(here.resize_height * factor)
            if size >= side:  # a smaller one would pad with black
                yield (
                    f"shorter side to {size}",
                    _with(given, resize_height=size, resize_width=size),
                )
    applied = "not applied" if here.exif else "applied"
    yield f"EXIF orientation {applied}", _with(given, exif=not here.exif)


def _with(given: Preprocessing, **changes: object) -> Preprocessing:
    geometry: Geometry = replace(given.geometry, **changes)  # type: ignore[arg-type]
    return replace(given, geometry=geometry)


def _same(one: Preprocessing, other: Preprocessing) -> bool:
    """Whether two preprocessings give a model the same numbers, but for less than it can notice."""
    if _shape(one.geometry) != _shape(other.geometry) or one.colours != other.colours:
        return False
    return all(abs(a - b) < _EQUAL for a, b in zip(_line(one), _line(other), strict=True))


def _shape(geometry: Geometry) -> Geometry:
    """The geometry with what plays no part in it set to one value."""
    if geometry.resize == "shorter":
        return replace(geometry, resize_width=geometry.resize_height)
    if geometry.resize == "none":
        return replace(geometry, resize_width=1, resize_height=1, interpolation="bilinear")
    return geometry


def _line(preprocessing: Preprocessing) -> list[float]:
    """The input for black and for white, channel by channel: with these the line is known."""
    return [
        (pixel / preprocessing.scale - mean) / std
        for mean, std in zip(preprocessing.mean, preprocessing.std, strict=True)
        for pixel in (0.0, 255.0)
    ]


BATCH = 16


class Rerun:
    """Hits of a model's top-1 predictions behind any preprocessing, on any images; each is run once.

    ``order``  int64 (n,): rows of labelled images in an order that follows from their ids and the
               seed, so that samples of two sizes share their images
    ``progress``  gets images times preprocessings, of those that were asked for so far
    """

    def __init__(
        self,
        model: Model,
        testset: TestSet,
        files: ImageFiles,
        *,
        truth: str | None = None,
        workers: int | None = None,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> None:
        if getattr(model, "with_preprocessing", None) is None:
            raise NotApplicable(
                f"the preprocessing of {model.name} cannot be replaced",
                fix="give it a method with_preprocessing(preprocessing) that returns the model",
            )
        self.testset = testset.name
        self.model = model
        self.files = files
        self.workers = worker_count(workers)
        self.labels = single_labels(testset, truth)
        self.reading = shared_reading(model.label_space, testset.label_space)
        shared = np.flatnonzero((self.labels >= 0) & np.isin(self.labels, self.reading))
        if not len(shared):
            raise NotApplicable(
                f"{model.name} answers in {model.label_space.name}, which has no class of the "
                f"images of {testset.name}",
                fix="try it on a test set of the model's own classes",
            )
        ids = testset.image_ids.to_pylist()
        hashes = row_hash([ids[row] for row in shared], seed=seed)
        self.order = shared[np.lexsort((shared, hashes))]
        self._hits: dict[tuple[str, bytes], np.ndarray] = {}  # by preprocessing and rows
        self._progress, self._began = progress, time.monotonic()
        self._asked = self._done = 0

    def takes(self, preprocessing: Preprocessing) -> bool:
        """Whether the model can be given it; a graph that takes bytes has no mean to change."""
        try:
            self._variant(preprocessing)
        except MismatchError:
            return False
        return True

    def hits(self, preprocessings: Sequence[Preprocessing], rows: np.ndarray) -> np.ndarray:
        """bool (preprocessings, images of ``rows`` that all of them can read): whether the top-1
        prediction is right."""
        at = rows.tobytes()
        missing = {p.key: p for p in preprocessings if (p.key, at) not in self._hits}
        variants = [self._variant(preprocessing) for preprocessing in missing.values()]
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        self._asked += len(rows) * len(variants)
        parts = [np.zeros((len(variants), 0), np.int8)]
        with ThreadPoolExecutor(self.workers) as pool:
            for made in pool.map(lambda batch: self._batch(variants, batch), batches):
                parts.append(made)
                self._done += made.size
                seconds = time.monotonic() - self._began
                self._progress(Tick(self._done, 0, 0, self._asked, seconds))
        for key, found in zip(missing, np.concatenate(parts, axis=1), strict=True):
            self._hits[key, at] = found
        table = np.stack([self._hits[p.key, at] for p in preprocessings])
        good = (table >= 0).all(axis=0)
        if not good.any():
            raise NotApplicable(
                f"none of {len(rows)} images could be read", fix="say where they are with --images"
            )
        return table[:, good] > 0

    def _variant(self, preprocessing: Preprocessing) -> Model:
        if preprocessing.key == self.model.preprocessing.key:
            return self.model
        made: Model = self.model.with_preprocessing(preprocessing)  # type: ignore[attr-defined]
        return made

    def _batch(self, variants: Sequence[Model], rows: np.ndarray) -> np.ndarray:
        """int8 (variants, rows): 1 for a hit, 0 for none, -1 for an image that cannot be read."""
        found = np.full((len(variants), len(rows)), -1, np.int8)
        geometries = {m.preprocessing.geometry.key: m.preprocessing.geometry for m in variants}
        if not geometries:
            return found
        loaded = [
            good_pixels(load_pixels(self.files, row, list(geometries.values())))
            for row in rows.tolist()
        ]
        good = [place for place, pixels in enumerate(loaded) if pixels is not None]
        for hits, model in zip(found, variants if good else (), strict=False):
            key = model.preprocessing.geometry.key
            pixels = np.stack([one[key] for one in loaded if one is not None])
            guesses = self.reading[model(pixels).logits.argmax(axis=1)]
            hits[good] = guesses == self.labels[rows[good]]
        return found


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

    record: ClassVar[str] = "trial"
    table: ClassVar[Table] = Table(
        "{model} on {n:,} images of {testset}: top-1 {stated} as stated",
        ("instead=name", "top-1=top1:%", "difference:+%[]", "p:.2g"),
        rows=20,
    )
    testset: str
    model: str
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
    def stated(self) -> str:
        """Top-1 of what it stands beside, as a person reads it."""
        return percent(self.top1 - self.difference)

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
        raise UserError(f"a sample of {sample} images", fix="give a number ≥ 1")
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
    overall = _trial(rerun, " and ".join(names), current, mine, theirs, p)
    return Tried(testset.name, model.name, given, n, top1, trials, tuple(names), overall, alike)


def run_trials(
    rerun: Rerun, current: Preprocessing, rows: np.ndarray
) -> tuple[tuple[Trial, ...], float, int]:
    """All alternatives to a preprocessing, best first; its own top-1; how many images counted."""
    tried = [item for item in alternatives(current) if rerun.takes(item.preprocessing)]
    given, *hits = rerun.hits([current, *(item.preprocessing for item in tried)], rows)
    raw = np.array([p_better(mine, given) for mine in hits])
    # An alternative that changes no hit cannot be called better, so it is not a hypothesis.
    moved = np.array([bool((mine != given).any()) for mine in hits], dtype=bool)
    p = np.ones(len(raw))
    if moved.any():
        p[moved] = holm(raw[moved])
    made = [
        _trial(rerun, item.name, item.preprocessing, mine, given, float(value))
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
    again = _trial(rerun, best.name, best.preprocessing, mine, given, p_better(mine, given))
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
    rerun: Rerun,
    name: str,
    preprocessing: Preprocessing,
    mine: np.ndarray,
    given: np.ndarray,
    p: float,
) -> Trial:
    n = len(given)
    only_mine, only_given = int((mine & ~given).sum()), int((given & ~mine).sum())
    interval = paired_difference(only_mine, only_given, n)
    return Trial(
        testset=rerun.testset,
        model=rerun.model.name,
        name=name,
        preprocessing=preprocessing,
        n=n,
        top1=float(mine.mean()),
        difference=(only_mine - only_given) / n,
        low=float(interval.low),
        high=float(interval.high),
        p=p,
        uncorrected=p_better(mine, given),
    )
