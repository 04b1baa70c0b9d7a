"""Class numbers in published files, as class ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import BadFile


def class_ids(classes: Sequence[str] | None) -> Sequence[str]:
    """The ids in order: ``classes``, or those of ImageNet-1k (WordNet ids) when it is None."""
    if classes is not None:
        return classes
    from heldout.data.labels import LabelSpace

    return LabelSpace.load("imagenet-1k").ids


def class_of(number: object, ids: Sequence[str], path: Path, where: str) -> str:
    """The id of class ``number``; a number outside the label space is the file's fault."""
    known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(ids)
    if not isinstance(number, int) or not known:
        raise BadFile(
            path,
            f"{where} names class {number!r}",
            fix=f"class numbers run from 0 to {len(ids) - 1}; give the right list of classes",
        )
    return ids[number]
