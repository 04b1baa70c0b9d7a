"""Subpopulation shift: in training a class is mostly seen in one context, in the test in both.

Each class has a minority group and a majority group, such as cat(outdoor) and cat(indoor). The test
has as many images of every group. Training has M minority images of a class and fills up with its
majority, so that the number of training images stays the same whatever M is, and only the mix
changes (Liang and Zou, MetaShift, 2022, section 4.2).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import csv_text, existing_file
from heldout.core.schema import read
from heldout.curate.contexts.split import Split, SplitRow, read_columns
from heldout.curate.contexts.subsets import Subsets, hint
from heldout.data.published.metashift import join_subset_name, split_subset_name


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups with their image ids, no image in two; ``notes`` say what was left out."""

    images: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()

    def group_of(self) -> dict[str, str]:
        """Every image with its group, sorted."""
        found = {image: group for group, images in self.images.items() for image in images}
        return dict(sorted(found.items()))

    def table(self) -> str:
        """As CSV with the columns image and group, which :func:`read_groups` reads back."""
        return csv_text(("image", "group"), list(self.group_of().items()))


def read_groups(path: Path) -> Groups:
    """Read a table with the columns ``image`` and ``group``; ids are texts, as written.

    The order of rows does not matter. An image in two groups is refused.
    """
    found: dict[str, list[str]] = {}
    homes: dict[str, str] = {}
    for image, group in sorted(set(read_columns(path, ("image", "group")))):
        split_subset_name(group)
        if image in homes:
            raise BadFile(
                path,
                f"image {image} is in {homes[image]} and in {group}",
                fix="give each image one group",
            )
        homes[image] = group
        found.setdefault(group, []).append(image)
    if not found:
        raise BadFile(path, "has no rows", fix="write image,group, one image and group per line")
    return Groups({group: found[group] for group in sorted(found)})


def merged_groups(subsets: Subsets, scheme: Mapping[str, Sequence[str]]) -> Groups:
    """Groups made by merging subsets, such as cat(outdoor) from cat(car), cat(fence) and more.

    As MetaShift's scripts do, an image whose groups are of two classes is left out; one in two
    groups of a class belongs to the group that is named first.
    """
    homes: dict[str, list[str]] = {}
    for group, names in scheme.items():
        split_subset_name(group)
        places = np.unique(np.concatenate([subsets.members(name) for name in names]))
        for image in subsets.image_ids[places]:
            homes.setdefault(str(image), []).append(group)
    kept: dict[str, list[str]] = {group: [] for group in scheme}
    several = dropped = 0
    for image in sorted(homes):
        several += len(homes[image]) > 1
        if len({split_subset_name(group).subject for group in homes[image]}) > 1:
            dropped += 1
        else:
            kept[homes[image][0]].append(image)
    said = (
        f"{several} images are in more than one group: {dropped} dropped, "
        f"{several - dropped} kept in the group named first"
    )
    return Groups(kept, (said,) if several else ())


def read_scheme(path: Path) -> dict[str, list[str]]:
    """Read which subsets make a group: TOML, ``"cat(outdoor)" = ["cat(car)", "cat(fence)"]``."""
    fix = 'write "cat(outdoor)" = ["cat(car)", …]'
    found = read(existing_file(path, "scheme of groups"), dict[str, list[str]], fix=fix)
    if not found or not all(found.values()):
        raise BadFile(path, "has a group without subsets" if found else "names no groups", fix=fix)
    return found


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


def place_groups(objects: Iterable[tuple[str, str]], subjects: Sequence[str]) -> Groups:
    """Groups ``subject(indoor)`` and ``subject(outdoor)`` from the objects in each image.

    ``objects``   (image, object name) pairs, in any order, repeated or not
    ``subjects``  classes, such as cat and dog; an image with two of them is dropped

    An image is indoor if it shows an indoor object besides the subject, outdoor likewise; one with
    both is dropped, and one with neither has no group. The published notebook pairs object i with
    object j only for i < j, so that no cat meets a car, a bench or a person, which COCO lists
    before it; here every object counts, whatever its place in the list.
    """
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
    return Groups(found, notes)


