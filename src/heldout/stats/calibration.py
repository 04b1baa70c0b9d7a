"""Calibration errors without the noise that pushes them up, and their differences.

An expected calibration error adds up absolute values of bins, so noise makes it larger: more so for a
model whose confidences lie low, where an answer is closer to the toss of a coin. Two calibrated
models of different sharpness then differ on any number of images. What noise adds depends on how
far the bins really are from 0, which is estimated with a smooth curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.bootstrap import design
from heldout.stats.intervals import FloatArray, normal_quantile, t_quantile
from heldout.stats.multiple import PairTests

LEAST_IMAGES = 300
"""On fewer images noise is as large as any usual difference: no interval of it, no test."""
LEAST_CLUSTERS = 500
"""Differences over 40 to 200 clusters have intervals that cover 92 to 94 %."""


def debiased_error(
    gaps: npt.ArrayLike, error: npt.ArrayLike, share: npt.ArrayLike, *, doubt: float = 0.95
) -> FloatArray:
    """The calibration error (...) of ``gaps`` (..., bins), less what noise adds to it.

    A gap is the mean over all images of hit less confidence in one bin, ``error`` (bins,) its
    standard error, ``share`` (bins,) the part of the images. Noise of error s adds
    ``E|N(m, s)| - |m|`` to a bin whose true gap is m. The m are taken from a line: gaps per image
    linear in the confidence, drawn to 0 after James and Stein (1961); and from the bins themselves
    so far as they leave that line beyond ``doubt`` (a level of chi-square).

    The result may lie below 0. Simulated with a perfectly calibrated model it is off by a quarter
    of its standard error, where the plain sum is off by four.

    >>> float(debiased_error([0.01, -0.01], [0.01, 0.01], [0.5, 0.5]).round(4))
    0.004
    """
    plain, known, z, line = _on_scale(gaps, error, share)
    s = np.asarray(error, dtype=np.float64)[known]
    return np.asarray(plain - absolute_noise(_true_gaps(z, line, doubt)) @ s)


def _on_scale(
    gaps: npt.ArrayLike, error: npt.ArrayLike, share: npt.ArrayLike
) -> tuple[FloatArray, npt.NDArray[np.bool_], FloatArray, FloatArray]:
    """The plain error, and of bins with an error: which, their gaps in errors, the line's base."""
    raw = np.asarray(gaps, dtype=np.float64)
    s, part = np.asarray(error, dtype=np.float64), np.asarray(share, dtype=np.float64)
    known = s > 0
    centre = (np.flatnonzero(known) + 0.5) / len(part)
    columns = np.stack([part[known], part[known] * centre], axis=1)
    line, _ = np.linalg.qr(columns / s[known, None])
    return np.abs(raw).sum(axis=-1), known, raw[..., known] / s[known], line


def _true_gaps(z: FloatArray, line: FloatArray, doubt: float, *, shrunk: bool = True) -> FloatArray:
    """Where the gaps ``z`` lie without noise, as :func:`debiased_error` says."""
    from scipy.special import chdtri

    on_line = z @ line
    rest = z - on_line @ line.T
    sizes = (np.square(x).sum(axis=-1, keepdims=True) for x in (on_line, rest))
    along, across = (np.maximum(size, 1e-300) for size in sizes)
    if shrunk:
        on_line = on_line * np.maximum(0.0, 1.0 - line.shape[1] / along)
    m = on_line @ line.T
    if (free := z.shape[-1] - line.shape[1]) > 0:
        least = chdtri(free, 1.0 - doubt)
        m = m + rest * np.sqrt(np.maximum(0.0, 1.0 - least / across))
    return np.asarray(m)


def absolute_noise(gaps: FloatArray) -> FloatArray:
    """What noise of variance 1 adds to absolute values: E|N(m, 1)| - |m|."""
    from scipy.special import ndtr

    m = np.abs(gaps)
    density = np.sqrt(2.0 / np.pi) * np.exp(-0.5 * np.square(m))
    return np.asarray(density - 2.0 * m * ndtr(-m))


