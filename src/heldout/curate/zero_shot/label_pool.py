"""Zero-shot labels for a pool: assign, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import ExistsError
from heldout.core.files import atomic_path, canonical_json
from heldout.curate.zero_shot.assign import (
    Assigned,
    Similarity,
    assign_blocks,
    class_vectors,
    temperatures_of,
)
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool
from heldout.models.embeddings import Embeddings, rows_of

if TYPE_CHECKING:
    import pyarrow as pa


LABEL = "class_id"
TIES = "tied_with"
TOP = "top_classes"
TOP_COSINES = "top_cosines"
TRUTH = "zero-shot"
_ROW_GROUP = 128
"""Blocks of images in a row group of a Parquet file."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Annotation:
    """How images get their labels.

    ``embeddings``    a vector for each image, in any order
    ``space``         the classes; ``classes`` (classes, d) are their vectors, in order
    ``class_facts``   what these vectors are made from
    ``similarities``  the columns to write; ``k`` classes are listed of each image
    """

    embeddings: Embeddings
    space: LabelSpace
    classes: np.ndarray
    class_facts: Mapping[str, Any]
    similarities: tuple[Similarity, ...]
    k: int = 1
    workers: int | None = None

    @property
    def columns(self) -> dict[str, ColumnType]:
        """Types of the columns that :meth:`tables` gives."""
        made = {LABEL: ColumnType(kind="categorical")}
        made |= {each.column: ColumnType(kind="ordered") for each in self.similarities}
        lists = (TIES, TOP, TOP_COSINES) if self.k > 1 else (TIES,)
        return made | {name: ColumnType(kind="text") for name in lists}

    def facts(self) -> dict[str, Any]:
        """What labels come from, as JSON: encoder, templates, class list, similarities."""
        return {
            "method": "zero-shot",
            "images": {k: v for k, v in self.embeddings.facts.items() if k != "failures"},
            "classes": dict(self.class_facts),
            "similarities": {
                each.column: {"kind": each.kind}
                | ({} if each.temperature is None else {"temperature": each.temperature})
                for each in self.similarities
            },
            "top_k": self.k,
        }

    def tables(
        self, ids: Sequence[str], vectors: Any, counts: AnnotationCounts
    ) -> Iterator[pa.Table]:
        """Tables of image_id and the new columns, one per block of images, in order.

        ``class_id``       the label; null where an image has no vector
        ``similarity_*``, ``margin``  as asked for; null where there is none
        ``tied_with``      other classes with exactly the label's cosine; null for none
        ``top_classes``, ``top_cosines``  the best k, for k > 1
        """
        import pyarrow as pa

        names, k = pa.array(self.space.ids, pa.string()), self.k
        blocks = assign_blocks(
            vectors,
            class_vectors(self.classes),
            k=k,
            temperatures=temperatures_of(self.similarities),
            workers=self.workers,
        )
        for found in blocks:
            start, n = counts.images, len(found)
            columns: dict[str, Any] = {"image_id": pa.array(ids[start : start + n], pa.string())}
            columns[LABEL] = names.take(pa.array(found.label, pa.int32(), mask=found.label < 0))
            for each in self.similarities:
                values = each.values(found)
                columns[each.column] = pa.array(values, mask=np.isnan(values))
            columns[TIES] = _lists(found.ties[:, 0], names.take(pa.array(found.ties[:, 1])), n)
            if k > 1:
                row = np.repeat(np.arange(n), k)
                kept = (found.topk >= 0).ravel()
                columns[TOP] = _lists(row[kept], names.take(pa.array(found.topk.ravel()[kept])), n)
                cosines = pa.array(found.topk_cosine.ravel()[kept])
                columns[TOP_COSINES] = _lists(row[kept], cosines, n)
            counts.add(found)
            yield pa.table(columns)


