"""A pool: candidates gathered for a test set, before any is chosen; the columns of a manifest.

A pool may have no truth and no label space yet: giving its images classes may be what a recipe
does. Every test set can serve as a pool.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import BadFile, ExistsError, NotApplicable, NotFound, UserError
from heldout.core.files import (
    atomic_folder,
    canonical_json,
    is_temporary,
    read_versioned_json,
    write_json,
)
from heldout.core.workspace import Workspace, check_slug
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import is_built_in
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.hashing import combine, hash_table
from heldout.data.testset.tables import (
    check_ids,
    check_truth,
    image_schema,
    membership_schema,
    truth_schema,
)
from heldout.data.testset.testset import TestSet, check_classes, read_parquet

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


SCHEMA_VERSION = 1
_HEAD = "pool.json"


@dataclass(frozen=True)
class PoolHead:
    """What ``pool.json`` says of a pool, its tables not read."""

    folder: Path
    name: str
    content_hash: str
    tables: Mapping[str, str]
    rows: Mapping[str, int]
    columns: Mapping[str, ColumnType]
    facts: Mapping[str, Any]


def save_pool(pool: Pool, folder: Path, *, replace: bool = False) -> Pool:
    """Write a pool to ``folder``. The same content again changes nothing; another is refused.

    A folder that holds anything but a pool is refused even with ``replace``. The images stay
    where they are; ``images_root`` is written relative to the folder.
    """
    import pyarrow.parquet as pq

    if (folder / _HEAD).is_file():
        known = load_pool(folder)
        if known.name == pool.name and known.content_hash == pool.content_hash:
            if _said(known) == _said(pool):
                return known
            other = "the same images, but another account of them"
        else:
            other = (
                f"another pool ({known.content_hash[:12]}, this one is {pool.content_hash[:12]})"
            )
        if not replace:
            raise ExistsError(f"{folder} holds {other}", fix="use another --name, or --replace")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExistsError(f"{folder} exists and is no pool", fix="name another folder")
    elif folder.is_dir():
        replace = True  # an empty folder is taken
    with atomic_folder(folder, replace=replace) as temporary:
        for name, table in _tables(pool).items():
            path = temporary / f"{name}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(table, path, compression="zstd")
        if pool.space is not None and not is_built_in(pool.space):
            write_json(temporary / "label_space.json", pool.space.to_dict())
        write_json(temporary / _HEAD, _head(pool, folder))
    return load_pool(folder)


def _said(pool: Pool) -> str:
    """What a pool says of itself, wherever its files lay."""
    facts = {key: value for key, value in pool.facts.items() if key != "files"}
    columns = {name: kind.to_dict() for name, kind in pool.columns.items()}
    return canonical_json([facts, columns, pool.citation])


def _tables(pool: Pool) -> dict[str, pa.Table]:
    tables = {"images": pool.images, "memberships": pool.memberships}
    for name, table in pool.truths.items():
        tables[f"truth/{check_slug(name, 'a truth')}"] = table
    return tables


def _head(pool: Pool, folder: Path) -> dict[str, Any]:
    root = pool.images_root
    return {
        "schema_version": SCHEMA_VERSION,
        "name": pool.name,
        "content_hash": pool.content_hash,
        "tables": dict(pool.table_hashes),
        "rows": {name: len(table) for name, table in _tables(pool).items()},
        "truths": list(pool.truths),
        "label_space": None if pool.space is None else pool.space.name,
        "columns": {name: kind.to_dict() for name, kind in pool.columns.items()},
        "images_root": None
        if root is None
        else Path(os.path.relpath(root.resolve(), folder.resolve())).as_posix(),
        "citation": pool.citation,
        "facts": dict(pool.facts),
    }


def read_head(folder: Path) -> PoolHead:
    """What a pool's ``pool.json`` says, without its tables."""
    value = _read_json(folder)
    return PoolHead(
        folder,
        value["name"],
        value["content_hash"],
        value["tables"],
        value["rows"],
        {name: ColumnType.from_dict(kind) for name, kind in value["columns"].items()},
        value["facts"],
    )