def pair_groups(groups: Groups, minority: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Each class with its minority group and its only other one, in the order given."""
    found: dict[str, tuple[str, str]] = {}
    for small in minority:
        if small not in groups.images:
            raise NotFound(f"no group {small!r}", fix=hint(small, groups.images))
        label = split_subset_name(small).subject
        both = [group for group in groups.images if split_subset_name(group).subject == label]
        if len(both) != 2 or label in found:
            raise UserError(
                f"class {label!r} has {len(both)} groups and {small} as minority",
                fix="give each class two groups, and name one of them its minority",
            )
        found[label] = (small, both[both[0] == small])
    return found


def subpopulation_split(
    groups: Groups,
    minority: Sequence[str],
    *,
    minority_count: int,
    sizes: Mapping[str, int],
    seed: int = 42,
) -> Split:
    """Train on ``minority_count`` (M) images of the minority of each class, test all groups alike.

    ``sizes``  ``test`` and ``validation``: images of each group. ``minority`` and ``majority``: images
               kept of each such group before anything is drawn; without it as many as the smallest
               one has

    The ids are those of MetaShift's script, in its order:

    1. A group's ids are sorted as texts, shuffled by a fresh ``random.Random(seed)`` and cut to
       its size.
    2. scikit-learn's ``train_test_split(test_size=…, random_state=seed)`` is called once for all
       minority groups and once for all majority groups, so that groups of a kind share a
       permutation: the first of it are the test, the rest train.
    3. A class trains on its minority's first M and on its majority from position M on.

    So the test is the same whatever M is, and a smaller M trains on a subset of the minority images of
    a larger one. The script has no validation part. A size of one takes it from training images that
    step 3 leaves over (the minority from M on, the majority before M), so that train and test stay as
    published.

    Rows: class by class in the order of ``minority``, in each the minority group first.
    """
    pairs = pair_groups(groups, minority)
    kept = _kept_sizes(groups, pairs, sizes)
    m, test, extra = minority_count, sizes["test"], sizes.get("validation", 0)
    if kept[0] < test + m + extra or kept[1] < test + m or extra > m:
        raise UserError(
            f"too few images: {kept[0]} of each minority and {kept[1]} of each majority group "
            f"for a test of {test}, validation of {extra} and minority count of {m}",
            fix="ask for less, or for larger groups",
        )
    parts: dict[str, list[SplitRow]] = {"train": [], "validation": [], "test": []}
    for label, (small, large) in pairs.items():
        for group, size in ((small, kept[0]), (large, kept[1])):
            shuffled = sorted(groups.images[group])
            random.Random(seed).shuffle(shuffled)
            # As scikit-learn permutes that many.
            ids = [shuffled[place] for place in _generator(seed).permutation(size)]
            left, rare = ids[test:], group == small
            chosen = {
                "train": left[:m] if rare else left[m:],
                "validation": left[m : m + extra] if rare else left[:extra],
                "test": ids[:test],
            }
            for part, images in chosen.items():
                parts[part] += [SplitRow(image, label, group) for image in images]
    used = {group for both in pairs.values() for group in both}
    unused = [group for group in groups.images if group not in used]
    said = f"{len(unused)} groups are not used, such as {unused[0]}" if unused else ""
    return Split(
        parts={part: rows for part, rows in parts.items() if rows or part != "validation"},
        rule={
            "name": "subpopulation",
            "seed": seed,
            "minority_groups": [small for small, _ in pairs.values()],
            "majority_groups": [large for _, large in pairs.values()],
            "minority_size": kept[0],
            "majority_size": kept[1],
            "test_size": test,
            "minority_count": m,
            "validation_size": extra,
        },
        groups=groups.group_of(),
        notes=(*groups.notes, said) if said else groups.notes,
    )


def _kept_sizes(
    groups: Groups, pairs: Mapping[str, tuple[str, str]], sizes: Mapping[str, int]
) -> tuple[int, int]:
    """Images kept of each minority and of each majority group; too few is one line with numbers."""
    kept = []
    for kind, names in zip(
        ("minority", "majority"), zip(*pairs.values(), strict=True), strict=True
    ):
        there = {name: len(groups.images[name]) for name in names}
        least = min(there, key=there.__getitem__)
        kept.append(sizes.get(kind, there[least]))
        if kept[-1] > there[least]:
            raise UserError(
                f"too few images: {least} has {there[least]} of {kept[-1]}",
                fix="ask for a smaller size",
            )
    return kept[0], kept[1]


def shares_split(groups: Groups, *, seed: int = 42) -> Split:
    """A quarter of all images to test, a tenth for validation, whatever their group (SubpopBench).

    Rows are numbered group by group, groups and ids sorted as texts. ``RandomState(seed)``
    chooses the rows of the test, then of the others, sorted, those of validation. SubpopBench itself
    numbers files as its file system lists them, so sizes are as published (2,276, 349 and 874 of
    3,499) and members are not. Rows of a part keep their order.
    """
    rows = [
        SplitRow(image, split_subset_name(group).subject, group)
        for group in sorted(groups.images)
        for image in sorted(groups.images[group])
    ]
    if len(rows) < 4:
        raise UserError(f"a split of {len(rows)} images", fix="give more")
    generator, part = _generator(seed), np.zeros(len(rows), dtype=np.int64)
    for code, share in ((2, 0.25), (1, 0.1)):
        left = np.flatnonzero(part == 0)
        part[generator.choice(left, size=int(share * len(rows)), replace=False)] = code
    parts = {
        name: [rows[place] for place in np.flatnonzero(part == code).tolist()]
        for code, name in enumerate(("train", "validation", "test"))
    }
    return Split(
        parts={name: members for name, members in parts.items() if members},
        rule={"name": "shares", "seed": seed, "groups": sorted(groups.images)},
        groups=groups.group_of(),
        notes=groups.notes,
    )


def _generator(seed: int) -> np.random.RandomState:
    """NumPy's old generator, which published scripts draw with."""
    if seed >= 2**32:
        raise UserError(f"a seed of {seed}", fix="give one below 2**32")
    return np.random.RandomState(seed)
