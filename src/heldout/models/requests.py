"""What the verbs about stored predictions are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from heldout.core.request import (
    Classes,
    Name,
    Order,
    Replace,
    Request,
    Testset,
    argument,
    needs,
    option,
)


class List(Request, frozen=True, kw_only=True):
    """List test sets and the models that have predictions on them, and pools."""

    columns: Annotated[bool, option("Also list columns and truths.")] = False


class Prune(Request, frozen=True, kw_only=True):
    """List (and with --delete remove) leftovers, orphaned predictions, and models named by glob."""

    models: Annotated[
        tuple[str, ...],
        option("Also stored predictions of models that match; repeatable.", "-m", flag="model"),
    ] = ()
    testset: Testset | None = None
    delete: Annotated[bool, option("Remove; without it, only a list.")] = False

    def check(self) -> None:
        """A test set narrows models."""
        needs(self, "testset", "models")


class ImportPredictions(Request, frozen=True, kw_only=True):
    """Import outputs of models: top-k or logits, filed under image ids."""

    paths: Annotated[
        tuple[Path, ...],
        argument(
            "Files of one test set (with -t), or one folder <set>/<model>.npy for many.",
            min_length=1,
        ),
    ]
    testset: Testset | None = None
    name: Name | None = None
    order: Order = "testset"
    classes: Classes | None = None
    array: Annotated[str, option("Which array of an .npz file.")] | None = None
    repair: Annotated[bool, option("Turn columns stored worst first round, with a note.")] = True
    replace: Replace = False
