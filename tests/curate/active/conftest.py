from __future__ import annotations

import numpy as np
import pytest

from heldout.curate.active.task import LabelingTask, make_problem


def made_problem(
    *,
    n: int = 240,
    d: int = 12,
    classes: int = 3,
    domains: int = 3,
    seed: int = 0,
    parts: list[str] | None = None,
) -> LabelingTask:
    """Classes as blobs; the last domain is shifted and noisier."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, d)) * 1.5
    label = rng.integers(classes, size=n)
    domain = rng.integers(domains, size=n)
    noise = rng.normal(size=(n, d)) * (1.0 + 0.6 * domain[:, None])
    features = centres[label] + noise + 0.5 * domain[:, None]
    return make_problem(
        "made",
        ids=[f"image-{row:04d}" for row in range(n)],
        labels=[f"c{c}" for c in label],
        domains=[f"d{g}" for g in domain],
        features=features.astype(np.float32),
        parts=parts,
    )


@pytest.fixture
def problem() -> LabelingTask:
    return made_problem()
