"""Zero-shot labels for a pool: encode images and classes, assign, write what was done beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import ExistsError, MismatchError, NotApplicable
from heldout.core.files import atomic_path
from heldout.curate.zero_shot.assigning import Assigned, assign_blocks, class_vectors
from heldout.curate.zero_shot.columns import LABEL, TIES, annotation_tables, column_types
from heldout.curate.zero_shot.inputs import Candidates
from heldout.curate.zero_shot.similarities import Similarity, temperatures_of
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.pool import Pool, make_pool
from heldout.data.testset.tables import image_table, truth_table
from heldout.models.embeddings.store import Embeddings

if TYPE_CHECKING:
    import pyarrow as pa

TRUTH = "zero-shot"
_ROW_GROUP = 65_536
_STATED = "heldout.annotation"


@dataclass(frozen=True, eq=False)
class ClassSide:
    """The classes of an assignment: their space, their vectors, and what is known of their origin."""

    space: LabelSpace
    vectors: np.ndarray
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.space):
            raise MismatchError(
                f"{len(self.vectors)} class vectors, {self.space.name} has {len(self.space)} classes",
                fix="give one vector a class, in the order of the classes",
            )


@dataclass(frozen=True)
class AssignOptions:
    """How to assign; as the arguments of :func:`~heldout.curate.zero_shot.assigning.assign`."""

    similarities: tuple[Similarity, ...]
    k: int = 1
    workers: int | None = None


@dataclass(frozen=True)
class Tally:
    """Counts of an annotation: images, those without a vector, ties, classes that were assigned."""

    images: int
    without_vector: int
    tied: int
    classes_used: int


def annotated_pool(
    candidates: Candidates,
    embeddings: Embeddings,
    classes: ClassSide,
    options: AssignOptions,
    *,
    name: str,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[Pool, Tally]:
    """A pool with the new columns; also as the truth ``zero-shot`` where its label space allows.

    ``embeddings`` hold a vector for each image, in any order.
    """
    import pyarrow as pa

    pool = candidates.pool or _bare_pool(embeddings, name)
    ids = pool.images["image_id"].to_pylist()
    _refuse_old_columns(pool, options)
    vectors = embeddings.vectors
    if list(embeddings.ids) != ids:
        from heldout.models.embeddings.encode import rows_of

        vectors = _Rows(vectors, rows_of(embeddings, ids))  # type: ignore[assignment]
    counter = _Counter(len(classes.space), progress)
    tables = annotation_tables(
        ids,
        counter.watch(_blocks(vectors, classes, options)),
        space=classes.space,
        similarities=options.similarities,
        k=options.k,
    )
    made = pa.concat_tables(list(tables)).combine_chunks()
    images = pool.images
    for column in made.column_names[1:]:
        images = images.append_column(column, made[column])
    truths, space = dict(pool.truths), pool.space
    if space is None or space.fingerprint == classes.space.fingerprint:
        known = made.filter(made[LABEL].is_valid())
        truths[TRUTH] = truth_table(known["image_id"].to_pylist(), known[LABEL].to_pylist())
        space = classes.space
    facts = {**pool.facts, "annotation": annotation_facts(embeddings, classes, options)}
    new = make_pool(
        name,
        images=images,
        memberships=pool.memberships,
        truths=truths,
        label_space=space,
        columns={**pool.columns, **column_types(options.similarities, k=options.k)},
        images_root=pool.images_root,
        citation=pool.citation,
        facts=facts,
    )
    return new, counter.tally


def write_parquet(
    embeddings: Embeddings,
    classes: ClassSide,
    options: AssignOptions,
    path: Path,
    *,
    replace: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Tally:
    """Write image_id and the new columns to one Parquet file, in memory that does not grow with N.

    What was done is in the file's own metadata, under ``heldout.annotation``. Another file of that
    name is refused unless ``replace``.
    """
    import pyarrow.parquet as pq

    from heldout.core.files import canonical_json

    stated = canonical_json(annotation_facts(embeddings, classes, options))
    if path.exists() and not replace and _stated_in(path) != stated:
        raise ExistsError(
            f"{path} exists and holds something else", fix="name another file, or use --replace"
        )
    counter = _Counter(len(classes.space), progress)
    tables = annotation_tables(
        embeddings.ids,
        counter.watch(_blocks(embeddings.vectors, classes, options)),
        space=classes.space,
        similarities=options.similarities,
        k=options.k,
    )
    writer = None
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        for table in _gathered(tables):
            if writer is None:
                schema = table.schema.with_metadata({_STATED: stated})
                writer = pq.ParquetWriter(temporary, schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()
    return counter.tally


def _stated_in(path: Path) -> str | None:
    """What a Parquet file says of how it was annotated; None where it says nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return None
    found: bytes | None = metadata.get(_STATED.encode())
    return None if found is None else found.decode("utf-8", "replace")


