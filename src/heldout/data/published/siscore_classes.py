"""Which class each image of SI-SCORE's layout has: by names, never by places of folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import BadFile, LabelError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.siscore import released_names, siscore_names
from heldout.data.published.siscore_files import Given, Lists


def class_names(given: Given) -> dict[int, str]:
    """The class of each row by name; where an image's folder says another one, a user's error."""
    files = given.images.files
    places = dict(given.lists.classes)
    if not places:
        for row in given.rows:  # what folders say of the rows that have an image
            if row.number in files and row.class_index is not None:
                places.setdefault(row.class_index, files[row.number][0])
        unknown = {r.class_index for r in given.rows if r.class_index not in places} - {None}
        # Only what has all 61 classes is taken for a published set: numbers alone name no class.
        if not files and unknown == set(range(len(released_names()))):
            places = dict(enumerate(released_names()))
    where = given.metadata or given.root
    found = {}
    for row in given.rows:
        folder = files[row.number][0] if row.number in files else None
        said = folder if row.class_index is None else places.get(row.class_index)
        if said is None:
            raise BadFile(
                where,
                f"image {row.number} has the class {row.class_index}, which has no name",
                fix="put foreground_classes_metadata_indices.csv beside it",
            )
        if folder is not None and folder != said:
            raise BadFile(
                where,
                f"image {row.number} is of {said!r}, and lies in {files[row.number][1]}",
                fix="give the metadata.csv of these images",
            )
        found[row.number] = said
    return found


def class_ids(names: Sequence[str], lists: Lists, space: LabelSpace, where: Path) -> dict[str, str]:
    """Class ids by name: from ``foreground_classes.csv``, else the 112 names, else the space's own."""
    known = siscore_names()
    imagenet = LabelSpace.load("imagenet-1k").ids
    found = {}
    for name in names:
        index = lists.indices.get(name)
        named = imagenet[known[name].index] if name in known else None
        if index is not None and not 0 <= index < len(space):
            raise LabelError(
                f"{where}: foreground_classes.csv has the index {index} for {name!r}, outside "
                f"{space.name}",
                fix="name the right label space with --classes",
            )
        if index is not None:
            found[name] = space.ids[index]
            if named in space and named != found[name]:
                raise LabelError(
                    f"{where}: foreground_classes.csv has the index {index} for {name!r}, which is "
                    f"{known[name].index} in {space.name}",
                    fix="give places in the label space, not places in the list of folders",
                )
        elif named in space and named is not None:
            found[name] = named
        else:
            try:
                found[name] = name if name in space else space.by_name(name).id
            except LabelError:
                raise LabelError(
                    f"{where}: class {name!r} is none of SI-SCORE's names and not in {space.name}",
                    fix="add foreground_classes.csv, or name the label space with --classes",
                ) from None
    return found
