"""Domain generalisation: train on some contexts of a class, test on others, at a known distance.

A *domain* is a name and the subsets that are merged under it, such as ``dog(shelf)`` from dog(desk),
dog(screen), dog(laptop) and more (Liang and Zou, MetaShift, 2022, section 4.1). The
published script lets "additional test" images into training and has no validation part; here no
image is in two parts, and validation is drawn from the training contexts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.contexts.distance import (
    Distance,
    make_profiles,
    profile_distance,
)
from heldout.curate.contexts.distance import distance as distance_between
from heldout.curate.contexts.graph import MINIMUM, meta_graph
from heldout.curate.contexts.split import Split, SplitRow
from heldout.curate.contexts.subsets import IntArray, Subsets, names_in
from heldout.data.published.metashift import join_subset_name, split_subset_name
from heldout.data.testset.hashing import row_hash


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Subsets of one class that are merged under one name."""

    name: str
    subsets: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.subsets:
            raise UserError(f"domain {self.name!r} has no subsets", fix="name at least one")
        classes = {split_subset_name(name).subject for name in self.subsets}
        if len(classes) > 1:
            raise UserError(
                f"domain {self.name!r} mixes {' and '.join(sorted(classes))}",
                fix="keep to one class",
            )

    @classmethod
    def parse(cls, text: str, known: Collection[str] = ()) -> Domain:
        """A domain as it is written, ``A+B`` or ``NAME=A+B``; without a name it has its contexts'."""
        name, equals, rest = text.partition("=")
        names = tuple(names_in(rest if equals else text, known))
        if not equals and len(names) > 1:
            words = [split_subset_name(item).context for item in names]
            name = join_subset_name(split_subset_name(names[0]).subject, "+".join(words))
        return cls(name=name.strip(), subsets=names)

    @property
    def label(self) -> str:
        """The class that it is of."""
        return split_subset_name(self.subsets[0]).subject

    def members(self, subsets: Subsets) -> IntArray:
        """Its images as sorted positions in ``subsets.image_ids``."""
        parts = [subsets.members(name) for name in self.subsets]
        return np.unique(np.concatenate(parts))


def shared_images(subsets: Subsets, classes: Sequence[str]) -> IntArray:
    """Images of more than one of the classes, sorted positions: cat AND dog cannot be judged."""
    shown = np.concatenate([subsets.of(label).image_ids for label in classes])
    images, classes_of = np.unique(shown, return_counts=True)
    return np.flatnonzero(np.isin(subsets.image_ids, images[classes_of > 1]))


def domain_split(
    subsets: Subsets,
    *,
    train: Sequence[Domain],
    test: Sequence[Domain],
    sizes: Mapping[str, int],
    validation: float = 0.1,
    seed: int = 0,
    distances: Mapping[str, float] | None = None,
) -> Split:
    """Train on the ``train`` domains and test on the ``test`` domains, class by class.

    1. Images of two of the classes are left out, wherever they are.
    2. The test takes all images of its domains (or, of each class, the ``sizes["test"]`` with
       the smallest hashes).
    3. Training takes the images of its domains that are in no test domain, drawn or not;
       an image of two domains counts for the first that is named. ``sizes["train"]`` bounds it.
    4. Validation is the share of training images with the smallest hashes, class by class.

    Which images are drawn depends on ids and seed alone. ``distances``: class to the distance
    between its train and test domains, for the record.
    """
    classes = list(dict.fromkeys(item.label for item in (*test, *train)))
    for label in classes:
        if not any(item.label == label for item in train):
            raise UserError(f"class {label!r} is tested and never trained", fix="give it contexts")
    mixed = shared_images(subsets, classes)
    held = np.unique(np.concatenate([item.members(subsets) for item in test]))
    rows: dict[str, list[SplitRow]] = {"train": [], "validation": [], "test": []}
    tested = _rows_by_class(subsets, test, without=mixed)
    trained = _rows_by_class(subsets, train, without=np.union1d(mixed, held))
    for label in classes:
        for part, there in (("train", trained), ("test", tested)):
            if label in there and not there[label]:
                raise UserError(
                    f"no image of class {label!r} is left for {part}", fix="name other contexts"
                )
        if label in tested:
            rows["test"] += _drawn(tested[label], sizes.get("test"), "test", label, seed)
        members = _drawn(trained[label], sizes.get("train"), "train", label, seed)
        number = round(validation * len(members))
        if validation and len(members) > 1:
            number = min(max(number, 1), len(members) - 1)
        # Another seed than that of the draw: the smallest hashes of all are not the easiest few.
        apart = set(_by_hash(members, seed + 1)[:number])
        rows["validation"] += [row for row in members if row in apart]
        rows["train"] += [row for row in members if row not in apart]
    said = f"{len(mixed)} images are of two of the classes and are left out"
    return Split(
        parts={part: rows[part] for part in rows if rows[part] or part != "validation"},
        rule={
            "name": "domain",
            "seed": seed,
            "train": {item.name: list(item.subsets) for item in train},
            "test": {item.name: list(item.subsets) for item in test},
            "train_size": sizes.get("train"),
            "test_size": sizes.get("test"),
            "validation_share": validation,
            "distances": dict(distances or {}),
        },
        notes=(said,) if len(mixed) else (),
    )