def _lists(rows: np.ndarray, values: Any, n: int) -> Any:
    """Values by ascending row as lists; a row without any is null."""
    import pyarrow as pa

    counts = np.bincount(rows, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, mask=np.append(counts == 0, False)), values)


class AnnotationCounts:
    """Counts of an annotation: images, those without a vector, ties, classes that were assigned."""

    def __init__(self, progress: Callable[[int], None] = lambda done: None) -> None:
        self.images = self.without_vector = self.tied = 0
        self.used: set[int] = set()
        self._progress = progress

    def add(self, found: Assigned) -> None:
        """Count one block."""
        self.images += len(found)
        self.without_vector += int((found.label < 0).sum())
        self.tied += len(np.unique(found.ties[:, 0]))
        self.used.update(np.unique(found.label[found.label >= 0]).tolist())
        self._progress(self.images)


def annotated_pool(
    pool: TestSet | None, annotation: Annotation, counts: AnnotationCounts, *, name: str
) -> TestSet:
    """A pool with the new columns; also as the truth ``zero-shot`` where its label space allows.

    Without a ``pool`` the images are those of the vectors.
    """
    import pyarrow as pa

    embeddings = annotation.embeddings
    if pool is None:
        table = image_table({"image_id": list(embeddings.ids)})
        pool = make_pool(name, images=table, facts={"source": "embeddings"})
    there = [column for column in annotation.columns if column in pool.images.column_names]
    if there or TRUTH in pool.truths:
        raise ExistsError(
            f"pool {pool.name} has {there[0] if there else 'a zero-shot truth'} already",
            fix="annotate the pool that it was made from",
        )
    ids = pool.images["image_id"].to_pylist()
    vectors: Any = embeddings.vectors
    if list(embeddings.ids) != ids:
        vectors = _Rows(vectors, rows_of(embeddings, ids))
    made = pa.concat_tables(list(annotation.tables(ids, vectors, counts))).combine_chunks()
    images = pool.images
    for column in made.column_names[1:]:
        images = images.append_column(column, made[column])
    truths, space = dict(pool.truths), pool.space
    if space is None or space.fingerprint == annotation.space.fingerprint:
        known = made.filter(made[LABEL].is_valid())
        truths[TRUTH] = truth_table(known["image_id"].to_pylist(), known[LABEL].to_pylist())
        space = annotation.space
    return make_pool(
        name,
        images=images,
        memberships=pool.memberships,
        truths=truths,
        label_space=space,
        columns={**pool.card.columns, **annotation.columns},
        images_root=pool.images_root,
        citation=pool.card.citation,
        facts={**pool.card.facts, "annotation": annotation.facts()},
    )


def write_parquet(
    annotation: Annotation, counts: AnnotationCounts, path: Path, *, replace: bool = False
) -> None:
    """Write image_id and the new columns to one Parquet file, in memory that does not grow with N.

    What was done is in the file's own metadata, under ``heldout.annotation``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists() and not replace:
        raise ExistsError(f"{path} exists", fix="name another file, or use --replace")
    embeddings = annotation.embeddings
    tables = annotation.tables(embeddings.ids, embeddings.vectors, counts)
    groups = iter(lambda: list(islice(tables, _ROW_GROUP)), [])
    first = pa.concat_tables(next(groups))
    stated = {"heldout.annotation": canonical_json(annotation.facts())}
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_path(path) as temporary,
        pq.ParquetWriter(
            temporary, first.schema.with_metadata(stated), compression="zstd"
        ) as writer,
    ):
        writer.write_table(first.cast(writer.schema))
        for some in groups:
            writer.write_table(pa.concat_tables(some).cast(writer.schema))


class _Rows:
    """Rows of an array in another order, fetched a slice at a time."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray) -> None:
        self._vectors, self._rows = vectors, rows
        self.ndim, self.shape = 2, (len(rows), vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> np.ndarray:
        made: np.ndarray = self._vectors[self._rows[part]]
        return made
