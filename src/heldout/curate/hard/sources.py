"""What a set of hard images is chosen by: models' first guesses, and people's judgements."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heldout.core.errors import MismatchError, UserError
from heldout.core.files import canonical_json
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.models.predictions import Predictions

QUESTIONS = ("label", "mistake", "review")
"""The questions whose answers decide."""


@dataclass(frozen=True, eq=False)
class FirstGuesses:
    """The first guess of each of some models on each of some images.

    ``image_ids``  n of them
    ``models``     names, in any order: nothing depends on it
    ``guesses``    int (n, models): index in ``space``; -1 where a model has no output
    """

    image_ids: tuple[str, ...]
    models: tuple[str, ...]
    guesses: np.ndarray
    space: LabelSpace
    name: str = "predictions"

    def __len__(self) -> int:
        return len(self.models)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over all guesses, whatever the order of images and models."""
        rows = np.argsort(np.array(self.image_ids, dtype=object), kind="stable")
        columns = sorted(range(len(self.models)), key=self.models.__getitem__)
        digest = hashlib.sha256(self.space.fingerprint.encode())
        digest.update(canonical_json([self.models[m] for m in columns]).encode())
        digest.update("\n".join(self.image_ids[row] for row in rows.tolist()).encode())
        ordered = self.guesses[rows][:, columns]
        digest.update(np.ascontiguousarray(ordered, "<i4").tobytes())
        return digest.hexdigest()

    def reordered(self, seed: int) -> FirstGuesses:
        """The same guesses with images and models shuffled."""
        random = np.random.default_rng(seed)
        rows = random.permutation(len(self.image_ids))
        columns = random.permutation(len(self.models))
        return FirstGuesses(
            tuple(self.image_ids[row] for row in rows.tolist()),
            tuple(self.models[m] for m in columns.tolist()),
            self.guesses[rows][:, columns],
            self.space,
            self.name,
        )


def first_guesses(testset: TestSet, predictions: Iterable[Predictions]) -> FirstGuesses:
    """The first guesses of stored predictions on a test set, each model read once."""
    names: list[str] = []
    columns: list[np.ndarray] = []
    for model in predictions:
        if model.label_space.fingerprint != testset.label_space.fingerprint:
            raise MismatchError(
                f"{model.model} predicts {model.label_space.name}, {testset.name} is labelled in "
                f"{testset.label_space.name}",
                fix="choose models of the set's own classes",
            )
        if model.model in names:
            raise UserError(f"{model.model} is there twice", fix="name each model once")
        rows = model.rows_for(testset.image_ids, testset=testset.name)
        firsts = model.topk[rows, 0].astype(np.int32)
        if model.failures:
            failed = np.isin(rows, np.fromiter(model.failures, dtype=np.int64))
            firsts = np.where(failed, -1, firsts)
        names.append(model.model)
        columns.append(firsts)
    if not names:
        raise UserError("no models to choose hard images by", fix="name some with --model")
    return FirstGuesses(
        tuple(testset.image_ids.to_pylist()),
        tuple(names),
        np.stack(columns, axis=1),
        testset.label_space,
    )


@dataclass(frozen=True, eq=False)
class Judged:
    """Judgements about images of the pool: labels, mistakes, reviews."""

    judgements: tuple[Judgement, ...]
    name: str = "judgements"

    def __len__(self) -> int:
        return len(self.judgements)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the ids of the judgements, whatever their order."""
        ids = "\n".join(sorted(judgement.judgement_id for judgement in self.judgements))
        return hashlib.sha256(ids.encode()).hexdigest()

    def reordered(self, seed: int) -> Judged:
        """The same judgements shuffled."""
        order = np.random.default_rng(seed).permutation(len(self.judgements))
        return Judged(tuple(self.judgements[row] for row in order.tolist()), self.name)


def judged(judgements: Iterable[Judgement], images: Sequence[str]) -> Judged:
    """Those judgements that decide about some of these images, each once."""
    known = set(images)
    kept = {
        judgement.judgement_id: judgement
        for judgement in judgements
        if judgement.question in QUESTIONS and judgement.subject.get("image_id") in known
    }
    return Judged(tuple(kept[key] for key in sorted(kept)))
