"""What a reader of a truth gives, and matching its image ids to those of a test set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heldout.core.errors import MismatchError
from heldout.core.files import sha256_file
from heldout.data.images.sources import EXTENSIONS
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


_ILSVRC = re.compile(r"ILSVRC2012_(?:val|test)_\d{8}(?=\Z|[._])")
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})")


@dataclass(frozen=True)
class Match:
    """Which image of a test set each published id means.

    ``image_ids``   the set's id for each published id, or None where the set has no such image
    ``exact``       how many ids are equal
    ``by_name``     how many differ in folder or file ending only
    ``missing``     how many published ids the set does not have
    ``unmentioned`` how many images of the set the file does not mention
    """

    image_ids: tuple[str | None, ...]
    exact: int
    by_name: int
    missing: int
    unmentioned: int

    def to_dict(self) -> dict[str, Any]:
        """How the ids were matched, for a provenance."""
        rule = "file name without folder and ending" if self.by_name else "equal ids"
        return {
            "rule": rule,
            "exact": self.exact,
            "by_name": self.by_name,
            "not_in_testset": self.missing,
            "not_in_file": self.unmentioned,
        }

    def notes(self) -> list[str]:
        """What a person should know about the matching, if anything."""
        found = []
        if self.by_name:
            found.append(
                f"{self.by_name:,} images were matched by file name, without folder and ending"
            )
        if self.missing:
            found.append(f"{self.missing:,} images of the file are not in the test set: left out")
        return found


def name_key(image_id: str) -> str:
    """What stays of an image id without folders and file ending; the number of an ILSVRC image.

    >>> name_key("val/n01440764/ILSVRC2012_val_00000293.JPEG")
    'ILSVRC2012_val_00000293'
    >>> name_key("ILSVRC2012_val_00000293_n01440764.JPEG")
    'ILSVRC2012_val_00000293'
    """
    name = image_id.replace("\\", "/").rsplit("/", 1)[-1]
    known = _ILSVRC.match(name)
    if known:
        return known.group()
    stem, dot, ending = name.rpartition(".")
    return stem if stem and dot + ending.lower() in EXTENSIONS else name


def validation_number(image_id: str) -> int | None:
    """The number in ``ILSVRC2012_val_00000293``, from 1; None for any other image."""
    found = _VALIDATION.fullmatch(name_key(image_id))
    return int(found.group(1)) if found else None


def match_images(testset: TestSet, published: Sequence[str], *, source: str) -> Match:
    """Find each published id in a test set: the equal id, else the one image of the same name.

    A name that several images of the set share, two published ids that mean one image, and a
    file that shares no image with the set are refused. ``source`` names the file in messages.
    """
    ids: list[str] = testset.image_ids.to_pylist()
    known = set(ids)
    by_key: dict[str, list[str]] = {}
    if not all(image in known for image in published):
        for image in ids:
            by_key.setdefault(name_key(image), []).append(image)
    found: list[str | None] = []
    meant: dict[str, str] = {}
    exact = 0
    for image in published:
        if image in known:
            candidates = [image]
            exact += 1
        else:
            candidates = by_key.get(name_key(image), [])
        if len(candidates) > 1:
            raise MismatchError(
                f"{source}: {image!r} fits {len(candidates)} images of {testset.name}, such as "
                f"{candidates[0]!r} and {candidates[1]!r}",
                fix="use the ids of the test set in the file",
            )
        found.append(candidates[0] if candidates else None)
        for image_id in candidates:
            if image_id in meant:
                raise MismatchError(
                    f"{source}: names image {image_id!r} of {testset.name} twice, as "
                    f"{meant[image_id]!r} and {image!r}",
                    fix="keep one of them",
                )
            meant[image_id] = image
    if not meant:
        example = f", such as {published[0]!r}" if published else ""
        raise MismatchError(
            f"{source}: none of its {len(published)} images{example} is in test set "
            f"{testset.name}, whose ids look like {ids[0] if ids else '(none)'!r}",
            fix="check that the file belongs to this test set",
        )
    matched = sum(image is not None for image in found)
    return Match(
        image_ids=tuple(found),
        exact=exact,
        by_name=matched - exact,
        missing=len(found) - matched,
        unmentioned=len(ids) - len(meant),
    )