@dataclass(frozen=True, eq=False)
class CalibrationErrors:
    """Debiased calibration errors of many models on the same ``n`` images.

    ``value``    (models,)
    ``other``    (models,): with the bins believed as soon as they leave the line at all. Bins that
                 lie above and below it in turn pull the two apart; intervals reach for both
    ``replicates``  (draws, models): the same estimate of gaps drawn about those found
    ``degrees``  degrees of freedom of the errors, by images or clusters
    """

    n: int
    value: FloatArray
    other: FloatArray
    replicates: FloatArray
    degrees: float

    def pairs(self) -> PairTests:
        """Tests of all pairs of models; the interval is both differences ± t standard errors.

        A true error is not below 0, so an estimate near 0 is hardly too high: an error falls by
        the higher of its estimates and one standard error at most. The limits of a difference come
        from those of its two errors as in Zou and Donner (2008), and never leave out 0 where t
        standard errors reach it. With 0 itself as the floor, errors 0.02 and 0 covered 86 to 93 %;
        the standard error beyond brings them back.
        """
        from scipy.special import stdtr

        clusters = int(self.degrees) + 1
        if clusters < min(LEAST_CLUSTERS, self.n):
            raise NotApplicable(
                f"{clusters} clusters are too few for a difference of calibration errors, which needs "
                f"{LEAST_CLUSTERS}",
                fix="compare nll or brier",
            )
        drawn = self.replicates - self.replicates.mean(axis=0)
        products = drawn.T @ drawn / (len(drawn) - 1.0)
        variance = np.diag(products)
        spread = variance[:, None] + variance - 2.0 * products
        scale = np.sqrt(np.maximum(spread, 0.0))
        varies = scale > 1e-9
        difference, other = (x[:, None] - x for x in (self.value, self.other))
        least, most = np.minimum(difference, other), np.maximum(difference, other)
        near = np.maximum(0.0, np.maximum(least, -most))
        own = np.sqrt(variance)
        room = np.maximum(0.0, np.maximum(self.value, self.other)) + own
        t = np.where(varies, near / np.where(varies, scale, 1.0), 0.0)

        def limits(tail: float) -> tuple[FloatArray, FloatArray]:
            quantile = t_quantile(1.0 - tail, self.degrees)
            full = quantile * scale
            # At the low limit the row falls, by a part of its reach, and the column rises in full.
            part = np.minimum(1.0, room / np.maximum(quantile * own, 1e-300))[:, None]
            bent = np.square(part) * variance[:, None] + variance - 2.0 * part * products
            half = quantile * np.sqrt(np.maximum(bent, 0.0))
            return (
                np.maximum(least - full, np.minimum(least - half, 0.0)),
                np.minimum(most + full, np.maximum(most + half.T, 0.0)),
            )

        p = np.asarray(2.0 * stdtr(self.degrees, -t))
        return PairTests(difference, p, limits, lambda: drawn, scale)


