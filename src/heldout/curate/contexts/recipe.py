"""The recipe: a pool with memberships in, a test set whose membership ``subset`` says what is with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import UserError
from heldout.core.workspace import slug
from heldout.curate.contexts.describe import STATISTICS, describe_subsets, statistics
from heldout.curate.contexts.distance import merged_nodes
from heldout.curate.contexts.requests import ContextsParameters
from heldout.curate.contexts.subsets import COLUMN, Candidates, Subsets, find_candidates
from heldout.curate.recipe import (
    BuildContext,
    Guarantees,
    Recipe,
    RecipeResult,
    Sources,
    TruthTable,
    document,
    pool_in,
)
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.testset import TestSet

COMMUNITY = "community"
"""The membership that says which communities of subsets an image is in."""
VALUES = "values.json"
"""The document that says what is known of each value of a column."""


class ContextsRecipe(Recipe):
    """Subsets ``subject(context)`` of a pool; every image of a kept subset, once a class."""

    name = "contexts"
    version = "1"
    parameters = ContextsParameters
    guarantees = Guarantees(selects=True)

    def plan(
        self,
        sources: Sources,
        parameters: ContextsParameters,
        *,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> Candidates:
        """The subsets that would be kept, and the counts on the way there."""
        return find_candidates(pool_in(sources), parameters)

    def build(
        self, sources: Sources, parameters: ContextsParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """The rows of the set."""
        pool = pool_in(sources)
        found = find_candidates(pool, parameters)
        space, classes = _label_space(pool, parameters, found.kept)
        counts = found.counts
        described, communities = describe_subsets(found.kept, parameters, seed=seed)
        merged = merged_nodes(found.kept, communities)
        return RecipeResult(
            images=_images(pool, found.kept),
            truths={"original": TruthTable(table=_truth(found.kept, classes))},
            memberships=_memberships(pool, parameters, found.kept, merged),
            label_space=space,
            columns={
                COLUMN: ColumnType(kind="categorical", multi=True, of_class=True),
                COMMUNITY: ColumnType(kind="categorical", multi=True, of_class=True),
            },
            counts={
                "with_context": counts["candidate_images"],
                "unambiguous": counts["images"],
                "at_minimum": counts["images_at_minimum"],
            },
            documents={
                VALUES: document(
                    columns={COLUMN: described, COMMUNITY: _communities(merged, communities)}
                ),
                STATISTICS: document(**statistics(found, space, classes)),
            },
            citation=pool.card.citation,
            notes=_notes(pool, parameters, found),
            report=counts,
        )


def _images(pool: TestSet, kept: Subsets) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array(kept.image_ids, pa.string())
    return pool.images.filter(pc.is_in(pool.images["image_id"], value_set=ids))


def _memberships(
    pool: TestSet,
    parameters: ContextsParameters,
    kept: Subsets,
    merged: Subsets,
) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    from heldout.data.testset.tables import membership_schema

    ids = pa.array(kept.image_ids, pa.string())
    parts = [
        pa.table(
            [
                ids.take(pa.array(table.images)),
                pa.repeat(pa.scalar(column, pa.string()), len(table.images)),
                pa.array(table.names, pa.string()).take(
                    pa.array(np.repeat(np.arange(len(table)), table.sizes))
                ),
            ],
            schema=membership_schema(),
        )
        for column, table in ((COLUMN, kept), (COMMUNITY, merged))
    ]
    wanted = pa.array(
        [name for name in parameters.keep if name not in (COLUMN, COMMUNITY)], pa.string()
    )
    table = pool.memberships
    others = table.filter(
        pc.and_(
            pc.is_in(table["column"], value_set=wanted), pc.is_in(table["image_id"], value_set=ids)
        )
    )
    return pa.concat_tables([*parts, others.select(membership_schema().names)])


def _communities(merged: Subsets, communities: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What is known of each community: its subsets and images."""
    return {
        title: {
            "text": f"{int(size):,} images in {', '.join(communities[title])}",
            "name": title,
            "images": int(size),
            "subsets": list(communities[title]),
        }
        for title, size in zip(merged.names, merged.sizes.tolist(), strict=True)
    }


def _truth(kept: Subsets, classes: dict[str, str]) -> Any:
    """One row for every image and class: an image of two classes has two."""
    from heldout.data.testset.tables import truth_table

    subjects = {subject: code for code, subject in enumerate(kept.subjects)}
    codes = np.array([subjects[subject] for subject in kept.subject_of], dtype=np.int64)
    rows = np.unique(kept.images * len(subjects) + np.repeat(codes, kept.sizes))
    images, codes = np.divmod(rows, len(subjects))
    ids = [classes[subject] for subject in kept.subjects]
    return truth_table(kept.image_ids[images].tolist(), [ids[code] for code in codes.tolist()])


def _label_space(
    pool: TestSet, parameters: ContextsParameters, kept: Subsets
) -> tuple[LabelSpace, dict[str, str]]:
    """The label space, and the class id of each subject."""
    if parameters.classes is None:
        space = LabelSpace(
            slug(f"{pool.name}-subjects"), tuple(Class(s, (s,)) for s in kept.subjects)
        )
        return space, {subject: subject for subject in kept.subjects}
    space = LabelSpace.load(parameters.classes)
    classes = {subject: class_of(space, subject) for subject in kept.subjects}
    subjects: dict[str, str] = {}
    for subject, class_id in classes.items():
        first = subjects.setdefault(class_id, subject)
        if first != subject:
            raise UserError(
                f"{first} and {subject} are one class of {space.name}",
                fix="name one of them a synonym",
            )
    return space, classes


def class_of(space: LabelSpace, subject: str) -> str:
    """The id of the class that a subject names by its id or a name of it."""
    return subject if subject in space else space.by_name(subject).id


def _notes(pool: TestSet, parameters: ContextsParameters, found: Candidates) -> tuple[str, ...]:
    counts = found.counts
    notes = [
        f"{counts['subsets']:,} candidate subsets of {counts['subjects']:,} subjects with "
        f"{counts['contexts']:,} contexts; {counts['subsets_at_minimum']:,} of at least "
        f"{parameters.minimum} images; {counts['subsets_kept']:,} of them in the "
        f"{counts['classes_above_minimum']:,} classes with more than {parameters.more_than}"
    ]
    options = pool.card.facts.get("options") or {}
    if options:
        listed = ", ".join(f"{key}={value}" for key, value in sorted(options.items()))
        notes.append(f"the source was read with {listed}")
    if found.merged:
        notes.append(f"{len(found.merged):,} words of the source count as others ({STATISTICS})")
    return tuple(notes)


recipe = ContextsRecipe()
