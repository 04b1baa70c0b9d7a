"""Some images of a test set as a test set of their own, with its parent by hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from heldout.core.errors import MismatchError, UserError
from heldout.data.testset.card import Card
from heldout.data.testset.tables import first_outside
from heldout.data.testset.testset import TestSet, make_testset


def subset(
    testset: TestSet,
    image_ids: Iterable[str],
    *,
    name: str,
    recipe: Mapping[str, Any],
    truths: Iterable[str] | None = None,
    parents: Iterable[Mapping[str, Any]] = (),
    aliases: Iterable[str] = (),
    citation: str | None = None,
    notes: Iterable[str] = (),
) -> TestSet:
    """A test set of the named images, in the order of the parent, whatever the order given.

    ``recipe``   what chose the images: {"name", "parameters", "seed"}
    ``truths``   truths to keep, the default one first; without it all of the parent's. A truth
                 that has none of the images is left out.
    ``parents``  files that the choice was read from; the parent set is always named first
    ``citation`` replaces the parent's

    Columns and memberships are kept. The images stay where they are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(sorted(set(image_ids)), pa.string())
    if len(wanted) == 0:
        raise UserError(f"no images to choose from {testset.name}", fix="name at least one image")
    foreign = first_outside(wanted, testset.image_ids)
    if foreign is not None:
        raise MismatchError(
            f"image {foreign!r} is not in test set {testset.name}",
            fix="use the ids of that set",
        )

    def chosen(table: Any) -> Any:
        return table.filter(pc.is_in(table["image_id"], value_set=wanted))

    kept = testset.truths if truths is None else truths
    tables = {truth: chosen(testset.truth(truth)) for truth in kept}
    tables = {truth: table for truth, table in tables.items() if len(table)}
    parent = testset.card
    card = parent.updated(
        name=name,
        aliases=tuple(aliases),
        recipe=dict(recipe),
        parents=(
            {
                "name": parent.name,
                "content_hash": parent.content_hash,
                "images_hash": parent.images_hash,
            },
            *map(dict, parents),
        ),
        counts={"parent": len(testset), "images": len(wanted)},
        truths={truth: _provenance(parent, truth, table) for truth, table in tables.items()},
        citation=parent.citation if citation is None else citation,
        notes=tuple(notes),
        images_root=_images_root(testset),
        documents={},
        history=(),
    )
    return make_testset(
        card,
        images=chosen(testset.images),
        truths=tables,
        label_space=testset.space,
        memberships=chosen(testset.memberships),
    )


def _provenance(parent: Card, truth: str, table: Any) -> dict[str, Any]:
    """What the parent knows of a truth; counts are those of the images that are left."""
    known = parent.truths.get(truth, {})
    own = {"images": len(table["image_id"].unique())}
    return {**known, "counts": own} if "counts" in known else dict(known)


def _images_root(testset: TestSet) -> str | None:
    """Where the parent's images are, from anywhere: the subset has no folder yet."""
    if testset.card.images_root is None or testset.folder is None:
        return testset.card.images_root
    return testset.images_folder().resolve().as_posix()


def part_of(
    testset: TestSet, image_ids: Iterable[str], *, name: str, recipe: Mapping[str, Any]
) -> TestSet:
    """Some images of a test set for use beside it: their files are found where the set's are."""
    made = subset(testset, image_ids, name=name, recipe=recipe)
    card = made.card.updated(images_root=testset.card.images_root)
    return replace(made, card=card, folder=testset.folder, source=testset.source)
