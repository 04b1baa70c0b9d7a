"""What the verbs that evaluate are asked: eval, predict, score, compare, fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from heldout.core.request import (
    AbsentClasses,
    Cluster,
    Exclude,
    Images,
    LabelMapText,
    Level,
    Limit,
    Metrics,
    MinimumN,
    ModelArgs,
    Plan,
    Replicates,
    Request,
    Seed,
    Shard,
    StoredModels,
    Testsets,
    Truth,
    Workers,
    argument,
    needs,
    one_of,
    option,
    unused,
)
from heldout.measure.mistakes.requests import EvidenceSources

RunModels = Annotated[
    tuple[str, ...],
    option(
        "Model; lite0, onnx:FILE, timm:NAME, torchvision:NAME, open_clip:ARCH/TAG, file.py:object "
        "(it is run), predictions:FILE, a stored one; a glob, or all; repeatable.",
        "-m",
        flag="model",
    ),
]
By = Annotated[
    tuple[str, ...],
    option(
        "Slice by a column or a conjunction such as x&y; repeatable; the factors that the test set "
        "declares by default."
    ),
]
Balance = Annotated[
    str,
    option(
        "What is repeated at every value, such as object&background, for balanced curves and flip "
        "rates; the test set's own by default.",
        rare=True,
    ),
]
Curves = Annotated[
    bool,
    option(
        "Sum slices up as curves: area, critical and worst value, flip rate, balanced support. By "
        "default for the factors that the test set declares.",
        flag="curve",
        rare=True,
    ),
]
Baseline = Annotated[str, option("The test set that the others are compared with.")]
Keep = Annotated[
    Literal["logits", "topk"],
    option("What is stored of the outputs; logits as float16.", rare=True),
]
Rerun = Annotated[bool, option("Run models again although their outputs are stored.", rare=True)]
Metric = Annotated[str, option("Metric, such as top1, top5, mean_per_class, mla or real.")]


class Scoring(EvidenceSources, frozen=True, kw_only=True):
    """How outputs are judged: what eval and score share."""

    models: RunModels
    testsets: Testsets
    metrics: Metrics = ()
    truth: Truth | None = None
    by: By | None = None
    label_map: LabelMapText | None = None
    baseline: Baseline | None = None
    line: (
        Annotated[
            str,
            option(
                "With a baseline, the line for effective robustness: published or timm.",
                rare=True,
            ),
        ]
        | None
    ) = None
    mistakes: Annotated[bool, option("Count mistakes by category, severity and slice.")] = True
    exclude: Exclude = ()
    cluster: Cluster | None = None
    balance: Balance | None = None
    curves: Curves | None = None
    absent_classes: AbsentClasses = "error"
    on_error: Annotated[
        Literal["wrong", "drop"],
        option("Images without an output count as wrong, or drop them.", rare=True),
    ] = "wrong"
    minimum_n: MinimumN = 20
    level: Level = 0.95
    replicates: Replicates = 1000
    seed: Seed = 0

    def check(self) -> None:
        """A reference line starts at a baseline, evidence is about mistakes, curves are balanced."""
        needs(self, "line", "baseline")
        if self.curves is False:
            unused(self, "no {curves}", "balance")
        if not self.mistakes:
            unused(self, "no {mistakes}", "superclasses", "peers", "seen_together")


class EvaluateRequest(Scoring, frozen=True, kw_only=True):
    """Evaluate models: predict what is missing, score, compare, report.

    Stored predictions are used where they are of the same model and images; images that fail are
    counted as wrong and listed. The report is one HTML file.
    """

    images: Images | None = None
    keep: Keep = "logits"
    rerun: Rerun = False
    limit: Limit | None = None
    workers: Workers | None = None
    model_args: ModelArgs | None = None
    fail_under: Annotated[
        tuple[str, ...],
        option("Gate: exit 4 if a score is below, such as top1=0.75; repeatable."),
    ] = ()
    out: (
        Annotated[Path, option("Where to write; runs/eval/report.html by default.", "-o")] | None
    ) = None
    plan: Plan = False


class ScoreRequest(Scoring, frozen=True, kw_only=True):
    """Score stored predictions on test sets, with intervals."""

    models: StoredModels = ()
    pooled: Annotated[
        tuple[str, ...],
        option(
            "Use predictions stored for these sets, joined by image id; repeatable.",
            flag="from",
            rare=True,
        ),
    ] = ()
    adjust_to: (
        Annotated[
            str,
            option(
                "Also the accuracy at the true selection frequencies of this set; both have votes."
            ),
        ]
        | None
    ) = None

    def check(self) -> None:
        """Pooled predictions score revisions of a set as a whole."""
        super().check()
        if self.pooled:
            names = (
                "by",
                "label_map",
                "baseline",
                "line",
                "exclude",
                "cluster",
                "balance",
                "curves",
                "absent_classes",
                "on_error",
                "minimum_n",
                "mistakes",
                "superclasses",
                "peers",
                "seen_together",
                "adjust_to",
            )
            unused(self, "predictions of other sets", *names)


class PredictRequest(Request, frozen=True, kw_only=True):
    """Run models on test sets; the same command resumes."""

    models: RunModels
    testsets: Testsets
    images: Images | None = None
    keep: Keep = "logits"
    rerun: Rerun = False
    limit: Limit | None = None
    workers: Workers | None = None
    shard: Shard | None = None
    model_args: ModelArgs | None = None
    plan: Plan = False
    out: (
        Annotated[
            Path,
            option(
                "Where to write; the top 5 as DIR/<test set>/<model>.npy, the layout that ImageNetV2 "
                "published; models may be stored ones then.",
                "-o",
            ),
        ]
        | None
    ) = None

    def check(self) -> None:
        """Arrays are of whole sets."""
        if self.out is not None:
            unused(self, "{out}", "shard", "plan")


class CompareRequest(Request, frozen=True, kw_only=True):
    """Compare models on the same images: differences, intervals, p.

    Each is compared with the first; intervals and p values are corrected for all comparisons
    together.
    """

    models: Annotated[tuple[str, ...], argument("Two or more models with stored predictions.")]
    testsets: Testsets
    metric: Metric = "top1"
    truth: Truth | None = None
    by: By = ()
    cluster: Cluster | None = None
    all_pairs: Annotated[bool, option("Compare every model with every other.")] = False
    consistency: Annotated[bool, option("Error consistency (kappa of being right) instead.")] = (
        False
    )
    level: Level = 0.95
    replicates: Replicates = 1000
    seed: Seed = 0

    def check(self) -> None:
        """Kappas are of whole sets."""
        if self.consistency:
            unused(self, "consistency", "by")


class FitRequest(Request, frozen=True, kw_only=True):
    """Fit new on original accuracy, of stored or of published models."""

    testsets: Testsets = ()
    baseline: Baseline | None = None
    models: StoredModels = ()
    exclude: Exclude = ()
    metric: Metric = "top1"
    population: Annotated[
        tuple[Path, ...],
        option("CSV of published accuracies; give two to join them by model and img_size."),
    ] = ()
    x: Annotated[str, option("Population: the column of original accuracies.")] | None = None
    y: Annotated[str, option("Population: the column of new accuracies.")] | None = None
    level: Level = 0.95

    def check(self) -> None:
        """Stored predictions, or a table of published accuracies."""
        one_of(self, "testsets", "population")
        needs(self, "testsets", "baseline")
        needs(self, "population", "x")
        needs(self, "population", "y")
        if self.population:
            unused(self, "a population", "baseline", "models", "metric")
        else:
            unused(self, "stored predictions", "x", "y")
