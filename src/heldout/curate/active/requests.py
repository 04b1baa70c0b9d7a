"""What the verbs that spend labels are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from heldout.core.request import (
    ClassColumn,
    Domain,
    Folds,
    FrozenFeatures,
    Images,
    Out,
    Replicates,
    Request,
    RequestError,
    Seed,
    Shard,
    Truth,
    Workers,
    argument,
    excludes,
    option,
)

PARTS = ("train", "validation", "test")
"""The parts of a labelling task."""

Budget = Annotated[int, option("Images to label; of a run, in each of its rounds.", "-n", ge=1)]


class Labelling(Request, frozen=True, kw_only=True):
    """Images of several domains, and the classifier that is trained on labels of some of them."""

    pool: Annotated[str, argument("Pool, test set or folder of images.")]
    features: FrozenFeatures | None = None
    domain: Domain = "domain"
    trainer: Annotated[
        str, option("logistic, logistic:STRENGTH, or file.py:object (it is run).", rare=True)
    ] = "logistic"
    seed: Seed = 0
    images: Images | None = None
    workers: Workers | None = None


class StudyRequest(Labelling, frozen=True, kw_only=True):
    """Try strategies for labelling on labelled images, by domain.

    Accuracy over the number of labels, with intervals over seeds and images, and every strategy's
    difference to the first one named. The domain folder:1 is the first folder of an image's path.
    """

    strategies: Annotated[
        tuple[str, ...],
        option(
            "SELECTOR or SELECTOR+ALLOCATOR; several with commas; all for every one; repeatable.",
            "-s",
            flag="strategy",
        ),
    ] = ()
    initial: Annotated[int, option("First labels, drawn evenly.", ge=1)] = 60
    budget: Budget = 20
    rounds: Annotated[int, option("Rounds after the first labels.", ge=0)] = 10
    seeds: Annotated[int, option("Runs of each strategy.", ge=1)] = 5
    truth: Truth | None = None
    class_column: ClassColumn | None = None
    split_column: (
        Annotated[str, option("Column with train, validation, test; drawn by default.")] | None
    ) = None
    replicates: Replicates = 1000
    transfer: (
        Annotated[
            int,
            option(
                "Also train on N images of one domain at a time: what that predicts of efficiency.",
                rare=True,
                ge=1,
            ),
        ]
        | None
    ) = None
    shard: Shard | None = None

    def check(self) -> None:
        """Classes are of a truth or of a column."""
        excludes(self, "truth", "class_column")
        if self.transfer is not None and not self.rounds:
            raise RequestError("{transfer} needs rounds that select", fix="leave it out")


class NextRequest(Labelling, frozen=True, kw_only=True):
    """Choose the next images of a pool to label.

    They are written as a CSV file, which is given back with --labelled once class_id is filled in.
    The domain folder:1 is the first folder of an image's path.
    """

    budget: Budget
    out: Out
    labelled: Annotated[
        tuple[Path, ...],
        option("Labels so far: CSV or JSON lines of image_id, class_id; repeatable."),
    ] = ()
    strategy: Annotated[str, option("SELECTOR or SELECTOR+ALLOCATOR.", "-s")] = "margin"
    folds: Folds = 5