def _rows_by_class(
    subsets: Subsets, domains: Sequence[Domain], *, without: IntArray
) -> dict[str, list[SplitRow]]:
    """The images of domains by class; one that is in two counts for the first."""
    found: dict[str, list[SplitRow]] = {}
    for item in domains:
        fresh = np.setdiff1d(item.members(subsets), without, assume_unique=True)
        without = np.union1d(without, fresh)
        found.setdefault(item.label, []).extend(
            SplitRow(str(image), item.label, item.name) for image in subsets.image_ids[fresh]
        )
    return found


def _drawn(
    rows: list[SplitRow], size: int | None, part: str, label: str, seed: int
) -> list[SplitRow]:
    """``size`` rows with the smallest hashes, in the order of hashes; too few is an error."""
    ordered = _by_hash(rows, seed)
    if size is None:
        return ordered
    if len(ordered) < size:
        raise UserError(
            f"too few images: class {label!r} has {len(ordered)} to {part}, {size} are asked for",
            fix="ask for fewer, or name more contexts",
        )
    return ordered[:size]


def _by_hash(rows: list[SplitRow], seed: int) -> list[SplitRow]:
    """Rows in the order of the hashes of their images, ties by id."""
    hashes = row_hash([row.image for row in rows], seed=seed).tolist()
    return [row for _, row in sorted(zip(hashes, rows, strict=True))]


def domains_of(subsets: Subsets, label: str) -> list[Domain]:
    """The communities of a class, then its single subsets that are not one already.

    A community is named after its largest subsets: ``dog(bed+sofa+3)`` is those two and three more.
    """
    graph = meta_graph(subsets, label, minimum=1)
    found: list[Domain] = []
    for community in graph.communities:
        ordered = sorted(community, key=lambda place: (-int(graph.sizes[place]), place))
        words = [split_subset_name(graph.subsets[place]).context for place in ordered]
        more = [str(len(words) - 2)] if len(words) > 2 else []
        names = tuple(graph.subsets[place] for place in community)
        name = join_subset_name(label, "+".join(words[:2] + more)) if len(words) > 1 else names[0]
        found.append(Domain(name=name, subsets=names))
    alone = {domain.subsets[0] for domain in found if len(domain.subsets) == 1}
    return found + [Domain(name=n, subsets=(n,)) for n in graph.subsets if n not in alone]


def nearest_training(
    subsets: Subsets,
    tests: Sequence[Domain],
    *,
    distance: float,
    images: int = 1,
    minimum: int = MINIMUM,
) -> list[Domain]:
    """For the test domains of each class, the training domain nearest to ``distance`` from them.

    Of those that are off by the same number of whole hundredths, the one with more images.

    ``images``  to train, at least: neither of the test nor of two of the classes
    """
    merged = _by_class(tests)
    mixed = subsets.image_ids[shared_images(subsets, list(merged))]
    found: list[Domain] = []
    for label, names in merged.items():
        own = subsets.of(label).at_least(minimum)
        profiles = make_profiles(own)
        held = Domain(name=label, subsets=names).members(own)
        taken = np.union1d(held, np.flatnonzero(np.isin(own.image_ids, mixed)))
        left = {
            item: len(np.setdiff1d(item.members(own), taken))
            for item in domains_of(own, label)
            if not set(item.subsets) & set(names)
        }
        test = profiles.collection(names)
        off = {
            item: abs(
                profile_distance(profiles.collection(item.subsets), test, replicates=0).value
                - distance
            )
            for item, number in left.items()
            if number >= images
        }
        if not off:
            raise NotApplicable(
                f"class {label!r} has no contexts with {images} images to train: the best have "
                f"{max(left.values(), default=0)}",
                fix="ask for fewer images, or a smaller --minimum",
            )
        found.append(
            min(off, key=lambda item: (int(off[item] * 100), -left[item], off[item], item.name))
        )
    return found


def split_distances(
    subsets: Subsets,
    train: Sequence[Domain],
    test: Sequence[Domain],
    *,
    minimum: int = MINIMUM,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Distance]:
    """For each class that is tested, the distance from all that it trains on to all of its test."""
    trained, tested = _by_class(train), _by_class(test)
    found = {}
    for label, names in tested.items():
        if label not in trained:
            raise UserError(f"class {label!r} is tested and never trained", fix="give it contexts")
        found[label] = distance_between(
            subsets,
            trained[label],
            names,
            minimum=minimum,
            replicates=replicates,
            seed=seed,
        )
    return found


def _by_class(domains: Sequence[Domain]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for domain in domains:
        names = (*found.get(domain.label, ()), *domain.subsets)
        found[domain.label] = tuple(dict.fromkeys(names))
    return found
