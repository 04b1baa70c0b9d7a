"""A model run again on some images of a test set, behind one preprocessing and another."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from heldout.core.engine import Progress, Tick, no_progress
from heldout.core.errors import MismatchError, NotApplicable
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.testset import TestSet
from heldout.data.testset.rowhash import row_hash
from heldout.measure.doctor.case import shared_reading, single_labels
from heldout.models.adapters import Model
from heldout.models.predictions.pixels import ImageFiles, good_pixels, load_pixels

BATCH = 16

Hits = dict[tuple[str, int], bool]
"""(key of a preprocessing, row of the test set) -> whether the first guess is the label."""


class Rerun:
    """Hits of a model's first guesses behind any preprocessing, on any images; each is run once.

    ``order``  int64 (n,): rows of labelled images in an order that follows from their ids and the
               seed, so that samples of two sizes share their images
    ``progress``  is told images times preprocessings, of those that were asked for so far
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
        self.model = model
        self.files = files
        self.workers = workers or os.cpu_count() or 1
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
        self._hits: Hits = {}
        self._bad: set[int] = set()
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
        """bool (preprocessings, readable images of ``rows``): whether the first guess is right."""
        variants = [self._variant(preprocessing) for preprocessing in preprocessings]
        batches = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        self._asked += len(rows) * len(variants)
        with ThreadPoolExecutor(self.workers) as pool:
            made = pool.map(lambda batch: self._batch(variants, batch), batches)
            for batch, (known, bad) in zip(batches, made, strict=True):
                self._hits |= known
                self._bad |= bad
                self._done += len(batch) * len(variants)
                seconds = time.monotonic() - self._began
                self._progress(Tick(self._done, 0, 0, self._asked, seconds))
        good = [row for row in rows.tolist() if row not in self._bad]
        if not good:
            raise NotApplicable(
                f"none of {len(rows)} images could be read", fix="say where they are with --images"
            )
        table = [[self._hits[p.key, row] for row in good] for p in preprocessings]
        return np.array(table, dtype=np.bool_)

    def _variant(self, preprocessing: Preprocessing) -> Model:
        if preprocessing.key == self.model.preprocessing.key:
            return self.model
        made: Model = self.model.with_preprocessing(preprocessing)  # type: ignore[attr-defined]
        return made

    def _batch(self, variants: Sequence[Model], rows: np.ndarray) -> tuple[Hits, set[int]]:
        wanted = [row for row in rows.tolist() if row not in self._bad]
        missing = [
            model
            for model in variants
            if any((model.preprocessing.key, row) not in self._hits for row in wanted)
        ]
        geometries = {m.preprocessing.geometry.key: m.preprocessing.geometry for m in missing}
        pixels: dict[str, list[np.ndarray]] = {key: [] for key in geometries}
        good: list[int] = []
        bad: set[int] = set()
        for row in wanted if missing else ():
            loaded = good_pixels(load_pixels(self.files, row, list(geometries.values())))
            if loaded is None:
                bad.add(row)
                continue
            good.append(row)
            for key in geometries:
                pixels[key].append(loaded[key])
        found: Hits = {}
        for model in missing if good else ():
            logits = model(np.stack(pixels[model.preprocessing.geometry.key])).logits
            guesses = self.reading[logits.argmax(axis=1)]
            for row, guess in zip(good, guesses.tolist(), strict=True):
                found[model.preprocessing.key, row] = guess == int(self.labels[row])
        return found, bad
