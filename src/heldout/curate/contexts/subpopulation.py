"""Subpopulation shift: in training a class is mostly seen in one context, in the test in both.

Each class has a minority group and a majority group, such as cat(outdoor) and cat(indoor). The test
has as many images of every group. Training has M minority images of a class and fills up with its
majority, so that the number of training images stays the same whatever M is, and only the mix
changes (Liang and Zou, MetaShift, 2022, section 4.2).

Two rules:

:func:`published_split`      the id lists of MetaShift's script, in its order
:func:`subpopulation_split`  our own: by the hash of each id, with a validation part
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import csv_text, existing_file
from heldout.core.schema import convert, read_plain
from heldout.curate.contexts.requests import Ambiguous
from heldout.curate.contexts.split import Split, SplitRow, read_columns
from heldout.curate.contexts.subsets import hint
from heldout.data.published.metashift import join_subset_name, split_subset_name
from heldout.data.testset.hashing import row_hash


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups with their image ids, sorted; ``notes`` say what was merged or left out."""

    images: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def groups_of(self) -> dict[str, tuple[str, ...]]:
        """Every image with all its groups, sorted."""
        found: dict[str, list[str]] = {}
        for group in sorted(self.images):
            for image in self.images[group]:
                found.setdefault(image, []).append(group)
        return {image: tuple(found[image]) for image in sorted(found)}

    def table(self) -> str:
        """As CSV with the columns image and group, which :func:`read_groups` reads back."""
        return csv_text(
            ("image", "group"),
            [(image, group) for image, groups in self.groups_of().items() for group in groups],
        )


def read_groups(path: Path) -> Groups:
    """Read CSV with the columns ``image`` and ``group``; ids are texts, as written.

    The order of rows does not matter. A row that is there twice counts once, with a note.
    """
    rows = read_columns(path, ("image", "group"), "file of groups")
    if not rows:
        raise BadFile(path, "has no rows", fix="write image,group, one image and group per line")
    found: dict[str, set[str]] = {}
    for image, group in rows:
        found.setdefault(group, set()).add(image)
    for group in found:
        split_subset_name(group)
    repeated = len(rows) - sum(map(len, found.values()))
    notes = (f"{path}: {repeated} rows are there twice and count once",) if repeated else ()
    return Groups({group: tuple(sorted(found[group])) for group in sorted(found)}, notes)


def merged_groups(
    subsets: Mapping[str, Collection[str]], scheme: Mapping[str, Sequence[str]]
) -> Groups:
    """Groups made by merging subsets, such as cat(outdoor) from cat(car), cat(fence) and more.

    ``subsets``  name to image ids; ``scheme``: group to names of subsets
    """
    found: dict[str, tuple[str, ...]] = {}
    for group, names in scheme.items():
        split_subset_name(group)
        images: set[str] = set()
        for name in names:
            if name not in subsets:
                raise NotFound(
                    f"group {group!r} is to have {name!r}, which is not a subset",
                    fix=hint(name, subsets),
                )
            images |= set(subsets[name])
        found[group] = tuple(sorted(images))
    return Groups(found)


def read_scheme(path: Path) -> dict[str, list[str]]:
    """Read which subsets make a group: TOML, ``"cat(outdoor)" = ["cat(car)", "cat(fence)"]``."""
    fix = 'write "cat(outdoor)" = ["cat(car)", …]'
    value = read_plain(existing_file(path, "scheme of groups"))
    found = convert(value.get("groups", value), dict[str, list[str]], where=path, fix=fix)
    if not found or not all(found.values()):
        raise BadFile(path, "has a group without subsets" if found else "names no groups", fix=fix)
    return found


