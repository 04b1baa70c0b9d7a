"""Folds: parts of judged mistakes for training and testing that share no image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def grouped_folds(
    images: Sequence[str], answers: Sequence[str], folds: int, *, rng: np.random.Generator
) -> np.ndarray:
    """The fold of each mistake, int64 (n,): all mistakes of one image are in one fold.

    Images are dealt out one by one, those of the rarest answer first, so that every fold gets its
    share of every answer. The order in which mistakes come does not matter.
    """
    if folds < 2:
        raise ValueError("there must be at least two folds")
    count = {answer: answers.count(answer) for answer in set(answers)}
    rarest: dict[str, tuple[int, str]] = {}
    for image, answer in zip(images, answers, strict=True):
        mine = (count[answer], answer)
        rarest[image] = min(rarest.get(image, mine), mine)
    names = sorted(rarest)
    chance = rng.permutation(len(names)).tolist()
    order = sorted(range(len(names)), key=lambda place: (rarest[names[place]], chance[place]))
    fold = {names[place]: dealt % folds for dealt, place in enumerate(order)}
    return np.array([fold[image] for image in images], dtype=np.int64)
