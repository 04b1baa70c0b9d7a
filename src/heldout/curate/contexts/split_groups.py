"""Groups of images for splits: ``class(context)`` names with image ids, from a file or by a rule."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import csv_text, existing_file
from heldout.curate.contexts.names import parse_subset
from heldout.curate.contexts.splits import read_columns
from heldout.curate.contexts.subsets import hint

Ambiguous = Literal["refuse", "drop", "published"]
AMBIGUOUS: tuple[Ambiguous, ...] = ("refuse", "drop", "published")


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
        raise BadFile(path, "has no rows", fix="write image,group, one image and group a line")
    found: dict[str, set[str]] = {}
    for image, group in rows:
        found.setdefault(group, set()).add(image)
    for group in found:
        parse_subset(group)
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
        parse_subset(group)
        images: set[str] = set()
        for name in names:
            if name not in subsets:
                raise NotFound(
                    f"group {group!r} is to have {name!r}, which is no subset",
                    fix=hint(name, subsets),
                )
            images |= set(subsets[name])
        found[group] = tuple(sorted(images))
    return Groups(found)


def read_scheme(path: Path) -> dict[str, list[str]]:
    """Read which subsets make a group: TOML, ``"cat(outdoor)" = ["cat(car)", "cat(fence)"]``."""
    import tomllib

    try:
        text = existing_file(path, "scheme of groups").read_bytes().decode("utf-8-sig")
        value = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadFile(path, f"is no TOML ({error})", fix="mend it") from None
    value = value.get("groups", value)
    if not value:
        raise BadFile(path, "names no groups", fix='write "cat(outdoor)" = ["cat(car)", …]')
    for group, names in value.items():
        good = isinstance(names, list) and names and all(isinstance(n, str) for n in names)
        if not good:
            raise BadFile(
                path, f"group {group!r} has no list of subsets", fix='write ["cat(car)", …]'
            )
    return dict(value)


def without_ambiguous(
    groups: Groups, used: Sequence[str], *, policy: Ambiguous = "refuse"
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The ids of the ``used`` groups with every image in one group only, and notes.

    ``refuse``     an image in two of them is the user's error
    ``drop``       it is left out
    ``published``  as MetaShift's scripts do: left out if its groups are of two classes; else it
                   belongs to the group that is named first
    """
    if policy not in AMBIGUOUS:
        raise UserError(f"ambiguous images by {policy!r}", fix=f"use {', '.join(AMBIGUOUS)}")
    homes: dict[str, list[str]] = {}
    for group in used:
        for image in groups.images[group]:
            homes.setdefault(image, []).append(group)
    several = {image: names for image, names in homes.items() if len(names) > 1}
    notes: list[str] = []
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
        classes = {parse_subset(name).subject for name in names}
        if len(names) > 1 and (policy == "drop" or len(classes) > 1):
            dropped += 1
        else:
            kept[names[0]].append(image)
    if several:
        notes.append(
            f"{len(several)} images are in more than one group: {dropped} dropped, "
            f"{len(several) - dropped} kept in the group named first"
        )
    return {group: tuple(sorted(images)) for group, images in kept.items()}, tuple(notes)
