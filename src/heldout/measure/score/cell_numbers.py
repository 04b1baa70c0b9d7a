"""The numbers that sum up two columns: symmetry and edges of a grid, interactions of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.curves import Curve
from heldout.measure.score.estimating import generator
from heldout.measure.score.interactions import interaction_weights
from heldout.measure.score.records import Summary
from heldout.measure.score.summary_records import (
    How,
    contrast,
    method_name,
    no_interval,
    place_text,
    summary,
)
from heldout.stats import joint_quantile


def symmetry(curve: Curve, how: How) -> Iterator[Summary]:
    """What the middle of a grid has over its edge, the left over the right, the top over the bottom."""
    across = 0 if curve.types[0].axis == "x" else 1
    axes = [curve.axis(across), curve.axis(1 - across)]
    cells = [(axes[0].index(text[across]), axes[1].index(text[1 - across])) for text in curve.texts]
    place = {cell: code for code, cell in enumerate(cells)}
    last = (len(axes[0]) - 1, len(axes[1]) - 1)
    mirrors = [_mirrored(axis) for axis in axes]
    edge = np.array([x in (0, last[0]) or y in (0, last[1]) for x, y in cells])
    if min(last) >= 2 and edge.any() and not edge.all():
        weights = np.where(edge, -1.0 / edge.sum(), 1.0 / (~edge).sum())
        yield from contrast(curve, "centre_over_edge", weights, how, bounded=False)
    for name, axis in (("left_over_right", 0), ("top_over_bottom", 1)):
        pairs = []
        for cell, code in place.items():
            mirror = mirrors[axis].get(cell[axis])
            other = (mirror, cell[1]) if axis == 0 else (cell[0], mirror)
            if mirror is not None and other in place and cell[axis] < mirror:
                pairs.append((code, place[other]))
        if pairs:
            weights = np.zeros(len(curve))
            for first, second in pairs:
                weights[first] += 1.0 / len(pairs)
                weights[second] -= 1.0 / len(pairs)
            yield from contrast(curve, name, weights, how, bounded=False)


def _mirrored(values: Sequence[str]) -> dict[int, int]:
    """By the place of a value on its axis: the place of the value as far from the other end.

    Values that are no numbers lie one step apart.
    """
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = list(map(float, range(len(values))))
    ends, near = min(numbers) + max(numbers), 1e-6 * (max(numbers) - min(numbers))
    return {
        i: j
        for i, one in enumerate(numbers)
        for j, other in enumerate(numbers)
        if abs(one + other - ends) <= near
    }


def interaction(curve: Curve, how: How) -> Iterator[Summary]:
    """The cell that departs most from row plus column, its limits good for all cells together."""
    models = curve.measured.models
    try:
        weights = interaction_weights(curve)
    except NotApplicable as refused:
        yield from (
            summary(curve, m, "interaction", None, reason=refused.message)
            for m in range(len(models))
        )
        return
    reason, means = no_interval(curve), curve.means
    values = weights @ means.value
    found: dict[int, Summary] = {}
    rng = generator(
        how.seed,
        curve.measured,
        f"interaction {curve.measured.metric.name} {curve.entry} {curve.support}",
    )
    for m in sorted(range(len(models)), key=lambda m: models[m]):
        at = int(np.abs(values[:, m]).argmax())
        record = replace(
            summary(curve, m, "interaction", float(values[at, m]), reason=reason),
            at=place_text(curve, at),
        )
        if reason is None:
            covariance = weights @ means.covariance[m] @ weights.T
            one = means.contrast(weights[at])
            half = float(one.error[m]) * joint_quantile(
                covariance, float(one.degrees[m]), rng=rng, level=how.level
            )
            record = replace(
                record,
                low=float(values[at, m]) - half,
                high=float(values[at, m]) + half,
                interval=method_name(curve, "t, all cells together"),
                level=how.level,
            )
        found[m] = record
    yield from (found[m] for m in sorted(found))
