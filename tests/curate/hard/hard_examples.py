"""Small sources of a set of hard images; importable from other processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heldout.curate.hard import guesses_source, judged
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels import LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, membership_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool
from heldout.measure.mistakes.between_models import Peers

SPACE = LabelSpace.from_ids("letters", ["a", "b", "c", "d"])
MODELS = ("m2", "m0", "m1")
LICENCES = ("CC0-1.0", "CC-BY-4.0", None)


def peers(ids: Sequence[str], models: tuple[str, ...], guesses: np.ndarray) -> Peers:
    """Models that keep their first guess alone."""
    topk = guesses.astype(np.int32)[:, :, None]
    return Peers(space=SPACE, models=models, image_ids=tuple(ids), topk=topk)


def make_sources(n: int = 48, seed: int = 4) -> dict[str, Any]:
    """A pool with a truth that reviewers made, three models, and two people's judgements."""
    rng = np.random.default_rng(seed)
    ids = [f"image{i:03d}" for i in range(n)]
    own = [SPACE.ids[i % 4] for i in range(n)]
    wrong = [[SPACE.ids[(i + 2) % 4]] if i % 3 else [] for i in range(n)]
    pool = make_pool(
        "letters-pool",
        images=image_table(
            {
                "image_id": ids,
                "source": ["somewhere"] * n,
                "licence": [LICENCES[i % 3] for i in range(n)],
                "attribution": [f"person {i % 5}" for i in range(n)],
                "light": [i / 2 for i in range(n)],
            }
        ),
        truths={
            "multilabel": truth_table(
                ids,
                own,
                correct=[[label] for label in own],
                wrong=wrong,
                problematic=[i % 11 == 10 for i in range(n)],
            ),
            "original": truth_table(ids, own),
        },
        memberships=membership_table([(i, "context", f"context {len(i) % 3}") for i in ids]),
        columns={"light": ColumnType(kind="ordered", unit="lux")},
        label_space=SPACE,
        citation="Somebody: Letters",
    )
    steps = rng.choice([0, 1, 2, 2, 3], size=(n, len(MODELS)))
    guesses = (np.arange(n)[:, None] + steps) % 4
    guesses[5, 0] = -1
    return {
        "pool": pool,
        "predictions": guesses_source(peers(ids, MODELS, guesses)),
        "judgements": judged(judgements(ids, guesses, rng), ids),
    }


def judgements(ids: list[str], guesses: np.ndarray, rng: np.random.Generator) -> list[Judgement]:
    """Two people on most of the wrong predictions; they mostly agree."""
    found = []
    for row, image in enumerate(ids):
        for guess in sorted({g for g in guesses[row].tolist() if g >= 0 and g != row % 4}):
            if rng.random() < 0.1:
                continue
            severity = "Major" if rng.random() < 0.7 else "Minor"
            for who in ("ann", "bob"):
                said = severity if rng.random() < 0.9 else "Borderline"
                found += verdict(who, image, SPACE.ids[guess], said)
    return found


def verdict(who: str, image: str, prediction: str, severity: str | None) -> list[Judgement]:
    """What one person says: wrong and how bad, or correct where ``severity`` is None."""
    label = Judgement(
        question="label",
        subject={"image_id": image, "class_id": prediction},
        answer="correct" if severity is None else "wrong",
        who=who,
    )
    if severity is None:
        return [label]
    mistake = Judgement(
        question="mistake",
        subject={"image_id": image, "prediction": prediction},
        answer={"category": "Other", "severity": severity},
        who=who,
    )
    return [label, mistake]


def four_images(
    guesses: list[list[int]], said: list[Judgement], *, wrong: list[list[str]] | None = None
) -> dict[str, Any]:
    """Images i0 … of class a, with given first guesses of models m0 …, and judgements."""
    ids = [f"i{row}" for row in range(len(guesses))]
    pool: TestSet = make_pool(
        "four",
        images=image_table({"image_id": ids}),
        truths={
            "multilabel": truth_table(
                ids, ["a"] * len(ids), correct=[["a"]] * len(ids), wrong=wrong or [[]] * len(ids)
            )
        },
        label_space=SPACE,
    )
    models = tuple(f"m{place}" for place in range(len(guesses[0])))
    return {
        "pool": pool,
        "predictions": guesses_source(peers(ids, models, np.array(guesses))),
        "judgements": judged(said, ids),
    }
