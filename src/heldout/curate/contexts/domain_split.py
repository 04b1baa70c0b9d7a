"""Domain generalisation: train on some contexts of a class, test on others, at a known distance.

A *domain* is a name and the subsets that are merged under it, such as ``dog(shelf)`` from dog(desk),
dog(screen), dog(laptop) and more (Liang and Zou, MetaShift, 2022, section 4.1). The
published script lets "additional test" images into training and has no validation part; here no
image is in two parts, and validation is drawn from the training contexts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.curate.contexts.names import parse_subset
from heldout.curate.contexts.splits import Split, SplitRow
from heldout.curate.contexts.subpopulation import hash_order
from heldout.curate.contexts.subsets import Subsets

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Subsets of one class that are merged under one name."""

    name: str
    subsets: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.subsets:
            raise UserError(f"domain {self.name!r} has no subsets", fix="name at least one")
        classes = {parse_subset(name).subject for name in self.subsets}
        if len(classes) > 1:
            raise UserError(
                f"domain {self.name!r} mixes {' and '.join(sorted(classes))}",
                fix="keep to one class",
            )

    @property
    def label(self) -> str:
        """The class that it is of."""
        return parse_subset(self.subsets[0]).subject

    def members(self, subsets: Subsets) -> IntArray:
        """Its images as sorted positions in ``subsets.image_ids``."""
        parts = [subsets.members(name) for name in self.subsets]
        return np.unique(np.concatenate(parts))


@dataclass(frozen=True, kw_only=True)
class DomainSizes:
    """How many images a domain split takes of each class.

    ``train``, ``test``  at most so many; without it all. Too few is an error.
    ``validation``       share of the training images that validate instead
    """

    train: int | None = None
    test: int | None = None
    validation: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 <= self.validation < 1.0:
            raise UserError(f"a validation share of {self.validation}", fix="give 0 to below 1")
        for name, value in (("train", self.train), ("test", self.test)):
            if value is not None and value < 1:
                raise UserError(f"a {name} size of {value}", fix="give 1 or more")


def shared_images(subsets: Subsets, classes: Sequence[str]) -> IntArray:
    """Images of more than one of the classes, sorted positions: cat AND dog cannot be judged."""
    count = np.zeros(len(subsets.image_ids), dtype=np.int64)
    for label in classes:
        inside = np.zeros(len(subsets.image_ids), dtype=bool)
        for name, subject in zip(subsets.names, subsets.subject_of, strict=True):
            if subject == label:
                inside[subsets.members(name)] = True
        count += inside
    return np.flatnonzero(count > 1)


def domain_split(
    subsets: Subsets,
    *,
    train: Sequence[Domain],
    test: Sequence[Domain],
    sizes: DomainSizes | None = None,
    seed: int = 0,
    distances: Mapping[str, float] | None = None,
) -> Split:
    """Train on the ``train`` domains and test on the ``test`` domains, class by class.

    1. Images of two of the classes are left out, wherever they are.
    2. The test takes all images of its domains (or, of each class, the ``sizes.test`` with
       the smallest hashes).
    3. Training takes the images of its domains that are in no test domain, drawn or not;
       an image of two domains counts for the first that is named.
    4. Validation is the share of training images with the smallest hashes, class by class.

    Which images are drawn depends on ids and seed alone. ``distances``: class to the distance
    between its train and test domains, for the record.
    """
    chosen = sizes or DomainSizes()
    if not train or not test:
        raise UserError("a domain split needs train and test domains", fix="name both")
    classes = list(dict.fromkeys(item.label for item in (*test, *train)))
    for label in classes:
        if not any(item.label == label for item in train):
            raise UserError(f"class {label!r} is tested and never trained", fix="give it contexts")
    mixed = shared_images(subsets, classes)
    held = np.unique(np.concatenate([item.members(subsets) for item in test]))
    rows: dict[str, list[SplitRow]] = {"train": [], "validation": [], "test": []}
    used = mixed
    tested: dict[str, list[SplitRow]] = {}
    for item in test:
        fresh = np.setdiff1d(item.members(subsets), used, assume_unique=True)
        used = np.union1d(used, fresh)
        tested.setdefault(item.label, []).extend(_rows(subsets, fresh, item))
    used = np.union1d(mixed, held)
    trained: dict[str, list[SplitRow]] = {}
    for item in train:
        fresh = np.setdiff1d(item.members(subsets), used, assume_unique=True)
        used = np.union1d(used, fresh)
        trained.setdefault(item.label, []).extend(_rows(subsets, fresh, item))
    for label in classes:
        for part, there in (("train", trained), ("test", tested)):
            if label in there and not there[label]:
                raise UserError(
                    f"no image of class {label!r} is left for {part}", fix="name other contexts"
                )
        if label in tested:
            rows["test"] += _drawn(tested[label], chosen.test, "test", label, seed)
        members = _drawn(trained[label], chosen.train, "train", label, seed)
        number = round(chosen.validation * len(members))
        if chosen.validation and len(members) > 1:
            number = min(max(number, 1), len(members) - 1)
        # Another seed than that of the draw: the smallest hashes of all are not the easiest few.
        order = hash_order([row.image for row in members], seed=seed + 1)
        apart = set(order[:number])
        rows["validation"] += [row for row in members if row.image in apart]
        rows["train"] += [row for row in members if row.image not in apart]
    notes = (
        [f"{len(mixed)} images are of two of the classes and are left out"] if len(mixed) else []
    )
    return Split(
        parts={part: tuple(rows[part]) for part in rows if rows[part] or part != "validation"},
        rule={
            "name": "domain",
            "seed": seed,
            "train": {item.name: list(item.subsets) for item in train},
            "test": {item.name: list(item.subsets) for item in test},
            "train_size": chosen.train,
            "test_size": chosen.test,
            "validation_share": chosen.validation,
            "distances": dict(distances or {}),
        },
        notes=tuple(notes),
    )


def _rows(subsets: Subsets, images: IntArray, item: Domain) -> list[SplitRow]:
    return [SplitRow(str(image), item.label, item.name) for image in subsets.image_ids[images]]


def _drawn(
    rows: list[SplitRow], size: int | None, part: str, label: str, seed: int
) -> list[SplitRow]:
    """``size`` rows with the smallest hashes, in the order of hashes; too few is an error."""
    order = {image: n for n, image in enumerate(hash_order([r.image for r in rows], seed=seed))}
    ordered = sorted(rows, key=lambda row: order[row.image])
    if size is None:
        return ordered
    if len(ordered) < size:
        raise UserError(
            f"too few images: class {label!r} has {len(ordered)} to {part}, {size} are asked for",
            fix="ask for fewer, or name more contexts",
        )
    return ordered[:size]
