"""What a reader of a truth gives: the table, and a provenance for the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heldout.core.errors import MismatchError
from heldout.core.files import sha256_file
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa

TruthKind = Literal["single", "real", "multilabel"]

_VERSIONS = {
    "3d2068a392410a04cee532732c1f0c298e8c69535e1c391a062412ce9bc86602": "3.0.0",
    "d83e9bff374c631aae8439eb064c7019acc56e1b3bc3f56b8380c2a710b0220b": "2020, score cut 0.8",
}
"""SHA-256 of published truth files that do not say their version themselves."""


@dataclass(frozen=True, eq=False)
class TruthFile:
    """A truth read from a file: what ``add_truth(testset, name, table, provenance=...)`` takes.

    ``name``        what to call the truth unless the user says otherwise
    ``provenance``  ``kind`` (single, real or multilabel), ``source`` (file name), ``sha256``,
                    ``version``, ``counts``, ``matching`` of image ids, and what else was found
    ``notes``       what a person should know about the file, one line each
    """

    name: str
    table: pa.Table
    provenance: dict[str, Any]
    notes: tuple[str, ...] = ()


def provenance(
    kind: TruthKind,
    path: Path,
    *,
    counts: Mapping[str, int],
    version: str | None = None,
    **further: Any,
) -> dict[str, Any]:
    """The provenance of a truth; ``version`` is looked up by the file's hash where not given."""
    digest = sha256_file(path)
    return {
        "kind": kind,
        "source": path.name,
        "sha256": digest,
        "version": version or _VERSIONS.get(digest, "unknown"),
        "counts": dict(counts),
        **further,
    }


def original_classes(testset: TestSet, truth: str | None = None) -> dict[str, str]:
    """The one class of each image under a set's single-label truth, by default its ``original``.

    Empty where the set has no such truth and none was asked for.
    """
    if truth is None:
        single = [
            name for name, where in testset.card.truths.items() if where.get("kind") == "single"
        ]
        if "original" in testset.truths:
            truth = "original"
        elif single:
            truth = single[0]
        else:
            return {}
    table = testset.truth(truth)
    classes: dict[str, str] = {}
    for image, label in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        if label is not None and classes.setdefault(image, label) != label:
            raise MismatchError(
                f"truth {truth} of {testset.name} gives image {image!r} two classes",
                fix="name a truth with one class an image",
            )
    return classes
