"""What the verbs about mistakes are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from heldout.core.request import (
    Cluster,
    EncoderName,
    Exclude,
    Images,
    LabelMapText,
    Level,
    Metrics,
    MinimumN,
    Name,
    Out,
    People,
    Replicates,
    Request,
    RequestError,
    Rule,
    Seed,
    Share,
    StoredModels,
    Testset,
    Top,
    Truth,
    Truths,
    Wrong,
    argument,
    needs,
    option,
    unused,
)

MistakeFiles = Annotated[
    tuple[Path, ...],
    option(
        "File of a model's mistakes (published JSON or judgements): a model that is right wherever "
        "the file is silent; repeatable.",
        flag="mistake-file",
    ),
]
Collapse = Annotated[
    str,
    option(
        "Classes that also count as right where another does: imagenet-1k, a JSON or TOML file, "
        "auto (a built-in table about these classes) or none.",
        rare=True,
    ),
]
Superclasses = Annotated[
    Path,
    option(
        "Superclasses: JSON {name: [classes]} or [[classes]], or CSV superclass,class.", rare=True
    ),
]
Fold = Annotated[bool, option("Count Borderline as Minor.")]
Average = Annotated[
    Literal["classes", "images"],
    option("Accuracy over classes or over images; classes under a multi-label truth by default."),
]


class EvidenceSources(Request, frozen=True, kw_only=True):
    """What categories of mistakes are proposed from, beside the hierarchy of the classes.

    Only what is named is used, so that a proposal does not change with the other models of a command
    or with what else a workspace holds.
    """

    superclasses: Superclasses | None = None
    peers: Annotated[
        tuple[str, ...],
        option(
            "Model whose stored predictions are evidence for categories of mistakes: name, glob or "
            "all; repeatable.",
            flag="peer",
            rare=True,
        ),
    ] = ()
    seen_together: (
        Annotated[
            str,
            option(
                "Truth that says which classes are seen together, on images that the mistakes are not "
                "judged on; the mistakes' own truth by default if it has several labels per image.",
                rare=True,
            ),
        ]
        | None
    ) = None

    @property
    def named(self) -> bool:
        """Whether anything beside the hierarchy is named."""
        return bool(self.superclasses or self.peers or self.seen_together)


class ModelMistakes(Request, frozen=True, kw_only=True):
    """The mistakes of models on a test set, stored ones or files of mistakes."""

    testset: Testset
    truths: Truths = ()
    mistake_files: MistakeFiles = ()
    top: Top | None = None
    collapse: Collapse | None = None
    label_map: LabelMapText | None = None
    level: Level = 0.95


class ConfusionsRequest(ModelMistakes, frozen=True, kw_only=True):
    """List which classes are taken for which.

    A .json file of --out is as published, [first, second, n] by class ids; .csv has names too.
    """

    models: StoredModels = ()
    exclude: Exclude = ()
    directed: Annotated[bool, option("Tell what is right from what was said.")] = False
    against: (
        Annotated[Path, option("Published file [first, second, n]: list pairs that differ.")] | None
    ) = None
    out: Out | None = None


class SharedRequest(ModelMistakes, frozen=True, kw_only=True):
    """List what models miss together, and labels to doubt.

    Counts are given under every truth of the set, pairs of models under its default one, unless
    truths are named. --out writes the images as a queue about their labels (.csv or .jsonl), to
    fill in and read back with heldout import judgements.
    """

    models: StoredModels = ()
    exclude: Exclude = ()
    wrong: Wrong | None = None
    of: Annotated[str, option("Only pairs with this model, which stands first in them.")] | None = (
        None
    )
    out: Out | None = None

    def check(self) -> None:
        """A queue asks about the labels of one truth."""
        if self.out is not None and len(self.truths) > 1:
            raise RequestError("{out} asks about one truth", fix="name one {truths}")


class MistakeDiffRequest(ModelMistakes, frozen=True, kw_only=True):
    """List what a new model fixes, breaks and still misses.

    --out writes a page (HTML) with the images.
    """

    old: Annotated[str, argument("The earlier model, or the first of two.")]
    new: Annotated[str, argument("The later model.")]
    out: Out | None = None


class SlicesRequest(Request, frozen=True, kw_only=True):
    """Search slices of up to three columns for failures.

    Corrected for the search by shuffles; where images come in clusters, found on one half and measured
    on the other.
    """

    testset: Testset
    models: StoredModels = ()
    exclude: Exclude = ()
    columns: Annotated[
        tuple[str, ...],
        option(
            "Column to search, such as x@0.3,0.6; repeatable; the class and every column but text "
            "by default.",
            flag="column",
        ),
    ] = ()
    minimum_n: MinimumN = 20
    top: Top = 10
    metrics: Metrics = ()
    truth: Truth | None = None
    cluster: Cluster | None = None
    label_map: LabelMapText | None = None
    level: Level = 0.95
    seed: Seed = 0


class CooccurrenceRequest(Request, frozen=True, kw_only=True):
    """List pairs of classes that are labels of one image.

    Labels are the image's own class and those of the set's ReaL truth, else of a multi-label one,
    unless a truth is named. Pairs of one image, or inside a superclass, are not listed.
    """

    testset: Testset
    truth: Truth | None = None
    without_truth: (
        Annotated[str, option("Leave out the images of this truth: those with judged mistakes.")]
        | None
    ) = None
    superclasses: Superclasses | None = None
    top: Top | None = None


class SummaryRequest(Request, frozen=True, kw_only=True):
    """Count judged mistakes by category and severity.

    With a test set, also the accuracy that the lists leave, if they are complete.
    """

    files: Annotated[
        tuple[Path, ...],
        argument("Files of mistakes: published JSON, or judgements (CSV, JSONL, Parquet)."),
    ]
    fold: Fold = False
    testset: Testset | None = None
    truth: Truth | None = None
    level: Level = 0.95

    def check(self) -> None:
        """A truth is one of a test set."""
        needs(self, "truth", "testset")


class ProposeRequest(EvidenceSources, frozen=True, kw_only=True):
    """Propose a category for every mistake, with evidence.

    Categories, and how bad a mistake is, are learned from judged mistakes where there are enough,
    else proposed by rules. Evidence is the hierarchy of the classes and what is named: superclasses,
    peers, a truth of several labels.
    """

    testset: Testset
    models: StoredModels = ()
    exclude: Exclude = ()
    truth: Truth | None = None
    mistake_files: MistakeFiles = ()
    judged: Annotated[
        tuple[str, ...],
        option(
            "Judged mistakes to learn from: published JSON or judgements; repeatable; the workspace's "
            "judgements by default; none: go by rules."
        ),
    ] = ()
    prototypes: (
        Annotated[
            str,
            option(
                "Column that says how typical images are of their class, such as a selection "
                "frequency: larger is more typical.",
                rare=True,
            ),
        ]
        | None
    ) = None
    encoder: EncoderName | None = None
    images: Images | None = None
    top: Top | None = None
    collapse: Collapse = "auto"
    label_map: LabelMapText | None = None
    seed: Seed = 0

    def check(self) -> None:
        """Only an encoder looks at images."""
        needs(self, "images", "encoder")


class Reviewed(Request, frozen=True, kw_only=True):
    """Predictions on a test set that people judge; by its multi-label truth unless one is named."""

    testset: Testset
    models: StoredModels = ()
    exclude: Exclude = ()
    truth: Truth | None = None
    average: Average | None = None
    people: People = 1
    collapse: Collapse | None = None
    label_map: LabelMapText | None = None
    seed: Seed = 0


class QueueRequest(Reviewed, frozen=True, kw_only=True):
    """List mistakes to judge, most informative first.

    --out writes them as a .csv or .jsonl file. Fill in answer, category, severity and who; heldout
    import judgements reads the file back. What is judged is not asked again.
    """

    aim: Annotated[
        Literal["accuracy", "hard"],
        option(
            "accuracy: what narrows the estimate of accuracy fastest; hard: mistakes on images that "
            "many models miss, for build hard."
        ),
    ] = "accuracy"
    wrong: Wrong | None = None
    top: Top | None = None
    out: Out | None = None

    def check(self) -> None:
        """Each aim has its own order."""
        if self.aim == "accuracy":
            unused(self, "{aim} accuracy", "wrong")
        else:
            unused(self, "{aim} hard", "average", "seed")


class AccuracyRequest(Reviewed, frozen=True, kw_only=True):
    """Bound accuracy where predictions are not reviewed.

    Bounds are the accuracy if all that is open were wrong, or right. The estimate rests on answers
    to the head of the queue that heldout mistakes queue writes with the same seed.
    """

    rule: Rule = "majority"
    share: Share | None = None
    level: Level = 0.95
    replicates: Replicates = 1000

    def check(self) -> None:
        """A share belongs to some rules."""
        _check_share(self)


class PanelRequest(Request, frozen=True, kw_only=True):
    """Join the rulings of reviewers; how far they agree.

    --add-truth adds a revision of the truth to the set, rulings laid over it. --out writes wrong
    pairs as a published JSON file of mistakes, only those of the models that are named.
    """

    testset: Testset
    rule: Rule = "majority"
    share: Share | None = None
    people: People = 1
    fold: Fold = True
    add_truth: Annotated[bool, option("Add a revision of the truth to the set.")] = False
    truth: Truth | None = None
    name: Name | None = None
    out: Out | None = None
    models: StoredModels = ()
    level: Level = 0.95
    seed: Seed = 0

    def check(self) -> None:
        """What only a revision, or only a file, uses."""
        _check_share(self)
        needs(self, "truth", "add_truth")
        needs(self, "name", "add_truth")
        needs(self, "models", "out")


def _check_share(request: AccuracyRequest | PanelRequest) -> None:
    if request.rule not in ("threshold", "dawid-skene"):
        unused(request, f"{{rule}} {request.rule}", "share")
    elif request.rule == "threshold" and request.share is None:
        raise RequestError("{rule} threshold needs {share}", fix="such as 0.7")
