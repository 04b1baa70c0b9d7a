"""A pool: candidates gathered for a test set, before any is chosen; the columns of a manifest.

A pool may have no truth and no label space yet: giving its images classes may be what a recipe
does. Every test set can serve as a pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.workspace import check_slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.hashing import combine, hash_table
from heldout.data.testset.tables import check_ids, check_truth, membership_schema
from heldout.data.testset.testset import TestSet, check_classes

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False, kw_only=True)
class Pool:
    """Candidates with what is known of them. Build one with :func:`make_pool`.

    ``images``       as ``images.parquet``: image_id, path or uri, sha256, size, source, licence,
                     attribution, weight, then single-valued columns
    ``memberships``  image_id, column, value
    ``truths``       as those of a test set; often none
    ``clusters``     the column that says which images belong together, where a test set serves as
                     the pool and has one
    ``images_root``  the folder where ``path`` starts, or None where the files are not at hand
    ``images_namespace``  as on the card of a test set that serves as the pool
    ``facts``        where it came from, as JSON: source, files, options, counts, what was left out
    """

    name: str
    images: pa.Table
    memberships: pa.Table
    truths: Mapping[str, pa.Table] = field(default_factory=dict)
    space: LabelSpace | None = None
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    clusters: str | None = None
    images_root: Path | None = None
    images_namespace: str | None = None
    citation: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def image_ids(self) -> Any:
        """The image ids as one Arrow string array."""
        return self.images["image_id"].combine_chunks()

    @property
    def label_space(self) -> LabelSpace:
        """The label space of the truths; a pool without one is refused."""
        if self.space is None:
            raise NotApplicable(
                f"pool {self.name} has no label space", fix="name one, or give its images classes"
            )
        return self.space

    def truth(self, name: str | None = None) -> pa.Table:
        """A truth by name; without one, the first."""
        name = name or next(iter(self.truths), "original")
        if name not in self.truths:
            raise NotFound(
                f"pool {self.name} has no truth {name!r}",
                fix=f"it has {', '.join(self.truths) or 'none'}",
            )
        return self.truths[name]

    @cached_property
    def table_hashes(self) -> Mapping[str, str]:
        """SHA-256 over the rows of each table, whatever their order."""
        hashes = {"images": hash_table(self.images)}
        hashes |= {f"truth/{name}": hash_table(table) for name, table in self.truths.items()}
        if len(self.memberships):
            hashes["memberships"] = hash_table(self.memberships)
        return hashes

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the hashes of all tables."""
        return combine(self.table_hashes)

    def reordered(self, seed: int) -> Pool:
        """The same pool with the rows of every table shuffled."""
        random = np.random.default_rng(seed)

        def shuffled(table: Any) -> Any:
            return table.take(random.permutation(len(table)))

        return replace(
            self,
            images=shuffled(self.images),
            memberships=shuffled(self.memberships),
            truths={name: shuffled(table) for name, table in self.truths.items()},
        )


def make_pool(
    name: str,
    *,
    images: pa.Table,
    memberships: pa.Table | None = None,
    truths: Mapping[str, pa.Table] | None = None,
    label_space: LabelSpace | None = None,
    columns: Mapping[str, ColumnType] | None = None,
    images_root: Path | None = None,
    citation: str = "",
    facts: Mapping[str, Any] | None = None,
) -> Pool:
    """A pool from its tables: checks that they belong together."""
    import pyarrow.compute as pc

    check_slug(name, "a pool")
    check_ids(images["image_id"], f"the images table of pool {name}")
    if memberships is None:
        memberships = membership_schema().empty_table()
    known = images["image_id"].combine_chunks()
    given = dict(truths or {})
    tables = [(f"truth {truth}", table) for truth, table in given.items()]
    for what, table in [*tables, ("the memberships table", memberships)]:
        foreign = table["image_id"].filter(pc.invert(pc.is_in(table["image_id"], value_set=known)))
        if len(foreign):
            raise UserError(
                f"{what} of pool {name} names image {foreign[0].as_py()!r}, which is not in it",
                fix="check that the file belongs to this pool",
            )
    for truth, table in given.items():
        check_slug(truth, "a truth")
        check_truth(table)
        if label_space is None:
            raise UserError(f"pool {name} has a truth and no label space", fix="name it")
        check_classes(table, label_space, f"truth {truth} of pool {name}")
    return Pool(
        name=name,
        images=images,
        memberships=memberships,
        truths=given,
        space=label_space,
        columns=dict(columns or {}),
        images_root=images_root,
        citation=citation,
        facts=dict(facts or {}),
    )


def pool_of(testset: TestSet) -> Pool:
    """A test set as a pool: the same tables, the same content hash."""
    root = None
    if testset.folder is not None and testset.card.images_root is not None:
        root = testset.images_folder()
    return Pool(
        name=testset.name,
        images=testset.images,
        memberships=testset.memberships,
        truths=dict(testset.truths),
        space=testset.label_space,
        columns=testset.card.columns,
        clusters=testset.card.clusters,
        images_root=root,
        images_namespace=testset.card.images_namespace,
        citation=testset.card.citation,
    )