def without_ambiguous(
    groups: Groups, used: Sequence[str], *, policy: Ambiguous = "refuse"
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The ids of the ``used`` groups with every image in one group only, and notes.

    ``refuse``     an image in two of them is the user's error
    ``drop``       it is left out
    ``published``  as MetaShift's scripts do: left out if its groups are of two classes; else it
                   belongs to the group that is named first
    """
    homes: dict[str, list[str]] = {}
    for group in used:
        for image in groups.images[group]:
            homes.setdefault(image, []).append(group)
    several = {image: names for image, names in homes.items() if len(names) > 1}
    if several and policy == "refuse":
        image = min(several)
        raise UserError(
            f"{len(several)} images are in more than one group, such as {image} in "
            f"{' and '.join(several[image])}",
            fix="give each image one group, or use --ambiguous drop or published",
        )
    kept: dict[str, list[str]] = {group: [] for group in used}
    dropped = 0
    for image, names in homes.items():
        classes = {split_subset_name(name).subject for name in names}
        if len(names) > 1 and (policy == "drop" or len(classes) > 1):
            dropped += 1
        else:
            kept[names[0]].append(image)
    said = (
        f"{len(several)} images are in more than one group: {dropped} dropped, "
        f"{len(several) - dropped} kept in the group named first"
    )
    chosen = {group: tuple(sorted(images)) for group, images in kept.items()}
    return chosen, (said,) if several else ()


_COCO_KINDS = {
    "furniture": ("chair", "couch", "potted plant", "bed", "dining table", "toilet"),
    "kitchen": ("bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl"),
    "electronic": ("tv", "laptop", "mouse", "remote", "keyboard", "cell phone"),
    "appliance": ("microwave", "oven", "toaster", "sink", "refrigerator"),
    "indoor": ("book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush"),
    "vehicle": ("bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat"),
    "outdoor": ("traffic light", "fire hydrant", "stop sign", "parking meter", "bench"),
    "sports": (
        *("frisbee", "skis", "snowboard", "sports ball", "kite", "baseball bat"),
        *("baseball glove", "skateboard", "surfboard", "tennis racket"),
    ),
}
_OUTDOOR = ("outdoor", "vehicle", "sports")
COCO_PLACES = {
    "indoor": {n for kind, names in _COCO_KINDS.items() if kind not in _OUTDOOR for n in names},
    "outdoor": {n for kind in _OUTDOOR for n in _COCO_KINDS[kind]},
}
"""COCO's categories by the place that they stand for."""


def place_groups(
    objects: Iterable[tuple[str, str]],
    subjects: Sequence[str],
) -> Groups:
    """Groups ``subject(indoor)`` and ``subject(outdoor)`` from the objects in each image.

    ``objects``   (image, object name) pairs, in any order, repeated or not
    ``subjects``  classes, such as cat and dog; an image with two of them is dropped

    An image is indoor if it shows an indoor object besides the subject, outdoor likewise; one with
    both is dropped, and one with neither has no group. The published notebook pairs object i with
    object j only for i < j, so that no cat meets a car, a bench or a person, which COCO lists
    before it; here every object counts, whatever its place in the list.
    """
    if len(set(subjects)) < len(subjects) or not subjects:
        raise UserError("subjects are missing or repeated", fix="name each class once")
    shown: dict[str, set[str]] = {}
    for image, name in objects:
        shown.setdefault(image, set()).add(name)
    found: dict[str, list[str]] = {
        join_subset_name(subject, place): [] for subject in subjects for place in COCO_PLACES
    }
    dropped = {"two of the classes": 0, "indoor and outdoor objects": 0, "neither kind": 0}
    for image in sorted(shown):
        mine = [subject for subject in subjects if subject in shown[image]]
        if not mine:
            continue
        others = shown[image] - {mine[0]}
        where = [place for place, names in COCO_PLACES.items() if others & names]
        if len(mine) > 1:
            dropped["two of the classes"] += 1
        elif len(where) > 1:
            dropped["indoor and outdoor objects"] += 1
        elif not where:
            dropped["neither kind"] += 1
        else:
            found[join_subset_name(mine[0], where[0])].append(image)
    notes = tuple(f"{n} images show {what} and are left out" for what, n in dropped.items() if n)
    return Groups({group: tuple(images) for group, images in found.items()}, notes)


LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many images a subpopulation split takes.

    ``minority_count``   M: minority images of a class in training
    ``test``             images of each group in the test
    ``minority``         images kept of each minority group before anything is drawn; without it
                         as many as the smallest one has
    ``majority``         likewise of majority groups
    ``validation``       images of each group for validation; without it what a rule says
    """

    minority_count: int
    test: int
    minority: int | None = None
    majority: int | None = None
    validation: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("minority count", self.minority_count, 0),
            ("test size", self.test, 1),
            ("minority size", self.minority, 1),
            ("majority size", self.majority, 1),
            ("validation size", self.validation, 0),
        ):
            if value is not None and value < least:
                raise UserError(f"a {name} of {value}", fix=f"give {least} or more")


@dataclass(frozen=True, kw_only=True)
class GroupPairs:
    """The minority and the majority group of each class, classes in the order given."""

    classes: tuple[str, ...]
    minority: tuple[str, ...]
    majority: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Minority groups, then majority groups."""
        return (*self.minority, *self.majority)


def pair_groups(
    groups: Groups, minority: Sequence[str], majority: Sequence[str] | None = None
) -> GroupPairs:
    """The groups of a split: without ``majority`` a class's only other group is its majority."""
    if not minority:
        raise UserError("no minority groups", fix="name one for each class")
    for group in (*minority, *(majority or ())):
        if not groups.images.get(group):
            if group in groups.images:
                raise UserError(f"group {group!r} is empty", fix="name a group with images")
            raise NotFound(f"no group {group!r}", fix=hint(group, groups.images))
    classes = [split_subset_name(group).subject for group in minority]
    for label in classes:
        if classes.count(label) > 1:
            raise UserError(f"class {label!r} has two minority groups", fix="name one per class")
    found = []
    for label, smaller in zip(classes, minority, strict=True):
        others = [
            group
            for group in (groups.images if majority is None else majority)
            if group != smaller and split_subset_name(group).subject == label
        ]
        if len(others) != 1:
            listed = f" ({', '.join(others[:5])})" if others else ""
            raise UserError(
                f"class {label!r} has {len(others)} groups besides {smaller}{listed}",
                fix="name its majority group with --majority-group" if others
                else "give a second group of the class",
            )  # fmt: skip
        found.append(others[0])
    left = set(majority or ()) - set(found)
    if left:
        raise UserError(
            f"{min(left)!r} is of a class without a minority group", fix="name that one too"
        )
    return GroupPairs(classes=tuple(classes), minority=tuple(minority), majority=tuple(found))


def published_split(
    groups: Groups,
    minority: Sequence[str],
    sizes: Sizes,
    *,
    majority: Sequence[str] | None = None,
    seed: int = 42,
    ambiguous: Ambiguous = "refuse",
) -> Split:
    """The split of MetaShift's script, the same ids in the same order for the same groups.

    1. A group's ids are sorted as texts, shuffled by a fresh ``random.Random(seed)`` and cut to
       its size.
    2. scikit-learn's ``train_test_split(test_size=…, random_state=seed)`` is called once for all
       minority groups and once for all majority groups, so that groups of a kind share a
       permutation: the first of it are the test, the rest train.
    3. A class trains on its minority's first M and on its majority from position M on.

    Rows: class by class in the order of ``minority``, in each the minority group first, then the
    majority group, ids in the order of steps 2 and 3; the test likewise. The published split has
    no validation part. ``sizes.validation`` takes one from training images that step 3 leaves
    over (the minority from M on, the majority before M), so that train and test stay as published.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"a legacy seed of {seed}", fix=f"give 0 to {LARGEST_SEED}")
    pairs = pair_groups(groups, minority, majority)
    images, notes = without_ambiguous(groups, pairs.all, policy=ambiguous)
    kept = _kept_sizes(pairs, images, sizes)
    extra = sizes.validation or 0
    m = sizes.minority_count
    _check_enough(pairs, kept, sizes.test, (m + extra, m))
    if extra > m:
        raise UserError(
            f"a validation size of {extra}: training leaves {m} images of a majority group over",
            fix=f"give {m} or less, a larger minority count, or no legacy seed",
        )

    def drawn(names: Sequence[str], size: int) -> dict[str, tuple[list[str], list[str]]]:
        permutation = np.random.RandomState(seed).permutation(size)
        found = {}
        for name in names:
            ids = sorted(images[name])
            random.Random(seed).shuffle(ids)
            ordered = [ids[position] for position in permutation]
            found[name] = (ordered[sizes.test :], ordered[: sizes.test])
        return found

    both = drawn(pairs.minority, kept[0]) | drawn(pairs.majority, kept[1])
    parts: dict[str, list[SplitRow]] = {"train": [], "validation": [], "test": []}
    for label, small, large in zip(pairs.classes, pairs.minority, pairs.majority, strict=True):
        train, test = both[small]
        rest, more = both[large]
        for part, group, ids in (
            ("train", small, train[:m]),
            ("train", large, rest[m:]),
            ("validation", small, train[m : m + extra]),
            ("validation", large, rest[:extra]),
            ("test", small, test),
            ("test", large, more),
        ):
            parts[part] += [SplitRow(image, label, group) for image in ids]
    taken = replace(sizes, minority=kept[0], majority=kept[1], validation=extra)
    return _split("published", parts, pairs, groups, notes, taken, seed, ambiguous)


def subpopulation_split(
    groups: Groups,
    minority: Sequence[str],
    sizes: Sizes,
    *,
    majority: Sequence[str] | None = None,
    seed: int = 0,
    ambiguous: Ambiguous = "refuse",
) -> Split:
    """Our own split: every group in the order of its ids' hashes, test first, then validation.

    What is drawn from a group depends on its own ids and the seed alone: the test is the same
    whatever M is, a smaller M trains on a subset of the minority images of a larger one, and a
    larger test or validation part holds the smaller. A class trains on the first M of its minority
    and the first N - M of its majority, where N, the same for all classes, is the number of
    majority images that are left to the class with fewest.

    Without ``sizes.validation`` it is half the test, or what M leaves of the smallest minority
    group if that is less.
    """
    pairs = pair_groups(groups, minority, majority)
    images, notes = without_ambiguous(groups, pairs.all, policy=ambiguous)
    m, test = sizes.minority_count, sizes.test
    kept = _kept_sizes(pairs, images, sizes)
    _check_enough(pairs, kept, test, (m, m))
    extra = sizes.validation
    if extra is None:
        extra = min(max(test // 2, 1), min(kept) - test - m)
        if extra < 1:
            raise UserError(
                f"{kept[0]} minority images are {test} for the test and {m} for training, "
                "none for validation",
                fix="take fewer, or give --sizes validation=0 to do without",
            )
    _check_enough(pairs, kept, test + extra, (m, m))
    total = kept[1] - test - extra
    parts: dict[str, list[SplitRow]] = {"train": [], "validation": [], "test": []}
    for label, small, large in zip(pairs.classes, pairs.minority, pairs.majority, strict=True):
        for group, size, wanted in ((small, kept[0], m), (large, kept[1], total - m)):
            ids = hash_order(images[group], seed=seed)[:size]
            chosen = {
                "test": ids[:test],
                "validation": ids[test : test + extra],
                "train": ids[test + extra :][:wanted],
            }
            for part, members in chosen.items():
                parts[part] += [SplitRow(image, label, group) for image in members]
    taken = replace(sizes, minority=kept[0], majority=kept[1], validation=extra)
    return _split("subpopulation", parts, pairs, groups, notes, taken, seed, ambiguous)


def hash_order(ids: Sequence[str], *, seed: int) -> list[str]:
    """Ids in the order of their hashes, ties by id."""
    hashes = row_hash(ids, seed=seed).tolist()
    return [image for _, image in sorted(zip(hashes, ids, strict=True))]


def _kept_sizes(
    pairs: GroupPairs, images: dict[str, tuple[str, ...]], sizes: Sizes
) -> tuple[int, int]:
    """Images kept of each minority and majority group; too few of any is one line with numbers."""
    short: list[str] = []
    kept = []
    for names, asked in ((pairs.minority, sizes.minority), (pairs.majority, sizes.majority)):
        there = {name: len(images[name]) for name in names}
        size = min(there.values()) if asked is None else asked
        short += [f"{name} has {n} of {size}" for name, n in there.items() if n < size]
        kept.append(size)
    empty = [name for name in pairs.all if not images[name]]
    if empty:
        raise UserError(
            f"group {empty[0]!r} is empty once ambiguous images are left out",
            fix="check the groups",
        )
    if short:
        raise UserError(f"too few images: {', '.join(short)}", fix="ask for a smaller size")
    return kept[0], kept[1]


def _check_enough(
    pairs: GroupPairs, kept: tuple[int, int], held: int, wanted: tuple[int, int]
) -> None:
    """Whether every group has enough images once ``held`` of them are held out."""
    for kind, names, size, need in zip(
        ("minority", "majority"), (pairs.minority, pairs.majority), kept, wanted, strict=True
    ):
        if size - held < need:
            raise UserError(
                f"too few images: {size} of each {kind} group ({', '.join(names)}), {held} of them "
                f"held out, leave {max(size - held, 0)} where {need} are needed",
                fix="ask for a smaller test, validation or minority count, or a larger size",
            )


def _split(
    name: str,
    parts: Mapping[str, Sequence[SplitRow]],
    pairs: GroupPairs,
    groups: Groups,
    notes: Sequence[str],
    sizes: Sizes,
    seed: int,
    ambiguous: str,
) -> Split:
    unused = [group for group in groups.images if group not in pairs.all]
    said = [*groups.notes, *notes]
    if unused:
        said.append(f"{len(unused)} groups are not used, such as {unused[0]}")
    return Split(
        parts={part: tuple(rows) for part, rows in parts.items() if rows or part != "validation"},
        rule={
            "name": name,
            "seed": seed,
            "minority_groups": list(pairs.minority),
            "majority_groups": list(pairs.majority),
            "ambiguous": ambiguous,
            "minority_size": sizes.minority,
            "majority_size": sizes.majority,
            "test_size": sizes.test,
            "minority_count": sizes.minority_count,
            "validation_size": sizes.validation,
        },
        groups=groups.groups_of(),
        notes=tuple(said),
    )


def shares_split(
    groups: Groups,
    order: Sequence[str],
    *,
    test: float = 0.25,
    validation: float = 0.1,
    seed: int = 42,
    ambiguous: Ambiguous = "refuse",
) -> Split:
    """Test and validation as shares of all images, whatever their group (SubpopBench's rule).

    Rows are numbered group by group in ``order``, ids sorted as texts. ``RandomState(seed)``
    chooses ``int(test * n)`` rows for the test, then ``int(validation * n)`` of the others, sorted,
    for validation. SubpopBench itself numbers files as its file system lists them, so sizes are as
    published (2,276, 349 and 874 of 3,499) and members are not. Rows of a part keep their order.
    """
    if not (0.0 < test < 1.0 and 0.0 <= validation < 1.0 and test + validation < 1.0):
        raise UserError(
            f"shares of {test} for the test and {validation} for validation",
            fix="leave some for training",
        )
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"a seed of {seed}", fix=f"give 0 to {LARGEST_SEED}")
    for group in order:
        if group not in groups.images:
            raise NotFound(f"no group {group!r}", fix=hint(group, groups.images))
    if not order or len(set(order)) < len(order):
        raise UserError("groups are missing or named twice", fix="name each once")
    images, notes = without_ambiguous(groups, order, policy=ambiguous)
    rows = [
        SplitRow(image, split_subset_name(group).subject, group)
        for group in order
        for image in sorted(images[group])
    ]
    generator = np.random.RandomState(seed)
    tested = generator.choice(np.arange(len(rows)), size=int(len(rows) * test), replace=False)
    others = np.setdiff1d(np.arange(len(rows)), tested)
    kept = generator.choice(others, size=int(len(rows) * validation), replace=False)
    part = np.zeros(len(rows), dtype=np.int64)
    part[kept], part[tested] = 1, 2
    names = ("train", "validation", "test")
    parts = {
        name: tuple(rows[place] for place in np.flatnonzero(part == number).tolist())
        for number, name in enumerate(names)
    }
    if not parts["test"]:
        raise UserError(f"too few images: {len(rows)} leave none for the test", fix="give more")
    return Split(
        parts={name: members for name, members in parts.items() if members},
        rule={
            "name": "shares",
            "seed": seed,
            "groups": list(order),
            "test_share": test,
            "validation_share": validation,
            "ambiguous": ambiguous,
        },
        groups=groups.groups_of(),
        notes=(*groups.notes, *notes),
    )
