"""What the doctor is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from heldout.core.request import (
    Classes,
    Images,
    Limit,
    ModelArgs,
    Order,
    Request,
    StoredModels,
    Testset,
    Truth,
    Workers,
    excludes,
    needs,
    option,
)


class DoctorRequest(Request, frozen=True, kw_only=True):
    """Look for wrong labels, orders and preprocessing.

    Of a test set and its stored models; with --file of an array that is not imported yet; with --run
    of a model's preprocessing, by running it on 128 images (--limit) under the likely others. Every
    finding comes with its evidence and the fix; errors end with exit code 1.
    """

    testset: Testset
    models: StoredModels = ()
    files: Annotated[
        tuple[Path, ...],
        option("Array of class ids or logits that is not imported yet; repeatable.", flag="file"),
    ] = ()
    order: Order | None = None
    run: Annotated[
        tuple[str, ...],
        option("Run this model (as for eval -m) under other preprocessings; repeatable."),
    ] = ()
    limit: Limit | None = None
    images: Images | None = None
    workers: Workers | None = None
    model_args: ModelArgs | None = None
    classes: Classes | None = None
    truth: Truth | None = None

    def check(self) -> None:
        """Stored models, arrays or models to run; each has options of its own."""
        excludes(self, "run", "models", "files")
        excludes(self, "files", "models")
        for name in ("order", "classes"):
            needs(self, name, "files")
        for name in ("limit", "images", "workers", "model_args"):
            needs(self, name, "run")
