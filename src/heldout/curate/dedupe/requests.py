"""What the verbs of near duplicates are asked: dedupe, calibrate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from heldout.core.request import (
    Images,
    Limit,
    Out,
    Plan,
    Replace,
    Request,
    RequestError,
    Seed,
    StoredModels,
    Workers,
    argument,
    needs,
    option,
    unused,
)
from heldout.core.workspace import check_slug

Measure = Literal["l2", "features", "dssim", "hash"]
Device = Literal["auto", "cpu", "cuda"]
Features = Annotated[str, option("Model whose features are compared.", flag="features-of")]
Measures = Annotated[
    tuple[Measure, ...],
    option("How images are compared; repeatable: l2, features, dssim or hash.", flag="compare-by"),
]


class DedupeRequest(Request, frozen=True, kw_only=True):
    """Find images that a set has twice, or shares with others.

    A page shows the pairs, and the score of every stored model without the images that leaked;
    a CSV file beside it asks people about open pairs, and heldout import judgements reads it back.
    What people say holds in every later run, and heldout eval counts it.
    """

    testset: Annotated[str, argument("The test set or pool.")]
    references: Annotated[
        tuple[str, ...],
        option(
            "Set or folder to compare with, such as the training images; repeatable. NAME=FOLDER names a "
            "folder. The set itself always is.",
            flag="reference",
        ),
    ] = ()
    measures: Measures = ("l2", "features")
    features: Features = "lite0"
    thresholds: Annotated[
        Mapping[Measure, float],
        option(
            "MEASURE=DISTANCE: pairs at most this far apart count as found; calibrated or published "
            "ones by default.",
            flag="up-to",
        ),
    ] = {}
    near_classes: (
        Annotated[
            int, option("Compare only with images of this many similar classes.", ge=1, rare=True)
        ]
        | None
    ) = None
    top: Annotated[
        int,
        option("Keep at most this many, best first; neighbours of each image.", rare=True, ge=1),
    ] = 100
    forget: Annotated[
        tuple[str, ...],
        option(
            "Set that was compared with, and does not count any more; repeatable.",
            rare=True,
        ),
    ] = ()
    accept: Annotated[
        bool, option("Take found pairs for duplicates, as a judgement that people may replace.")
    ] = False
    name: (
        Annotated[str, option("Its name; the set without its duplicates is written under it.")]
        | None
    ) = None
    frequency: (
        Annotated[
            str, option("Column: of several duplicates the one with the highest value stays.")
        ]
        | None
    ) = None
    photo: (
        Annotated[str, option("Column: images of one photo are duplicates.", rare=True)] | None
    ) = None
    models: StoredModels = ()
    out: Out | None = None
    replace: Replace = False
    images: Images | None = None
    memory: Annotated[float, option("Gigabytes that comparing may take.", rare=True, gt=0)] = 1.0
    device: Annotated[Device, option("Where to compare.", rare=True)] = "auto"
    workers: Workers | None = None
    plan: Plan = False

    def check(self) -> None:
        """Thresholds are of measures that are used; which image stays is asked for a new set."""
        for measure in self.thresholds:
            if measure not in self.measures:
                raise RequestError(
                    f"{{thresholds}} names {measure}, which is not compared by",
                    fix=f"add {{measures}} {measure}",
                )
        for measure, distance in self.thresholds.items():
            if not 0 <= distance < math.inf:
                raise RequestError(
                    f"{{thresholds}} {measure}={distance} is not a distance", fix="give 0 or more"
                )
        if self.name is not None:
            check_slug(self.name, "test set")
        if "features" not in self.measures:
            unused(self, "{measures} without features", "features")
        needs(self, "replace", "name")


class CalibrateRequest(Request, frozen=True, kw_only=True):
    """Find the distance below which two images are duplicates.

    The threshold is the largest distance that keeps false alarms among different photos as rare as
    asked. Half of the photos set it. The other half says how many false alarms it has, and how many
    planted copies it finds: cropped, rescaled, compressed, brightened and so on. It holds in this
    workspace.
    """

    testset: Annotated[str, argument("A test set, pool or folder of photos, all different.")]
    measures: Measures = ("features",)
    features: Features = "lite0"
    false_alarms: Annotated[
        float, option("False alarms among pairs of different photos.", gt=0, lt=1)
    ] = 1e-4
    limit: Limit = 1000
    seed: Seed = 0
    images: Images | None = None
    workers: Workers | None = None

    def check(self) -> None:
        """A model matters only where features are compared."""
        if "features" not in self.measures:
            unused(self, "{measures} without features", "features")
