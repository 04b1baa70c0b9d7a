"""Matching the image ids of a published file to those of a test set: by name, never by position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heldout.core.errors import MismatchError
from heldout.data.images.sources import EXTENSIONS
from heldout.data.testset.testset import TestSet

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
