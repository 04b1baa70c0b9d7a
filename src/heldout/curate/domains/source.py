"""The candidates of the recipe: a pool in memory, or Parquet files that are never read whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.errors import NotFound, UserError
from heldout.core.files import read_versioned_json
from heldout.core.workspace import Workspace, slug
from heldout.curate.domains.digest import Digest
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.reading import CLASS, Reader, Seen, reader
from heldout.curate.domains.rows import FileRows, TableRows, open_rows
from heldout.curate.domains.splits import split_columns
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.catalogue import find_testset
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.pool import (
    SCHEMA_VERSION,
    Pool,
    PoolHead,
    find_pool,
    load_pool,
    pool_of,
    read_head,
)
from heldout.data.testset.tables import image_table, membership_schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Outline:
    """What ``pool.json`` says of a pool, beyond its head."""

    head: PoolHead
    columns: Mapping[str, ColumnType]
    space: LabelSpace | None
    images_root: Path | None
    citation: str


def read_outline(folder: Path) -> Outline:
    """What a pool says of itself, its tables not read."""
    head = read_head(folder)
    value = read_versioned_json(folder / "pool.json", version=SCHEMA_VERSION)
    space = None
    if (folder / "label_space.json").is_file():
        space = LabelSpace.read(folder / "label_space.json")
    elif value["label_space"] is not None:
        space = LabelSpace.load(value["label_space"])
    root = value["images_root"]
    return Outline(
        head,
        {name: ColumnType.from_dict(kind) for name, kind in value["columns"].items()},
        space,
        None if root is None else folder / root,
        value["citation"],
    )


class PoolFile:
    """Candidates in Parquet files, as a source of recipes: name, hash, number of rows.

    The hash is over the columns that decide what is chosen: id, class, domain and similarity. It
    does not depend on the order of rows nor on files. Everything else about the chosen rows is in
    the set that is made, and hashed there.
    """

    def __init__(
        self,
        name: str,
        rows: FileRows,
        parameters: DomainsParameters,
        *,
        outline: Outline | None = None,
    ) -> None:
        """``outline``: what ``pool.json`` says where the files are a pool's."""
        self.name = name
        self._rows = rows
        self._outline = outline
        self._hash = None if outline is None else outline.head.content_hash
        self._taken: pa.Table | None = None
        self.reader = read_columns(rows, parameters, where=name)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def content_hash(self) -> str:
        """The hash of the rows; a pass over all of them where no selection was made before."""
        if self._hash is None:
            digest = Digest(self.reader)

            def add(seen: Seen) -> None:
                digest.add(
                    seen,
                    self.reader.classes.codes(seen.batch.column(self.reader.class_column)),
                    self.reader.domains.codes(seen.batch.column(self.reader.domain)),
                )

            for _ in self.reader.scan(self.reader.columns, add):
                pass
            self._hash = digest.hexdigest()
        return self._hash

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Types of columns, where the files are a pool's."""
        return {} if self._outline is None else self._outline.columns

    @property
    def space(self) -> LabelSpace | None:
        """The label space, where the files are a pool's that has one."""
        return None if self._outline is None else self._outline.space

    @property
    def citation(self) -> str:
        """What to cite."""
        return "" if self._outline is None else self._outline.citation

    @property
    def images_root(self) -> Path | None:
        """Where the image files are."""
        return None if self._outline is None else self._outline.images_root

    def took(self, rows: pa.Table, digest: str) -> None:
        """Told of a selection, so that its rows and the hash need not be read again."""
        self._taken = image_table({name: rows[name] for name in rows.column_names})
        if self._hash is None:
            self._hash = digest

    def images_of(self, ids: Any) -> pa.Table:
        """The images table of these ids, with its fixed columns."""
        import pyarrow as pa

        wanted = ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string())
        if self._taken is not None and wanted.equals(_ids(self._taken)):
            return self._taken
        found = self._read(wanted)
        return image_table({name: found[name] for name in found.column_names})

    def memberships_of(self, ids: Any) -> pa.Table:
        """What the pool's memberships say of these images."""
        import pyarrow as pa
        import pyarrow.compute as pc

        empty = membership_schema().empty_table()
        if self._outline is None or not self._outline.head.rows.get("memberships"):
            return empty
        wanted = pa.array(ids, pa.string())
        rows = open_rows(self._outline.head.folder / "memberships.parquet")

        def keep(batch: Any) -> pa.Table:
            mask = pc.is_in(batch.column("image_id"), value_set=wanted)
            return pa.table(batch.filter(mask)).cast(membership_schema())

        return pa.concat_tables([empty, *rows.scan(membership_schema().names, keep)])

    def _read(self, wanted: Any) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        from heldout.curate.domains.capping import id_texts

        names = self._rows.schema.names

        def keep(batch: Any) -> pa.Table:
            ids = id_texts(batch.column(self.reader.id))
            mask = pc.is_in(ids, value_set=wanted)
            table = pa.table(batch.filter(mask))
            place = names.index(self.reader.id)
            return table.set_column(place, "image_id", ids.filter(mask))

        return pa.concat_tables(list(self._rows.scan(names, keep)))


