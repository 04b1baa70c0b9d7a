"""Zero-shot labels for a pool: encode images and classes, assign, write; agreement with a truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.context import Context
from heldout.core.errors import ExistsError, MismatchError, NotApplicable, NotFound
from heldout.core.files import atomic_path
from heldout.core.workspace import Workspace, slug
from heldout.curate.zero_shot.assign import (
    Assigned,
    Similarity,
    assign_blocks,
    class_vectors,
    temperatures_of,
)
from heldout.data.images import FolderSource, ImageInfo, ImageSource, examine
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy
from heldout.data.testset import find_testset, list_testsets
from heldout.data.testset.catalogue import find_pool, list_pools
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool
from heldout.models.embeddings import Embeddings, is_embeddings, read_embeddings

if TYPE_CHECKING:
    import pyarrow as pa


LABEL = "class_id"
TIES = "tied_with"
TOP = "top_classes"
TOP_COSINES = "top_cosines"


def column_types(similarities: Sequence[Similarity], *, k: int) -> dict[str, ColumnType]:
    """Types of the columns that :func:`annotation_tables` gives."""
    made = {LABEL: ColumnType(kind="categorical")}
    made |= {each.column: ColumnType(kind="ordered") for each in similarities}
    made |= {TIES: ColumnType(kind="text")}
    if k > 1:
        made |= {TOP: ColumnType(kind="text"), TOP_COSINES: ColumnType(kind="text")}
    return made


def annotation_tables(
    ids: Sequence[str],
    vectors: Any,
    classes: ClassSide,
    options: AssignOptions,
    counts: AnnotationCounts,
) -> Iterator[pa.Table]:
    """Tables of image_id and the new columns, one per block of images, in order; counted in ``counts``.

    ``class_id``       the label; null where an image has no vector
    ``similarity_*``, ``margin``  as asked for; null where there is none
    ``tied_with``      other classes with exactly the label's cosine; null for none
    ``top_classes``, ``top_cosines``  the best k, for k > 1
    """
    import pyarrow as pa

    names, k = pa.array(classes.space.ids, pa.string()), options.k
    blocks = assign_blocks(
        vectors,
        class_vectors(classes.vectors),
        k=k,
        temperatures=temperatures_of(options.similarities),
        workers=options.workers,
    )
    for found in blocks:
        start, n = counts.images, len(found)
        columns: dict[str, Any] = {"image_id": pa.array(ids[start : start + n], pa.string())}
        bad = found.label < 0
        columns[LABEL] = names.take(pa.array(found.label, pa.int32(), mask=bad))
        for each in options.similarities:
            values = each.values(found)
            columns[each.column] = pa.array(values, mask=np.isnan(values))
        columns[TIES] = _lists(found.ties[:, 0], names.take(pa.array(found.ties[:, 1])), n)
        if k > 1:
            row = np.repeat(np.arange(n), k)
            kept = (found.topk >= 0).ravel()
            columns[TOP] = _lists(row[kept], names.take(pa.array(found.topk.ravel()[kept])), n)
            columns[TOP_COSINES] = _lists(row[kept], pa.array(found.topk_cosine.ravel()[kept]), n)
        counts.add(found)
        yield pa.table(columns)


def _lists(rows: np.ndarray, values: Any, n: int) -> Any:
    """Values by ascending row as lists; a row without any is null."""
    import pyarrow as pa

    counts = np.bincount(rows, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    empty = pa.array(np.append(counts == 0, False))
    places = pa.array(offsets, mask=empty.to_numpy(zero_copy_only=False))
    return pa.ListArray.from_arrays(places, values)


_PREFIX = "embeddings:"


@dataclass(frozen=True, eq=False)
class PoolImages:
    """Images to annotate. One of ``pool`` and ``embeddings`` is there, or both.

    ``source``  where the images of a set that lies in no folder come from
    """

    name: str
    pool: TestSet | None = None
    embeddings: Embeddings | None = None
    source: ImageSource | None = None

    def __len__(self) -> int:
        if self.pool is not None:
            return len(self.pool)
        return 0 if self.embeddings is None else len(self.embeddings)


def find_candidates(workspace: Workspace, text: str) -> PoolImages:
    """The images that an argument means.

    ``embeddings:PATH``, or a path to vectors; the name or the folder of a pool; a test set; a
    folder of images. A test set's name comes before a folder of that name, from which it may have
    been imported; ``NAME/`` is the folder.
    """
    path = Path(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX) or is_embeddings(path):
        return PoolImages(slug(path.stem), embeddings=read_embeddings(path))
    known = {entry.card.name for entry in list_pools(workspace)}
    if text in known or (path / "pool.json").is_file():
        pool = find_pool(workspace, text)
        return PoolImages(pool.name, pool=pool)
    named = {
        name
        for entry in list_testsets(workspace)
        for name in (entry.card.name, *entry.card.aliases)
    }
    if text not in named and path.is_dir() and not (path / "card.json").is_file():
        pool = folder_pool(path)
        return PoolImages(pool.name, pool=pool)
    try:
        testset = find_testset(workspace, text)
    except NotFound as error:
        pools = ", ".join(sorted(known)[:6])
        raise NotFound(
            f"no pool, test set, folder or vectors {text!r}",
            fix=f"there are the pools {pools}" if pools else error.fix,
        ) from None
    return PoolImages(testset.name, pool=testset, source=testset.source)


def find_images(context: Context, name: str) -> PoolImages:
    """The images that a request names, a test set or pool in memory among them."""
    found = context.find(name, find_candidates)
    if isinstance(found, TestSet):
        return PoolImages(found.name, pool=found, source=found.source)
    return found


def folder_pool(path: Path, *, name: str | None = None) -> TestSet:
    """A folder of images as a pool: ids are paths below it, sorted; files hashed, sizes read."""
    source = FolderSource(path)
    ids = list(source.ids())
    if not ids:
        raise NotFound(f"no images in {path}", fix="give a folder of images, a pool or a test set")
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda image: examine(source, image, decode=False), ids))
    sizes = [each.result if isinstance(each.result, ImageInfo) else None for each in found]
    table = image_table(
        {
            "image_id": ids,
            "path": ids,
            "sha256": [each.sha256 or None for each in found],
            "width": [size and size.width for size in sizes],
            "height": [size and size.height for size in sizes],
        }
    )
    return make_pool(
        name or slug(path.resolve().name),
        images=table,
        images_root=path,
        facts={"source": "folder", "images": len(ids)},
    )


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
                fix="give one vector per class, in the order of the classes",
            )


@dataclass(frozen=True)
class AssignOptions:
    """How to assign; as the arguments of :func:`~heldout.curate.zero_shot.assign.assign`."""

    similarities: tuple[Similarity, ...]
    k: int = 1
    workers: int | None = None


class AnnotationCounts:
    """Counts of an annotation: images, those without a vector, ties, classes that were assigned."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self.images = self.without_vector = self.tied = 0
        self._used: set[int] = set()
        self._progress = progress

    @property
    def classes_used(self) -> int:
        """How many classes were assigned."""
        return len(self._used - {-1})

    def add(self, found: Assigned) -> None:
        """Count one block."""
        self.images += len(found)
        self.without_vector += int((found.label < 0).sum())
        self.tied += len(np.unique(found.ties[:, 0]))
        self._used.update(np.unique(found.label).tolist())
        self._progress(self.images)


