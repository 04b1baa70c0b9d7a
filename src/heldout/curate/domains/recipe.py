"""The recipe: candidates with a class, a domain and a similarity in, a balanced test set out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import LabelError, NotFound, UserError
from heldout.core.files import canonical_json, read_versioned_json
from heldout.core.workspace import slug
from heldout.curate.domains.choosing import Step
from heldout.curate.domains.counting import Counts
from heldout.curate.domains.leakage import DOCUMENT, Leakage, leakage
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.reading import CLASS
from heldout.curate.domains.selection import Outlook, Selection, select
from heldout.curate.domains.source import PoolFile, candidates_reader
from heldout.curate.domains.splits import COLUMN as SPLIT
from heldout.curate.domains.splits import split_rows
from heldout.curate.recipe import (
    BuildContext,
    Guarantees,
    Recipe,
    RecipeResult,
    Sources,
    TruthTable,
)
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import load_built_in
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.pool import Pool
from heldout.data.testset.tables import image_table, truth_table

CHOSEN = "chosen"
"""``--label-space chosen``: only the classes that are kept, out of the pool's label space."""
SELECTION = "selection.json"
"""The document that says what every rule was given and kept."""


class DomainsRecipe(Recipe):
    """Domains by a column, classes by another, ranked by a third; rare ones dropped, large ones cut."""

    name = "domains"
    version = "1"
    parameters = DomainsParameters
    guarantees = Guarantees(nested=("cap", "classes"), selects=True)

    def build(
        self, sources: Sources, parameters: DomainsParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """The rows of the set."""
        pool = sources["pool"]
        if not isinstance(pool, Pool | PoolFile):
            raise UserError(
                f"{pool.name} is no pool", fix="give a pool, a test set or Parquet files"
            )
        reader = candidates_reader(pool, parameters)
        found = select(reader, parameters, seed=seed, progress=context.progress)
        rows = found.rows
        if isinstance(pool, PoolFile):
            pool.took(rows, found.digest)
        space = _label_space(pool, parameters, found.outlook.chosen)
        notes = list(found.outlook.notes)
        if parameters.split is not None:
            if SPLIT in rows.column_names:
                raise UserError(f"the pool has a column {SPLIT!r}", fix="leave it out with --keep")
            rows = rows.append_column(SPLIT, split_rows(rows, parameters, seed=seed))
            notes.append(_split_note(rows, parameters))
        if parameters.clusters is not None and parameters.clusters not in rows.column_names:
            raise NotFound(
                f"no column {parameters.clusters!r} of clusters",
                fix=f"there is {', '.join(rows.column_names)}",
            )
        told = leakage(count_rows(rows, parameters.domain), space)
        ids, classes = rows["image_id"].to_pylist(), rows[CLASS].to_pylist()
        columns = [name for name in rows.column_names if name != CLASS]
        return RecipeResult(
            images=image_table({name: rows[name] for name in columns}),
            truths={
                "original": TruthTable(
                    table=truth_table(ids, classes),
                    provenance={"kind": "single", "column": parameters.class_column},
                )
            },
            memberships=_memberships(pool, ids),
            label_space=space,
            columns=_columns(parameters),
            counts=_counts(found.outlook),
            documents={
                SELECTION: _document(**selection_report(found, parameters)),
                DOCUMENT: _document(**told.to_dict()),
            },
            clusters=parameters.clusters,
            citation=pool.citation,
            notes=(*notes, _leakage_note(told)),
        )


def count_rows(rows: Any, domain: str) -> Counts:
    """Classes by domains of rows that were taken."""
    import pyarrow.compute as pc

    coded = [pc.dictionary_encode(rows[name]).combine_chunks() for name in (CLASS, domain)]
    names = [column.dictionary.to_pylist() for column in coded]
    codes = [column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in coded]
    flat = np.bincount(codes[0] * len(names[1]) + codes[1], minlength=len(names[0]) * len(names[1]))
    cells = flat.reshape(len(names[0]), len(names[1]))
    order = [sorted(range(len(n)), key=n.__getitem__) for n in names]
    return Counts(
        tuple(names[0][place] for place in order[0]),
        tuple(names[1][place] for place in order[1]),
        cells[np.ix_(*order)],
    )


def selection_report(found: Selection, parameters: DomainsParameters) -> dict[str, Any]:
    """Every rule with what it was given and kept, and the sizes of what is chosen, as JSON."""
    outlook = found.outlook
    sizes = outlook.chosen.by_class
    order = sorted(
        (code for code in range(len(sizes)) if sizes[code]),
        key=lambda code: (-sizes[code], outlook.chosen.classes[code]),
    )
    return {
        "steps": [asdict(step) for step in outlook.steps],
        "domains": dict(
            zip(outlook.candidates.domains, map(int, outlook.candidates.by_domain), strict=True)
        ),
        "classes": {outlook.chosen.classes[code]: int(sizes[code]) for code in order},
        "excluded": dict(parameters.reasons),
    }


def read_steps(folder: Path) -> list[Step]:
    """The rules of a set that was built, with what each was given and kept."""
    value = read_versioned_json(folder / SELECTION, version=1)
    return [Step(**step) for step in value["steps"]]


def read_leakage(folder: Path) -> Leakage:
    """The leakage report of a set that was built."""
    value = read_versioned_json(folder / DOCUMENT, version=1)
    return Leakage.from_dict({key: part for key, part in value.items() if key != "schema_version"})


def _document(**parts: Any) -> bytes:
    return (canonical_json({"schema_version": 1, **parts}) + "\n").encode()


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


def _counts(outlook: Outlook) -> dict[str, int]:
    return {step.name: step.rows_out for step in outlook.steps}


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
            fix="name another with --label-space, or the right column with --class",
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
    most = (
        f"{told.concentrated['0.9']:,} of {len(told.classes):,} classes are over 90 % in one domain"
    )
    return (
        f"labels tell {told.information:.3f} of {told.domain_entropy:.3f} bits of the domain "
        f"({100 * told.explained:.1f} %); {most} ({DOCUMENT})"
    )


recipe = DomainsRecipe()
