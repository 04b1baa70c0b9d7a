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


class ListRequest(Request, frozen=True, kw_only=True):
    """List test sets with the models stored, and pools."""

    columns: Annotated[bool, option("Also list columns and truths.")] = False


class PruneRequest(Request, frozen=True, kw_only=True):
    """List, and with --delete remove, what is left over.

    That is leftovers of interrupted work, predictions on images that no test set has, and the stored
    predictions of models that are named.
    """

    models: Annotated[
        tuple[str, ...],
        option(
            "Model; stored predictions of those that match go too; repeatable.", "-m", flag="model"
        ),
    ] = ()
    testset: Testset | None = None
    delete: Annotated[bool, option("Remove; without it, only a list.")] = False

    def check(self) -> None:
        """A test set narrows models."""
        needs(self, "testset", "models")


class ImportPredictionsRequest(Request, frozen=True, kw_only=True):
    """Import outputs of models: top-k or logits."""

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
    replace: Replace = False
