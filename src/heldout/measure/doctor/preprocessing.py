"""A model run again under other preprocessings: does one of them fit it better than the stated one?"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
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


def _alike(scale: float, mean: float, std: float) -> Preprocessing:
    return Preprocessing(scale=scale, mean=(mean,) * 3, std=(std,) * 3)


VALUES = {
    "mean and std of ImageNet": Preprocessing(),
    "mean 0.5, std 0.5": _alike(255.0, 0.5, 0.5),
    "values from 0 to 1": _alike(255.0, 0.0, 1.0),
    "values from 0 to 255": _alike(1.0, 0.0, 1.0),
}
"""Scale, mean and standard deviation in use, the commonest first; all in the order RGB."""
CROPS = (0.875, 0.95, 1.0)
"""Side of the crop as a share of the resized shorter side."""


def alternatives(given: Preprocessing) -> dict[str, Preprocessing]:
    """Likely preprocessings that differ from ``given`` in one thing, each once, by what that is.

    Scale with mean and std; order of colours; interpolation; crop; squashing in place of cropping;
    EXIF orientation. The input size stays, as a model's graph may fix it.
    """
    found: dict[str, Preprocessing] = {}
    for name, preprocessing in _changed(given):
        if preprocessing not in (given, *found.values()):
            found[name] = preprocessing
    return found


def _changed(given: Preprocessing) -> Iterator[tuple[str, Preprocessing]]:
    for name, values in VALUES.items():
        mean, std = values.mean, values.std
        if given.colours == "BGR":
            mean, std = mean[::-1], std[::-1]
        yield name, replace(given, scale=values.scale, mean=mean, std=std)
    other: Literal["RGB", "BGR"] = "RGB" if given.colours == "BGR" else "BGR"
    turned = replace(given, colours=other, mean=given.mean[::-1], std=given.std[::-1])
    yield f"colours {other}", turned
    here = given.geometry
    for filter_ in ("bilinear", "bicubic") if here.resize != "none" else ():
        yield f"{filter_} resize", _with(given, interpolation=filter_)
    for share in CROPS:
        size = round(min(here.crop_height, here.crop_width) / share)
        yield (
            f"shorter side to {size}, crop of {share:g}",
            _with(given, resize="shorter", resize_height=size, resize_width=size),
        )
    squashed = {"resize_height": here.crop_height, "resize_width": here.crop_width}
    yield "squashed to the input size", _with(given, resize="exact", **squashed)
    applied = "not applied" if here.exif else "applied"
    yield f"EXIF orientation {applied}", _with(given, exif=not here.exif)


def _with(given: Preprocessing, **changes: object) -> Preprocessing:
    geometry: Geometry = replace(given.geometry, **changes)  # type: ignore[arg-type]
    return replace(given, geometry=geometry)


BATCH = 16


class Rerun:
    """Hits of a model's top-1 predictions behind any preprocessing, each of which is run once.

    ``rows``      rows of the test set, of images with a class that the model knows
    ``progress``  gets images times preprocessings, of those that were asked for so far
    """

    def __init__(
        self,
        model: Model,
        testset: TestSet,
        files: ImageFiles,
        *,
        sample: int,
        truth: str | None,
        workers: int | None,
        seed: int,
        progress: Progress,
    ) -> None:
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
        self.rows = shared[np.lexsort((shared, hashes))][:sample]
        self.model, self.testset, self.files = model, testset.name, files
        self.workers = worker_count(workers)
        self._hits: dict[str, np.ndarray] = {}  # by preprocessing
        self._progress, self._began = progress, time.monotonic()

    def variants(self, wanted: Mapping[str, Preprocessing]) -> dict[str, Model]:
        """The model behind each alternative, by its name, where it can be given it.

        A graph that takes bytes has no mean to change.
        """
        change = getattr(self.model, "with_preprocessing", None)
        if change is None:
            raise NotApplicable(
                f"the preprocessing of {self.model.name} cannot be replaced",
                fix="give it a method with_preprocessing(preprocessing) that returns the model",
            )
        made = {}
        for name, preprocessing in wanted.items():
            with suppress(MismatchError):
                made[name] = change(preprocessing)
        return made

    def hits(self, models: Sequence[Model]) -> np.ndarray:
        """bool (models, images that all of them can read): whether the top-1 prediction is right."""
        keys = [model.preprocessing.key for model in models]
        missing = {k: m for k, m in zip(keys, models, strict=True) if k not in self._hits}
        batches = [self.rows[at : at + BATCH] for at in range(0, len(self.rows), BATCH)]
        asked = len(self.rows) * (len(self._hits) + len(missing))
        done = len(self.rows) * len(self._hits)
        parts = [np.zeros((len(missing), 0), np.int8)]
        with ThreadPoolExecutor(self.workers) as pool:
            run = partial(self._batch, list(missing.values()))
            for made in pool.map(run, batches if missing else ()):
                parts.append(made)
                done += made.size
                self._progress(Tick(done, 0, 0, asked, time.monotonic() - self._began))
        self._hits |= dict(zip(missing, np.concatenate(parts, axis=1), strict=True))
        table = np.stack([self._hits[key] for key in keys])
        good = (table >= 0).all(axis=0)
        if not good.any():
            raise NotApplicable(
                f"none of {len(self.rows)} images could be read",
                fix="say where they are with --images",
            )
        return table[:, good] > 0

    def _batch(self, models: Sequence[Model], rows: np.ndarray) -> np.ndarray:
        """int8 (models, rows): 1 for a hit, 0 for none, -1 for an image that cannot be read."""
        found = np.full((len(models), len(rows)), -1, np.int8)
        geometries = {m.preprocessing.geometry.key: m.preprocessing.geometry for m in models}
        loaded = [
            good_pixels(load_pixels(self.files, row, list(geometries.values())))
            for row in rows.tolist()
        ]
        good = [place for place, pixels in enumerate(loaded) if pixels is not None]
        for hits, model in zip(found, models if good else (), strict=False):
            key = model.preprocessing.geometry.key
            pixels = np.stack([one[key] for one in loaded if one is not None])
            guesses = self.reading[model(pixels).logits.argmax(axis=1)]
            hits[good] = guesses == self.labels[rows[good]]
        return found


SAMPLE = 128
"""Images that every alternative is run on."""
LEVEL = 0.01
"""The chance that a right preprocessing is called wrong, at most."""
WORTH = 0.02
"""Least gain in top-1 that is called better: a larger crop alone can be worth a little."""
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
    """

    given: Preprocessing
    n: int
    top1: float
    trials: tuple[Trial, ...]
    better: tuple[str, ...] = ()
    overall: Trial | None = None

    @property
    def findings(self) -> list[Finding]:
        """The finding, if the stated preprocessing is wrong; else none."""
        right = self.overall
        if right is None:
            return []
        stated, found = self.given.to_dict(), right.preprocessing.to_dict()
        changed = json.dumps({key: found[key] for key in found if found[key] != stated[key]})
        return [
            Finding(
                code="wrong-preprocessing",
                testset=right.testset,
                model=right.model,
                message=f"top-1 on {right.n:,} images is {right.stated} with the stated "
                f"preprocessing and {percent(right.top1)} with {right.name}",
                evidence={
                    "n": right.n,
                    "top1_as_given": right.top1 - right.difference,
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
    ``sample``  labelled images, chosen by ``seed``
    ``truth``   single-label truth to judge by; the set's first by default
    """
    if sample < 1:
        raise UserError(f"a sample of {sample} images", fix="give a number ≥ 1")
    rerun = Rerun(
        model,
        testset,
        image_files(testset, images),
        sample=sample,
        truth=truth,
        workers=workers,
        seed=seed,
        progress=progress,
    )
    current, names, steps = model, [], []
    trials: tuple[Trial, ...] = ()
    for _ in range(ROUNDS):
        variants, made = run_trials(rerun, current)
        trials = trials or made
        step = next((trial for trial in made if trial.is_better), None)
        if step is None:
            break
        names.append(step.name)
        steps.append(step)
        current = variants[step.name]
    mine, given = rerun.hits([current, model])
    overall = None
    if steps:
        overall = _trial(rerun, " and ".join(names), current, mine, given, steps[0].p)
    return Tried(
        model.preprocessing, len(given), float(given.mean()), trials, tuple(names), overall
    )


def run_trials(rerun: Rerun, current: Model) -> tuple[dict[str, Model], tuple[Trial, ...]]:
    """All alternatives to a model's preprocessing, as models by name and as trials, best first."""
    variants = rerun.variants(alternatives(current.preprocessing))
    given, *hits = rerun.hits([current, *variants.values()])
    raw = np.array([p_better(mine, given) for mine in hits])
    # An alternative that changes no hit cannot be called better, so it is not a hypothesis.
    moved = np.array([bool((mine != given).any()) for mine in hits], dtype=bool)
    p = np.ones(len(raw))
    if moved.any():
        p[moved] = holm(raw[moved])
    made = [
        _trial(rerun, name, variant, mine, given, float(value))
        for (name, variant), mine, value in zip(variants.items(), hits, p, strict=True)
    ]
    return variants, tuple(sorted(made, key=lambda trial: -trial.top1))


def _trial(
    rerun: Rerun, name: str, variant: Model, mine: np.ndarray, given: np.ndarray, p: float
) -> Trial:
    n = len(given)
    only_mine, only_given = int((mine & ~given).sum()), int((given & ~mine).sum())
    interval = paired_difference(only_mine, only_given, n)
    return Trial(
        testset=rerun.testset,
        model=rerun.model.name,
        name=name,
        preprocessing=variant.preprocessing,
        n=n,
        top1=float(mine.mean()),
        difference=(only_mine - only_given) / n,
        low=float(interval.low),
        high=float(interval.high),
        p=p,
        uncorrected=p_better(mine, given),
    )