def annotation_facts(
    embeddings: Embeddings, classes: ClassSide, options: AssignOptions
) -> dict[str, Any]:
    """What labels come from, as JSON: encoder, templates, class list, similarities."""
    images = {key: value for key, value in embeddings.facts.items() if key != "failures"}
    return {
        "method": "zero-shot",
        "images": images,
        "classes": dict(classes.facts),
        "similarities": {each.column: _said(each) for each in options.similarities},
        "top_k": options.k,
    }


def _said(similarity: Similarity) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": similarity.kind}
    if similarity.temperature is not None:
        made["temperature"] = similarity.temperature
    return made


def _blocks(vectors: Any, classes: ClassSide, options: AssignOptions) -> Iterator[Assigned]:
    return assign_blocks(
        vectors,
        class_vectors(classes.vectors),
        k=options.k,
        temperatures=temperatures_of(options.similarities),
        workers=options.workers,
    )


def _bare_pool(embeddings: Embeddings, name: str) -> Pool:
    if not len(embeddings):
        raise NotApplicable("there are no vectors", fix="give at least one image")
    table = image_table({"image_id": list(embeddings.ids)})
    return make_pool(name, images=table, facts={"source": "embeddings"})


def _refuse_old_columns(pool: Pool, options: AssignOptions) -> None:
    wanted = column_types(options.similarities, k=options.k)
    there = [name for name in wanted if name in pool.images.column_names]
    if there or TRUTH in pool.truths:
        raise ExistsError(
            f"pool {pool.name} has {there[0] if there else 'a zero-shot truth'} already",
            fix="annotate the pool that it was made from",
        )


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables joined to row groups of a useful size."""
    import pyarrow as pa

    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(map(len, some)) >= _ROW_GROUP:
            yield pa.concat_tables(some)
            some = []
    if some:
        yield pa.concat_tables(some)


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


class _Counter:
    """Counts what goes by."""

    def __init__(self, classes: int, progress: Callable[[int], None]) -> None:
        self.tally = Tally(0, 0, 0, 0)
        self._used = np.zeros(classes, bool)
        self._progress = progress

    def watch(self, blocks: Iterator[Assigned]) -> Iterator[Assigned]:
        for found in blocks:
            good = found.label >= 0
            self._used[found.label[good]] = True
            before = self.tally
            self.tally = dataclasses.replace(
                before,
                images=before.images + len(found),
                without_vector=before.without_vector + int((~good).sum()),
                tied=before.tied + len(np.unique(found.ties[:, 0])),
                classes_used=int(self._used.sum()),
            )
            self._progress(self.tally.images)
            yield found


def shared_lines(shared: Sequence[Sequence[str]], space: LabelSpace, *, most: int = 5) -> list[str]:
    """The largest groups of classes of one text, for people: ``queen: n01..., n02...``."""
    first = sorted(shared, key=lambda group: (-len(group), group[0]))[:most]
    return [f"{space.get(group[0]).name}: {', '.join(group)}" for group in first]


__all__ = [
    "LABEL",
    "TIES",
    "TRUTH",
    "AssignOptions",
    "ClassSide",
    "Tally",
    "annotated_pool",
    "annotation_facts",
    "shared_lines",
    "write_parquet",
]
