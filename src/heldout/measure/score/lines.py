"""Published lines: how accuracy on usual test sets follows accuracy on the original, built in.

The table ``lines.toml`` holds facts computed by ``tools/derive_lines.py`` from two published tables
of accuracies: imagenet-testbed's (MIT) and timm's (Apache-2.0).
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources

from heldout.core.errors import NotFound
from heldout.data.testset import TestSet
from heldout.measure.score.measuring import Measured
from heldout.measure.score.robustness import ReferenceLine

SOURCES = ("imagenet-testbed", "timm")
"""Where the accuracies come from; the first that has a pair is used unless another is named."""


@lru_cache(maxsize=1)
def published_lines() -> tuple[ReferenceLine, ...]:
    """All built-in lines, in the order of the table."""
    text = (
        resources.files("heldout.measure.score").joinpath("lines.toml").read_text(encoding="utf-8")
    )
    return tuple(
        ReferenceLine(**{**entry, "covariance": tuple(entry["covariance"])})
        for entry in tomllib.loads(text)["line"]
    )


def published_line(
    testset: str | TestSet,
    baseline: str | TestSet,
    *,
    source: str | None = None,
    axes: str = "logit",
) -> ReferenceLine:
    """The built-in line of a pair of test sets, named or given; names and aliases both count.

    >>> published_line("imagenetv2-matched-frequency", "imagenet-val").models
    335
    """
    new, old = _names(testset), _names(baseline)
    of_axes = [line for line in published_lines() if line.axes == axes]
    pairs = [line for line in of_axes if line.testset in new and line.baseline in old]
    for name in SOURCES if source is None else (source,):
        for line in pairs:
            if line.source == name:
                return line
    known = sorted({f"{line.testset} on {line.baseline}" for line in of_axes})
    raise NotFound(
        f"no built-in {axes} line of {new[0]} on {old[0]}" + (f" from {source}" if source else ""),
        fix=f"give a population file; built in are {', '.join(known)}"
        if known
        else "use logit axes",
    )


def line_between(
    new: Measured, baseline: Measured, *, source: str | None = None, axes: str = "logit"
) -> ReferenceLine:
    """The built-in line of two measurements.

    A baseline that a label map has cut down to the classes of the new set goes by the name
    ``<baseline>-on-<label space>``.
    """
    names = list(_names(baseline.testset))
    if baseline.space.fingerprint != baseline.testset.label_space.fingerprint:
        names = [f"{name}-on-{baseline.space.name}" for name in names]
    found = [line for line in published_lines() if line.baseline in names]
    chosen = found[0].baseline if found else names[0]
    return published_line(new.testset, chosen, source=source, axes=axes)


def _names(testset: str | TestSet) -> Sequence[str]:
    return [testset] if isinstance(testset, str) else [testset.name, *testset.card.aliases]