def annotated_pool(
    candidates: PoolImages,
    embeddings: Embeddings,
    classes: ClassSide,
    options: AssignOptions,
    *,
    name: str,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[TestSet, AnnotationCounts]:
    """A pool with the new columns; also as the truth ``zero-shot`` where its label space allows.

    ``embeddings`` hold a vector for each image, in any order.
    """
    import pyarrow as pa

    pool = candidates.pool or _bare_pool(embeddings, name)
    ids = pool.images["image_id"].to_pylist()
    _refuse_old_columns(pool, options)
    vectors = embeddings.vectors
    if list(embeddings.ids) != ids:
        from heldout.models.embeddings import rows_of

        vectors = _Rows(vectors, rows_of(embeddings, ids))  # type: ignore[assignment]
    counts = AnnotationCounts(progress)
    tables = annotation_tables(ids, vectors, classes, options, counts)
    made = pa.concat_tables(list(tables)).combine_chunks()
    images = pool.images
    for column in made.column_names[1:]:
        images = images.append_column(column, made[column])
    truths, space = dict(pool.truths), pool.space
    if space is None or space.fingerprint == classes.space.fingerprint:
        known = made.filter(made[LABEL].is_valid())
        truths[TRUTH] = truth_table(known["image_id"].to_pylist(), known[LABEL].to_pylist())
        space = classes.space
    facts = {**pool.card.facts, "annotation": annotation_facts(embeddings, classes, options)}
    new = make_pool(
        name,
        images=images,
        memberships=pool.memberships,
        truths=truths,
        label_space=space,
        columns={**pool.card.columns, **column_types(options.similarities, k=options.k)},
        images_root=pool.images_root,
        citation=pool.card.citation,
        facts=facts,
    )
    return new, counts


def write_parquet(
    embeddings: Embeddings,
    classes: ClassSide,
    options: AssignOptions,
    path: Path,
    *,
    replace: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> AnnotationCounts:
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
    counts = AnnotationCounts(progress)
    tables = annotation_tables(embeddings.ids, embeddings.vectors, classes, options, counts)
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
    return counts


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
        "similarities": {
            each.column: {"kind": each.kind}
            | ({} if each.temperature is None else {"temperature": each.temperature})
            for each in options.similarities
        },
        "top_k": options.k,
    }


def _bare_pool(embeddings: Embeddings, name: str) -> TestSet:
    if not len(embeddings):
        raise NotApplicable("there are no vectors", fix="give at least one image")
    table = image_table({"image_id": list(embeddings.ids)})
    return make_pool(name, images=table, facts={"source": "embeddings"})


def _refuse_old_columns(pool: TestSet, options: AssignOptions) -> None:
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


def shared_lines(shared: Sequence[Sequence[str]], space: LabelSpace, *, most: int = 5) -> list[str]:
    """The largest groups of classes of one text, for people: ``queen: n01..., n02...``."""
    first = sorted(shared, key=lambda group: (-len(group), group[0]))[:most]
    return [f"{space.get(group[0]).name}: {', '.join(group)}" for group in first]


@dataclass(frozen=True)
class LabelAgreement:
    """Counts of images.

    ``same``        the label is the truth
    ``tied``        it is not, and the truth has exactly the same cosine: a class of the same text
    ``ancestor``    the label stands above the truth: right, and less exact
    ``descendant``  the label stands below the truth
    ``elsewhere``   none of these
    ``unknown``     there is no label, or the two are of different label spaces and one of them is
                    not a node of the hierarchy
    """

    same: int = 0
    tied: int = 0
    ancestor: int = 0
    descendant: int = 0
    elsewhere: int = 0
    unknown: int = 0

    @property
    def images(self) -> int:
        """All images."""
        return sum(getattr(self, field.name) for field in fields(self))


def agreement(
    truths: Sequence[str | None],
    labels: Sequence[str | None],
    ties: Sequence[Iterable[str] | None],
    *,
    hierarchy: Hierarchy,
    one_space: bool = False,
) -> LabelAgreement:
    """Compare labels with truths, both as nodes of the hierarchy (WordNet ids).

    ``ties``       the other classes that share a label's cosine
    ``one_space``  both are of one label space, so that different ones differ, nodes or not
    """
    kinds = Counter(
        _kind(truth, label, tied or (), hierarchy, one_space)
        for truth, label, tied in zip(truths, labels, ties, strict=True)
    )
    return LabelAgreement(**kinds)


def _kind(
    truth: str | None,
    label: str | None,
    tied: Iterable[str],
    hierarchy: Hierarchy,
    one_space: bool,
) -> str:
    if truth is None or label is None:
        return "unknown"
    if label == truth:
        return "same"
    if truth in tied:
        return "tied"
    if truth not in hierarchy or label not in hierarchy:
        return "elsewhere" if one_space else "unknown"
    if hierarchy.is_under(truth, label):
        return "ancestor"
    return "descendant" if hierarchy.is_under(label, truth) else "elsewhere"


def pool_agreement(pool: TestSet, space: LabelSpace, *, truth: str | None = None) -> LabelAgreement:
    """How the labels of an annotated pool agree with a truth of its own, over WordNet.

    ``space`` is that of the labels; ``truth`` by name, else the pool's first. An image with several
    rows of truth counts by its first.
    """
    table = pool.truth(truth)
    nodes = {item.id: item.node for item in pool.label_space}
    known: dict[str, str | None] = {}
    for image, class_id in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        known.setdefault(image, nodes.get(class_id))
    label_nodes = {item.id: item.node for item in space}
    images = pool.images
    return agreement(
        [known.get(image) for image in images["image_id"].to_pylist()],
        [label_nodes.get(label) for label in images[LABEL].to_pylist()],
        [[label_nodes[name] for name in names or ()] for names in images[TIES].to_pylist()],
        hierarchy=Hierarchy.wordnet(),
        one_space=pool.label_space.fingerprint == space.fingerprint,
    )
