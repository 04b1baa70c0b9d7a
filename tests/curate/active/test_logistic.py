from __future__ import annotations

import numpy as np
import pytest

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.classifier import Images, Logistic, load_trainer


def test_the_trainer_centres_and_scales() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(2, size=20)
    ids = [f"i{row}" for row in range(20)]
    plain = Logistic()(Images(ids, x), y, classes=2, seed=0)(Images(ids, x)).logits
    moved = Logistic()(Images(ids, 8 * x + 64), y, classes=2, seed=1)(
        Images(ids, 8 * x + 64)
    ).logits
    assert moved == pytest.approx(plain, abs=1e-3)


def test_trainers_by_name(tmp_path: object) -> None:
    assert load_trainer("logistic").identity == Logistic().identity
    assert load_trainer("logistic:2").identity["strength"] == 2.0
    for text in ("logistic:x", "logistic:-1", "forest"):
        with pytest.raises(UserError):
            load_trainer(text)
    with pytest.raises(NotApplicable, match="needs features"):
        Logistic()(Images(["a"], None), np.array([0]), classes=2, seed=0)
