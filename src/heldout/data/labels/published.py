"""Published test sets that use some of ImageNet-1k's classes, with their clean baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heldout.core.errors import LabelError
from heldout.data.labels.label_maps import LabelMap, Reading
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.map_kinds import subset_map


@dataclass(frozen=True, kw_only=True)
class PublishedSubset:
    """A test set over some of ImageNet-1k's classes.

    ``name``      also the name of its built-in label space
    ``reading``   how its authors score it
    ``baseline``  the test set whose images of the same classes are its clean baseline. Judged with
                  the same map, they give the accuracy that a drop is measured from; accuracy over
                  all 1,000 classes would not do, being an argmax over more classes.
    ``citation``  where it comes from
    """

    name: str
    reading: Reading
    baseline: str
    citation: str

    @property
    def class_ids(self) -> tuple[str, ...]:
        """The ids of its classes, sorted."""
        return LabelSpace.load(self.name).ids


PUBLISHED_SUBSETS: Mapping[str, PublishedSubset] = {
    item.name: item
    for item in (
        PublishedSubset(
            name="imagenet-a",
            reading="restricted",
            baseline="imagenet-validation-original",
            citation="Hendrycks, Zhao, Basart, Steinhardt, Song: Natural Adversarial Examples, "
            "CVPR 2021",
        ),
        PublishedSubset(
            name="imagenet-r",
            reading="restricted",
            baseline="imagenet-validation-original",
            citation="Hendrycks et al.: The Many Faces of Robustness, ICCV 2021",
        ),
    )
}


def published_map(name: str, *, reading: Reading | None = None) -> LabelMap:
    """The map from ImageNet-1k to a published subset, under its authors' reading or another."""
    if name not in PUBLISHED_SUBSETS:
        raise LabelError(
            f"no built-in label map {name!r}", fix=f"use one of {', '.join(PUBLISHED_SUBSETS)}"
        )
    chosen = reading or PUBLISHED_SUBSETS[name].reading
    return subset_map(LabelSpace.load("imagenet-1k"), LabelSpace.load(name), reading=chosen)
