"""Accuracy at the true selection frequencies of an original set, from noisy ones of a new pool.

Images of both are voted on. An image's true frequency ``s`` is the share of all people who would
select it; a few votes show it with noise. Matching images of the pool to the original set by the
observed share compares images of unlike true frequency: where the pool has fewer good images, one
that was selected 9 times of 10 is more often a lucky one (Engstrom et al. 2020, "Identifying
statistical bias in dataset replication"). What is estimated is

    A = integral of P(right | s, pool) p(s | original) ds

Four estimators, each a function ``(original, pool, right)``:

``naive``          the observed share stands for the true one
``jackknife``      ``votes`` times naive, less ``votes - 1`` times naive with one vote fewer: without
                   the part of the bias that falls as 1 / votes
``beta_binomial``  three Betas for the frequencies of each set, a spline for the accuracy
``polynomial``     nothing is assumed of the frequencies, and the accuracy is a polynomial in them:
                   the default, because its intervals hold (``benchmarks/selection_bias.py``)

``polynomial`` rests on this: of ``k`` votes among ``n``, ``k (k-1) … (k-m+1) / (n (n-1) … (n-m+1))``
has the mean ``s^m``, whatever ``s`` is. So the mean of any polynomial in ``s`` of degree at most
``n`` is known without bias over each set, also times ``right``. Accuracy ``g(s) = sum_j b_j p_j(s)``
then obeys, for every polynomial ``h`` of low degree, ``E[h(s) right] = sum_j b_j E[h(s) p_j(s)]``
over the pool, which are linear equations in ``b``, and ``A = sum_j b_j E[p_j(s)]`` over the
original set. Neither set's distribution of frequencies needs to be known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import FloatArray, Interval, interval_from_error, t_quantile

ESTIMAND = "integral of P(right | s, pool) p(s | original) ds"
FEWEST_VOTES = 2
FEWEST_ORIGINALS, FEWEST_CANDIDATES = 20, 50

_MOST_MOMENTS = 10
_HIGHEST_DEGREE = 5
_ROUGHNESS = np.array([0.03, 0.06, 0.125, 0.25, 0.5, 1.0])
_SINGULAR = 1e-6
_GROUPS = 20
_COMPONENTS = 3
_GRID = 1000
_KNOTS = (0.5, 0.7, 0.9)
_LEAST_ACCURACY = 2e-6


@dataclass(frozen=True, eq=False)
class Votes:
    """How often each image was selected: ``selected`` of ``n`` votes; int (images,) each.

    ``cluster``  (images,) which images belong together, under names that both sets share; None
                 where each stands alone
    """

    selected: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.n)

    @cached_property
    def least(self) -> int:
        """The fewest votes that an image has."""
        return int(self.n.min())

    @cached_property
    def _cells(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        codes, of_image = np.unique(
            self.selected * (self.n.max() + 1) + self.n, return_inverse=True
        )
        return np.column_stack(np.divmod(codes, self.n.max() + 1)), of_image.reshape(-1)

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """The distinct pairs of selected and n; (cells, 2). All that votes say of an image."""
        return self._cells[0]

    @property
    def cell(self) -> npt.NDArray[np.intp]:
        """The pair of each image; (images,)."""
        return self._cells[1]

    def sums(self, values: npt.ArrayLike | None = None) -> FloatArray:
        """How many images a cell has, or the sum of their ``values``; (cells,)."""
        given = None if values is None else np.asarray(values, dtype=np.float64)
        return np.bincount(self.cell, given, minlength=len(self.cells)).astype(np.float64)

    @cached_property
    def leave_outs(self) -> npt.NDArray[np.bool_]:
        """Which images a fit rests on; (21, images): all, then all but a twentieth at a time."""
        group = (np.arange(len(self)) if self.cluster is None else self.cluster) % _GROUPS
        without = group != np.arange(_GROUPS)[:, None]
        return np.concatenate([np.ones((1, len(self)), bool), without])

    @cached_property
    def masses(self) -> FloatArray:
        """Mass of the fitted mixture of Betas in each part of [0, 1], for each of the leave-outs."""
        counts = np.array([self.sums(rows) for rows in self.leave_outs])
        whole = beta_mixture(self.cells, counts[:1])
        found = beta_mixture(self.cells, counts, start=whole)
        return found.masses()


class Adjusted(NamedTuple):
    """An adjusted value, its standard error, and how well that is known (None: as of many units)."""

    value: float
    standard_error: float
    degrees_of_freedom: float | None = None

    def interval(self, level: float = 0.95) -> Interval:
        """Where the true value lies: an accuracy, so within 0 and 1."""
        quantile = t_quantile(level, self.degrees_of_freedom)
        found = np.clip(self.value, 0.0, 1.0)  # extrapolation may leave the scale
        return interval_from_error(
            found, self.standard_error, quantile=quantile, level=level, bounds=(0.0, 1.0)
        )

    def difference_interval(self, level: float = 0.95) -> Interval:
        """Where the true value lies: a difference, on both sides of 0."""
        quantile = t_quantile(level, self.degrees_of_freedom)
        return interval_from_error(self.value, self.standard_error, quantile=quantile, level=level)


class HeldOutVotes(NamedTuple):
    """What happens to the frequencies of a matched set when other votes are asked.

    ``selected``  mean frequency of the original set, which the matched set has in the half of the
                  votes by which it was chosen
    ``held_out``  mean frequency of the matched set in the other half
    ``drop``      the original set's mean less ``held_out``, with its standard error: 0 without bias
    """

    selected: float
    held_out: float
    drop: Adjusted


Estimator = Callable[[Votes, Votes, FloatArray], Adjusted]


def check_votes(original: Votes, pool: Votes) -> None:
    """Refuse votes that are too few for any estimate."""
    for votes, needed, what in (
        (original, FEWEST_ORIGINALS, "of the original set"),
        (pool, FEWEST_CANDIDATES, "of the pool"),
    ):
        if len(votes) < needed:
            raise NotApplicable(
                f"{len(votes)} images {what} have enough votes, and {needed} are needed",
                fix="ask about more images, or count images with fewer votes",
            )
        if votes.least < FEWEST_VOTES:
            raise NotApplicable(
                f"images {what} with {votes.least} votes say nothing about the noise of votes",
                fix=f"count images with at least {FEWEST_VOTES} votes",
            )


def naive(original: Votes, pool: Votes, right: FloatArray) -> Adjusted:
    """The accuracy of the pool at each observed share, weighted as the original set has them."""
    return _matched(original, pool, right, {_common(original, pool): 1.0})


def jackknife(original: Votes, pool: Votes, right: FloatArray) -> Adjusted:
    """Naive, extrapolated from one vote fewer to many: exact if the bias is c / votes."""
    votes = _common(original, pool)
    return _matched(original, pool, right, {votes: float(votes), votes - 1: 1.0 - votes})


def _common(original: Votes, pool: Votes) -> int:
    return min(original.least, pool.least)


def thinned(votes: Votes, wanted: int) -> FloatArray:
    """P(j of ``wanted`` votes drawn from a cell's are selections); (cells, wanted + 1).

    Hypergeometric. It is what drawing votes again and again comes to, without the drawing, and it
    makes images with unequal numbers of votes comparable.
    """
    from scipy.stats import hypergeom

    selected, n = votes.cells.T
    return np.asarray(
        hypergeom.pmf(np.arange(wanted + 1), n[:, None], selected[:, None], wanted),
        dtype=np.float64,
    )


def _matched(
    original: Votes, pool: Votes, right: FloatArray, weights: dict[int, float]
) -> Adjusted:
    """A weighted sum of naive estimates from so many votes, with the influence of every image."""
    value = 0.0
    of_original, of_pool = np.zeros(len(original)), np.zeros(len(pool))
    for wanted, weight in weights.items():
        ours, theirs = thinned(original, wanted), thinned(pool, wanted)
        mass = pool.sums() @ theirs
        # What the pool has no image of cannot be matched; the rest of the original set stands in.
        there = mass > 0
        shares = (original.sums() @ ours) * there
        shares /= shares.sum()
        accuracy = np.divide(pool.sums(right) @ theirs, mass, out=np.zeros_like(mass), where=there)
        found = float(shares @ accuracy)
        value += weight * found
        matched = ours @ there
        of_original += (
            weight * ((ours * there) @ accuracy - matched * found)[original.cell] / matched.mean()
        ) / len(original)
        ratio = np.divide(shares, mass, out=np.zeros_like(mass), where=there)
        of_pool += weight * (
            right * (theirs @ ratio)[pool.cell] - (theirs @ (ratio * accuracy))[pool.cell]
        )
    return _adjusted(value, original, of_original, pool, of_pool)


def _adjusted(
    value: float,
    original: Votes,
    of_original: FloatArray,
    pool: Votes,
    of_pool: FloatArray,
    allowance: float = 0.0,
) -> Adjusted:
    """A value with the error that the influences of the images add up to.

    ``allowance``  a variance beside that of drawing images
    """
    # Each set is drawn as a whole, so influences count from their mean.
    parts = [of_original - of_original.mean(), of_pool - of_pool.mean()]
    if original.cluster is None or pool.cluster is None:
        variance = sum(float(part @ part) for part in parts)
        return Adjusted(value, float(np.sqrt(variance + allowance)))
    codes = np.unique(np.concatenate([original.cluster, pool.cluster]), return_inverse=True)[1]
    totals = np.bincount(codes.reshape(-1), np.concatenate(parts))
    units = len(totals)
    variance = float(totals @ totals) * units / max(units - 1, 1)
    return Adjusted(value, float(np.sqrt(variance + allowance)), max(units - 1.0, 1.0))


def power_means(votes: Votes, degree: int) -> FloatArray:
    """Estimates of 1, s, s², …, s^degree without bias; (cells, degree + 1)."""
    selected, n = votes.cells.T.astype(np.float64)
    found = np.ones((len(votes.cells), degree + 1))
    for power in range(1, degree + 1):
        found[:, power] = found[:, power - 1] * (selected - power + 1) / (n - power + 1)
    return found


def legendre(degree: int) -> FloatArray:
    """Coefficients of polynomials orthonormal on [0, 1], one per row, lowest power first."""
    from numpy.polynomial import Polynomial
    from numpy.polynomial.legendre import Legendre

    found = np.zeros((degree + 1, degree + 1))
    for row in range(degree + 1):
        plain = Legendre.basis(row).convert(kind=Polynomial)(Polynomial([-1.0, 2.0]))
        found[row, : row + 1] = plain.coef * np.sqrt(2 * row + 1)
    return found


def polynomial(original: Votes, pool: Votes, right: FloatArray) -> Adjusted:
    """The accuracy as a polynomial in the true frequency, whatever the frequencies are.

    Of 10 votes, accuracy is of degree 5 and meets 6 equations. They are weighted by what the images
    show of their errors (generalised method of moments). Coefficients above the linear one are
    drawn towards 0 as if the accuracy were a step of some height at a random place: the height is
    averaged over a grid, each weighted by its evidence, so that a smooth accuracy costs little
    width and a rough one has room. What this may bias is part of the error.
    """
    moments = min(_common(original, pool), _MOST_MOMENTS)
    degree = min(_HIGHEST_DEGREE, (moments + 1) // 2)
    tests = moments - degree
    basis, test = legendre(degree), legendre(tests)
    powers = power_means(pool, moments)
    tested = powers[:, : tests + 1] @ test.T
    products = np.array([[np.convolve(h, p) for p in basis] for h in test])
    design = np.einsum("cm,hpm->chp", powers, products)  # (cells, tests + 1, degree + 1)
    counts, hits, squares = pool.sums(), pool.sums(right), pool.sums(np.square(right))
    equations = np.einsum("c,chp->hp", counts, design)
    answers = hits @ tested
    ours = power_means(original, degree) @ basis.T
    wanted = original.sums() @ ours / len(original)

    rows = np.arange(1, degree + 1)
    # Mean square of the coefficients of a unit step at a place drawn uniformly from [0, 1].
    steps = 1.0 / (2.0 * (2 * rows - 1) * (2 * rows + 3))
    spread = np.vstack([np.full(len(_ROUGHNESS), 0.25), np.outer(steps, np.square(_ROUGHNESS))])
    spread[1] = steps[0]
    centre = np.zeros(degree + 1)
    centre[0] = 0.5
    mean = np.zeros(degree + 1)
    mean[0] = hits.sum() / len(pool)
    for _ in range(3):
        fitted = design @ mean
        noise = (
            np.einsum("c,ch,ci->hi", squares, tested, tested)
            - 2 * np.einsum("c,ch,ci->hi", hits, tested, fitted)
            + np.einsum("c,ch,ci->hi", counts, fitted, fitted)
        )
        noise = (noise + noise.T) / 2 + len(pool) * _SINGULAR * np.eye(tests + 1)
        weighted = np.linalg.solve(noise, equations)
        inverses, means, evidence = [], [], []
        for prior in spread.T:
            inverse = np.linalg.inv(equations.T @ weighted + np.diag(1.0 / prior))
            found = inverse @ (weighted.T @ answers + centre / prior)
            misses = answers - equations @ found
            inverses.append(inverse)
            means.append(found)
            evidence.append(
                -misses @ np.linalg.solve(noise, misses)
                - np.square(found - centre) @ (1.0 / prior)
                - np.log(prior).sum()
                + np.linalg.slogdet(inverse)[1]
            )
        share = np.exp(0.5 * (np.array(evidence) - max(evidence)))
        share /= share.sum()
        mean = share @ np.array(means)

    value = float(wanted @ mean)
    pull = np.einsum("r,rpq->pq", share, np.array(inverses))
    loads = weighted @ pull @ wanted
    of_pool = right * (tested @ loads)[pool.cell] - (design @ mean @ loads)[pool.cell]
    of_original = (ours @ mean)[original.cell] / len(original)
    # The posterior variance is that of the influences and this: the bias that the prior expects of
    # itself, how far heights disagree, and both once more over the noise of ``wanted``.
    differences = np.array(means) - mean
    posterior = pull + np.einsum("r,rp,rq->pq", share, differences, differences)
    sampled = pull @ (weighted.T @ noise @ weighted) @ pull
    rest = posterior - sampled
    centred = ours - wanted
    jitter = np.einsum("c,cp,cq->pq", original.sums(), centred, centred) / len(original) ** 2
    allowance = float(wanted @ rest @ wanted + (jitter * posterior).sum())
    return _adjusted(value, original, of_original, pool, of_pool, max(allowance, 0.0))


class BetaMixture(NamedTuple):
    """Mixtures of Betas; ``weights``, ``a``, ``b`` (fits, components), and ``likelihood``, the mean
    log likelihood of the votes after every round of the fit, (rounds, fits): it never falls."""

    weights: FloatArray
    a: FloatArray
    b: FloatArray
    likelihood: FloatArray

    def masses(self, grid: int = _GRID) -> FloatArray:
        """The mass in each of so many equal parts of [0, 1]; (fits, grid)."""
        from scipy.special import betainc

        edges = np.linspace(0.0, 1.0, grid + 1)
        below = betainc(self.a[:, :, None], self.b[:, :, None], edges)
        return np.diff(np.einsum("fj,fjg->fg", self.weights, below), axis=1)


def _starts() -> BetaMixture:
    """Narrow to wide Betas around low, middle and high frequencies."""
    means, sizes = np.array([0.25, 0.6, 0.9]), np.array([[2.0], [8.0], [30.0]])
    equal = np.full((len(sizes), _COMPONENTS), 1.0 / _COMPONENTS)
    return BetaMixture(equal, means * sizes, (1 - means) * sizes, np.empty(0))


def beta_mixture(
    cells: npt.NDArray[np.int64],
    counts: FloatArray,
    *,
    start: BetaMixture | None = None,
    rounds: int = 200,
    enough: float = 1e-6,
) -> BetaMixture:
    """The mixture of Betas under which counts of votes are likely: expectation-maximisation.

    ``counts``  (fits, cells): one fit for each row, side by side
    ``start``   one mixture from which all fits start; without it one fit has fixed starts, of which
                the likeliest end is taken

    The parameters of a Beta take one step of Minka's fixed point a round, which never lowers the
    likelihood. Fits stop once none gains ``enough`` per image.
    """
    from scipy.special import betaln, gammaln, logsumexp, psi

    begin = _starts() if start is None else start
    shares = counts / counts.sum(axis=1, keepdims=True)
    fits = max(len(shares), len(begin.a))
    shares = np.broadcast_to(shares, (fits, len(cells)))[:, :, None]
    k, n = cells.T.astype(np.float64)[:, :, None]
    choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    weights, a, b = (
        np.broadcast_to(part, (fits, _COMPONENTS))[:, None] for part in begin[:3]
    )  # (fits, 1, components)
    likelihood: list[FloatArray] = []
    while True:
        logs = np.log(weights) + choose + betaln(k + a, n - k + b) - betaln(a, b)
        total = logsumexp(logs, axis=2, keepdims=True)
        likelihood.append((shares * total).sum(axis=(1, 2)))
        gained = len(likelihood) < 2 or (likelihood[-1] - likelihood[-2] > enough).any()
        if not gained or len(likelihood) > rounds:
            break
        member = shares * np.exp(logs - total)
        weights = np.maximum(member.sum(axis=1, keepdims=True), 1e-12)
        weights = weights / weights.sum(axis=2, keepdims=True)
        both = (member * (psi(n + a + b) - psi(a + b))).sum(axis=1, keepdims=True)
        a, b = (
            np.clip(
                old * (member * (psi(hits + old) - psi(old))).sum(axis=1, keepdims=True) / both,
                1e-3,
                1e4,
            )
            for hits, old in ((k, a), (n - k, b))
        )
    found = BetaMixture(weights[:, 0], a[:, 0], b[:, 0], np.array(likelihood))
    if start is not None:
        return found
    best = [int(found.likelihood[-1].argmax())]
    return BetaMixture(found.weights[best], found.a[best], found.b[best], found.likelihood[:, best])


def spline(s: FloatArray) -> FloatArray:
    """Cubic B-splines with knots at 0.5, 0.7 and 0.9; (points, 7).

    They span what the published truncated powers do, and bounds of their coefficients are bounds of
    the values.
    """
    from scipy.interpolate import BSpline

    knots = np.concatenate([np.zeros(4), _KNOTS, np.ones(4)])
    return np.asarray(BSpline.design_matrix(s, knots, 3).toarray(), dtype=np.float64)


def spline_accuracy(chance: FloatArray, hits: FloatArray, masses: FloatArray) -> FloatArray:
    """P(right | s, pool) on a grid, as a spline with values in [2e-6, 1].

    Least squares over cells of ``P(right, k of n)``, ``hits``, against the integral of
    ``P(k of n | s) spline(s) p(s)``: ``chance`` is (cells, grid), ``masses`` that of ``p`` (grid,).
    """
    from scipy.optimize import lsq_linear

    basis = spline((np.arange(len(masses)) + 0.5) / len(masses))
    bounds = (_LEAST_ACCURACY, 1.0)
    found = lsq_linear((chance * masses) @ basis, hits, bounds=bounds, tol=1e-12)
    return np.asarray(basis @ found.x)


def vote_chances(votes: Votes, grid: int = _GRID) -> FloatArray:
    """P(n votes) P(k of n | s) for each cell, at the middle of each part of [0, 1]; (cells, grid)."""
    from scipy.stats import binom

    selected, n = votes.cells.T
    of_n = np.array([votes.sums()[n == size].sum() for size in n]) / len(votes)
    s = (np.arange(grid) + 0.5) / grid
    return np.asarray(of_n[:, None] * binom.pmf(selected[:, None], n[:, None], s))


def beta_binomial(original: Votes, pool: Votes, right: FloatArray) -> Adjusted:
    """Mixtures of Betas and a spline, as published; its error from 20 fits without a twentieth each."""
    chance = vote_chances(pool)
    found = []
    for ours, theirs, rows in zip(original.masses, pool.masses, pool.leave_outs, strict=True):
        accuracy = spline_accuracy(chance, pool.sums(right * rows) / rows.sum(), theirs)
        found.append(float(ours @ accuracy / ours.sum()))
    value, without = found[0], np.array(found[1:])
    variance = (_GROUPS - 1) / _GROUPS * np.square(without - without.mean()).sum()
    return Adjusted(value, float(np.sqrt(variance)), _GROUPS - 1.0)


ESTIMATORS: dict[str, Estimator] = {
    "polynomial": polynomial,
    "naive": naive,
    "jackknife": jackknife,
    "beta_binomial": beta_binomial,
}
"""By name; the first is the default."""


def held_out_votes(original: Votes, pool: Votes) -> HeldOutVotes:
    """Match the pool to the original set on half of the votes, and look at the other half.

    All ways to halve the votes are averaged over, without drawing any.
    """
    half = _common(original, pool) // 2
    selected, n = pool.cells.T
    # Of k selections j are in the half that is looked at, so k - j of the others.
    other = (selected[:, None] - np.arange(half + 1)) / (n - half)[:, None]
    ours, theirs = thinned(original, half), thinned(pool, half)
    mass = pool.sums() @ theirs
    there = mass > 0
    shares = (original.sums() @ ours) * there
    shares /= shares.sum()
    after = np.divide(pool.sums() @ (theirs * other), mass, out=np.zeros_like(mass), where=there)
    held_out = float(shares @ after)
    frequency = original.selected / original.n
    ratio = np.divide(shares, mass, out=np.zeros_like(mass), where=there)
    of_pool = ((theirs * (other - after)) @ ratio)[pool.cell]
    matched = ((ours * there) @ after)[original.cell]
    of_original = (frequency - matched) / len(original)
    mean = float(frequency.mean())
    return HeldOutVotes(
        mean, held_out, _adjusted(mean - held_out, original, of_original, pool, of_pool)
    )
