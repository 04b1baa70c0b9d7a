"""A made set with multi-label lists of which some are hidden, so that answers are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heldout.measure.mistakes.panel import Key, Ruling
from heldout.measure.mistakes.review_queue import OpenPairs
from heldout.measure.mistakes.verdicts import Verdicts, verdicts
from tests.measure.mistakes.made import set_of_kind
from tests.measure.score.worlds import Image, World

CLASSES = 8


def reviewed_world(seed: int, *, n: int = 240, models: int = 3) -> tuple[World, World]:
    """A world, and the same in which labels of about half the images were never reviewed.

    An image of class c shows c, and often c + 1 as well; other labels are wrong.
    """
    rng = np.random.default_rng(seed)
    whole, partial = [], []
    for i in range(n):
        own = i % CLASSES
        beside = (own + 1) % CLASSES
        correct = (own, beside) if rng.random() < 0.5 else (own,)
        wrong = tuple(c for c in range(CLASSES) if c not in correct)
        image = Image(f"i{i:04d}", own, correct, (), wrong)
        whole.append(image)
        hidden = rng.random() < 0.5
        partial.append(replace(image, correct=(own,), wrong=()) if hidden else image)
    logits = {}
    for m in range(models):
        rows = rng.normal(0, 1, (n, CLASSES))
        for i in range(n):
            own = i % CLASSES
            rows[i, own] += 2.0 - 0.4 * m
            rows[i, (own + 1) % CLASSES] += 1.4
        logits[f"m{m}"] = tuple(tuple(row) for row in rows.tolist())
    return World(CLASSES, tuple(whole), logits), World(CLASSES, tuple(partial), logits)


def both_verdicts(seed: int, **options: int) -> tuple[Verdicts, Verdicts]:
    """Verdicts of the whole truth, and of the one with hidden lists."""
    whole, partial = reviewed_world(seed, **options)
    return (
        verdicts(set_of_kind(whole, "multilabel"), whole.predictions()),
        verdicts(set_of_kind(partial, "multilabel"), partial.predictions()),
    )


def answer_head(
    pairs: OpenPairs, whole: Verdicts, count: int, *, queue: str | None = None
) -> dict[Key, Ruling]:
    """What people who know the whole truth answer to the first ``count`` pairs of the queue."""
    made = {}
    for place in np.argsort(pairs.keys, kind="stable")[:count].tolist():
        row, label = int(pairs.rows[place]), int(pairs.classes[place])
        lists = whole.truth.correct
        good = label in lists.values[lists.starts[row] : lists.starts[row + 1]].tolist()
        key = pairs.pairs[place]
        votes = (1, 0, 0) if good else (0, 0, 1)
        answer = "correct" if good else "wrong"
        asked = (pairs.design if queue is None else queue,)
        made[key] = Ruling(*key, answer, None, None, 1, votes, asked if asked[0] else ())
    return made
