"""Derive ``src/heldout/measure/score/lines.toml``: lines through published accuracies of many models.

    python tools/derive_lines.py REFERENCE_FOLDER [--check]

The folder holds ``imagenet-testbed/robustness_top1s.csv`` (MIT) and timm's ``results-*.csv``
(Apache-2.0). Only facts are written: slopes, intercepts, r2, counts and the covariance over
models; no row of either table.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heldout.core.errors import UserError
from heldout.core.files import write_text
from heldout.measure.score.fits import ReferenceLine, read_population, reference_line

TARGET = Path(__file__).parent.parent / "src" / "heldout" / "measure" / "score" / "lines.toml"
TESTBED = "imagenet-testbed/robustness_top1s.csv"
# new test set, baseline, their columns in imagenet-testbed's table
TESTBED_PAIRS = (
    (
        "imagenetv2-matched-frequency",
        "imagenet-val",
        "imagenetv2-matched-frequency-format-val",
        "val",
    ),
    ("imagenetv2-threshold0.7", "imagenet-val", "imagenetv2-threshold-0.7-format-val", "val"),
    ("imagenetv2-top-images", "imagenet-val", "imagenetv2-top-images-format-val", "val"),
    ("imagenet-sketch", "imagenet-val", "imagenet-sketch", "val"),
    ("imagenet-a", "imagenet-val-on-imagenet-a", "imagenet-a", "val-on-imagenet-a-classes"),
    ("imagenet-r", "imagenet-val-on-imagenet-r", "imagenet-r", "val-on-imagenet-r-classes"),
    ("objectnet", "imagenet-val-on-objectnet", "objectnet-1.0-beta", "val-on-objectnet-classes"),
)
# new test set, baseline, their files among timm's tables (column top1, joined on model and img_size)
TIMM_PAIRS = (
    ("imagenetv2-matched-frequency", "imagenet-val", "imagenetv2-matched-frequency", "imagenet"),
    ("imagenet-sketch", "imagenet-val", "sketch", "imagenet"),
    ("imagenet-a", "imagenet-val-on-imagenet-a", "imagenet-a", "imagenet-a-clean"),
    ("imagenet-r", "imagenet-val-on-imagenet-r", "imagenet-r", "imagenet-r-clean"),
)
HEAD = """\
# Lines of accuracy on a new test set (y) against the original (x), over published models:
# logit(y) = slope * logit(x) + intercept, ordinary least squares, accuracies as fractions.
# covariance: variance of the slope, covariance, variance of the intercept, over models.
# Written by tools/derive_lines.py from imagenet-testbed's table (MIT) and timm's (Apache-2.0).
# imagenet-val-on-X: validation images of X's classes, argmax over these classes.

schema_version = 1
"""


def derive(folder: Path) -> list[ReferenceLine]:
    """All lines, from the published tables."""
    found = []
    for testset, baseline, y, x in TESTBED_PAIRS:
        population = read_population([folder / TESTBED], x=x, y=y)
        found.append(
            reference_line(
                population,
                testset=testset,
                baseline=baseline,
                source="imagenet-testbed",
            )
        )
    for testset, baseline, y, x in TIMM_PAIRS:
        files = [folder / "timm" / f"results-{name}.csv" for name in (x, y)]
        population = read_population(files, x="top1", y="top1")
        found.append(
            reference_line(
                population,
                testset=testset,
                baseline=baseline,
                source="timm",
            )
        )
    return found


def to_toml(lines: list[ReferenceLine]) -> str:
    """The table, numbers to six significant digits."""
    parts = [HEAD]
    for line in lines:
        covariance = ", ".join(f"{value:.6g}" for value in line.covariance)
        parts.append(
            f"""
[[line]]
testset = "{line.testset}"
baseline = "{line.baseline}"
axes = "{line.axes}"
slope = {line.slope:.6g}
intercept = {line.intercept:.6g}
r2 = {line.r2:.6g}
models = {line.models}
covariance = [{covariance}]
source = "{line.source}"
"""
        )
    return "".join(parts)


def main() -> int:
    """Write the table, or compare it with what is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    try:
        text = to_toml(derive(arguments.folder))
    except UserError as error:
        print(error.line, file=sys.stderr)
        return 2
    if arguments.check:
        same = TARGET.read_text(encoding="utf-8") == text
        print("same" if same else f"{TARGET.name} differs")
        return 0 if same else 1
    write_text(TARGET, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
