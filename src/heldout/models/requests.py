"""What the verbs about stored predictions are asked."""

from __future__ import annotations

from typing import Annotated

from heldout.core.request import Request, Testset, needs, option


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
