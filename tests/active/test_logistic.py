from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from heldout.active import Images, Logistic, fit_logistic, load_trainer
from heldout.errors import NotApplicable, UserError


def objective(
    flat: np.ndarray, x: np.ndarray, y: np.ndarray, classes: int, strength: float
) -> float:
    """The penalised loss, image by image."""
    weights = flat.reshape(x.shape[1] + 1, classes)
    total = 0.5 * strength * float((flat**2).sum())
    for row, label in zip(x, y, strict=True):
        logits = row @ weights[:-1] + weights[-1]
        total += float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label])
    return total


@pytest.mark.parametrize(("n", "d"), [(30, 3), (8, 12)])
def test_the_optimum_is_that_of_a_slow_solver(n: int, d: int) -> None:
    """More images than features, and fewer: there the optimum is looked for in their span."""
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, d)), rng.integers(3, size=n)
    got = fit_logistic(x, y, classes=4, strength=0.3)  # the fourth class has no image
    slow = minimize(
        objective, np.zeros((d + 1) * 4), (x, y, 4, 0.3), method="BFGS", options={"gtol": 1e-6}
    )
    assert got.ravel() == pytest.approx(slow.x, abs=2e-4)
    assert objective(got.ravel(), x, y, 4, 0.3) <= slow.fun + 1e-6
    assert (got[-1, 3] < got[-1, :3]).all()


def test_repeated_images_are_no_trouble() -> None:
    x = np.repeat(np.random.default_rng(0).normal(size=(3, 20)), 4, axis=0)
    y = np.repeat([0, 1, 2], 4)
    weights = fit_logistic(x, y, classes=3, strength=0.01)
    assert np.isfinite(weights).all()
    assert ((x @ weights[:-1] + weights[-1]).argmax(axis=1) == y).all()


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
