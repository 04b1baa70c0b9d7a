"""The recipe: candidates with a class, a domain and a similarity in, a balanced test set out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import LabelError, NotFound, UserError
from heldout.core.workspace import Workspace, slug
from heldout.curate.domains.label_leakage import DOCUMENT, Leakage, leakage
from heldout.curate.domains.parquet_scan import Rows, open_rows
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.domains.selection import (
    CLASS,
    Counts,
    Reader,
    SelectionPlan,
    Step,
    count_cells,
    plan,
    read_columns,
    select,
)
from heldout.curate.domains.splits import COLUMN as SPLIT
from heldout.curate.domains.splits import split_rows
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
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import load_built_in
from heldout.data.testset.card import Card
from heldout.data.testset.catalogue import find_pool, find_testset
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, membership_schema, truth_table
from heldout.data.testset.testset import TestSet, check_bytes, load, load_space

if TYPE_CHECKING:
    import pyarrow as pa


class PoolFile:
    """Candidates in Parquet files, as a source of recipes: name, hash, number of rows.

    The hash is over the columns that decide what is chosen: id, class, domain and similarity. It
    does not depend on the order of rows nor on files. Everything else about the chosen rows is in
    the set that is made, and hashed there. Where the files are not a pool's, it is known once the
    recipe has read the rows, as are the ``images`` that it took.
    """

    def __init__(
        self,
        card: Card,
        rows: Rows,
        parameters: DomainsParameters,
        *,
        folder: Path | None = None,
    ) -> None:
        """``folder``: that of the pool, where the files are a pool's."""
        self.card = card
        self.name = card.name
        self.content_hash = card.content_hash
        self.images: pa.Table | None = None
        self.folder = folder
        self.reader = read_columns(rows, parameters, where=self.name)
        self.space = None if folder is None else load_space(folder, card)
        root = card.images_root
        self.images_root = None if folder is None or root is None else folder / root

    def __len__(self) -> int:
        return len(self.reader.rows)

    def memberships_of(self, ids: list[str]) -> pa.Table | None:
        """What the pool's memberships say of these images; they are read in pieces."""
        import pyarrow.parquet as pq

        if self.folder is None or not self.card.counts.get("memberships"):
            return None
        file = self.folder / "memberships.parquet"
        return pq.read_table(file, filters=[("image_id", "in", ids)]).cast(membership_schema())


def find_candidates(
    workspace: Workspace,
    argument: str,
    parameters: DomainsParameters,
    *,
    workers: int | None = None,
) -> TestSet | PoolFile:
    """What POOL means: a Parquet file, a folder of them, a pool or a test set.

    Pools and test sets are named in the workspace or by a path. Only what must be joined first (a
    pool whose classes are in a truth) is read whole.
    """
    path = Path(argument)
    coded = (parameters.class_column, parameters.domain)
    for folder in (workspace.pools / argument, path):
        if (folder / "pool.json").is_file():
            card = Card.of(folder)
            for name in (
                "images.parquet",
                "memberships.parquet",
            ):  # read in pieces, which no hash covers
                check_bytes(folder, name)
            rows = open_rows(folder / "images.parquet", coded=coded, workers=workers)
            if card.truths and _is_in_truth(parameters.class_column, rows.schema.names):
                return load(folder)
            return PoolFile(card, rows, parameters, folder=folder)
    for folder in (workspace.testsets / argument, path):
        if (folder / "card.json").is_file():
            return find_testset(workspace, argument)
    if path.exists() or any(mark in argument for mark in "/\\."):
        rows = open_rows(path, coded=coded, workers=workers)
        return PoolFile(Card(name=slug(path.stem), label_space=""), rows, parameters)
    return find_pool(workspace, argument)  # says what there is


def candidates_reader(sources: Sources, parameters: DomainsParameters) -> Reader:
    """The rows of the pool with the columns that the parameters name."""
    source = sources["pool"]
    if isinstance(source, PoolFile):
        return source.reader
    pool = pool_in(sources)
    table = pool.images
    if pool.truths and _is_in_truth(parameters.class_column, table.column_names):
        table = _with_truth(pool, parameters.class_column)
    return read_columns(Rows(table), parameters, where=f"pool {pool.name}")


TRUTH = "truth:"
"""``truth:NAME`` in place of a column of classes: the classes of that truth."""


def _is_in_truth(column: str, names: Sequence[str]) -> bool:
    """Whether classes are a truth's: one that is named, or the first where there is no such column."""
    return column.startswith(TRUTH) or (column == CLASS and column not in names)


def _with_truth(pool: TestSet, name: str) -> pa.Table:
    """The pool's images with the classes of a truth as a column; several of an image are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    named = name.startswith(TRUTH)
    truth = pool.truth(name.removeprefix(TRUTH) if named else None)
    if pc.count_distinct(truth["image_id"]).as_py() < len(truth):
        raise UserError(
            f"pool {pool.name} has images of several classes",
            fix="name a column, or another truth:NAME, with --class-column",
        )
    place = pc.index_in(pool.images["image_id"], value_set=truth["image_id"].combine_chunks())
    classes = truth["class_id"].combine_chunks().take(place.combine_chunks())
    return pool.images.append_column(name, pa.chunked_array([classes]))


CHOSEN = "chosen"
"""``--label-space chosen``: only the classes that are kept, out of the pool's label space."""
SELECTION = "selection.json"
"""The document that says what every rule was given and kept."""


class DomainsReport(NamedTuple):
    """What every rule was given and kept, and what labels tell about domains."""

    steps: tuple[Step, ...]
    leakage: Leakage


