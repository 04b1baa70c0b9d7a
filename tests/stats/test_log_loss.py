"""The interval of a mean log loss: coverage, a slow oracle, and what happens at the ends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from heldout.core.errors import NotApplicable
from heldout.stats import log_loss
from heldout.stats.log_loss import mean_log_loss


def drawn(rng: np.random.Generator, n: int, columns: int, sharpness: float) -> np.ndarray:
    """Losses of a model that is right 19 times in 20, its log odds times ``sharpness``."""
    odds = logit(rng.beta(19, 1, (n, columns)))
    right = rng.random(odds.shape) < expit(odds)
    return np.asarray(np.log1p(np.exp(np.where(right, -sharpness, sharpness) * odds)))


@pytest.mark.parametrize("sharpness", [1.0, 2.0])
def test_a_few_wrong_answers_are_allowed_for(sharpness: float) -> None:
    """With bootstrap-t 91 % covered, three to 25 times as wide: 50 images, none wrong in one of 13."""
    rng = np.random.default_rng(0)
    truth = drawn(rng, 2000, 500, sharpness).mean()
    losses = drawn(rng, 50, 2000, sharpness)
    value, found = mean_log_loss(losses)
    np.testing.assert_allclose(value, losses.mean(axis=0))
    covered = (found.low <= truth) & (truth <= found.high)
    assert 0.93 < covered.mean() < 0.98  # the error is 0.5 %
    assert np.median(found.width) < 1.3 * np.subtract(*np.quantile(value, [0.975, 0.025]))
    none = (losses < np.log(2)).all(axis=0)
    assert 0.05 < none.mean() < 0.1 and covered[none].mean() > 0.9


def test_limits_equal_a_slow_search() -> None:
    losses = drawn(np.random.default_rng(3), 30, 1, 1.5)[:, 0]
    gap = np.abs(logit(np.exp(-losses)))
    value, error = losses.mean(), losses.std(ddof=1) / np.sqrt(30)
    tempered = []
    for b in np.sinh(np.linspace(-7, 7, 40_001)):
        larger = 1 / (1 + np.exp(np.clip(b * gap, -700, 700)))
        expected = np.log1p(np.exp(-gap)) + larger * gap
        spread = ((expected - expected.mean()) ** 2 + larger * (1 - larger) * gap**2).mean()
        tempered.append((expected.mean(), spread))
    means, spreads = np.array(tempered).T
    scale = error**2 / spreads[np.abs(means - value).argmin()]
    kept = means[(means - value) ** 2 <= stats.t.ppf(0.975, 29) ** 2 * scale * spreads]
    _, found = mean_log_loss(losses[:, None])
    assert (found.low[0], found.high[0]) == pytest.approx((kept.min(), kept.max()), abs=2e-3)


def test_many_images_give_a_t_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = drawn(np.random.default_rng(1), 20_000, 2, 1.0)
    value, found = mean_log_loss(losses)
    half = 1.96 * losses.std(axis=0) / np.sqrt(len(losses))
    np.testing.assert_allclose(found.low, value - half, atol=0.05 * half.max())
    np.testing.assert_allclose(found.high, value + half, atol=0.05 * half.max())
    monkeypatch.setattr(log_loss, "_GROUPS", 20_000)  # every image by itself
    _, exact = mean_log_loss(losses[:, 1:])
    assert found.low[1] == pytest.approx(exact.low[0], rel=1e-4)
    assert found.high[1] == pytest.approx(exact.high[0], rel=1e-4)


def test_ends() -> None:
    sure = np.full((50, 1), 0.05)  # all right, with a probability of 0.95
    value, found = mean_log_loss(sure)
    assert found.low[0] == value[0] == pytest.approx(0.05)
    assert 0.2 < found.high[0] < 0.35  # up to 7 % may be wrong, at a loss of 3
    for tiny in (1e-12, 0.0):
        _, found = mean_log_loss(np.full((50, 1), tiny))
        assert 0 <= found.low[0] < 1e-9 and 1 < found.high[0] < 4
    worse = np.random.default_rng(2).uniform(2, 9, (50, 1))  # the class is never the likelier side
    value, found = mean_log_loss(worse)
    half = 2.01 * worse.std(ddof=1) / np.sqrt(50)
    assert found.high[0] == pytest.approx(value[0] + half, rel=0.01)
    with pytest.raises(ValueError, match="finite"):
        mean_log_loss([[0.1], [np.inf]])
    with pytest.raises(ValueError, match="below zero"):
        mean_log_loss([[0.1], [-0.2]])


def test_clusters_and_weights() -> None:
    rng = np.random.default_rng(4)
    once = drawn(rng, 40, 3, 1.0)
    copies, film = once.repeat(10, axis=0), np.arange(400) // 10
    _, alone = mean_log_loss(copies)
    value, found = mean_log_loss(copies, clusters=film)
    assert found.method == "cluster-tempered-score"
    assert (found.width > 2.5 * alone.width).all()
    _, same = mean_log_loss(once)
    np.testing.assert_allclose(found.width, same.width, rtol=0.02)
    weight = rng.random(400)
    weighted, _ = mean_log_loss(copies, weights=weight)
    np.testing.assert_allclose(weighted, weight @ copies / weight.sum())
    one, apart = mean_log_loss(copies[:, 1:2], clusters=film)
    assert (one[0], apart.high[0]) == pytest.approx((value[1], found.high[1]))
    with pytest.raises(NotApplicable, match="5 clusters are too few"):
        mean_log_loss(copies, clusters=film // 8)
