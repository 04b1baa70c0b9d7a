"""Domain generalisation: train on some contexts of a class, test on others, at a known distance.

A *domain* is a name and the subsets that are merged under it, such as ``dog(shelf)`` from dog(desk),
dog(screen), dog(laptop) and more (Liang and Zou, MetaShift, 2022, section 4.1). The
published script lets "additional test" images into training and has no validation part; here no
image is in two parts, and validation is drawn from the training contexts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.records import Table
from heldout.curate.contexts.distance import (
    Distance,
    make_profiles,
    plain_divergences,
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
    count = np.zeros(len(subsets.image_ids), dtype=np.int64)
    for label in classes:
        mine = [place for place, subject in enumerate(subsets.subject_of) if subject == label]
        count += subsets.matrix[:, mine].sum(axis=1) > 0
    return np.flatnonzero(count > 1)


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


@dataclass(frozen=True, kw_only=True)
class ClassShift:
    """What a class trains and is tested on in the ``place``-th best way about ``wanted`` apart.

    ``train_images``, ``test_images``  what is left once test images and images of two classes are
    out of training
    """

    record: ClassVar[str] = "split"
    table: ClassVar[Table] = Table(
        "splits, distance about {wanted:g}",
        (
            *("place", "class=label", "train=trained", "test=tested", "distance=value:.3f[]"),
            *("train images=train_images:,", "test images=test_images:,"),
        ),
    )
    label: str
    train: Domain
    test: Domain
    value: float
    train_images: int
    test_images: int
    wanted: float
    low: float | None = None
    high: float | None = None
    place: int = 1

    @property
    def off(self) -> float:
        """How far the distance is from the one that was asked for."""
        return abs(self.value - self.wanted)

    # As contexts split domain takes them.

    @property
    def trained(self) -> str:  # noqa: D102
        return "+".join(self.train.subsets)

    @property
    def tested(self) -> str:  # noqa: D102
        return "+".join(self.test.subsets)


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


_EXACT = 3000
"""Of more pairs of domains, only those count whose distance comes nearest before it is corrected for
the number of images."""


def class_shifts(
    subsets: Subsets,
    label: str,
    *,
    distance: float,
    sizes: Mapping[str, int],
    test: Domain | None = None,
    minimum: int = MINIMUM,
    without: IntArray,
) -> list[ClassShift]:
    """Train and test domains of one class, nearest to ``distance`` first.

    Of those that are off by the same number of whole hundredths, the one with more images is first.

    ``sizes``    images to ``train`` and to ``test``, at least
    ``test``     this test domain and no other, however small
    ``without``  images that do not count, as sorted positions in ``subsets.image_ids``
    """
    own = subsets.of(label).at_least(minimum)
    profiles = make_profiles(own)
    domains = domains_of(own, label)
    if test is not None:
        domains.append(test)
    holds = np.array([np.isin(own.names, item.subsets) for item in domains], dtype=np.float32)
    shown = np.zeros((len(domains), len(own.image_ids)), dtype=np.float32)
    for row, item in zip(shown, domains, strict=True):
        row[item.members(own)] = 1
    shown[:, np.isin(own.image_ids, subsets.image_ids[without])] = 0
    shared = shown @ shown.T
    # Images that are left to train without those of the test, and those to test: (train, test).
    left, held = shared.diagonal()[:, None] - shared, shared.diagonal()[None, :]
    apart = holds @ holds.T == 0
    if test is not None:
        apart[:, :-1] = False
    fits = apart & (left >= sizes["train"]) & (held >= (sizes["test"] if test is None else 1))
    if not fits.any():
        best = np.where(apart, np.minimum(left, held), 0).max(initial=0)
        raise NotApplicable(
            f"class {label!r} has no two domains with {sizes['train']} images to train and enough to "
            f"test: the best has {int(best)}",
            fix="ask for fewer images, or a smaller --minimum",
        )
    collections = [profiles.collection(item.subsets) for item in domains]
    plain = np.sqrt(plain_divergences(np.array([each.profile for each in collections])))
    near = np.where(fits, np.abs(plain - distance), np.inf)

    # A pair of domains has one distance, whichever of them is tested.
    @cache
    def exact(a: int, b: int) -> float:
        return profile_distance(collections[a], collections[b], replicates=0).value

    found = [
        ClassShift(
            label=label,
            train=domains[row],
            test=domains[column],
            value=exact(min(row, column), max(row, column)),
            train_images=int(left[row, column]),
            test_images=int(held[0, column]),
            wanted=distance,
        )
        for row, column in (
            divmod(int(place), len(domains))
            for place in np.argsort(near, axis=None, kind="stable")[: min(fits.sum(), _EXACT)]
        )
    ]
    found.sort(
        key=lambda item: (
            int(item.off * 100),
            -(item.train_images + item.test_images),
            item.off,
            item.train.name,
            item.test.name,
        )
    )
    return found


def search_splits(
    subsets: Subsets,
    classes: Sequence[str],
    *,
    distance: float,
    sizes: Mapping[str, int],
    minimum: int = MINIMUM,
    limit: int = 10,
    replicates: int = 200,
    seed: int = 0,
) -> list[ClassShift]:
    """Train and test domains of each class that lie about ``distance`` apart, best first.

    ``sizes``       images to ``train`` and to ``test`` of each class, at least
    ``minimum``     smaller subsets are left out
    ``limit``       how many of each class
    ``replicates``  for the interval of the distances that are returned; 0 for none
    """
    wanted = list(dict.fromkeys(classes))
    mixed = shared_images(subsets, wanted)
    found = []
    for label in wanted:
        shifts = class_shifts(
            subsets, label, distance=distance, sizes=sizes, minimum=minimum, without=mixed
        )
        profiles = make_profiles(subsets.of(label).at_least(minimum))
        for place, item in enumerate(shifts[:limit], 1):
            far = profile_distance(
                profiles.collection(item.train.subsets),
                profiles.collection(item.test.subsets),
                replicates=replicates,
                seed=seed,
            )
            found.append(replace(item, place=place, low=far.low, high=far.high))
    return found


def nearest_training(
    subsets: Subsets,
    tests: Sequence[Domain],
    *,
    distance: float,
    images: int = 1,
    minimum: int = MINIMUM,
) -> list[Domain]:
    """For the test domains of each class, the training domains nearest to ``distance`` from them."""
    merged = _by_class(tests)
    mixed = shared_images(subsets, list(merged))
    found: list[Domain] = []
    for label, names in merged.items():
        best = class_shifts(
            subsets,
            label,
            distance=distance,
            sizes={"train": images},
            test=Domain(name=label, subsets=names),
            minimum=minimum,
            without=mixed,
        )[0]
        found.append(best.train)
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
