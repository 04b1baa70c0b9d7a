"""How many images: for an interval of a given width, to tell two models apart, to judge a slice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.stats.intervals import FloatArray, check_level, wilson

_MOST = 10**9


def design_effect(cluster_size: float, correlation: float) -> float:
    """How many times more images clusters need: ``1 + (m - 1) rho`` (Kish 1965).

    >>> round(design_effect(20, 0.05), 2)
    1.95
    """
    if cluster_size < 1 or not -1.0 <= correlation <= 1.0:
        raise UserError("a cluster has 1 or more images and a correlation between -1 and 1")
    return 1.0 + (cluster_size - 1.0) * correlation


def images_for_half_width(
    half_width: float, *, accuracy: float, level: float = 0.95, design_effect: float = 1.0
) -> int:
    """The fewest images whose Wilson interval is at most ± ``half_width`` at ``accuracy``.

    >>> images_for_half_width(0.01, accuracy=0.75)
    7201
    """
    _check_share(accuracy, "accuracy")
    if not 0.0 < half_width < 1.0:
        raise UserError(f"a half-width of {half_width}", fix="give a fraction such as 0.01")

    def enough(n: int) -> bool:
        return bool(wilson(accuracy * n, n, level=level).width <= 2.0 * half_width)

    return math.ceil(_fewest(enough) * design_effect)


def mcnemar_power(n: int, *, disagreement: float, difference: float, level: float = 0.95) -> float:
    """The probability that McNemar's exact test finds ``difference`` on ``n`` images.

    ``disagreement`` is the share of images that exactly one of two models gets right. Exact: a sum
    over all numbers of disagreements, up to a mass of 1e-12.

    >>> round(mcnemar_power(1000, disagreement=0.10, difference=0.03), 3)
    0.835
    """
    from scipy.special import betainc

    share = _share_of_a(disagreement, difference)
    if n < 1:
        raise UserError("a plan needs at least one image")
    tail = (1.0 - check_level(level)) / 2.0
    counts, mass = _binomial_mass(n, disagreement)
    # The largest k with P(X <= k | d, 1/2) <= tail; -1 where even k = 0 is too likely.
    cut = _critical(counts, tail)
    possible = cut >= 0
    d, k = counts[possible], cut[possible]
    reject = betainc(d - k, k + 1.0, 1.0 - share) + betainc(d - k, k + 1.0, share)
    return float(min(1.0, (mass[possible] * reject).sum()))


def images_for_difference(
    difference: float, *, disagreement: float, power: float = 0.8, level: float = 0.95
) -> int:
    """The fewest images on which McNemar's exact test finds ``difference`` with ``power``.

    ``disagreement`` is the share of images that exactly one of the two models gets right: measure
    it on what you have, since it decides the answer far more than the accuracies do. The exact
    power wavers by a hair as n grows, so an n a few images smaller may reach it too.

    >>> images_for_difference(0.01, disagreement=0.10)
    8032
    """
    _check_share(power, "power")
    if difference == 0:
        raise UserError("no number of images finds a difference of zero")
    _share_of_a(disagreement, difference)
    return _fewest(
        lambda n: (
            mcnemar_power(n, disagreement=disagreement, difference=abs(difference), level=level)
            >= power
        )
    )


def smallest_detectable_difference(
    n: int, *, disagreement: float, power: float = 0.8, level: float = 0.95
) -> float:
    """The smallest difference of two models that ``n`` images find with ``power``, to 1e-6.

    >>> round(smallest_detectable_difference(10_000, disagreement=0.10), 4)
    0.009
    """
    _check_share(power, "power")

    def found(difference: float) -> bool:
        reached = mcnemar_power(n, disagreement=disagreement, difference=difference, level=level)
        return reached >= power

    if not found(disagreement):
        raise NotApplicable(
            f"{n} images cannot tell two models apart that disagree on {disagreement:.3g} of them",
            fix="use more images",
        )
    return _bisect(found, 0.0, disagreement)


def smallest_detectable(
    n: int, *, reference: float, power: float = 0.8, level: float = 0.95, slices: int = 1
) -> float:
    """The smallest drop below ``reference`` that a slice of ``n`` images shows with ``power``.

    By the exact two-sided binomial test of the slice's accuracy against ``reference``, at
    ``level`` shared among ``slices`` slices (Bonferroni). A slice so small that even an accuracy
    of zero shows nothing is refused.

    >>> round(smallest_detectable(50, reference=0.76), 3)
    0.189
    """
    from scipy.special import bdtr

    cut = _worst_rejected(n, reference, level, slices)
    if cut < 0:
        raise NotApplicable(
            f"{n} images cannot show any drop below {reference:.3g}",
            fix=f"use at least {images_to_say_anything(reference, level=level, slices=slices)}",
        )
    _check_share(power, "power")
    # An accuracy of zero is rejected with certainty, so an answer always exists.
    return _bisect(lambda drop: bool(bdtr(cut, n, reference - drop) >= power), 0.0, reference)


def images_to_say_anything(reference: float, *, level: float = 0.95, slices: int = 1) -> int:
    """The fewest images of a slice that could show any drop: all wrong is then significant.

    >>> images_to_say_anything(0.76), images_to_say_anything(0.76, slices=1000)
    (3, 8)
    """
    return _fewest(lambda n: _worst_rejected(n, reference, level, slices) >= 0)


def _worst_rejected(n: int, reference: float, level: float, slices: int) -> int:
    """The largest number right with ``P(X <= k) <= tail`` under ``reference``; -1 if none."""
    from scipy.special import bdtr

    _check_share(reference, "reference accuracy")
    if n < 1 or slices < 1:
        raise UserError("a plan needs at least one image and one slice")
    tail = (1.0 - check_level(level)) / 2.0 / slices
    low, high = -1, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bdtr(middle, n, reference) <= tail else (low, middle)
    return low


def _share_of_a(disagreement: float, difference: float) -> float:
    """Among disagreements, the share that model a wins."""
    if not 0.0 < disagreement <= 1.0:
        raise UserError(f"a disagreement of {disagreement}", fix="give a fraction such as 0.1")
    if abs(difference) > disagreement:
        raise UserError(
            f"a difference of {difference} with a disagreement of {disagreement}",
            fix="two models cannot differ more than they disagree",
        )
    return 0.5 * (1.0 + difference / disagreement)


def _binomial_mass(n: int, p: float) -> tuple[FloatArray, FloatArray]:
    """Counts and probabilities of a binomial, without tails of 1e-12 in all."""
    from scipy.special import gammaln, xlog1py, xlogy

    # Bernstein's inequality bounds each tail by 5e-13 outside this range.
    log = -math.log(5e-13)
    reach = math.sqrt(2.0 * n * p * (1.0 - p) * log) + log + 1.0
    counts = np.arange(max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach)) + 1.0)
    logs = gammaln(n + 1.0) - gammaln(counts + 1.0) - gammaln(n - counts + 1.0)
    mass: FloatArray = np.exp(logs + xlogy(counts, p) + xlog1py(n - counts, -p))
    return counts, mass


def _critical(counts: FloatArray, tail: float) -> FloatArray:
    """For each number of tosses, the largest k with ``P(X <= k) <= tail``, by bisection."""
    from scipy.special import betainc

    low, high = np.full_like(counts, -1.0), counts.copy()
    while (high - low > 1.0).any():
        middle = np.floor((low + high) / 2.0)
        inside = np.maximum(middle, 0.0)
        fits = betainc(np.maximum(counts - inside, 1e-9), inside + 1.0, 0.5) <= tail
        fits &= middle < counts
        fits |= middle < 0
        active = high - low > 1.0
        low, high = np.where(active & fits, middle, low), np.where(active & ~fits, middle, high)
    return low


def _fewest(enough: Callable[[int], bool]) -> int:
    """The smallest n from 1 on with ``enough(n)``, for a condition that holds from some n on."""
    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST:
            raise NotApplicable("more than a billion images", fix="ask for less")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check_share(value: float, what: str) -> None:
    if not 0.0 < value < 1.0:
        raise UserError(f"a {what} of {value}", fix="give a fraction between 0 and 1")