def find_candidates(
    workspace: Workspace,
    argument: str,
    parameters: DomainsParameters,
    *,
    workers: int | None = None,
) -> Pool | PoolFile:
    """What ``--pool`` means: a Parquet file, a folder of them, a pool or a test set.

    Pools and test sets are named in the workspace or by a path. Only what must be joined first (a
    pool whose classes are in a truth) is read whole.
    """
    path = Path(argument)
    coded = (parameters.class_column, parameters.domain)
    for folder in (workspace.pools / argument, path):
        if (folder / "pool.json").is_file():
            outline = read_outline(folder)
            rows = open_rows(folder / "images.parquet", coded=coded, workers=workers)
            if _is_in_truth(parameters.class_column, rows.schema.names) and _has_truth(outline):
                return load_pool(folder)
            return PoolFile(outline.head.name, rows, parameters, outline=outline)
    for folder in (workspace.testsets / argument, path):
        if (folder / "card.json").is_file():
            return pool_of(find_testset(workspace, argument))
    if path.exists():
        rows = open_rows(path, coded=coded, workers=workers)
        return PoolFile(slug(path.stem), rows, parameters)
    if any(mark in argument for mark in "/\\."):
        raise NotFound(f"no pool {argument}", fix="give a Parquet file, a folder of them or a pool")
    return find_pool(workspace, argument)  # says what there is


def candidates_reader(source: Any, parameters: DomainsParameters) -> Reader:
    """The rows of a source with the columns that the parameters name."""
    if isinstance(source, PoolFile):
        return source.reader
    table = source.images
    if _is_in_truth(parameters.class_column, table.column_names) and source.truths:
        table = _with_truth(source, parameters.class_column)
    return read_columns(TableRows(table), parameters, where=f"pool {source.name}")


def read_columns(rows: Any, parameters: DomainsParameters, *, where: str) -> Reader:
    """A reader of the columns that the parameters name."""
    return reader(
        rows,
        id_column=parameters.id,
        class_column=parameters.class_column,
        domain=parameters.domain,
        similarity=parameters.similarity,
        keep=(*parameters.keep, *split_columns(parameters)) if parameters.keep else (),
        where=where,
    )


TRUTH = "truth:"
"""``truth:NAME`` in place of a column of classes: the classes of that truth."""


def _is_in_truth(column: str, names: Sequence[str]) -> bool:
    """Whether classes are a truth's: one that is named, or the first where there is no such column."""
    return column.startswith(TRUTH) or (column == CLASS and column not in names)


def _with_truth(pool: Pool, name: str) -> pa.Table:
    """The pool's images with the classes of a truth as a column; several of an image are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    named = name.startswith(TRUTH)
    truth = pool.truth(name.removeprefix(TRUTH) if named else None)
    if pc.count_distinct(truth["image_id"]).as_py() < len(truth):
        raise UserError(
            f"pool {pool.name} has images of several classes",
            fix="name a column, or another truth:NAME, with --class",
        )
    place = pc.index_in(pool.images["image_id"], value_set=truth["image_id"].combine_chunks())
    classes = truth["class_id"].combine_chunks().take(place.combine_chunks())
    return pool.images.append_column(name, pa.chunked_array([classes]))


def _has_truth(outline: Outline) -> bool:
    return any(name.startswith("truth/") for name in outline.head.rows)


def _ids(table: pa.Table) -> Any:
    return table["image_id"].combine_chunks()