@dataclass(frozen=True, eq=False)
class BinnedGaps:
    """Mean gaps of all bins of many models, and how they vary together.

    ``gaps``, ``share``  (models, bins): mean over all images of hit less confidence in a bin; the
                         part of the images that lie in it
    ``meant``            (models, bins): standard errors of images drawn one by one, were every
                         confidence meant
    ``covariance``       (models * bins, models * bins)
    """

    n: int
    gaps: FloatArray
    share: FloatArray
    meant: FloatArray
    covariance: FloatArray
    degrees: float

    @cached_property
    def error(self) -> FloatArray:
        """Standard errors of the gaps; (models, bins)."""
        found = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return np.where(found > 1e-12, found, 0.0).reshape(self.gaps.shape)

    def debiased(self, doubt: float = 0.95) -> FloatArray:
        """The debiased error of every model; (models,)."""
        parts = zip(self.gaps, self.error, self.share, strict=True)
        return np.array([debiased_error(*part, doubt=doubt) for part in parts])

    def limits(
        self, rng: np.random.Generator, *, level: float = 0.95, replicates: int = 1000
    ) -> tuple[FloatArray, FloatArray]:
        """Limits (models,) of the true errors: the debiased ones ± t times a standard error.

        The high one starts from the most that may be there: from the line as it was found, not
        drawn to 0, or with bins believed as soon as they leave it. The standard error is that of the
        estimate, drawn again about the gaps, or of the sum of gaps with their signs held, which is
        the larger where bins go together; bins of few images have at least the noise of a calibrated
        model. The low limit is 0 where noise alone could have shown as much.
        """
        t, bins = float(t_quantile(level, self.degrees)), self.gaps.shape[1]
        normal = rng.standard_normal((replicates, bins))
        found = np.empty((2, len(self.gaps)))
        for m, (gaps, error, share) in enumerate(
            zip(self.gaps, self.error, self.share, strict=True)
        ):
            plain, known, z, line = _on_scale(gaps, error, share)
            own = slice(m * bins, (m + 1) * bins)
            scale = np.zeros(bins)
            scale[known] = np.maximum(1.0, self.meant[m, known] / error[known])
            covariance = scale[:, None] * self.covariance[own, own] * scale
            roots, vectors = np.linalg.eigh(covariance)
            noise = normal @ ((vectors * np.sqrt(np.maximum(roots, 0.0))) @ vectors.T)
            value = float(debiased_error(gaps, error, share))
            free = _true_gaps(z, line, 0.5, shrunk=False)
            s = error[known]
            straight = min(float(plain), float(np.abs(z @ line @ line.T) @ s))
            most = max(value, float(plain - absolute_noise(free) @ s), straight)
            signs = np.sign(free)
            held = max(float(signs @ covariance[np.ix_(known, known)] @ signs), 0.0)
            drawn = debiased_error(gaps + noise, error, share)
            half = t * max(float(drawn.std(ddof=1)), held**0.5)
            alone = np.quantile(np.abs(noise).sum(axis=1), (1.0 + level) / 2.0)
            chance = plain <= alone * t / normal_quantile(level)
            found[:, m] = 0.0 if chance else value - half, most + half
        low, high = np.clip(found, 0.0, 1.0)
        return low, high

    def errors(self, rng: np.random.Generator, replicates: int = 1000) -> CalibrationErrors:
        """The debiased errors with their spread: gaps drawn about those found, estimated again."""
        if self.n < LEAST_IMAGES:
            raise NotApplicable(
                f"{self.n} images are too few to tell a calibration error from noise, which takes "
                f"{LEAST_IMAGES}",
                fix="compare nll or brier",
            )
        roots, vectors = np.linalg.eigh(self.covariance)
        factor = vectors * np.sqrt(np.maximum(roots, 0.0))
        drawn = rng.standard_normal((replicates, len(factor))) @ factor.T
        drawn = self.gaps + drawn.reshape(replicates, *self.gaps.shape)
        parts = zip(np.moveaxis(drawn, 1, 0), self.error, self.share, strict=True)
        again = np.stack([debiased_error(*part) for part in parts], axis=1)
        found = self.debiased(), self.debiased(0.5)
        return CalibrationErrors(self.n, *found, again, self.degrees)


def binned_gaps(
    values: npt.ArrayLike, bins: npt.ArrayLike, count: int, *, clusters: npt.ArrayLike | None = None
) -> BinnedGaps:
    """Gaps from ``values`` (n, models), hit less confidence, in ``bins`` (n, models) below ``count``."""
    from scipy.sparse import csr_array

    data, codes = np.asarray(values, dtype=np.float64), np.asarray(bins)
    n, models = data.shape
    layout = design(n, clusters=clusters)
    unit = np.arange(n) if layout.unit_of_image is None else layout.unit_of_image
    cells = (codes + count * np.arange(models)).ravel()
    at = (np.repeat(unit, models), cells)
    sums = csr_array((data.ravel() / n, at), shape=(layout.units, models * count))
    gaps = np.asarray(sums.sum(axis=0))
    covariance = (sums.T @ sums).toarray() - np.outer(gaps, gaps) / layout.units
    share = np.bincount(cells, minlength=len(gaps)) / n
    # Of a hit or a miss at confidence c, |value| is 1 - c or c.
    spread = np.abs(data) * (1.0 - np.abs(data))
    meant = np.sqrt(np.bincount(cells, spread.ravel(), len(gaps))) / n
    return BinnedGaps(
        n,
        gaps.reshape(models, count),
        share.reshape(models, count),
        meant.reshape(models, count),
        covariance * (layout.units / (layout.units - 1.0)),
        float(layout.degrees_of_freedom),
    )