class DomainsRecipe(Recipe):
    """Domains by a column, classes by another, ranked by a third; rare ones dropped, large ones cut."""

    name = "domains"
    version = "1"
    parameters = DomainsParameters
    guarantees = Guarantees(nested=("cap", "classes"), selects=True)

    def plan(
        self,
        sources: Sources,
        parameters: DomainsParameters,
        *,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> SelectionPlan:
        """Which rows would be chosen, and how many each rule keeps."""
        reader = candidates_reader(sources, parameters)
        return plan(reader, parameters, seed=seed, progress=progress)

    def build(
        self, sources: Sources, parameters: DomainsParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """The rows of the set."""
        pool: Any = sources["pool"]
        reader = candidates_reader(sources, parameters)
        found = select(reader, parameters, seed=seed, progress=context.progress)
        rows = found.rows
        space = _label_space(pool, parameters, found.plan.chosen)
        notes = list(found.plan.notes)
        if parameters.split is not None:
            if SPLIT in rows.column_names:
                raise UserError(
                    f"the pool has a column {SPLIT!r}", fix="leave it out with --keep-column"
                )
            rows = rows.append_column(SPLIT, split_rows(rows, parameters, seed=seed))
            notes.append(_split_note(rows, parameters))
        if parameters.clusters is not None and parameters.clusters not in rows.column_names:
            raise NotFound(
                f"no column {parameters.clusters!r} of clusters",
                fix=f"there is {', '.join(rows.column_names)}",
            )
        told = leakage(count_rows(rows, parameters.domain), space)
        ids, classes = rows["image_id"].to_pylist(), rows[CLASS].to_pylist()
        images = image_table({name: rows[name] for name in rows.column_names if name != CLASS})
        if isinstance(pool, PoolFile):
            pool.content_hash, pool.images = pool.content_hash or found.digest, images
        return RecipeResult(
            images=images,
            truths={
                "original": TruthTable(
                    table=truth_table(ids, classes),
                    provenance={"kind": "single", "column": parameters.class_column},
                )
            },
            memberships=_memberships(pool, ids),
            label_space=space,
            columns=_columns(parameters),
            counts={step.name: step.rows_out for step in found.plan.steps},
            documents={
                SELECTION: document(**selection_report(found.plan, parameters)),
                DOCUMENT: document(**asdict(told)),
            },
            clusters=parameters.clusters,
            citation=pool.card.citation,
            notes=(*notes, _leakage_note(told)),
            report=DomainsReport(found.plan.steps, told),
        )


def count_rows(rows: pa.Table, domain: str) -> Counts:
    """Classes by domains of rows that were taken."""
    counted = Reader(Rows(rows), "image_id", CLASS, domain, None)
    return count_cells(counted, lambda batch: batch.complete)


def selection_report(plan: SelectionPlan, parameters: DomainsParameters) -> dict[str, Any]:
    """Every rule with what it was given and kept, and the sizes of what is chosen, as JSON."""
    before, chosen = plan.candidates, plan.chosen
    sizes = zip(chosen.classes, chosen.by_class.tolist(), strict=True)
    return {
        "steps": [asdict(step) for step in plan.steps],
        "domains": dict(zip(before.domains, before.by_domain.tolist(), strict=True)),
        "classes": dict(sorted((pair for pair in sizes if pair[1]), key=lambda p: (-p[1], p[0]))),
        "excluded": dict(parameters.reasons),
    }


def _memberships(pool: Any, ids: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(pool, PoolFile):
        return pool.memberships_of(ids)
    table = pool.memberships
    return table.filter(pc.is_in(table["image_id"], value_set=pa.array(ids, pa.string())))


def _columns(parameters: DomainsParameters) -> dict[str, ColumnType]:
    columns = {parameters.domain: ColumnType(kind="categorical")}
    if parameters.similarity is not None:
        columns[parameters.similarity] = ColumnType(kind="ordered")
    if parameters.split is not None:
        columns[SPLIT] = ColumnType(kind="categorical")
    return columns


def _label_space(pool: Any, parameters: DomainsParameters, chosen: Counts) -> LabelSpace:
    """The named label space, the pool's, ImageNet-21k where it has all classes, or one of their own."""
    sizes = chosen.by_class
    classes = [name for name, size in zip(chosen.classes, sizes, strict=True) if size]
    if parameters.label_space not in (None, CHOSEN):
        space = LabelSpace.load(parameters.label_space)
    elif pool.space is not None:
        space = pool.space
    else:
        space = load_built_in("imagenet-21k")
        if not all(name in space for name in classes):
            return LabelSpace.from_ids(slug(f"{pool.name}-classes"), classes)
    missing = [name for name in classes if name not in space]
    if missing:
        raise LabelError(
            f"class {missing[0]!r} is not in label space {space.name} "
            f"({len(missing):,} such classes)",
            fix="name another with --label-space, or the right column with --class-column",
        )
    if parameters.label_space == CHOSEN:
        return space.subset(slug(f"{space.name}-{len(classes)}"), sorted(classes, key=space.index))
    return space


def _split_note(rows: Any, parameters: DomainsParameters) -> str:
    """How many rows each part has."""
    import pyarrow.compute as pc

    found = {
        "no part" if c["values"] is None else str(c["values"]): c["counts"]
        for c in pc.value_counts(rows[SPLIT]).to_pylist()
    }
    listed = ", ".join(
        f"{part} {100 * count / len(rows):.2f} % ({count:,})"
        for part, count in sorted(found.items())
    )
    return f"split {parameters.split}: {listed}"


def _leakage_note(told: Leakage) -> str:
    return (
        f"labels tell {told.information:.3f} of {told.domain_entropy:.3f} bits of the domain "
        f"({100 * told.explained:.1f} %); {told.concentrated['0.9']:,} of {len(told.classes):,} "
        f"classes are over 90 % in one domain ({DOCUMENT})"
    )


recipe = DomainsRecipe()