def load_pool(folder: Path) -> Pool:
    """Read a pool from its folder; its hashes are those of ``pool.json`` (:func:`verify_pool`)."""
    value = _read_json(folder)
    tables: dict[str, Any] = {}
    for name, rows in value["rows"].items():
        schema = {"images": image_schema, "memberships": membership_schema}.get(name, truth_schema)
        tables[name] = read_parquet(folder / f"{name}.parquet", schema())
        if len(tables[name]) != rows:
            raise BadFile(
                folder / f"{name}.parquet",
                f"has {len(tables[name]):,} rows, {_HEAD} says {rows:,}",
                fix="it was changed or cut off: collect the pool again",
            )
    space = None
    if (folder / "label_space.json").is_file():
        space = LabelSpace.read(folder / "label_space.json")
    elif value["label_space"] is not None:
        space = LabelSpace.load(value["label_space"])
    root = value["images_root"]
    pool = make_pool(
        value["name"],
        images=tables["images"],
        memberships=tables["memberships"],
        truths={name: tables[f"truth/{name}"] for name in value["truths"]},
        label_space=space,
        columns={name: ColumnType.from_dict(kind) for name, kind in value["columns"].items()},
        images_root=None if root is None else folder / root,
        citation=value["citation"],
        facts=value["facts"],
    )
    # Hashing takes far longer than reading: what was computed when it was written is kept.
    pool.__dict__["table_hashes"] = dict(value["tables"])
    pool.__dict__["content_hash"] = value["content_hash"]
    return pool


def verify_pool(folder: Path) -> Pool:
    """Read a pool and hash its tables again; one that is not what it was is refused."""
    pool = replace(load_pool(folder))  # a copy, without the hashes that were read
    stated = read_head(folder)
    for name, digest in pool.table_hashes.items():
        if stated.tables.get(name) != digest:
            raise BadFile(
                folder / f"{name}.parquet",
                "has other rows than when it was written",
                fix="collect the pool again",
            )
    if pool.content_hash != stated.content_hash:
        raise BadFile(folder / _HEAD, "does not fit the tables", fix="collect the pool again")
    return pool


def list_pools(workspace: Workspace) -> list[PoolHead]:
    """All pools of a workspace, by name."""
    return [read_head(folder) for folder in pool_folders(workspace)]


def pool_folders(workspace: Workspace) -> list[Path]:
    """The folders of all pools of a workspace, by name; what they say is not read."""
    if not workspace.pools.is_dir():
        return []
    return [
        folder
        for folder in sorted(workspace.pools.iterdir())
        if not is_temporary(folder) and (folder / _HEAD).is_file()
    ]


def find_pool(workspace: Workspace, name: str) -> Pool:
    """The pool that an argument means: a name in the workspace, or a path to its folder."""
    for folder in (workspace.pools / name, Path(name)):
        if (folder / _HEAD).is_file():
            return load_pool(folder)
    known = ", ".join(head.name for head in list_pools(workspace))
    raise NotFound(
        f"no pool {name!r} in {workspace.pools}",
        fix=f"there is {known}" if known else "make one with heldout collect",
    )


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / _HEAD
    if not path.is_file():
        raise NotFound(f"no pool at {folder}", fix="make one with heldout collect")
    value = read_versioned_json(path, version=SCHEMA_VERSION)
    kinds: dict[str, Any] = {
        "name": str,
        "content_hash": str,
        "tables": dict,
        "rows": dict,
        "truths": list,
        "columns": dict,
        "citation": str,
        "facts": dict,
        "label_space": (str, type(None)),
        "images_root": (str, type(None)),
    }
    for key, kind in kinds.items():
        if not isinstance(value.get(key, 0), kind):
            raise BadFile(path, f"has no proper {key!r}", fix="collect the pool again")
    expected = {"images", "memberships", *(f"truth/{name}" for name in value["truths"])}
    if set(value["rows"]) != expected:
        raise BadFile(path, "lists other tables than it has", fix="collect the pool again")
    for name in value["truths"]:
        check_slug(name, "a truth")
    return value
